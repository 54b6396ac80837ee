// SPDX-License-Identifier: Apache-2.0
#include "cpp/pooling/pooling.h"

namespace minidnn {
namespace {

// The names of the modes of pooling, in the order of enum PoolingMode.
constexpr const char* kModes[] = {"max", "avg", "avg_exclude_padding", "lp"};
// The largest exponent of lp pooling. It is limited, because powers are computed by repeated multiplication.
constexpr int64_t kMaxNorm = 64;

// The shape of y, and the description of a call of pooling, in which y, dy and dx are still missing.
struct Geometry {
  PoolingProblem problem;
  Shape y_shape;
};

// Chooses the windows of adaptive pooling, with sizes as equal as possible. If all windows have the same size, they
// become ordinary windows, because more engines support these.
void make_adaptive(const char* call, PoolingProblem& p, Shape& y_shape, const PoolingAttributes& a) {
  int64_t rank = p.x.rank - 2;
  std::vector<int64_t> size = per_dimension(call, "size", a.size, rank, 1);
  for (int i = 0; i < rank; ++i) {
    int64_t x_size = spatial_size(p.x, i);
    MINIDNN_CHECK(ShapeError, x_size > 0, call, ": x must have elements in spatial dimension ", i, "; got ",
                  shape_text(shape_of(p.x)));
    p.adaptive |= x_size % size[size_t(i)] != 0;
    p.window[i] = p.spatial.stride[i] = x_size / size[size_t(i)];
  }
  if (p.adaptive)
    for (int i = 0; i < rank; ++i) p.window[i] = ceil_div(spatial_size(p.x, i), size[size_t(i)]) + 1;
  if (p.adaptive) p.spatial = {};
  y_shape.insert(y_shape.end(), size.begin(), size.end());
}

Geometry geometry(const char* call, PoolingDirection direction, const Tensor& x, const PoolingAttributes& a) {
  check_rank(call, {"x", x}, 3, 2 + kMaxSpatial);
  int64_t rank = x.desc.rank - 2;
  Geometry g;
  g.problem.direction = direction;
  g.problem.mode = a.mode;
  g.problem.x = x.desc;
  g.y_shape = {x.desc.shape[0], x.desc.shape[1]};
  if (a.mode == PoolingMode::lp) {
    MINIDNN_CHECK(ShapeError, a.norm >= 1 && a.norm <= kMaxNorm, call, ": norm must be from 1 to ", kMaxNorm, "; got ",
                  a.norm);
    g.problem.norm = a.norm;
  }
  if (!a.size.empty()) {
    make_adaptive(call, g.problem, g.y_shape, a);
    return g;
  }
  std::vector<int64_t> window = per_dimension(call, "window", a.window, rank, 1);
  g.problem.ceil_mode = a.ceil_mode;
  std::ranges::copy(window, g.problem.window);
  g.problem.spatial = spatial_attributes(call, rank, a.stride.value_or(window), a.padding, a.dilation);
  Shape sizes = output_sizes(call, g.problem.spatial, shape_of(x.desc).subspan(2), window, a.ceil_mode);
  g.y_shape.insert(g.y_shape.end(), sizes.begin(), sizes.end());
  return g;
}

void check_index_dtype(const char* call, const char* argument, DType t, const Tensor& x) {
  MINIDNN_CHECK(DTypeError, t == DType::int32 || t == DType::int64, call, ": ", argument,
                " must be int32 or int64; got ", name(t));
  int64_t plane = 1;
  for (int i = 2; i < x.desc.rank; ++i) plane *= x.desc.shape[i];
  MINIDNN_CHECK(ShapeError, t == DType::int64 || plane <= 0x7fffffff, call, ": a plane of x ", shape_text(x.desc),
                " has ", plane, " elements, and int32 indices support at most 2^31 - 1; ", argument, " must be int64");
}

// Returns the tensor with three spatial dimensions. Missing dimensions are added in front, with size 1.
TensorDesc padded_in_front(const TensorDesc& d) {
  TensorDesc full{d.dtype, 2 + kMaxSpatial};
  for (int i = 0; i < full.rank; ++i) full.shape[i] = 1;
  for (int64_t i = 0; i < d.rank; ++i) {
    const int64_t to = i < 2 ? i : i + full.rank - d.rank;
    full.shape[to] = d.shape[i];
    full.stride[to] = d.stride[i];
  }
  return full;
}

bool reads_x(const PoolingProblem& p) {
  if (p.direction == PoolingDirection::forward || p.mode == PoolingMode::lp) return true;
  return p.mode == PoolingMode::max && p.indices.rank == 0;
}

}  // namespace

std::string name(PoolingMode mode) { return kModes[int64_t(mode)]; }

PoolingMode pooling_mode_from(const std::string& text, const char* call) {
  for (int i = 0; i < int(std::size(kModes)); ++i)
    if (text == kModes[i]) return PoolingMode(i);
  throw ShapeError(cat(call, ": mode must be one of ", join(kModes), "; got '", text, "'"));
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
  if (p.y.rank && !same_strides(p.y, y_like_x)) text += " y=" + problem_text(p.y);
  if (p.adaptive) text += cat(" size=", attribute_text(shape_of(y).subspan(2)));
  else text += cat(" window=", attribute_text(window), spatial_text(p.spatial, rank, window));
  if (p.ceil_mode) text += " ceil";
  if (p.norm != 0) text += cat(" norm=", p.norm);
  if (p.indices.rank) {
    text += " indices=" + short_name(p.indices.dtype);
    if (!same_strides(p.indices, y_like_x)) text += " indices_as=" + problem_text(p.indices);
  }
  text += out_text(p.out, backward ? dense_like(p.x, p.x.dtype, name) : y_like_x);
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text;
}

void Family<PoolingProblem>::ports(const PoolingProblem& p, PoolingArgs& a, Ports& v) {
  const bool backward = p.direction == PoolingDirection::backward, indexed = p.indices.rank != 0;
  if (reads_x(p)) v.in("x", p.x, a.x);
  else v.unused(a.x);
  if (backward) v.in("dy", p.dy, a.dy);
  if (p.y.rank) v.in("y", p.y, a.y);
  else v.unused(a.y);
  if (backward && indexed) v.in("indices", p.indices, a.indices);
  v.out(backward ? "dx" : "y", p.out, a.out);
  if (!backward && indexed) v.out("indices", p.indices, a.indices);
}

namespace {

// Computes y. If `indices` has a dtype, also computes the indices of the maxima, with that dtype.
std::pair<Tensor, Tensor> forward(const char* me, const Tensor& x, const PoolingAttributes& a,
                                  std::optional<DType> indices, const Call& call) {
  Handle& h = check_operands(me, call, {{"x", x}});
  auto [p, y_shape] = geometry(me, PoolingDirection::forward, x, a);
  TensorDesc want = dense(x.desc.dtype, y_shape, preferred_layout(x.desc), me);
  Tensor y = output(me, "out", call.out, want, h, {{"x", x}}), where;
  if (indices) {
    TensorDesc like_y = want;
    like_y.dtype = *indices;
    where = output(me, "indices", {}, like_y, h, {});
  }
  if (y.desc.numel() == 0) return {y, where};
  p.out = y.desc;
  if (indices) p.indices = where.desc;
  p.alignment = alignment_of(h, {x.data, y.data, where.data});
  run(h, p, PoolingArgs{x.data, nullptr, y.data, nullptr, where.data}, call.algo);
  return {y, where};
}

}  // namespace

Tensor pool_forward(const Tensor& x, const PoolingAttributes& a, const Call& call) {
  return forward(a.size.empty() ? "pool_forward" : "adaptive_pool_forward", x, a, {}, call).first;
}

std::pair<Tensor, Tensor> pool_forward_with_indices(const Tensor& x, const PoolingAttributes& a, DType indices,
                                                    const Call& call) {
  const char* me = "pool_forward_with_indices";
  check_index_dtype(me, "index_dtype", indices, x);
  MINIDNN_CHECK(ShapeError, a.mode == PoolingMode::max, me, ": indices need mode 'max'; got '", name(a.mode), "'");
  return forward(me, x, a, indices, call);
}

Tensor pool_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const PoolingAttributes& a, const Call& call,
                     const std::optional<Tensor>& indices) {
  const char* me = a.size.empty() ? "pool_backward" : "adaptive_pool_backward";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"x", x}, {"y", y}});
  auto [p, y_shape] = geometry(me, PoolingDirection::backward, x, a);
  check_shape(me, {"dy", dy}, y_shape, "like pool_forward's result for this x");
  check_shape(me, {"y", y}, y_shape, "like pool_forward's result for this x");
  const void* where = nullptr;
  if (indices) {
    check_index_dtype(me, "indices", indices->desc.dtype, x);
    MINIDNN_CHECK(ShapeError, a.mode == PoolingMode::max, me, ": indices need mode 'max'; got '", name(a.mode), "'");
    MINIDNN_CHECK(DeviceError, indices->place() == x.place(), me, ": x is on ", name(x.place()), ", indices are on ",
                  name(indices->place()));
    check_shape(me, {"indices", *indices}, y_shape, "like pool_forward's result for this x");
    use(*indices, h.stream());
    p.indices = indices->desc;
    where = indices->data;
  }
  Tensor dx = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h,
                     {{"dy", dy}, {"x", x}, {"y", y}, {"indices", indices.value_or(dy)}});
  if (dx.desc.numel() == 0) return dx;
  // A graph file describes an x that is not read by the text of the problem alone.
  if (!reads_x(p)) p.x = with_implied_strides(p.x);
  p.dy = dy.desc;
  p.out = dx.desc;
  if (a.mode == PoolingMode::lp) p.y = y.desc;
  p.alignment = alignment_of(h, {x.data, dy.data, dx.data, where});
  run(h, p, PoolingArgs{x.data, dy.data, dx.data, y.data, const_cast<void*>(where)}, call.algo);
  return dx;
}

