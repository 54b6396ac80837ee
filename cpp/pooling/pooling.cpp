// SPDX-License-Identifier: Apache-2.0
#include "cpp/pooling/pooling.h"

namespace minidnn {
namespace {

constexpr const char* kModes[] = {"max", "avg", "avg_exclude_padding"};  // in the order of the enum

// The problem without its tensors other than x, and y's shape.
struct Geometry {
  PoolingProblem problem;
  Shape y_shape;
};

Geometry geometry(const char* call, PoolingDirection direction, const Tensor& x, const PoolingAttributes& a) {
  check_rank(call, {"x", x}, 3, 2 + kMaxSpatial);
  int64_t rank = x.desc.rank - 2;
  std::vector<int64_t> window = per_dimension(call, "window", a.window, rank, 1);
  Geometry g;
  g.problem = {direction, a.mode, a.ceil_mode};
  std::ranges::copy(window, g.problem.window);
  g.problem.spatial = spatial_attributes(call, rank, a.stride.value_or(window), a.padding, a.dilation);
  g.problem.x = x.desc;
  g.y_shape = {x.desc.shape[0], x.desc.shape[1]};
  Shape sizes = output_sizes(call, g.problem.spatial, shape_of(x.desc).subspan(2), window, a.ceil_mode);
  g.y_shape.insert(g.y_shape.end(), sizes.begin(), sizes.end());
  return g;
}

}  // namespace

std::string name(PoolingMode mode) { return kModes[int64_t(mode)]; }

PoolingMode pooling_mode_from(const std::string& text, const char* call) {
  for (int i = 0; i < int(std::size(kModes)); ++i)
    if (text == kModes[i]) return PoolingMode(i);
  throw ShapeError(cat(call, ": mode '", text, "' is not one of ", join(kModes)));
}

std::string Family<PoolingProblem>::text(const PoolingProblem& p) {
  bool backward = p.direction == PoolingDirection::backward;
  int64_t rank = p.x.rank - 2;
  std::span window{p.window, size_t(rank)};
  std::string text = cat(head_text("pooling", backward ? "backward" : "forward", p.x.dtype), " ", minidnn::name(p.mode),
                         " x=", problem_text(p.x));
  const TensorDesc& y = backward ? p.dy : p.out;
  TensorDesc y_like_x = dense(y.dtype, shape_of(y), preferred_layout(p.x), name);
  if (backward && !same_strides(p.dy, y_like_x)) text += " dy=" + problem_text(p.dy);
  text += cat(" window=", attribute_text(window), spatial_text(p.spatial, rank, window), p.ceil_mode ? " ceil" : "");
  return text + out_text(p.out, backward ? dense_like(p.x, p.x.dtype, name) : y_like_x);
}

PoolingArgs Family<PoolingProblem>::scratch(const PoolingProblem& p, Scratch& s) {
  return {s.tensor(p.x), s.tensor(p.dy), s.tensor(p.out)};
}

Tensor pool_forward(const Tensor& x, const PoolingAttributes& a, const Call& call) {
  const char* me = "pool_forward";
  Handle& h = check_operands(me, call, {{"x", x}});
  auto [p, y_shape] = geometry(me, PoolingDirection::forward, x, a);
  TensorDesc want = dense(x.desc.dtype, y_shape, preferred_layout(x.desc), "pool_forward: y");
  Tensor y = output(me, "out", call.out, want, h, {{"x", x}});
  if (y.desc.numel() == 0) return y;
  p.out = y.desc;
  run(h, p, PoolingArgs{x.data, nullptr, y.data}, call.algo);
  return y;
}

Tensor pool_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const PoolingAttributes& a, const Call& call) {
  const char* me = "pool_backward";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"x", x}, {"y", y}});
  auto [p, y_shape] = geometry(me, PoolingDirection::backward, x, a);
  check_shape(me, {"dy", dy}, y_shape, "like pool_forward's result for this x");
  check_shape(me, {"y", y}, y_shape, "like pool_forward's result for this x");
  Tensor dx = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h, {{"dy", dy}, {"x", x}, {"y", y}});
  if (dx.desc.numel() == 0) return dx;
  p.dy = dy.desc;
  p.out = dx.desc;
  run(h, p, PoolingArgs{x.data, dy.data, dx.data}, call.algo);
  return dx;
}

double pooling_bytes(const PoolingProblem& p) {
  bool reads_x = p.direction == PoolingDirection::forward || p.mode == PoolingMode::max;
  return double(itemsize(p.x.dtype)) * double((reads_x ? p.x.numel() : 0) + p.dy.numel() + p.out.numel());
}
double pooling_flop(const PoolingProblem& p) {
  bool backward = p.direction == PoolingDirection::backward;
  double taps = double(p.window[0]) * double(p.window[1]) * double(p.window[2]);
  // A tap costs a few operations on indices. Backward, a window passes on to each of its elements, and the maximum
  // alone looks at all of them: the others meet a larger one soon.
  return double((backward ? p.dy : p.out).numel()) * taps * (backward ? 40 : 10);
}

}  // namespace minidnn
