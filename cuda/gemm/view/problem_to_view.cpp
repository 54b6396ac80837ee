// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/view/problem_to_view.h"

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

// The index (image, position) of x and y, and its strides.
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

// Operand x of a convolution: rows are (image, position) and k is (tap, channel) or, in backward_filter, the reverse.
GemmOperand windows_of_x(const ConvGeometry& g) {
  GemmOperand x;
  x.window = window_of(g.x);
  x.window.row_digit = 1;
  x.row.of[0] = g.x.image;
  x.k.of[3] = g.x.channel;
  x.batch = strides_of({g.x.channels * g.x.channel});
  for (int j = 0; j < 3; ++j) {
    x.window.start[j] = -g.pad[j];
    x.window.row_step[j] = g.stride[j];
    x.window.k_step[j] = g.dilation[j];
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
  v.y_m = position_strides(g.y);
  v.y_n = strides_of({g.y.channel});
  v.y_batch = strides_of({g.y.channels * g.y.channel});
  v.bias_n = strides_of({p.bias_stride});
  v.bias_batch = strides_of({g.y.channels * p.bias_stride});
  if (p.residual.rank) {
    const ConvTensorView residual = detail::conv_side(p.residual, p.groups);
    v.c_m = position_strides(residual);
    v.c_n = strides_of({residual.channel});
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
  v.a.row = strides_of({g.y.channel});
  v.a.k = position_strides(g.y);
  v.a.batch = strides_of({g.y.channels * g.y.channel});
  v.b = windows_of_x(g);
  std::swap(v.b.row, v.b.k);
  std::swap(v.b.window.row_digit, v.b.window.k_digit);
  std::swap(v.b.window.row_step, v.b.window.k_step);
  v.y_offset = g.w_origin;
  v.y_m = strides_of({g.w_filter});
  v.y_n = tap_strides(g, v.taps, g.w_channel);
  v.y_batch = strides_of({g.y.channels * g.w_filter});
  return v;
}

// The view of one phase of backward_data. In each dimension, the phase consists of the positions h = phase + i * stride
// of dx. These positions use the taps r for which h + pad - r * dilation is divisible by the stride. Tap r reads dy at
// position (h + pad - r * dilation) / stride.
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
    taps.first[j] = met ? first : 0;
    taps.step[j] = g.tap_period[j];
    taps.count[j] = met ? ceil_div(g.window[j] - first, g.tap_period[j]) : 0;
    v.a.window.start[j] = met ? (reach - first * g.dilation[j]) / g.stride[j] : 0;
    v.a.window.row_step[j] = 1;
    v.a.window.k_step[j] = -g.y_period[j];
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
  v.y_n = strides_of({g.x.channel});
  v.y_batch = strides_of({g.x.channels * g.x.channel});
  return v;
}

}  // namespace

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
  v.m = index_of({s.m});
  v.n = index_of({s.n});
  v.k = index_of({s.k});
  v.a.row = strides_of({p.a.stride[r - 2]});
  v.a.k = strides_of({p.a.stride[r - 1]});
  v.a.batch = batch(p.a);
  v.b.row = strides_of({p.b.stride[r - 1]});
  v.b.k = strides_of({p.b.stride[r - 2]});
  v.b.batch = batch(p.b);
  v.y_m = strides_of({p.y.stride[r - 2]});
  v.y_n = strides_of({p.y.stride[r - 1]});
  v.y_batch = batch(p.y);
  if (p.c.rank) {
    v.c_m = strides_of({p.c.stride[r - 2]});
    v.c_n = strides_of({p.c.stride[r - 1]});
    v.c_batch = batch(p.c);
  }
  v.bias_n = strides_of({p.bias_stride});
  return v;
}

std::vector<GemmView> gemm_views(const ConvProblem& p) {
  const ConvGeometry g = conv_geometry(p);
  if (p.direction == ConvDirection::forward) return {forward(p, g)};
  if (p.direction == ConvDirection::backward_filter) return {backward_filter(g)};
  std::vector<GemmView> views;
  int64_t phases[3];
  // Phases are the positions of dx that use the same taps; in each dimension, there are as many as the stride.
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
  g.y = a.out;
  g.bias = a.bias;
  g.activation_alpha = float(a.activation_alpha);
  g.c = a.residual;
  g.beta = a.residual ? 1 : 0;
  switch (p.direction) {
    case ConvDirection::backward_data:
      g.a = a.dy, g.b = a.w;
      break;
    case ConvDirection::backward_filter:
      g.a = a.dy, g.b = a.x;
      break;
    default:
      g.a = a.x;
      g.b = a.w;
  }
  return g;
}

}  // namespace minidnn
