// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/lower.h"

namespace minidnn {
namespace {

GemmIndex index_of(std::initializer_list<int64_t> digits) {
  GemmIndex index;
  index.first = kDigits - int64_t(digits.size());
  int64_t* to = index.digit + index.first;
  for (int64_t d : digits) index.size *= * to++ = d;
  return index;
}
GemmStrides strides_of(std::initializer_list<int64_t> strides) {
  GemmStrides s;
  std::ranges::copy(strides, s.of + kDigits - int64_t(strides.size()));
  return s;
}

// The digits (image, position) of one side of a convolution, and their strides.
GemmIndex positions(int64_t images, const int64_t (&size)[3]) { return index_of({images, size[0], size[1], size[2]}); }
GemmStrides position_strides(const ConvTensorView& s) {
  return strides_of({s.image, s.space[0], s.space[1], s.space[2]});
}

GemmIndex tap_index(const GemmTaps& t, int64_t channels) {
  return index_of({t.count[0], t.count[1], t.count[2], channels});
}
GemmStrides tap_strides(const ConvGeometry& g, const GemmTaps& t, int64_t channel) {
  return strides_of({g.w_space[0] * t.step[0], g.w_space[1] * t.step[1], g.w_space[2] * t.step[2], channel});
}

GemmWindow window_of(const ConvTensorView& s) {
  GemmWindow w;
  w.on = 1;
  std::ranges::copy(s.size, w.size);
  std::ranges::copy(s.space, w.stride);
  return w;
}

GemmTaps all_taps(const ConvGeometry& g) {
  GemmTaps t;
  std::ranges::copy(g.window, t.window);
  std::ranges::copy(g.window, t.count);
  return t;
}

// x as read by the windows of all positions: rows are (image, position) and k is (tap, channel), or the other way
// round.
GemmOperand windows_of_x(const ConvGeometry& g) {
  GemmOperand x;
  x.window = window_of(g.x);
  x.window.row_digit = 1;
  x.row.of[0] = g.x.image;
  x.k.of[3] = g.x.channel;
  x.batch = strides_of({g.x.channels * g.x.channel});
  for (int j = 0; j < 3; ++j) {
    x.window.start[j] = -g.pad[j], x.window.row_step[j] = g.stride[j], x.window.k_step[j] = g.dilation[j];
    x.row.of[1 + j] = g.stride[j] * g.x.space[j];
    x.k.of[j] = g.dilation[j] * g.x.space[j];
    x.offset -= g.pad[j] * g.x.space[j];
  }
  return x;
}

GemmView forward(const ConvProblem& p, const ConvGeometry& g) {
  GemmView v;
  v.taps = all_taps(g);
  v.m = positions(g.images, g.y.size);
  v.n = index_of({g.y.channels});
  v.k = tap_index(v.taps, g.x.channels);
  v.batch = index_of({g.groups});
  v.a = windows_of_x(g);
  v.b.offset = g.w_origin;
  v.b.row = strides_of({g.w_filter});
  v.b.k = tap_strides(g, v.taps, g.w_channel);
  v.b.batch = strides_of({g.y.channels * g.w_filter});
  v.y_m = position_strides(g.y), v.y_n = strides_of({g.y.channel}),
  v.y_batch = strides_of({g.y.channels * g.y.channel});
  v.bias_n = strides_of({p.bias_stride}), v.bias_batch = strides_of({g.y.channels * p.bias_stride});
  if (p.residual.rank) {
    const ConvTensorView residual = detail::conv_side(p.residual, p.groups);
    v.c_m = position_strides(residual), v.c_n = strides_of({residual.channel});
    v.c_batch = strides_of({residual.channels * residual.channel});
  }
  return v;
}

GemmView backward_filter(const ConvGeometry& g) {
  GemmView v;
  v.taps = all_taps(g);
  v.m = index_of({g.y.channels});
  v.n = tap_index(v.taps, g.x.channels);
  v.k = positions(g.images, g.y.size);
  v.batch = index_of({g.groups});
  v.a.row = strides_of({g.y.channel}), v.a.k = position_strides(g.y);
  v.a.batch = strides_of({g.y.channels * g.y.channel});
  v.b = windows_of_x(g);
  std::swap(v.b.row, v.b.k);
  std::swap(v.b.window.row_digit, v.b.window.k_digit);
  std::swap(v.b.window.row_step, v.b.window.k_step);
  v.y_offset = g.w_origin;
  v.y_m = strides_of({g.w_filter}), v.y_n = tap_strides(g, v.taps, g.w_channel);
  v.y_batch = strides_of({g.y.channels * g.w_filter});
  return v;
}

// The phase `phase` of dx: its positions h = phase + i * stride. Position h uses the taps r for which (h + pad - r *
// dilation) is divisible by the stride, in row p = (h + pad - r * dilation) / stride of dy.
GemmView backward_data(const ConvGeometry& g, const int64_t (&phase)[3]) {
  GemmView v;
  GemmTaps& taps = v.taps = all_taps(g);
  int64_t count[3];
  v.a.window = window_of(g.y);
  v.a.window.row_digit = 1;
  v.a.row.of[0] = g.y.image;
  v.a.k.of[3] = g.y.channel;
  v.a.batch = strides_of({g.y.channels * g.y.channel});
  v.y_m.of[0] = g.x.image;
  for (int j = 0; j < 3; ++j) {
    count[j] = ceil_div(g.x.size[j] - phase[j], g.stride[j]);
    int64_t reach = phase[j] + g.pad[j], first = 0;
    while (first < min_of(g.tap_period[j], g.window[j]) && (reach - first * g.dilation[j]) % g.stride[j]) ++first;
    bool met = first < min_of(g.tap_period[j], g.window[j]);
    taps.first[j] = met ? first : 0, taps.step[j] = g.tap_period[j];
    taps.count[j] = met ? ceil_div(g.window[j] - first, g.tap_period[j]) : 0;
    v.a.window.start[j] = met ? (reach - first * g.dilation[j]) / g.stride[j] : 0;
    v.a.window.row_step[j] = 1, v.a.window.k_step[j] = -g.y_period[j];
    v.a.row.of[1 + j] = g.y.space[j];
    v.a.k.of[j] = -g.y_period[j] * g.y.space[j];
    v.a.offset += v.a.window.start[j] * g.y.space[j];
    v.b.offset += taps.first[j] * g.w_space[j];
    v.y_offset += phase[j] * g.x.space[j];
    v.y_m.of[1 + j] = g.stride[j] * g.x.space[j];
  }
  v.m = positions(g.images, count);
  v.n = index_of({g.x.channels});
  v.k = tap_index(taps, g.y.channels);
  v.batch = index_of({g.groups});
  v.b.offset += g.w_origin;
  v.b.row = strides_of({g.w_channel});
  v.b.k = tap_strides(g, taps, g.w_filter);
  v.b.batch = strides_of({g.y.channels * g.w_filter});
  v.y_n = strides_of({g.x.channel}), v.y_batch = strides_of({g.x.channels * g.x.channel});
  return v;
}

}  // namespace

void join(GemmIndex& index, std::initializer_list<GemmStrides*> walkers) {
  int64_t to = kDigits - 1;  // slot of the next digit, from the back
  bool any = false;
  GemmIndex joined;
  joined.size = index.size;
  std::vector<GemmStrides> strides(walkers.size());
  for (int64_t j = kDigits - 1; j >= 0; --j) {
    if (index.digit[j] == 1) continue;
    bool joins = any;
    size_t i = 0;
    for (GemmStrides* w : walkers) {
      const GemmStrides& s = strides[i++];
      joins = joins && w->of[j] == s.of[to] * joined.digit[to];
    }
    if (joins) {
      joined.digit[to] *= index.digit[j];
      continue;
    }
    if (any) --to;
    any = true;
    joined.digit[to] = index.digit[j];
    i = 0;
    for (GemmStrides* w : walkers) strides[i++].of[to] = w->of[j];
  }
  joined.first = to;
  index = joined;
  size_t i = 0;
  for (GemmStrides* w : walkers) *w = strides[i++];
}

void divide(GemmOutput& o) {
  for (int j = 0; j < kDigits; ++j)
    o.m_divisor[j] = FastDivmod(max_of(o.m.digit[j], int64_t(1))),
    o.n_divisor[j] = FastDivmod(max_of(o.n.digit[j], int64_t(1))),
    o.batch_divisor[j] = FastDivmod(max_of(o.batch.digit[j], int64_t(1)));
}

GemmOutput output_of(const GemmView& v, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit) {
  GemmOutput o;
  o.m = v.m, o.n = v.n, o.batch = v.batch, o.part.y_offset = v.y_offset;
  o.y_m = v.y_m, o.y_n = v.y_n, o.y_batch = v.y_batch;
  if (has_c) o.c_m = v.c_m, o.c_n = v.c_n, o.c_batch = v.c_batch;
  if (has_bias) {
    o.bias_by_row = std::ranges::any_of(v.bias_m.of, [](int64_t s) { return s != 0; });
    o.bias = o.bias_by_row ? v.bias_m : v.bias_n, o.bias_batch = v.bias_batch;
  }
  GemmStrides none;
  join(o.m, {&o.y_m, &o.c_m, o.bias_by_row ? &o.bias : &none});
  join(o.n, {&o.y_n, &o.c_n, o.bias_by_row ? &none : &o.bias});
  join(o.batch, {&o.y_batch, &o.c_batch, &o.bias_batch});
  std::ranges::copy(o.m.digit, o.part.limit);
  divide(o);
  o.n_limit = n_limit && n_limit < v.n.digit[kDigits - 1] ? n_limit : o.n.digit[kDigits - 1];
  // Whether `count` neighbours along n (or m), from a multiple of `count` on, are contiguous for all values of the
  // other digits.
  auto neighbours = [&](int64_t count, const GemmIndex& index, int64_t limit, const GemmStrides& along,
                        const GemmStrides& across, const GemmStrides& b, int64_t offset) {
    const int64_t last = kDigits - 1;
    bool all = along.of[last] == 1 && index.digit[last] % count == 0 && limit % count == 0 && offset % count == 0;
    for (int j = 0; j < kDigits; ++j)
      all = all && across.of[j] % count == 0 && b.of[j] % count == 0 && (j == last || along.of[j] % count == 0);
    return all;
  };
  const int64_t item = int64_t(itemsize(y)), offset = o.part.y_offset;
  const bool aligned = alignment >= min_of(8 * item, int64_t(16));
  o.y_vectors = aligned && neighbours(8, o.n, o.n_limit, o.y_n, o.y_m, o.y_batch, offset);
  o.c_vectors = has_c && aligned && neighbours(8, o.n, o.n_limit, o.c_n, o.c_m, o.c_batch, 0);
  o.bias_along_n = !has_bias || (!o.bias_by_row && o.bias.of[kDigits - 1] == 1);
  o.y_turned = item == 2 && alignment >= 8 && !has_c && o.bias_along_n && o.n.first == kDigits - 1 &&
               neighbours(4, o.m, o.part.limit[kDigits - 1], o.y_m, o.y_n, o.y_batch, offset);
  o.y_columns = y == DType::float32 && alignment >= 16 && (!has_bias || o.bias_by_row) &&
                neighbours(4, o.m, o.part.limit[kDigits - 1], o.y_m, o.y_n, o.y_batch, offset) &&
                (!has_c || neighbours(4, o.m, o.part.limit[kDigits - 1], o.c_m, o.c_n, o.c_batch, 0));
  return o;
}

GemmStore store_of(const GemmOutput& o, bool has_c) {
  if (o.y_turned) return GemmStore::turned;
  const bool lines = o.n.first == kDigits - 1 && o.y_vectors && (!has_c || o.c_vectors) && o.bias_along_n;
  return lines ? GemmStore::lines : GemmStore::any;
}

GemmView gemm_view(const MatmulProblem& p) {
  const int r = int(p.y.rank);
  GemmView v;
  auto batch = [&](const TensorDesc& d) {
    GemmStrides s;
    for (int i = 0; i < r - 2 && d.rank; ++i) s.of[kDigits - (r - 2) + i] = d.stride[i];
    return s;
  };
  v.batch = index_of({r > 4 ? p.y.shape[r - 5] : 1, r > 3 ? p.y.shape[r - 4] : 1, r > 2 ? p.y.shape[r - 3] : 1});
  const MatmulSizes s = sizes_of(p);
  v.m = index_of({s.m}), v.n = index_of({s.n}), v.k = index_of({s.k});
  v.a.row = strides_of({p.a.stride[r - 2]}), v.a.k = strides_of({p.a.stride[r - 1]}), v.a.batch = batch(p.a);
  v.b.row = strides_of({p.b.stride[r - 1]}), v.b.k = strides_of({p.b.stride[r - 2]}), v.b.batch = batch(p.b);
  v.y_m = strides_of({p.y.stride[r - 2]}), v.y_n = strides_of({p.y.stride[r - 1]}), v.y_batch = batch(p.y);
  if (p.c.rank)
    v.c_m = strides_of({p.c.stride[r - 2]}), v.c_n = strides_of({p.c.stride[r - 1]}), v.c_batch = batch(p.c);
  v.bias_n = strides_of({p.bias_stride});
  return v;
}

std::vector<GemmView> gemm_views(const ConvProblem& p) {
  const ConvGeometry g = conv_geometry(p);
  if (p.direction == ConvDirection::forward) return {forward(p, g)};
  if (p.direction == ConvDirection::backward_filter) return {backward_filter(g)};
  std::vector<GemmView> views;
  int64_t phases[3];
  // a phase beyond the size of x has no positions
  for (int j = 0; j < 3; ++j) phases[j] = min_of(g.stride[j], g.x.size[j]);
  for (int64_t a = 0; a < phases[0]; ++a)
    for (int64_t b = 0; b < phases[1]; ++b)
      for (int64_t c = 0; c < phases[2]; ++c) views.push_back(backward_data(g, {a, b, c}));
  return views;
}

GemmArgs gemm_args(const MatmulArgs& a) {
  return {a.a, a.b, a.beta == 0 ? nullptr : a.c, a.bias, a.y, float(a.alpha), float(a.beta), float(a.activation_alpha)};
}

GemmArgs gemm_args(const ConvProblem& p, const ConvArgs& a) {
  GemmArgs g;
  g.y = a.out, g.bias = a.bias, g.activation_alpha = float(a.activation_alpha);
  g.c = a.residual, g.beta = a.residual ? 1 : 0;
  switch (p.direction) {
    case ConvDirection::backward_data:
      g.a = a.dy, g.b = a.w;
      break;
    case ConvDirection::backward_filter:
      g.a = a.dy, g.b = a.x;
      break;
    default:
      g.a = a.x, g.b = a.w;
  }
  return g;
}

}  // namespace minidnn
