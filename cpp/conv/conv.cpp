// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/conv.h"

#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

const char* word(ConvDirection d) {
  constexpr const char* kWords[] = {"forward", "backward_data", "backward_filter", "backward_bias"};
  return kWords[int64_t(d)];
}

TensorDesc bias_desc(const ConvProblem& p) {
  TensorDesc d = dense(operand_dtype(p), {{p.y.shape[1]}}, Layout::channels_first, "conv: bias");
  d.stride[0] = p.bias_stride;
  return d;
}

TensorDesc out_desc(const ConvProblem& p) {
  switch (p.direction) {
    case ConvDirection::forward:
      return p.y;
    case ConvDirection::backward_data:
      return p.x;
    case ConvDirection::backward_filter:
      return p.w;
    default:
      return bias_desc(p);
  }
}

// Returns the descriptor (dtype, shape, strides) of the result that a convolution allocates if the caller passes no
// `out`.
TensorDesc default_out(const ConvProblem& p, const char* what) {
  Layout layout = p.direction == ConvDirection::backward_bias   ? Layout::channels_first
                  : p.direction == ConvDirection::backward_data ? preferred_layout(p.y)
                                                                : preferred_layout(p.x);
  return dense(out_dtype(p), shape_of(out_desc(p)), layout, what);
}

// Checks the convolution attributes (stride, padding, dilation, groups) and stores them in a new ConvProblem. Its
// tensor descriptors are still empty.
ConvProblem problem(const char* call, ConvDirection direction, const ConvAttributes& from, int64_t rank) {
  ConvProblem p;
  p.direction = direction;
  p.spatial = spatial_attributes(call, rank - 2, from.stride, from.padding, from.dilation);
  MINIDNN_CHECK(ShapeError, from.groups >= 1, call, ": groups must be positive; got ", from.groups);
  p.groups = from.groups;
  p.flip = from.flip;
  return p;
}

// Checks that the shape of w, [K, C / groups, window...], fits the shape of x, [N, C, spatial...].
void check_filter(const char* call, int64_t groups, const char* x_name, std::span<const int64_t> x, const char* w_name,
                  std::span<const int64_t> w) {
  MINIDNN_CHECK(ShapeError, x[1] % groups == 0, call, ": groups=", groups, " must divide the ", x[1], " channels of ",
                x_name, " ", shape_text(x));
  constexpr const char* kWindow[] = {"S", "R, S", "T, R, S"};
  MINIDNN_CHECK(ShapeError, w.size() == x.size() && w[1] == x[1] / groups, call, ": ", x_name, " has ", x[1],
                " channels and groups=", groups, ", so ", w_name, " must be [K, ", x[1] / groups, ", ",
                kWindow[x.size() - 3], "]; got ", shape_text(w));
  MINIDNN_CHECK(ShapeError, w[0] % groups == 0, call, ": groups=", groups, " must divide the ", w[0], " filters of ",
                w_name, " ", shape_text(w));
  for (int64_t size : w.subspan(2))
    MINIDNN_CHECK(ShapeError, size > 0, call, ": ", w_name, " ", shape_text(w), " has an empty window");
}

Shape y_shape(const char* call, const ConvProblem& p, std::span<const int64_t> x, std::span<const int64_t> w) {
  Shape y = output_sizes(call, p.spatial, x.subspan(2), w.subspan(2));
  y.insert(y.begin(), {x[0], w[0]});
  return y;
}

// Checks that a convolution of x with window w gives the spatial sizes of dy.
void check_x_shape(const char* call, const SpatialAttributes& s, std::span<const int64_t> dy,
                   std::span<const int64_t> w, std::span<const int64_t> x) {
  for (size_t i = 0; i + 2 < x.size(); ++i) {
    // `least` and `most` are the smallest and the largest size of x that gives this size of dy.
    int64_t last = 0, reach = 0, least = 0, most = 0;
    bool fits = dy[2 + i] > 0 && !__builtin_mul_overflow(dy[2 + i] - 1, s.stride[i], &last) &&
                !__builtin_mul_overflow(s.dilation[i], w[2 + i] - 1, &reach) &&
                !__builtin_add_overflow(last, reach + 1 - s.before[i] - s.after[i], &least) &&
                !__builtin_add_overflow(least, s.stride[i] - 1, &most) && most >= 0;
    auto found = [&] {
      return cat(call, ": dy ", shape_text(dy), " with a window of ", w[2 + i], ", stride ", s.stride[i], ", padding ",
                 s.before[i], " + ", s.after[i], " and dilation ", s.dilation[i], " in dimension ", 2 + i, " matches ");
    };
    MINIDNN_CHECK(ShapeError, fits, found(), "no x_shape");
    least = max_of<int64_t>(least, 0);
    MINIDNN_CHECK(ShapeError, least <= x[2 + i] && x[2 + i] <= most, found(), "an x_shape of ",
                  least == most ? cat(least) : cat(least, " to ", most), " in that dimension; got ", shape_text(x));
  }
}

