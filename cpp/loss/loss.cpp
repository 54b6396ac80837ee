// SPDX-License-Identifier: Apache-2.0
#include "cpp/loss/loss.h"

namespace minidnn {
namespace {

constexpr const char* kReductions[] = {"none", "sum", "mean"};

TensorDesc contiguous(DType t, std::span<const int64_t> shape) {
  return dense(t, shape, Layout::channels_first, "cross_entropy");
}

LossProblem problem_of(const char* call, LossDirection direction, const Tensor& x, const Tensor& target,
                       const CrossEntropy& c, const Handle& h) {
  check_rank(call, {"x", x}, 1, kMaxRank);
  LossProblem p;
  p.direction = direction;
  p.axis = checked_axis(call, {"x", x}, c.axis);
  const auto found = std::ranges::find(kReductions, c.reduction);
  MINIDNN_CHECK(ShapeError, found != std::end(kReductions), call, ": reduction must be 'none', 'sum' or 'mean'; got '",
                c.reduction, "'");
  p.reduction = LossReduction(found - kReductions);
  MINIDNN_CHECK(ShapeError, 0 <= c.label_smoothing && c.label_smoothing <= 1, call,
                ": label_smoothing must be from 0 to 1; got ", c.label_smoothing);
  p.smoothed = c.label_smoothing != 0;
  p.ignore_index = c.ignore_index;
  MINIDNN_CHECK(ShapeError, x.desc.shape[p.axis] > 0, call, ": x ", shape_text(x.desc), " has no classes along axis ",
                c.axis);
  MINIDNN_CHECK(DeviceError, target.place() == h.place(), call, ": x is on ", name(h.place()), ", target is on ",
                name(target.place()), "; move one with .to(device=...)");
  const DType t = target.desc.dtype;
  MINIDNN_CHECK(DTypeError, t == DType::int64 || t == DType::int32, call, ": target must be int64 or int32; got ",
                name(t));
  std::vector<int64_t> others;
  for (int64_t i = 0; i < x.desc.rank; ++i)
    if (i != p.axis) others.push_back(x.desc.shape[i]);
  check_shape(call, {"target", target}, others, "like x without axis");
  use(target, h.stream());
  p.x = x.desc;
  p.target = target.desc;
  p.lse = contiguous(sum_dtype(x.desc.dtype), others);
  p.loss = p.reduction == LossReduction::none ? p.lse : contiguous(p.lse.dtype, {});
  return p;
}

// Checks an operand that has the dtype of sums, not that of x: float64 if x is float64, else float32.
Tensor as_accumulated(const char* call, const char* label, const Tensor& t, const TensorDesc& want, const Handle& h) {
  MINIDNN_CHECK(DeviceError, t.place() == h.place(), call, ": x is on ", name(h.place()), ", ", label, " is on ",
                name(t.place()), "; move one with .to(device=...)");
  MINIDNN_CHECK(DTypeError, t.desc.dtype == want.dtype, call, ": ", label, " must be ", name(want.dtype), "; got ",
                name(t.desc.dtype));
  check_shape(call, {label, t}, shape_of(want), "like the result of cross_entropy_forward");
  MINIDNN_CHECK(ShapeError, same_strides(t.desc, want), call, ": ", label, " must be contiguous; its strides are [",
                join(strides_of(t.desc)), "]");
  use(t, h.stream());
  return t;
}

}  // namespace

std::string Family<LossProblem>::text(const LossProblem& p) {
  const bool backward = p.direction == LossDirection::backward;
  std::string text = cat(head_text("loss", backward ? "backward" : "forward", p.x.dtype), " x=", problem_text(p.x));
  if (!is_row_major(p.target)) text += " target=" + problem_text(p.target);
  text += cat(" axis=", p.axis, " reduction=", kReductions[int64_t(p.reduction)]);
  if (p.ignore_index != -100) text += cat(" ignore=", p.ignore_index);
  if (p.target.dtype == DType::int32) text += " classes=i32";
  if (p.smoothed) text += " smoothed";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return backward ? text + out_text(p.dx, dense_like(p.x, p.x.dtype, name)) : text;
}

void Family<LossProblem>::ports(const LossProblem& p, LossArgs& a, Ports& v) {
  v.in("x", p.x, a.x);
  v.in("target", p.target, a.target);
  if (p.direction == LossDirection::backward) {
    v.in("lse", p.lse, a.lse);
    v.in("dy", p.loss, a.loss);
    v.out("dx", p.dx, a.dx);
  } else {
    v.out("loss", p.loss, a.loss);
    v.out("lse", p.lse, a.lse);
  }
  v.number("label_smoothing", a.smoothing, p.smoothed ? 0.1 : 0);
}

std::pair<Tensor, Tensor> cross_entropy_forward(const Tensor& x, const Tensor& target, const CrossEntropy& c,
                                                const Call& call) {
  const char* me = "cross_entropy_forward";
  Handle& h = check_operands(me, call, {{"x", x}});
  LossProblem p = problem_of(me, LossDirection::forward, x, target, c, h);
  Tensor loss = output(me, "loss", {}, p.loss, h, {{"x", x}, {"target", target}});
  Tensor lse = output(me, "lse", {}, p.lse, h, {{"x", x}, {"target", target}});
  p.alignment = alignment_of(h, {x.data});
  if (p.loss.numel() == 0) return {loss, lse};
  run(h, p, LossArgs{x.data, target.data, lse.data, loss.data, nullptr, c.label_smoothing}, call.algo);
  return {loss, lse};
}

Tensor cross_entropy_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& lse,
                              const CrossEntropy& c, const Call& call) {
  const char* me = "cross_entropy_backward";
  Handle& h = check_operands(me, call, {{"x", x}});
  LossProblem p = problem_of(me, LossDirection::backward, x, target, c, h);
  as_accumulated(me, "dy", dy, p.loss, h);
  as_accumulated(me, "lse", lse, p.lse, h);
  Tensor dx = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h,
                     {{"dy", dy}, {"target", target}, {"lse", lse}}, {{"x", x}});
  p.dx = dx.desc;
  p.alignment = alignment_of(h, {x.data, dx.data});
  if (dx.desc.numel() == 0) return dx;
  run(h, p, LossArgs{x.data, target.data, lse.data, dy.data, dx.data, c.label_smoothing}, call.algo);
  return dx;
}

bool loss_rows_in_order(const LossProblem& p) {
  int64_t stride = p.cols();
  for (int64_t i = p.x.rank - 1; i >= 0; --i) {
    if (i == p.axis) continue;
    if (p.x.shape[i] > 1 && p.x.stride[i] != stride) return false;
    stride *= p.x.shape[i];
  }
  return (p.cols() == 1 || p.x.stride[p.axis] == 1) && is_row_major(p.target);
}

double loss_bytes(const LossProblem& p) {
  const int tensors = p.direction == LossDirection::backward ? 2 : 1;
  return double(p.x.numel() * itemsize(p.x.dtype)) * tensors +
         double(p.rows() * (itemsize(p.target.dtype) + itemsize(p.lse.dtype)));
}
// Returns an estimate of the FLOP of a call: 25 per element, of which the exponential counts as about 15.
double loss_flop(const LossProblem& p) { return double(p.x.numel()) * 25; }
size_t loss_workspace(const LossProblem& p) {
  if (p.direction == LossDirection::backward || p.reduction == LossReduction::none) return 0;
  return size_t(p.rows() * itemsize(p.lse.dtype));
}

}  // namespace minidnn
