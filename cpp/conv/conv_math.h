// SPDX-License-Identifier: Apache-2.0
// Convolution and its gradients computed from their definition, for any strides. For y and dx, one thread computes one
// output element. For dw and db, a team of threads computes one element.
//   y[n, k, p] = activation(sum_{c, r} w[k, c, r] * x[n, c, p * stride - pad + r * dilation]
//                           + bias[k] + residual[n, k, p])
// Terms whose index lies outside x are skipped, not multiplied by zero. The index p of an output pixel and the index r
// of a window element have three dimensions. In a 2-D convolution, the first dimension of both has size 1.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/core/host_device/team.h"
#include "cpp/engine/spatial_math.h"

namespace minidnn {

enum class ConvDirection : int64_t { forward, backward_data, backward_filter, backward_bias };

// The type of a convolution problem: everything about a convolution except its data pointers. All operands, including
// the bias, have the same dtype. The output has this dtype too, or is float32 if the operands are 16-bit.
struct ConvProblem {
  ConvDirection direction{};
  // The descriptor of x, or of dx in backward_data: [N, C, spatial...]. Its rank is 0 in backward_bias.
  TensorDesc x;
  // The descriptor of w, or of dw in backward_filter: [K, C / groups, window...]. Its rank is 0 in backward_bias.
  TensorDesc w;
  // The descriptor of y, or of dy in the backward directions: [N, K, spatial...].
  TensorDesc y;
  // The descriptor of the residual of a forward convolution. The residual has y's shape and dtype, and may be the same
  // memory as y. The rank is 0 if there is no residual.
  TensorDesc residual;
  SpatialAttributes spatial;
  int64_t groups = 1;
  int64_t flip = 0;        // 1 for convolution (the window is reversed), 0 for cross-correlation
  int64_t ieee = 0;        // 1 if float32 products stay float32, 0 if engines may round operands to TF32
  int64_t alignment = 16;  // the alignment in bytes that all tensors have: at most 16, and less than 16 only on a GPU
  Activation activation{};
  int64_t has_bias = 0;     // 1 if a forward convolution adds a bias, else 0
  int64_t bias_stride = 0;  // the stride in elements of the bias [K], or of db in backward_bias
};

struct ConvArgs {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  const void* dy = nullptr;
  // The tensor that the convolution writes: y, dx, dw or db, depending on the direction.
  void* out = nullptr;
  double activation_alpha = 0;
};

// A forward convolution that also computes two sums per channel: the sum of y (as stored, after rounding) and the sum
// of y^2.
struct ConvStatisticsProblem : ConvProblem {};
struct ConvStatisticsArgs : ConvArgs {
  // The result [2, K], contiguous: for each channel, the sum of y, then for each channel, the sum of y^2. Its dtype is
  // float64 if y is float64, else float32.
  void* sums = nullptr;
};

// The sizes and strides (in elements) of a tensor of a convolution, such as x or y, always with three spatial
// dimensions.
struct ConvTensorView {
  int64_t channels = 1;  // the number of channels in one group of the convolution
  int64_t size[kMaxSpatial]{1, 1, 1};
  int64_t image = 0, channel = 0, space[kMaxSpatial]{};
};

// A ConvProblem in the form that the arithmetic uses: sizes and strides without descriptors. A plan computes it once.
struct ConvGeometry {
  int64_t images = 0, groups = 1;
  ConvTensorView x, y, residual;
  int64_t window[kMaxSpatial]{1, 1, 1};
  // The strides of w. The spatial strides `w_space` are negative if the window is reversed.
  int64_t w_origin = 0, w_filter = 0, w_channel = 0, w_space[kMaxSpatial]{};
  int64_t stride[kMaxSpatial]{1, 1, 1}, pad[kMaxSpatial]{}, dilation[kMaxSpatial]{1, 1, 1};
  // For backward_data. The pairs of a window element r and an output index p that use one element of x form a sequence.
  // From pair to pair, r grows by tap_period, and p decreases by y_period.
  int64_t tap_period[kMaxSpatial]{1, 1, 1}, y_period[kMaxSpatial]{1, 1, 1};
  int64_t backward_data = 0, has_bias = 0, bias_stride = 0, has_residual = 0;
  Activation activation{};
};

namespace detail {

MINIDNN_HD int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

MINIDNN_HD ConvTensorView conv_side(const TensorDesc& d, int64_t groups) {
  ConvTensorView side;
  side.channels = d.shape[1] / groups;
  side.image = d.stride[0];
  side.channel = d.stride[1];
  for (int i = 2, j = kMaxSpatial + 2 - int(d.rank); i < d.rank; ++i, ++j) {
    side.size[j] = d.shape[i];
    side.space[j] = d.shape[i] > 1 ? d.stride[i] : 0;
  }
  return side;
}

}  // namespace detail

MINIDNN_HD ConvGeometry conv_geometry(const ConvProblem& p) {
  ConvGeometry g;
  g.images = p.y.shape[0];
  g.groups = p.groups;
  g.y = detail::conv_side(p.y, p.groups);
  g.bias_stride = p.bias_stride;
  if (p.direction == ConvDirection::backward_bias) return g;
  g.x = detail::conv_side(p.x, p.groups);
  g.w_filter = p.w.stride[0];
  g.w_channel = p.w.stride[1];
  for (int i = 0, j = kMaxSpatial + 2 - int(p.x.rank); i < p.x.rank - 2; ++i, ++j) {
    g.window[j] = p.w.shape[2 + i];
    g.w_space[j] = p.flip ? -p.w.stride[2 + i] : p.w.stride[2 + i];
    if (p.flip) g.w_origin += (g.window[j] - 1) * p.w.stride[2 + i];
    // With a single output, the stride has no effect. With a single window element, the dilation has none. Setting them
    // to 1 makes the arithmetic cheaper.
    g.stride[j] = g.y.size[j] == 1 ? 1 : p.spatial.stride[i];
    g.dilation[j] = g.window[j] == 1 ? 1 : p.spatial.dilation[i];
    g.pad[j] = p.spatial.before[i];
    int64_t common = detail::gcd(g.stride[j], g.dilation[j]);
    g.tap_period[j] = g.stride[j] / common;
    g.y_period[j] = g.dilation[j] / common;
  }
  g.backward_data = p.direction == ConvDirection::backward_data;
  g.has_bias = p.has_bias;
  g.has_residual = p.residual.rank != 0;
  if (g.has_residual) g.residual = detail::conv_side(p.residual, p.groups);
  g.activation = p.activation;
  return g;
}

// Iterates over the indices of a D-dimensional box, the last dimension fastest. advance() moves by `stride` elements
// without a division.
template <int D> struct NdIterator {
  int64_t at[D], step[D], size[D];

  MINIDNN_HD NdIterator(const int64_t (&sizes)[D], int64_t index, int64_t stride = 1) {
    for (int d = D - 1; d >= 0; --d) {
      // Replacing a size of 0 avoids a division by 0. A loop over an empty box never advances the iterator.
      size[d] = max_of(sizes[d], int64_t(1));
      at[d] = d ? index % size[d] : index;
      step[d] = d ? stride % size[d] : stride;
      index /= size[d];
      stride /= size[d];
    }
  }
  MINIDNN_HD void advance() {
    int64_t carry = 0;
    for (int d = D - 1; d > 0; --d) {
      at[d] += step[d] + carry;
      carry = at[d] >= size[d];
      if (carry) at[d] -= size[d];
    }
    at[0] += step[0] + carry;
  }
};

// The taps (window elements) that fall on data, in one dimension: for i < count, element tap + i * tap_step reads the
// data at index at + i * at_step.
struct ConvTaps {
  int64_t count, tap, tap_step, at, at_step;
};

namespace detail {

// Computes max(0, ceil(a / d)): how many steps of length d lead from 0 to a or beyond. The common case d = 1 has its
// own branch, because a 64-bit division costs more than one multiply-add of a convolution.
MINIDNN_HD int64_t steps_to(int64_t a, int64_t d) { return a <= 0 ? 0 : d == 1 ? a : (a - 1) / d + 1; }

}  // namespace detail

// Returns the taps (window elements) that fall on data in dimension j when y[p] is computed.
MINIDNN_HD ConvTaps forward_taps(const ConvGeometry& g, int j, int64_t p) {
  int64_t first = p * g.stride[j] - g.pad[j];
  int64_t begin = detail::steps_to(-first, g.dilation[j]);
  int64_t end = min_of(g.window[j], detail::steps_to(g.x.size[j] - first, g.dilation[j]));
  return {end - begin, begin, 1, first + begin * g.dilation[j], g.dilation[j]};
}

// Returns the taps r (window elements) that use x[h] in dimension j, in ascending order, with the index p of y for
// each:
//   p * stride + r * dilation = h + pad
MINIDNN_HD ConvTaps backward_taps(const ConvGeometry& g, int j, int64_t h) {
  int64_t reach = h + g.pad[j], r = 0, end = min_of(g.tap_period[j], g.window[j]);
  if (g.stride[j] > 1)
    while (r < end && (reach - r * g.dilation[j]) % g.stride[j] != 0) ++r;
  if (r == end) return {0, 0, 0, 0, 0};
  int64_t p = (reach - r * g.dilation[j]) / g.stride[j];
  int64_t skip = detail::steps_to(p - (g.y.size[j] - 1), g.y_period[j]);
  r += skip * g.tap_period[j];
  p -= skip * g.y_period[j];
  int64_t count = min_of(detail::steps_to(g.window[j] - r, g.tap_period[j]), detail::steps_to(p + 1, g.y_period[j]));
  return {count, r, g.tap_period[j], p, -g.y_period[j]};
}

// Calls f(offset in w, offset in the data) for each tap (window element) that falls on data.
template <class F> MINIDNN_HD void for_taps(const ConvTaps (&t)[kMaxSpatial], const int64_t (&tap_stride)[kMaxSpatial],
                                            const int64_t (&data_stride)[kMaxSpatial], F&& f) {
  for (int64_t a = 0; a < t[0].count; ++a)
    for (int64_t b = 0; b < t[1].count; ++b) {
      int64_t tap = (t[0].tap + a * t[0].tap_step) * tap_stride[0] + (t[1].tap + b * t[1].tap_step) * tap_stride[1];
      int64_t data = (t[0].at + a * t[0].at_step) * data_stride[0] + (t[1].at + b * t[1].at_step) * data_stride[1];
      tap += t[2].tap * tap_stride[2];
      data += t[2].at * data_stride[2];
      int64_t tap_step = t[2].tap_step * tap_stride[2], data_step = t[2].at_step * data_stride[2];
      for (int64_t c = 0; c < t[2].count; ++c, tap += tap_step, data += data_step) f(tap, data);
    }
}

// A linear index split into image, channel and spatial position, in channels-last or channels-first order.
struct ConvPoint {
  NdIterator<5> count;
  int first_space;