int64_t ieee(const Handle& h, DType dtype) { return h.options().math == Math::ieee && dtype == DType::float32; }

std::string conv_text(const ConvProblem& p, const char* word) {
  const char* name = Family<ConvProblem>::name;
  std::string text = head_text(name, word, operand_dtype(p));
  // Returns the shape of a result as text. out_text() below adds the strides if they are not the default.
  auto shape_only = [](const TensorDesc& d) { return join(shape_of(d), "x"); };
  bool forward = p.direction == ConvDirection::forward;
  if (!forward) text += " dy=" + problem_text(p.y);
  if (forward || p.direction == ConvDirection::backward_filter) text += " x=" + problem_text(p.x);
  if (forward || p.direction == ConvDirection::backward_data) text += " w=" + problem_text(p.w);
  if (p.residual.rank) text += " residual=" + problem_text(p.residual);
  if (p.direction == ConvDirection::backward_data) text += " dx=" + shape_only(p.x);
  if (p.direction == ConvDirection::backward_filter) text += " dw=" + shape_only(p.w);
  constexpr int64_t kOnes[] = {1, 1, 1};
  text += spatial_text(p.spatial, p.y.rank - 2, kOnes);
  if (p.groups != 1) text += cat(" groups=", p.groups);
  if (p.has_bias) text += is_row_major(bias_desc(p)) ? " bias" : cat(" bias bias_stride=", p.bias_stride);
  if (p.activation != Activation::identity) text += " activation=" + minidnn::name(p.activation);
  if (p.flip) text += " mode=convolution";
  if (p.ieee) text += " math=ieee";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  if (out_dtype(p) != operand_dtype(p)) text += " to=" + short_name(out_dtype(p));
  return text + out_text(out_desc(p), default_out(p, name));
}

// A forward convolution after its arguments have been checked: the handle, the problem, the data pointers and the
// output y.
struct Forward {
  Handle& handle;
  ConvProblem problem;
  ConvArgs args;
  Tensor y;
};
// The tensors and options that the caller of a forward convolution passes.
struct ForwardInputs {
  const Tensor &x, &w;
  const std::optional<Tensor>&bias, &residual;
  const ConvAttributes& attributes;
  Activation activation;
};
// Checks the arguments of a forward convolution and allocates y. `what` is the beginning of error messages about the
// shape of y.
Forward forward(const char* me, const char* what, const ForwardInputs& inputs, const Call& call) {
  const auto& [x, w, bias, residual, attributes, activation] = inputs;
  const Tensor& b = bias ? *bias : w;  // If there is no bias, the checks below get w in its place.
  Handle& h = check_operands(me, call, {{"x", x}, {"w", w}, {"bias", b}});
  DType to = product_dtype(x.desc.dtype, call.out);
  Operand of_result = to == x.desc.dtype ? Operand{"x", x} : Operand{"out", *call.out};
  if (residual) check_operands(me, call, {of_result, {"residual", *residual}});
  check_rank(me, {"x", x}, 3, 2 + kMaxSpatial);
  ConvProblem p = problem(me, ConvDirection::forward, attributes, x.desc.rank);
  check_filter(me, p.groups, "x", shape_of(x.desc), "w", shape_of(w.desc));
  if (bias) check_shape(me, {"bias", b}, shape_of(w.desc).first(1), "for the filters of w");
  p.x = x.desc;
  p.w = w.desc;
  p.y = dense(to, y_shape(me, p, shape_of(x.desc), shape_of(w.desc)), Layout::channels_first, what);
  if (residual) check_shape(me, {"residual", *residual}, shape_of(p.y), "to be added to y");
  const Tensor& r = residual ? *residual : x;
  Tensor y = output(me, "out", call.out, default_out(p, what), h, {{"x", x}, {"w", w}, {"bias", b}}, {{"residual", r}});
  p.y = y.desc;
  p.activation = activation;
  p.has_bias = bias.has_value();
  p.bias_stride = bias ? b.desc.stride[0] : 0;
  if (residual) p.residual = r.desc;
  p.ieee = ieee(h, x.desc.dtype);
  p.alignment = alignment_of(h, {x.data, w.data, r.data, y.data});
  ConvArgs args{x.data,  w.data, bias ? b.data : nullptr,  residual ? r.data : nullptr,
                nullptr, y.data, default_alpha(activation)};
  return {h, p, args, std::move(y)};
}

