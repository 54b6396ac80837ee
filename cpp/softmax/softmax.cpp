// SPDX-License-Identifier: Apache-2.0
#include "cpp/softmax/softmax.h"

#include <algorithm>

namespace minidnn {
namespace {

// Returns the mask, broadcast to the shape of x by the rules of NumPy.
TensorDesc broadcast_mask(const char* call, const Handle& h, const Tensor& mask, const Tensor& x) {
  const TensorDesc &m = mask.desc, &d = x.desc;
  MINIDNN_CHECK(DeviceError, mask.place() == h.place(), call, ": x is on ", name(h.place()), ", mask is on ",
                name(mask.place()), "; move one with .to(device=...)");
  MINIDNN_CHECK(DTypeError, m.dtype == DType::boolean || m.dtype == d.dtype, call,
                ": mask must be bool (true keeps an element) or ", name(d.dtype), ", the dtype of x (added to x); got ",
                name(m.dtype));
  const std::optional<TensorDesc> to = broadcast(m, shape_of(d));
  MINIDNN_CHECK(ShapeError, to, call, ": mask ", shape_text(m), " does not broadcast to x ", shape_text(d));
  use(mask, h.stream());
  return *to;
}

}  // namespace

std::string Family<SoftmaxProblem>::text(const SoftmaxProblem& p) {
  bool backward = p.direction == SoftmaxDirection::backward;
  std::string text = cat(head_text("softmax", backward ? "backward" : "forward", p.in.dtype),
                         backward ? " y=" : " x=", problem_text(p.in));
  const TensorDesc like = dense_like(p.in, p.in.dtype, name);
  if (backward && !same_strides(p.dy, like)) text += " dy=" + problem_text(p.dy);
  if (p.masked != SoftmaxMask::none)
    text += (p.masked == SoftmaxMask::keep ? " keep=" : " mask=") + problem_text(p.mask);
  text += cat(" axis=", p.axis, p.log ? " log" : "", p.scaled ? " scaled" : "");
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text + out_text(p.out, like);
}

void Family<SoftmaxProblem>::ports(const SoftmaxProblem& p, SoftmaxArgs& a, Ports& v) {
  const bool backward = p.direction == SoftmaxDirection::backward;
  v.in(backward ? "y" : "x", p.in, a.in);
  if (backward) v.in("dy", p.dy, a.dy);
  if (p.masked != SoftmaxMask::none) v.in("mask", p.mask, a.mask);
  v.out(backward ? "dx" : "y", p.out, a.out);
  v.number("scale", a.scale, p.scaled ? 0.125 : 1);
}

Tensor softmax_forward(const Tensor& x, int64_t axis, bool log, double scale, const std::optional<Tensor>& mask,
                       const Call& call) {
  const char* me = "softmax_forward";
  Handle& h = check_operands(me, call, {{"x", x}});
  check_rank(me, {"x", x}, 1, kMaxRank);
  axis = checked_axis(me, {"x", x}, axis);
  SoftmaxProblem p{SoftmaxDirection::forward, log, scale != 1, axis};
  p.in = x.desc;
  if (mask) {
    p.mask = broadcast_mask(me, h, *mask, x);
    p.masked = mask->desc.dtype == DType::boolean ? SoftmaxMask::keep : SoftmaxMask::add;
  }
  const TensorDesc like = dense_like(x.desc, x.desc.dtype, me);
  Tensor y = mask ? output(me, "out", call.out, like, h, {{"mask", *mask}}, {{"x", x}})
                  : output(me, "out", call.out, like, h, {}, {{"x", x}});
  if (y.desc.numel() == 0) return y;
  p.out = y.desc;
  p.alignment = alignment_of(h, {x.data, y.data, mask ? mask->data : nullptr});
  run(h, p, SoftmaxArgs{x.data, nullptr, y.data, mask ? mask->data : nullptr, scale}, call.algo);
  return y;
}

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log, double scale, const Call& call) {
  const char* me = "softmax_backward";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"y", y}});
  check_shape(me, {"y", y}, shape_of(dy.desc), "like dy");
  check_rank(me, {"dy", dy}, 1, kMaxRank);
  axis = checked_axis(me, {"dy", dy}, axis);
  Tensor dx = output(me, "out", call.out, dense_like(y.desc, y.desc.dtype, me), h, {}, {{"dy", dy}, {"y", y}});
  if (dx.desc.numel() == 0) return dx;
  SoftmaxProblem p{SoftmaxDirection::backward, log, scale != 1, axis};
  p.in = y.desc;
  p.dy = dy.desc;
  p.out = dx.desc;
  p.alignment = alignment_of(h, {y.data, dy.data, dx.data});
  run(h, p, SoftmaxArgs{y.data, dy.data, dx.data, nullptr, scale}, call.algo);
  return dx;
}

std::vector<int> outer_dims(const SoftmaxProblem& p) {
  std::vector<int> order;
  for (int i = 0; i < p.in.rank; ++i)
    if (i != p.axis && p.in.shape[i] != 1) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](int i) { return p.in.stride[i]; });
  return order;
}
RowLayout row_layout(const SoftmaxProblem& p, const TensorDesc& d, std::span<const int> dims) {
  RowLayout w{.axis = d.stride[p.axis]};
  for (int i : dims) {
    const int64_t size = p.in.shape[i], stride = d.stride[i], last = w.dims - 1;
    if (w.dims && stride == w.size[last] * w.stride[last]) w.size[last] *= size;
    else {
      w.size[w.dims] = size;
      w.stride[w.dims++] = stride;
    }
  }
  return w;
}

double softmax_bytes(const SoftmaxProblem& p) {
  int tensors = p.direction == SoftmaxDirection::backward ? 3 : 2;
  double bytes = double(p.in.numel()) * double(itemsize(p.in.dtype)) * tensors;
  if (p.masked != SoftmaxMask::none) {
    double mask = double(itemsize(p.mask.dtype));
    for (int i = 0; i < p.mask.rank; ++i) mask *= p.mask.stride[i] == 0 ? 1 : double(p.mask.shape[i]);
    bytes += mask;
  }
  return bytes;
}
double softmax_flop(const SoftmaxProblem& p) {
  // The exponential counts as about 15 FLOP per element, and the forward function computes it twice.
  return double(p.in.numel()) * (p.direction == SoftmaxDirection::forward ? 50 : 20);
}

}  // namespace minidnn
