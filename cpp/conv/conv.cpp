// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/conv.h"

namespace minidnn {
namespace {

constexpr int64_t kMostSize = int64_t(1) << 62;  // of a dimension with its padding: sums of two stay in an int64

const char* word(ConvDirection d) {
  constexpr const char* kNames[] = {"forward", "backward_data", "backward_filter", "backward_bias"};
  return kNames[int64_t(d)];
}

TensorDesc bias_desc(const ConvProblem& p) {
  TensorDesc d = dense(p.y.dtype, {{p.y.shape[1]}}, Layout::channels_first, "conv: bias");
  d.stride[0] = p.bias_stride;
  return d;
}

// What the result is when the caller does not say.
TensorDesc default_out(const ConvProblem& p, const char* what) {
  switch (p.direction) {
    case ConvDirection::forward: return dense(p.x.dtype, shape_of(p.y), preferred_layout(p.x), what);
    case ConvDirection::backward_data: return dense(p.y.dtype, shape_of(p.x), preferred_layout(p.y), what);
    case ConvDirection::backward_filter: return dense(p.y.dtype, shape_of(p.w), preferred_layout(p.x), what);
    default: return dense(p.y.dtype, {{p.y.shape[1]}}, Layout::channels_first, what);
  }
}

TensorDesc out_desc(const ConvProblem& p) {
  switch (p.direction) {
    case ConvDirection::forward: return p.y;
    case ConvDirection::backward_data: return p.x;
    case ConvDirection::backward_filter: return p.w;
    default: return bias_desc(p);
  }
}

// " stride=2" or " stride=2,1"; nothing when all are `usual`.
template <class Value> std::string attribute_text(const char* name, const std::vector<Value>& values, const Value& usual) {
  bool equal = std::ranges::all_of(values, [&](const Value& v) { return v == values[0]; });
  if (equal && values[0] == usual) return "";
  return cat(" ", name, "=", equal ? cat(values[0]) : join(values, ","));
}

std::vector<int64_t> leading(const int64_t* values, int64_t count) { return {values, values + count}; }

// The sizes a window takes up: "[64, 3, R, S]" with the letters of the field.
std::string w_text(const std::string& filters, int64_t channels, int64_t spatial) {
  constexpr const char* kLetters[] = {"S", "R, S", "T, R, S"};
  return cat("[", filters, ", ", channels, ", ", kLetters[spatial - 1], "]");
}

// Checks attributes against the number of spatial dimensions and writes them into a problem.
void read_attributes(const char* call, const ConvAttributes& from, int64_t spatial, ConvProblem& p) {
  // Far beyond any use, and small enough that no sum or product of two overflows.
  constexpr int64_t kMost = (int64_t(1) << 31) - 1;
  auto per_dimension = [&](const char* label, const auto& value, int64_t least, auto&& put) {
    using List = std::variant_alternative_t<1, std::decay_t<decltype(value)>>;
    const List* list = std::get_if<1>(&value);
    MINIDNN_CHECK(ShapeError, !list || int64_t(list->size()) == spatial, call, ": ", label, " must be one value or ",
                  spatial, ", one per spatial dimension; got ", list->size());
    for (int64_t i = 0; i < spatial; ++i)
      for (int64_t v : put(i, list ? (*list)[size_t(i)] : typename List::value_type(std::get<0>(value))))
        MINIDNN_CHECK(ShapeError, least <= v && v <= kMost, call, ": ", label, " must be ", least ? "positive" : "at least 0",
                      v > kMost ? cat(" and at most ", kMost) : "", "; got ", v);
  };
  auto into = [](int64_t* field) {
    return [field](int64_t i, int64_t v) { return std::array{field[i] = v}; };
  };
  per_dimension("stride", from.stride, 1, into(p.stride));
  per_dimension("dilation", from.dilation, 1, into(p.dilation));
  per_dimension("padding", from.padding, 0, [&](int64_t i, const Sides& sides) {
    const int64_t* both = std::get_if<0>(&sides);
    auto [before, after] = both ? std::pair(*both, *both) : std::get<1>(sides);
    return std::array{p.pad_before[i] = before, p.pad_after[i] = after};
  });
  MINIDNN_CHECK(ShapeError, from.groups >= 1, call, ": groups must be positive; got ", from.groups);
  p.groups = from.groups;
  MINIDNN_CHECK(ShapeError, from.mode == "cross_correlation" || from.mode == "convolution", call, ": mode '", from.mode,
                "' is not 'cross_correlation' or 'convolution'");
  p.flip = from.mode == "convolution";
}

// A size with its padding less what the dilated window covers: how far a window can slide. Negative: it does not fit.
int64_t room(const char* call, const ConvProblem& p, int i, int64_t size, int64_t window) {
  int64_t padded = p.pad_before[i] + p.pad_after[i], cover = 0;
  bool overflow = __builtin_add_overflow(padded, size, &padded) || __builtin_mul_overflow(p.dilation[i], window - 1, &cover);
  MINIDNN_CHECK(ShapeError, !overflow && padded <= kMostSize && cover <= kMostSize, call, ": spatial dimension ", i,
                " is too large: size ", size, ", window ", window, ", dilation ", p.dilation[i]);
  return padded - cover - 1;
}

void check_window(const char* call, const char* label, const std::span<const int64_t>& w) {
  for (int64_t size : w.subspan(2))
    MINIDNN_CHECK(ShapeError, size > 0, call, ": ", label, " ", shape_text(w), " has an empty window");
}

// [N, K, spatial...] of the result for x and w of these shapes; throws when a window does not fit.
Shape y_shape(const char* call, const ConvProblem& p, std::span<const int64_t> x, std::span<const int64_t> w) {
  Shape y{x[0], w[0]};
  for (int i = 0; i < int(x.size()) - 2; ++i) {
    int64_t slide = room(call, p, i, x[2 + i], w[2 + i]);
    MINIDNN_CHECK(ShapeError, slide >= 0, call, ": a window of ", w[2 + i], " with dilation ", p.dilation[i],
                  " covers ", p.dilation[i] * (w[2 + i] - 1) + 1, ", which is more than x has in dimension ", 2 + i, ": ",
                  x[2 + i], " and ", p.pad_before[i], " + ", p.pad_after[i], " of padding");
    y.push_back(slide / p.stride[i] + 1);
  }
  return y;
}

// That w [K, C / groups, window...] belongs to x [N, C, spatial...].
void check_filter(const char* call, const ConvProblem& p, const char* x_label, std::span<const int64_t> x,
                  const char* w_label, std::span<const int64_t> w) {
  MINIDNN_CHECK(ShapeError, x[1] % p.groups == 0, call, ": groups=", p.groups, " must divide the ", x[1], " channels of ",
                x_label, " ", shape_text(x));
  MINIDNN_CHECK(ShapeError, w.size() == x.size() && w[1] == x[1] / p.groups, call, ": ", x_label, " has ", x[1],
                " channels and groups=", p.groups, ", so ", w_label, " must be ",
                w_text("K", x[1] / p.groups, int64_t(x.size()) - 2), "; got ", shape_text(w));
  MINIDNN_CHECK(ShapeError, w[0] % p.groups == 0, call, ": groups=", p.groups, " must divide the ", w[0], " filters of ",
                w_label, " ", shape_text(w));
  check_window(call, w_label, w);
}

int64_t ieee(const Handle& h, DType dtype) { return h.options().math == Math::ieee && dtype == DType::float32; }

}  // namespace

std::string Family<ConvProblem>::text(const ConvProblem& p) {
  std::string text = head_text("conv", word(p.direction), p.y.dtype);
  int64_t spatial = p.y.rank - 2;
  auto shape_only = [](const TensorDesc& d) { return join(shape_of(d), "x"); };  // its strides are out's
  switch (p.direction) {
    case ConvDirection::forward: text += " x=" + problem_text(p.x) + " w=" + problem_text(p.w); break;
    case ConvDirection::backward_data: text += " dy=" + problem_text(p.y) + " w=" + problem_text(p.w) + " dx=" + shape_only(p.x); break;
    case ConvDirection::backward_filter: text += " dy=" + problem_text(p.y) + " x=" + problem_text(p.x) + " dw=" + shape_only(p.w); break;
    case ConvDirection::backward_bias: text += " dy=" + problem_text(p.y); break;
  }
  std::vector<std::string> padding;
  for (int64_t i = 0; i < spatial; ++i)
    padding.push_back(cat(p.pad_before[i], p.pad_after[i] == p.pad_before[i] ? "" : cat(":", p.pad_after[i])));
  text += attribute_text<int64_t>("stride", leading(p.stride, spatial), 1);
  text += attribute_text<std::string>("pad", padding, "0");
  text += attribute_text<int64_t>("dilation", leading(p.dilation, spatial), 1);
  if (p.groups != 1) text += cat(" groups=", p.groups);
  if (p.has_bias) text += is_row_major(bias_desc(p)) ? " bias" : cat(" bias bias_stride=", p.bias_stride);
  if (p.activation != Activation::identity) text += " activation=" + minidnn::name(p.activation);
  if (p.flip) text += " mode=convolution";
  if (p.ieee) text += " math=ieee";
  return text + out_text(out_desc(p), default_out(p, name));
}

ConvArgs Family<ConvProblem>::scratch(const ConvProblem& p, Scratch& s) {
  ConvArgs a;
  bool forward = p.direction == ConvDirection::forward;
  if (forward || p.direction == ConvDirection::backward_filter) a.x = s.tensor(p.x);
  if (forward || p.direction == ConvDirection::backward_data) a.w = s.tensor(p.w);
  if (p.has_bias) a.bias = s.tensor(bias_desc(p));
  if (!forward) a.dy = s.tensor(p.y);
  a.out = s.tensor(out_desc(p));
  a.activation_alpha = default_alpha(p.activation);
  return a;
}

Tensor conv_forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, const ConvAttributes& attributes,
                    Activation activation, const Call& call) {
  const char* me = "conv_forward";
  Handle& h = bias ? check_operands(me, call, {{"x", x}, {"w", w}, {"bias", *bias}})
                   : check_operands(me, call, {{"x", x}, {"w", w}});
  check_rank(me, {"x", x}, 3, 2 + kMaxSpatial);
  ConvProblem p;
  read_attributes(me, attributes, x.desc.rank - 2, p);
  check_filter(me, p, "x", shape_of(x.desc), "w", shape_of(w.desc));
  if (bias) check_shape(me, {"bias", *bias}, shape_of(w.desc).first(1), "to match the filters of w");
  p.x = x.desc, p.w = w.desc;
  p.y = dense(x.desc.dtype, y_shape(me, p, shape_of(x.desc), shape_of(w.desc)), Layout::channels_first, "conv_forward: y");
  Tensor y = output(me, "out", call.out, default_out(p, "conv_forward: y"), h, {{"x", x}, {"w", w}, {"bias", bias ? *bias : x}});
  if (y.desc.numel() == 0) return y;
  p.y = y.desc;
  p.activation = activation;
  p.has_bias = bias.has_value();
  p.bias_stride = bias ? bias->desc.stride[0] : 0;
  p.ieee = ieee(h, x.desc.dtype);
  run(h, p, ConvArgs{x.data, w.data, bias ? bias->data : nullptr, nullptr, y.data, default_alpha(activation)}, call.algo);
  return y;
}

Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvAttributes& attributes,
                          const Call& call) {
  const char* me = "conv_backward_data";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"w", w}});
  check_rank(me, {"dy", dy}, 3, 2 + kMaxSpatial);
  int64_t rank = dy.desc.rank;
  ConvProblem p;
  read_attributes(me, attributes, rank - 2, p);
  auto dy_shape = shape_of(dy.desc), w_shape = shape_of(w.desc);
  MINIDNN_CHECK(ShapeError, int64_t(x_shape.size()) == rank && std::ranges::all_of(x_shape, [](int64_t n) { return n >= 0; }),
                me, ": dy is ", shape_text(dy.desc), ", so x_shape must be ", rank, " sizes; got ", shape_text(x_shape));
  check_filter(me, p, "x_shape", x_shape, "w", w_shape);
  MINIDNN_CHECK(ShapeError, dy_shape[0] == x_shape[0] && dy_shape[1] == w_shape[0], me, ": x_shape is ",
                shape_text(x_shape), " and w is ", shape_text(w.desc), ", so dy must have ", x_shape[0], " images and ",
                w_shape[0], " channels; got ", shape_text(dy.desc));
  for (int i = 0; i < int(rank) - 2; ++i) {
    // Sizes whose windows start at the same positions give one dy; the smallest has the last window end at its end.
    int64_t slide = room(me, p, i, x_shape[2 + i], w_shape[2 + i]), positions = dy_shape[2 + i], least = 0;
    bool fits = positions > 0 && !__builtin_mul_overflow(positions - 1, p.stride[i], &least) && least <= kMostSize;
    int64_t spare = slide - x_shape[2 + i], most = fits ? least - spare + p.stride[i] - 1 : -1;
    MINIDNN_CHECK(ShapeError, most >= 0, me, ": no x gives dy ", shape_text(dy.desc),
                  " with a window of ", w_shape[2 + i], " and these attributes: see dimension ", 2 + i);
    least = std::max<int64_t>(least - spare, 0);
    MINIDNN_CHECK(ShapeError, least <= x_shape[2 + i] && x_shape[2 + i] <= most, me, ": dy ", shape_text(dy.desc),
                  " with a window of ", w_shape[2 + i], " comes from an x of ",
                  least == most ? cat(least) : cat(least, " to ", most), " in dimension ", 2 + i, "; x_shape is ",
                  shape_text(x_shape));
  }
  p.direction = ConvDirection::backward_data;
  p.w = w.desc, p.y = dy.desc;
  p.x = dense(dy.desc.dtype, x_shape, Layout::channels_first, "conv_backward_data: dx");
  Tensor dx = output(me, "out", call.out, default_out(p, "conv_backward_data: dx"), h, {{"dy", dy}, {"w", w}});
  if (dx.desc.numel() == 0) return dx;
  p.x = dx.desc;
  p.ieee = ieee(h, dy.desc.dtype);
  run(h, p, ConvArgs{nullptr, w.data, nullptr, dy.data, dx.data, 0}, call.algo);
  return dx;
}

Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvAttributes& attributes,
                            const Call& call) {
  const char* me = "conv_backward_filter";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"x", x}});
  check_rank(me, {"x", x}, 3, 2 + kMaxSpatial);
  ConvProblem p;
  p.direction = ConvDirection::backward_filter;
  read_attributes(me, attributes, x.desc.rank - 2, p);
  check_filter(me, p, "x", shape_of(x.desc), "w_shape", w_shape);
  p.x = x.desc;
  p.w = dense(x.desc.dtype, w_shape, Layout::channels_first, "conv_backward_filter: dw");
  check_shape(me, {"dy", dy}, y_shape(me, p, shape_of(x.desc), w_shape),
              cat("for x ", shape_text(x.desc), " and w_shape ", shape_text(w_shape)).c_str());
  p.y = dy.desc;
  Tensor dw = output(me, "out", call.out, default_out(p, "conv_backward_filter: dw"), h, {{"dy", dy}, {"x", x}});
  if (dw.desc.numel() == 0) return dw;
  p.w = dw.desc;
  p.ieee = ieee(h, x.desc.dtype);
  run(h, p, ConvArgs{x.data, nullptr, nullptr, dy.data, dw.data, 0}, call.algo);
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
  run(h, p, ConvArgs{nullptr, nullptr, nullptr, dy.data, db.data, 0}, call.algo);
  return db;
}

double conv_bytes(const ConvProblem& p) {
  auto count = [](const TensorDesc& d) { return d.rank ? double(d.numel()) : 0; };
  return (count(p.x) + count(p.w) + count(p.y)) * double(itemsize(p.y.dtype));
}
double conv_flop(const ConvProblem& p) {
  double products = p.w.rank && p.w.shape[0] ? double(p.w.numel()) / double(p.w.shape[0]) : 1;
  return 2 * double(p.y.numel()) * products;
}

}  // namespace minidnn
