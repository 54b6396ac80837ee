// SPDX-License-Identifier: Apache-2.0
// The im2col matrix of a convolution. Its row for image n and output position p holds the elements of x in the window
// at p, for all channels. Elements on padding are zeros. im2col writes the matrix from x, and col2im sums it into dx.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct ConvColumns {
  // The convolution of one chunk of images. The strides of y and w are not used.
  ConvGeometry g;
  // 1 if each row of the im2col matrix is contiguous, 0 if each column is contiguous
  int64_t channels_last = 0;
  // Strides between rows of the im2col matrix: to the next image, and to the next pixel in each dimension.
  int64_t image = 0, position[kMaxSpatial]{};
  // Strides within a row of the im2col matrix: to the next group, channel, and window element in each dimension.
  int64_t group = 0, channel = 0, tap[kMaxSpatial]{};
  // The offset of window element 0 within a row of the im2col matrix. It is not 0 if the window is reversed.
  int64_t origin = 0;
};

// Returns the number of pairs of a pixel of y and a channel of x, in all images.
MINIDNN_HD int64_t columns_points(const ConvColumns& m) {
  return m.g.images * m.g.groups * m.g.x.channels * m.g.y.size[0] * m.g.y.size[1] * m.g.y.size[2];
}
MINIDNN_HD ConvPoint columns_point(const ConvColumns& m, int64_t index) {
  return ConvPoint(m.g.images, m.g.groups * m.g.x.channels, m.g.y.size, m.channels_last, index);
}

// Returns the offset of the image and the channel of `point` in the im2col matrix.
MINIDNN_HD int64_t columns_start(const ConvColumns& m, const ConvPoint& point) {
  int64_t channel = point.channel(), group = m.g.groups == 1 ? 0 : channel / m.g.x.channels;
  return m.origin + point.image() * m.image + group * m.group + (channel - group * m.g.x.channels) * m.channel;
}

template <class T> MINIDNN_HD void columns_gather(const ConvColumns& m, const T* x, T* columns,
                                                  const ConvPoint& point) {
  const ConvGeometry& g = m.g;
  const T* from = x + point.image() * g.x.image + point.channel() * g.x.channel;
  T* to = columns + columns_start(m, point);
  int64_t first[kMaxSpatial];
  for (int j = 0; j < kMaxSpatial; ++j) {
    first[j] = point.space(j) * g.stride[j] - g.pad[j];
    to += point.space(j) * m.position[j];
  }
  auto inside = [&](int j, int64_t i) { return uint64_t(i) < uint64_t(g.x.size[j]); };
  for (int64_t a = 0, i = first[0]; a < g.window[0]; ++a, i += g.dilation[0])
    for (int64_t b = 0, k = first[1]; b < g.window[1]; ++b, k += g.dilation[1]) {
      bool line = inside(0, i) && inside(1, k);
      int64_t at = i * g.x.space[0] + k * g.x.space[1];
      T* tap = to + a * m.tap[0] + b * m.tap[1];
      for (int64_t c = 0, l = first[2]; c < g.window[2]; ++c, l += g.dilation[2])
        tap[c * m.tap[2]] = line && inside(2, l) ? from[at + l * g.x.space[2]] : T(0);
    }
}

// Computes one element of dx (col2im). The elements of the matrix are float32 or float64, even if dx is 16-bit.
template <class T> MINIDNN_HD void columns_sum(const ConvColumns& m, const Accumulator<T>* columns, T* dx,
                                               const ConvPoint& point, const ConvWindow& window) {
  const Accumulator<T>* from = columns + columns_start(m, point);
  Accumulator<T> sum = 0;
  for_taps(window.taps, m.tap, m.position, [&](int64_t tap, int64_t at) { sum += from[tap + at]; });
  dx[point.offset(m.g.x)] = T(sum);
}

}  // namespace minidnn
