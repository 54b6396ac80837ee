// SPDX-License-Identifier: Apache-2.0
// Windows of 3 x 3 at stride 1 over planes, each channel alone, straight from global memory: a thread computes 4 columns of 4
// rows, loads all six rows at once and takes the columns beside its own from its neighbours in the warp. There is no tile to
// wait for, so that a single plane costs one latency of memory; a column before the first is padding.
#include "cuda/conv/planes.h"
#include "cuda/conv/stencil.cuh"

namespace minidnn {

template <class T>
__global__ void __launch_bounds__(kThreadsOfStrips, 4)
    conv_plane_rows(const __grid_constant__ Stencil p, const __grid_constant__ PlaneRows b, const T* in, const T* w,
                    const T* bias, const void* residual, void* out, float alpha) {
  constexpr int kRows = kRowsOfStrip;
  uint32_t rest = blockIdx.x * kThreadsOfStrips + threadIdx.x;
  const int32_t column = b.quads.digit(rest) * 4, row = b.strips.digit(rest) * kRows;
  const int32_t channel = b.channels.digit(rest);
  const int64_t image = rest;
  const bool active = image < b.images;

  const int32_t lane = threadIdx.x % 32, first_y = row - p.height.pad;
  const bool exists = active && column < p.width.in;
  // What no neighbour has: at the ends of a warp, and where out is narrower than in.
  const bool before = active && lane == 0 && column > 0 && column - 1 < p.width.in;
  const bool after = active && (lane == 31 || column + 4 >= p.width.out) && column + 4 < p.width.in;
  const T* const from = in + image * p.in.image + channel * p.in.channel + int64_t(first_y) * p.in.row + column;
  float x[kRows + 2][4], edge[kRows + 2];
#pragma unroll
  for (int t = 0; t < kRows + 2; ++t) {
    const bool inside = uint32_t(first_y + t) < uint32_t(p.height.in);
    const T* const line = from + t * int64_t(p.in.row);
#pragma unroll
    for (int u = 0; u < 4; ++u) x[t][u] = 0;
    edge[t] = 0;
    if (inside && exists) read_quad(x[t], line);
    if (inside && (before || after)) edge[t] = float(line[before ? -1 : 4]);
  }
  float weight[9];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    weight[i] =
        active ? float(w[int64_t(p.w_origin) + int64_t(channel) * p.w_group + i / 3 * p.w_tap[1] + i % 3 * p.w_tap[2]])
               : 0.0f;
  const float shift = p.has_bias && active ? float(bias[channel * p.bias_stride]) : 0.0f;

  float v[kRows * 4];
#pragma unroll
  for (int i = 0; i < kRows * 4; ++i) v[i] = shift;
#pragma unroll
  for (int t = 0; t < kRows + 2; ++t) {
    const float left = __shfl_up_sync(0xffffffff, x[t][3], 1), right = __shfl_down_sync(0xffffffff, x[t][0], 1);
    const float reach[6] = {column == 0 ? 0.0f
                            : before    ? edge[t]
                                        : left,
                            x[t][0],
                            x[t][1],
                            x[t][2],
                            x[t][3],
                            column + 4 >= p.width.in ? 0.0f
                            : after                  ? edge[t]
                                                     : right};
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      if (t < r || t - r >= kRows) continue;
#pragma unroll
      for (int s = 0; s < 3; ++s)
#pragma unroll
        for (int u = 0; u < 4; ++u) v[(t - r) * 4 + u] += weight[r * 3 + s] * reach[u + s];
    }
  }
  if (!active) return;
  const auto place = [&](const StencilSide& s) {
    return image * s.image + channel * s.channel + row * int64_t(s.row) + column * int64_t(s.column);
  };
  const int32_t rows = p.height.out - row;
  finish_sums(p, v, alpha, [&](int t, float(&four)[4]) {
    if (t >= rows) return;
    const int64_t at = place(p.residual) + t * int64_t(p.residual.row);
#pragma unroll
    for (int u = 0; u < 4; ++u) four[u] += load_residual<T>(p, residual, at + u * int64_t(p.residual.column));
  });
  const int64_t at = place(p.out);
#pragma unroll
  for (int t = 0; t < kRows; ++t)
    if (t < rows)
      store_quad<T>(p, out, at + t * int64_t(p.out.row), {v[t * 4], v[t * 4 + 1], v[t * 4 + 2], v[t * 4 + 3]});
}

}  // namespace minidnn