  MINIDNN_HD ConvPoint(int64_t images, int64_t channels, const int64_t (&size)[kMaxSpatial], bool channels_last,
                       int64_t index)
      : count(channels_last ? NdIterator<5>({images, size[0], size[1], size[2], channels}, index)
                            : NdIterator<5>({images, channels, size[0], size[1], size[2]}, index)),
        first_space(channels_last ? 1 : 2) {}
  MINIDNN_HD ConvPoint(const ConvGeometry& g, const ConvTensorView& s, int64_t index)
      : ConvPoint(g.images, g.groups * s.channels, s.size, s.channel == 1, index) {}

  MINIDNN_HD int64_t image() const { return count.at[0]; }
  MINIDNN_HD int64_t channel() const { return first_space == 1 ? count.at[4] : count.at[1]; }
  MINIDNN_HD int64_t space(int j) const { return first_space == 1 ? count.at[1 + j] : count.at[2 + j]; }
  MINIDNN_HD int64_t offset(const ConvTensorView& s) const {
    return image() * s.image + channel() * s.channel + space(0) * s.space[0] + space(1) * s.space[1] +
           space(2) * s.space[2];
  }
};

// The taps (window elements) that fall on data at one output position. move_to() moves the window to another position.
struct ConvWindow {
  ConvTaps taps[kMaxSpatial];
  int64_t at[kMaxSpatial]{-1, -1, -1};

