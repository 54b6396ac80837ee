// SPDX-License-Identifier: Apache-2.0
// GemmStore::any: stores each element alone, for a y of any strides.
#pragma once
#include "cuda/gemm/epilogue/context.cuh"

namespace minidnn {

// Stores single elements to a y whose columns have one stride. In NCHW, eight lanes store adjacent elements of a
// column.
template <int kCount, class Context>
__device__ __forceinline__ void gemm_store_even(const Context& e, float (&acc)[kCount],
                                                const typename Context::Row (&rows)[2], uint32_t n) {
  using Y = typename Context::Y;
  const uint32_t first = n + threadIdx.x % 4 * 2;
  const int left = int(e.output.n_limit) - int(first);
  const int64_t step = e.output.y_n.of[3], c_step = Context::kC ? e.output.c_n.of[3] : 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!rows[r].exists) continue;
    Y* y = e.y + rows[r].y + first * step;
    const Y* c = Context::kC && e.c ? e.c + rows[r].c + first * c_step : nullptr;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j, y += 8 * step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i >= left) continue;
        float v = e.alpha * acc[4 * j + 2 * r + i];
        if (Context::kC && c) v += e.beta * float(c[i * c_step]);
        if (Context::kBias)
          v += float(e.bias[rows[r].bias + (e.output.bias_by_row ? 0 : (first + 8 * j + i) * e.output.bias.of[3])]);
        y[i * step] = Y(e.activated(v));
      }
      if (Context::kC && c) c += 8 * c_step;
    }
  }
}

// Stores single elements to a y of any strides. The loop over blocks of eight columns is not unrolled, to keep the code
// small. It shifts `acc`, so that all register indices are constants.
template <int kCount, class Context>
__device__ __forceinline__ void gemm_store_elements(const Context& e, float (&acc)[kCount],
                                                    const typename Context::Row (&rows)[2], uint32_t n) {
  using Y = typename Context::Y;
#pragma unroll 1
  for (int j = 0; j < kCount / 4; ++j, n += 8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t column = n + threadIdx.x % 4 * 2 + i;
      const GemmCoordinates32 at = coordinates_of(e.output.n_divisor, column);
      if (column >= e.output.n.size || at.at[kDigits - 1] >= e.output.n_limit) continue;
      const int64_t y = offset_of(e.output.y_n, at), c = Context::kC ? offset_of(e.output.c_n, at) : 0;
      const int64_t bias = Context::kBias && !e.output.bias_by_row ? offset_of(e.output.bias, at) : 0;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!rows[r].exists) continue;
        float v = e.alpha * acc[2 * r + i];
        if (Context::kC && e.c) v += e.beta * float(e.c[rows[r].c + c]);
        if (Context::kBias) v += float(e.bias[rows[r].bias + bias]);
        e.y[rows[r].y + y] = Y(e.activated(v));
      }
    }
#pragma unroll
    for (int i = 0; i + 4 < kCount; ++i) acc[i] = acc[i + 4];
  }
}

}  // namespace minidnn