double pooling_bytes(const PoolingProblem& p) {
  bool backward = p.direction == PoolingDirection::backward, has_index = p.indices.rank > 0;
  bool reads_x = !backward || p.mode == PoolingMode::lp || (p.mode == PoolingMode::max && !has_index);
  double elements = double((reads_x ? p.x.numel() : 0) + (backward ? p.dy.numel() : 0) + p.out.numel());
  if (p.y.rank) elements += double(p.y.numel());
  double index_bytes = has_index ? double(itemsize(p.indices.dtype)) * double(p.indices.numel()) : 0;
  return double(itemsize(p.x.dtype)) * elements + index_bytes;
}
double pooling_flop(const PoolingProblem& p) {
  bool backward = p.direction == PoolingDirection::backward;
  double taps = double(p.window[0]) * double(p.window[1]) * double(p.window[2]);
  // The estimate is 10 operations per tap (element of a window). It is 40 for gradients without indices: max pooling
  // then searches the maxima again.
  return double((backward ? p.dy : p.out).numel()) * taps * (backward && p.indices.rank == 0 ? 40 : 10);
}

PoolingProblem padded_in_front(const PoolingProblem& p) {
  PoolingProblem full{p.direction, p.mode, p.ceil_mode};
  full.x = padded_in_front(p.x);
  full.out = padded_in_front(p.out);
  full.dy = p.direction == PoolingDirection::backward ? padded_in_front(p.dy) : full.out;
  const int64_t missing = kMaxSpatial + 2 - p.x.rank;
  for (int64_t i = 0; i + missing < kMaxSpatial; ++i) {
    full.window[i + missing] = p.window[i];
    full.spatial.stride[i + missing] = p.spatial.stride[i];
    full.spatial.before[i + missing] = p.spatial.before[i];
    full.spatial.after[i + missing] = p.spatial.after[i];
    full.spatial.dilation[i + missing] = p.spatial.dilation[i];
  }
  full.adaptive = p.adaptive;
  if (p.indices.rank) full.indices = padded_in_front(p.indices);
  return full;
}

}  // namespace minidnn
