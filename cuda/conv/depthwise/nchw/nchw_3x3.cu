// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution (each channel is a group) of planes (NCHW) with 3 x 3 windows at stride 1, without shared
// memory.
// Method: a warp computes a span of 30 x 4 columns in a strip of 5 rows of y or dx. Each lane loads 4 columns x 7 rows
// of the input, and computes 4 columns x 5 rows. All loads of a lane are in flight at the same time. By shuffles, a
// lane gets the columns to its left and to its right from the neighbouring lanes. The first and the last lane of a warp
// only load columns for their neighbours.
// Grid: enough blocks for one warp per span, strip, channel and image. Block: 256 threads.
// Measured on an H100 for one plane of 1024 x 2048: this kernel takes 11.4 us, nchw.cu takes 13.3 us. This kernel is
// meant for at most as many threads as the device runs at the same time, because a thread has no loads in flight while
// it computes.
#include "cuda/conv/depthwise/group_conv.cuh"
#include "cuda/conv/depthwise/nchw/nchw_params.h"

namespace minidnn {

template <class T>
__global__ void __launch_bounds__(kThreadsOfStrips, 4)
    conv_nchw_3x3(const __grid_constant__ GroupConv p, const __grid_constant__ Nchw3x3 b, const T* in, const T* w,
                  const T* bias, const void* residual, void* out, float alpha) {
  constexpr int kRows = kRowsOfStrip;
  uint32_t rest = (blockIdx.x * kThreadsOfStrips + threadIdx.x) / 32;
  const int32_t lane = threadIdx.x % 32;
  const int32_t column = (b.spans.divmod(rest) * kQuadsOfSpan + lane - 1) * 4, row = b.strips.divmod(rest) * kRows;
  const int32_t channel = b.channels.divmod(rest), first_y = row - p.height.pad;
  const int64_t image = rest;
  const bool found = image < b.images;

  float x[kRows + 2][4];
  const T* const plane = in + image * p.in.image + channel * p.in.channel;
#pragma unroll
  for (int t = 0; t < kRows + 2; ++t) {
#pragma unroll
    for (int u = 0; u < 4; ++u) x[t][u] = 0;
    if (found && uint32_t(column) < uint32_t(p.width.in) && uint32_t(first_y + t) < uint32_t(p.height.in))
      // An offset within a plane fits in 32 bits.
      read_quad(x[t], plane + (first_y + t) * p.in.row + column);
  }
  // Nine lanes load one weight each, and shuffles distribute the weights. Nine loads per lane would delay the loads of
  // `in`.
  const T* const window = w + (int64_t(p.w_origin) + int64_t(channel) * p.w_group);
  const float own_weight = found && lane < 9 ? float(window[lane / 3 * p.w_tap[1] + lane % 3 * p.w_tap[2]]) : 0.0f;
  float weight[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) weight[i] = __shfl_sync(0xffffffff, own_weight, i);
  const float shift = p.has_bias && found ? float(bias[channel * p.bias_stride]) : 0.0f;

  float v[kRows * 4];
#pragma unroll
  for (int i = 0; i < kRows * 4; ++i) v[i] = shift;
#pragma unroll
  for (int t = 0; t < kRows + 2; ++t) {
    const float reach[6] = {__shfl_up_sync(0xffffffff, x[t][3], 1),  x[t][0], x[t][1], x[t][2], x[t][3],
                            __shfl_down_sync(0xffffffff, x[t][0], 1)};
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      if (t < r || t - r >= kRows) continue;
#pragma unroll
      for (int s = 0; s < 3; ++s)
#pragma unroll
        for (int u = 0; u < 4; ++u) v[(t - r) * 4 + u] += weight[r * 3 + s] * reach[u + s];
    }
  }
  if (!found || lane == 0 || lane > kQuadsOfSpan || column >= p.width.out) return;
  const auto offset_in = [&](const GroupConvStrides& s) {
    return image * s.image + channel * s.channel + row * int64_t(s.row) + column * int64_t(s.column);
  };
  const int32_t rows = p.height.out - row;
  finish_sums(p, v, alpha, [&](int t, float(&four)[4]) {
    if (t >= rows) return;
    const int64_t at = offset_in(p.residual) + t * int64_t(p.residual.row);
#pragma unroll
    for (int u = 0; u < 4; ++u) four[u] += load_residual<T>(p, residual, at + u * int64_t(p.residual.column));
  });
  const int64_t at = offset_in(p.out);
#pragma unroll
  for (int t = 0; t < kRows; ++t)
    if (t < rows)
      store_quad<T>(p, out, at + t * int64_t(p.out.row), {v[t * 4], v[t * 4 + 1], v[t * 4 + 2], v[t * 4 + 3]});
}

}  // namespace minidnn
