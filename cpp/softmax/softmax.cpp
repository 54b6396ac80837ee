// SPDX-License-Identifier: Apache-2.0
#include "cpp/softmax/softmax.h"

namespace minidnn {
namespace {

int64_t checked_axis(const char* call, const Operand& o, int64_t axis) {
  check_rank(call, o, 1, kMaxRank);
  int64_t rank = o.tensor.desc.rank;
  MINIDNN_CHECK(ShapeError, -rank <= axis && axis < rank, call, ": axis must be from ", -rank, " to ", rank - 1,
                " for ", o.name, " ", shape_text(o.tensor.desc), "; got ", axis);
  return axis < 0 ? axis + rank : axis;
}

}  // namespace

std::string Family<SoftmaxProblem>::text(const SoftmaxProblem& p) {
  bool backward = p.direction == SoftmaxDirection::backward;
  std::string text = cat(head_text("softmax", backward ? "backward" : "forward", p.in.dtype),
                         backward ? " y=" : " x=", problem_text(p.in));
  if (backward && !same_strides(p.dy, p.in)) text += " dy=" + problem_text(p.dy);
  text += cat(" axis=", p.axis, p.log ? " log" : "");
  return text + out_text(p.out, dense_like(p.in, p.in.dtype, name));
}

SoftmaxArgs Family<SoftmaxProblem>::scratch(const SoftmaxProblem& p, Scratch& s) {
  return {s.tensor(p.in), s.tensor(p.dy), s.tensor(p.out)};
}

Tensor softmax_forward(const Tensor& x, int64_t axis, bool log, const Call& call) {
  const char* me = "softmax_forward";
  Handle& h = check_operands(me, call, {{"x", x}});
  axis = checked_axis(me, {"x", x}, axis);
  Tensor y = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h, {}, {{"x", x}});
  if (y.desc.numel() == 0) return y;
  run(h, SoftmaxProblem{SoftmaxDirection::forward, log, axis, x.desc, {}, y.desc}, SoftmaxArgs{x.data, nullptr, y.data},
      call.algo);
  return y;
}

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log, const Call& call) {
  const char* me = "softmax_backward";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"y", y}});
  check_shape(me, {"y", y}, shape_of(dy.desc), "like dy");
  axis = checked_axis(me, {"dy", dy}, axis);
  Tensor dx = output(me, "out", call.out, dense_like(y.desc, y.desc.dtype, me), h, {}, {{"dy", dy}, {"y", y}});
  if (dx.desc.numel() == 0) return dx;
  run(h, SoftmaxProblem{SoftmaxDirection::backward, log, axis, y.desc, dy.desc, dx.desc},
      SoftmaxArgs{y.data, dy.data, dx.data}, call.algo);
  return dx;
}

double softmax_bytes(const SoftmaxProblem& p) {
  int tensors = p.direction == SoftmaxDirection::backward ? 3 : 2;
  return double(p.in.numel()) * double(itemsize(p.in.dtype)) * tensors;
}
double softmax_flop(const SoftmaxProblem& p) {
  return double(p.in.numel()) * (p.direction == SoftmaxDirection::forward ? 50 : 20);  // exp is about 15, forward twice
}

}  // namespace minidnn
