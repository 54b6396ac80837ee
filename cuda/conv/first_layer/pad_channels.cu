// SPDX-License-Identifier: Apache-2.0
// Copies images of any strides to NHWC. The copy has margins of zeros, and its number of channels is rounded up to
// kChannels. A thread copies one pixel. Block: 256 threads. Bytes: reads x once and writes the copy once. T is an
// unsigned integer of the size of an element.
#include "cuda/conv/first_layer/pad_channels_params.h"
#include "cuda/device/ptx/math.cuh"

namespace minidnn {

template <class T, int kChannels>
__global__ void __launch_bounds__(256) conv_pad_channels(const __grid_constant__ PadChannels p, const T* x, T* out) {
  struct alignas(kChannels * sizeof(T)) Pixel {
    T channel[kChannels];
  };
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= p.pixels) return;
  const uint32_t line = p.columns.quotient(uint32_t(i)), image = p.rows.quotient(line);
  const int32_t row = int32_t(line - image * p.rows.divisor) - p.before[0],
                column = int32_t(uint32_t(i) - line * p.columns.divisor) - p.before[1];
  const bool inside = uint32_t(row) < uint32_t(p.size[0]) && uint32_t(column) < uint32_t(p.size[1]);
  const T* from = x + image * p.image + row * p.row + column * p.column;
  Pixel pixel;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    pixel.channel[c] = inside && c < p.channels ? from[c * p.channel] : T(0);
    if constexpr (sizeof(T) == 4)
      if (p.round) pixel.channel[c] = cvt_rna_tf32(__uint_as_float(pixel.channel[c]));
  }
  const uint32_t at = uint32_t(i) - line * p.columns.divisor, in_plane = p.planes.quotient(at);
  const uint32_t offset = (at - in_plane * p.planes.divisor) * uint32_t(p.plane) + in_plane;
  reinterpret_cast<Pixel*>(out)[i - at + offset] = pixel;
}

}  // namespace minidnn