TensorDesc sums_desc(const ConvProblem& p) {
  const int64_t shape[] = {2, p.y.shape[1]};
  return dense(sum_dtype(p.y.dtype), shape, Layout::channels_first, "conv: statistics");
}

}  // namespace

std::string Family<ConvProblem>::text(const ConvProblem& p) { return conv_text(p, word(p.direction)); }
std::string Family<ConvStatisticsProblem>::text(const ConvStatisticsProblem& p) {
  return conv_text(p, "forward_statistics");
}

void Family<ConvProblem>::ports(const ConvProblem& p, ConvArgs& a, Ports& v) {
  const bool forward = p.direction == ConvDirection::forward;
  if (forward || p.direction == ConvDirection::backward_filter) v.in("x", p.x, a.x);
  if (forward || p.direction == ConvDirection::backward_data) v.in("w", p.w, a.w);
  if (p.has_bias) v.in("bias", bias_desc(p), a.bias);
  if (p.residual.rank) v.in("residual", p.residual, a.residual);
  if (!forward) v.in("dy", p.y, a.dy);
  constexpr const char* kOut[] = {"y", "dx", "dw", "db"};
  v.out(kOut[int64_t(p.direction)], out_desc(p), a.out);
  v.number("activation_alpha", a.activation_alpha, default_alpha(p.activation));
}

void Family<ConvStatisticsProblem>::ports(const ConvStatisticsProblem& p, ConvStatisticsArgs& a, Ports& v) {
  Family<ConvProblem>::ports(p, a, v);
  v.out("sums", sums_desc(p), a.sums);
}

bool conv_flips(const std::string& mode, const char* call) {
  MINIDNN_CHECK(ShapeError, mode == "cross_correlation" || mode == "convolution", call,
                ": mode must be 'cross_correlation' or 'convolution'; got '", mode, "'");
  return mode == "convolution";
}

Tensor conv_forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                    const std::optional<Tensor>& residual, const ConvAttributes& attributes, Activation activation,
                    const Call& call) {
  Forward f = forward("conv_forward", "conv_forward: y", {x, w, bias, residual, attributes, activation}, call);
  if (f.y.desc.numel()) run(f.handle, f.problem, f.args, call.algo);
  return std::move(f.y);
}