  MINIDNN_HD void move_to(const ConvGeometry& g, const ConvPoint& point) {
    for (int j = 0; j < kMaxSpatial; ++j)
      if (int64_t i = point.space(j); at[j] != i) {
        taps[j] = g.backward_data ? backward_taps(g, j, i) : forward_taps(g, j, i);
        at[j] = i;
      }
  }
};

// conv_out() returns the sizes and strides of the tensor that the convolution writes: dx in backward_data, y in a
// forward convolution. conv_out_numel() returns its number of elements.
MINIDNN_HD const ConvTensorView& conv_out(const ConvGeometry& g) { return g.backward_data ? g.x : g.y; }
MINIDNN_HD int64_t conv_out_numel(const ConvGeometry& g) {
  const ConvTensorView& s = conv_out(g);
  return g.images * g.groups * s.channels * s.size[0] * s.size[1] * s.size[2];
}

// Computes one element of y, or of dx in backward_data. The caller must have moved `window` to `point`. T is the type
// of the operands, Y that of the output and the residual.
template <class T, class Y> MINIDNN_HD void conv_element(const ConvGeometry& g, const ConvArgs& a,
                                                         const ConvPoint& point, const ConvWindow& window) {
  using Acc = Accumulator<T>;
  bool backward = g.backward_data;
  const ConvTensorView& out = conv_out(g);
  const ConvTensorView& in = backward ? g.y : g.x;
  int64_t channel = point.channel(), group = g.groups == 1 ? 0 : channel / out.channels;
  const T* data =
      static_cast<const T*>(backward ? a.dy : a.x) + point.image() * in.image + group * in.channels * in.channel;
  const T* w = static_cast<const T*>(a.w) + g.w_origin + group * g.y.channels * g.w_filter +
               (channel - group * out.channels) * (backward ? g.w_channel : g.w_filter);
  int64_t w_step = backward ? g.w_filter : g.w_channel;
  Acc sum = 0;
  for_taps(window.taps, g.w_space, in.space, [&](int64_t tap, int64_t at) {
    for (int64_t c = 0; c < in.channels; ++c) sum += Acc(data[at + c * in.channel]) * Acc(w[tap + c * w_step]);
  });
  if (!backward) {
    if (g.has_bias) sum += Acc(static_cast<const T*>(a.bias)[channel * g.bias_stride]);
    if (g.has_residual) sum += Acc(static_cast<const Y*>(a.residual)[point.offset(g.residual)]);
    sum = activate(g.activation, sum, Acc(a.activation_alpha));
  }
  static_cast<Y*>(a.out)[point.offset(out)] = Y(sum);
}

MINIDNN_HD int64_t conv_weights(const ConvGeometry& g) {
  return g.groups * g.y.channels * g.x.channels * g.window[0] * g.window[1] * g.window[2];
}

// Computes one element of dw with a team of threads: the sum over all images and pixels of dy times x.
template <class T, class Y, class Team> MINIDNN_HD void conv_filter_element(const ConvGeometry& g, const ConvArgs& a,
                                                                            int64_t index, Team& team) {
  using Acc = Accumulator<T>;
  NdIterator<5> weight({g.groups * g.y.channels, g.x.channels, g.window[0], g.window[1], g.window[2]}, index);
  int64_t k = weight.at[0], c = weight.at[1] + (g.groups == 1 ? 0 : k / g.y.channels * g.x.channels);
  int64_t dw_at = g.w_origin + k * g.w_filter + weight.at[1] * g.w_channel;
  // Offsets of the first pixel of dy for which the weight falls on data, and of the element of x that it multiplies
  // there.
  int64_t dy_at = k * g.y.channel, x_at = c * g.x.channel;
  int64_t positions[4] = {g.images, 0, 0, 0};
  for (int j = 0; j < kMaxSpatial; ++j) {
    // `first` is the index in x, in dimension j, that the weight multiplies for pixel 0 of y. It may lie in the
    // padding.
    int64_t r = weight.at[2 + j], first = r * g.dilation[j] - g.pad[j];
    int64_t begin = detail::steps_to(-first, g.stride[j]);
    positions[1 + j] =
        max_of(min_of(g.y.size[j], detail::steps_to(g.x.size[j] - first, g.stride[j])) - begin, int64_t(0));
    dw_at += r * g.w_space[j];
    dy_at += begin * g.y.space[j];
    x_at += (first + begin * g.stride[j]) * g.x.space[j];
  }
  const T* dy = static_cast<const T*>(a.dy) + dy_at;
  const T* x = static_cast<const T*>(a.x) + x_at;
  Acc sum = 0;
  int64_t n = positions[0] * positions[1] * positions[2] * positions[3];
  NdIterator<4> at(positions, team.rank(), team.size());
  for (int64_t i = team.rank(); i < n; i += team.size(), at.advance()) {
    int64_t dy_offset = at.at[0] * g.y.image, x_offset = at.at[0] * g.x.image;
    for (int j = 0; j < kMaxSpatial; ++j) {
      dy_offset += at.at[1 + j] * g.y.space[j];
      x_offset += at.at[1 + j] * g.stride[j] * g.x.space[j];
    }
    sum += Acc(dy[dy_offset]) * Acc(x[x_offset]);
  }
  sum = team.sum(sum);
  if (team.rank() == 0) static_cast<Y*>(a.out)[dw_at] = Y(sum);
}

// Computes one element of db by a team of threads: the sum of dy[:, k] over all images and positions.
template <class T, class Team> MINIDNN_HD void conv_bias_element(const ConvGeometry& g, const ConvArgs& a, int64_t k,
                                                                 Team& team) {
  using Acc = Accumulator<T>;
  const T* dy = static_cast<const T*>(a.dy) + k * g.y.channel;
  CompensatedSum<Acc> sum;
  int64_t n = g.images * g.y.size[0] * g.y.size[1] * g.y.size[2];
  NdIterator<4> at({g.images, g.y.size[0], g.y.size[1], g.y.size[2]}, team.rank(), team.size());
  for (int64_t i = team.rank(); i < n; i += team.size(), at.advance())
    sum.add(
        Acc(dy[at.at[0] * g.y.image + at.at[1] * g.y.space[0] + at.at[2] * g.y.space[1] + at.at[3] * g.y.space[2]]));
  Acc total = team.sum(sum.value());
  if (team.rank() == 0) static_cast<T*>(a.out)[k * g.bias_stride] = T(total);
}

}  // namespace minidnn