ConvStatistics conv_forward_statistics(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                                       const std::optional<Tensor>& residual, const ConvAttributes& attributes,
                                       Activation activation, const Call& call) {
  const char* me = "conv_forward_statistics";
  Forward f = forward(me, "conv_forward_statistics: y", {x, w, bias, residual, attributes, activation}, call);
  // If y has no elements, no engine runs, and the sums are zeros.
  const TensorDesc desc = sums_desc(f.problem);
  const bool computes = f.y.desc.numel() != 0;
  Tensor sums = computes ? empty(desc, f.handle.place(), f.handle.stream(), me, "sums")
                         : full(desc, f.handle.place(), scalar_of(0.0), call.handle);
  if (computes) run(f.handle, ConvStatisticsProblem{f.problem}, ConvStatisticsArgs{f.args, sums.data}, call.algo);
  const int64_t filters[] = {sums.desc.shape[1]};
  Tensor sum = sums, squares = sums;
  sum.desc = squares.desc = dense(sums.desc.dtype, filters, Layout::channels_first, me);
  squares.data = static_cast<char*>(sums.data) + sums.nbytes() / 2;
  return {std::move(f.y), std::move(sum), std::move(squares)};
}

Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvAttributes& attributes,
                          const Call& call) {
  const char* me = "conv_backward_data";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"w", w}});
  check_rank(me, {"dy", dy}, 3, 2 + kMaxSpatial);
  ConvProblem p = problem(me, ConvDirection::backward_data, attributes, dy.desc.rank);
  MINIDNN_CHECK(ShapeError, std::ssize(x_shape) == dy.desc.rank && std::ranges::min(x_shape) >= 0, me,
                ": x_shape must have ", dy.desc.rank, " sizes of 0 or more for dy ", shape_text(dy.desc), "; got ",
                shape_text(x_shape));
  check_filter(me, p.groups, "x_shape", x_shape, "w", shape_of(w.desc));
  MINIDNN_CHECK(ShapeError, dy.desc.shape[0] == x_shape[0] && dy.desc.shape[1] == w.desc.shape[0], me, ": x_shape is ",
                shape_text(x_shape), " and w is ", shape_text(w.desc), ", so dy must be [", x_shape[0], ", ",
                w.desc.shape[0], ", ...]; got ", shape_text(dy.desc));
  check_x_shape(me, p.spatial, shape_of(dy.desc), shape_of(w.desc), x_shape);
  p.w = w.desc;
  p.y = dy.desc;
  p.x = dense(product_dtype(dy.desc.dtype, call.out), x_shape, Layout::channels_first, "conv_backward_data: x_shape");
  Tensor dx = output(me, "out", call.out, default_out(p, "conv_backward_data: x_shape"), h, {{"dy", dy}, {"w", w}});
  if (dx.desc.numel() == 0) return dx;
  p.x = dx.desc;
  p.ieee = ieee(h, dy.desc.dtype);
  p.alignment = alignment_of(h, {dy.data, w.data, dx.data});
  run(h, p, ConvArgs{nullptr, w.data, nullptr, nullptr, dy.data, dx.data, 0}, call.algo);
  return dx;
}

Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvAttributes& attributes,
                            const Call& call) {
  const char* me = "conv_backward_filter";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"x", x}});
  check_rank(me, {"x", x}, 3, 2 + kMaxSpatial);
  ConvProblem p = problem(me, ConvDirection::backward_filter, attributes, x.desc.rank);
  check_filter(me, p.groups, "x", shape_of(x.desc), "w_shape", w_shape);
  p.x = x.desc;
  p.y = dy.desc;
  p.w = dense(product_dtype(x.desc.dtype, call.out), w_shape, Layout::channels_first, "conv_backward_filter: w_shape");
  check_shape(me, {"dy", dy}, y_shape(me, p, shape_of(x.desc), w_shape),
              cat("for x ", shape_text(x.desc), " and w_shape ", shape_text(w_shape)).c_str());
  Tensor dw = output(me, "out", call.out, default_out(p, "conv_backward_filter: w_shape"), h, {{"dy", dy}, {"x", x}});
  if (dw.desc.numel() == 0) return dw;
  p.w = dw.desc;
  p.ieee = ieee(h, x.desc.dtype);
  p.alignment = alignment_of(h, {dy.data, x.data, dw.data});
  run(h, p, ConvArgs{x.data, nullptr, nullptr, nullptr, dy.data, dw.data, 0}, call.algo);
  return dw;
}

Tensor conv_backward_bias(const Tensor& dy, const Call& call) {
  const char* me = "conv_backward_bias";
  Handle& h = check_operands(me, call, {{"dy", dy}});
  check_rank(me, {"dy", dy}, 3, 2 + kMaxSpatial);
  ConvProblem p;
  p.direction = ConvDirection::backward_bias;
  p.y = dy.desc;
  Tensor db = output(me, "out", call.out, default_out(p, "conv_backward_bias: db"), h, {{"dy", dy}});
  if (db.desc.numel() == 0) return db;
  p.bias_stride = db.desc.stride[0];
  p.alignment = alignment_of(h, {dy.data});
  run(h, p, ConvArgs{nullptr, nullptr, nullptr, nullptr, dy.data, db.data, 0}, call.algo);
  return db;
}

DType operand_dtype(const ConvProblem& p) { return p.direction == ConvDirection::forward ? p.x.dtype : p.y.dtype; }
DType out_dtype(const ConvProblem& p) {
  return p.direction == ConvDirection::backward_data     ? p.x.dtype
         : p.direction == ConvDirection::backward_filter ? p.w.dtype
                                                         : p.y.dtype;
}

double conv_bytes(const ConvProblem& p) {
  auto bytes = [](const TensorDesc& d) { return d.rank ? double(d.numel()) * double(itemsize(d.dtype)) : 0; };
  return bytes(p.x) + bytes(p.w) + bytes(p.y) + bytes(p.residual);
}
double conv_flop(const ConvProblem& p) {
  double products = p.w.rank && p.w.shape[0] ? double(p.w.numel()) / double(p.w.shape[0]) : 1;
  return 2 * double(p.y.numel()) * products;
}

}  // namespace minidnn
