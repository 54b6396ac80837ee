// SPDX-License-Identifier: Apache-2.0
// Convolution with 3 x 3 windows at stride 1 and contiguous channels (NHWC), depthwise or in groups of four channels
// (kGrouped).
// Method: a thread computes 4 columns x 4 channels of y or dx, and loops over the rows from top to bottom. It loads
// each row of the input from global memory, converts it to float once, and adds its products to the three rows of the
// output that need it. (From shared memory, it would read and convert each row three times.) The loads of the next two
// rows of the input are in flight meanwhile. If two threads read the same column, the second read hits in L1.
// Grid: enough blocks for one thread per quad (4 channels), span (4 columns), strip (several rows) and image. Block:
// 128 threads. Shared memory (static, only for kGrouped): the weights of 8 groups. Numerics: sums in float32.
// Depthwise convolutions are bound by memory. Groups of four channels are bound by arithmetic: for each row of the
// input, a thread executes 576 multiply-adds, and 36 loads of weights from shared memory.
#include "cuda/conv/depthwise/group_conv.cuh"
#include "cuda/conv/depthwise/nhwc/nhwc_params.h"

namespace minidnn {

template <class T> struct RawQuad {
  using type = uint2;
};
template <> struct RawQuad<float> {
  using type = float4;
};

// The weight of output channel o for input channel c of its group, or 0 if o does not exist.
template <bool kGrouped, class T>
__device__ __forceinline__ float weight_at(const GroupConv& p, const T* w, int32_t channels, int32_t tap, int32_t c,
                                           int32_t o) {
  const int32_t group = kGrouped ? o / 4 : o, of_group = kGrouped ? o % 4 : 0;
  const int64_t at = int64_t(p.w_origin) + int64_t(group) * p.w_group + of_group * p.w_out + c * p.w_in +
                     tap / 3 * p.w_tap[1] + tap % 3 * p.w_tap[2];
  return o < channels ? float(w[at]) : 0.0f;
}

// to = from + products of x, a row of the input, and row r of the window. The weights are in shared memory (of_quad)
// with kGrouped, else in registers (own).
template <bool kGrouped, int kTaps>
__device__ __forceinline__ void add_row(int r, const float (&x)[kColumnsOfRows + 2][4], const float* of_quad,
                                        const float (&own)[kTaps][4], const float (&from)[kColumnsOfRows][4],
                                        float (&to)[kColumnsOfRows][4]) {
  constexpr int kIn = kGrouped ? 4 : 1;
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    // Makes the compiler read the weights again for each row. Otherwise, the compiler would keep them in 144 registers.
    if constexpr (kGrouped) asm volatile("" ::: "memory");
#pragma unroll
    for (int c = 0; c < kIn; ++c) {
      float four[4];
      if constexpr (kGrouped) {
        read_quad(four, of_quad + ((r * 3 + s) * kIn + c) * kQuadsOfChannelTile * 4);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = own[r * 3 + s][i];
      }
#pragma unroll
      for (int u = 0; u < kColumnsOfRows; ++u)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          to[u][i] = (s == 0 && c == 0 ? from[u][i] : to[u][i]) + four[i] * x[u + s][kGrouped ? c : i];
    }
  }
}

template <class T, bool kGrouped>
__global__ void __launch_bounds__(kThreadsOfRows, sizeof(T) == 4 ? 2
                                                  : kGrouped     ? 4
                                                                 : 3)
    conv_nhwc_3x3(const __grid_constant__ GroupConv p, const __grid_constant__ Nhwc3x3 b, const T* in, const T* w,
                  const T* bias, const void* residual, void* out, float alpha) {
  constexpr int kSpan = kColumnsOfRows, kReach = kSpan + 2, kTaps = 9, kIn = kGrouped ? 4 : 1;
  using Raw = typename RawQuad<T>::type;
  const int32_t channels = p.groups * p.out_channels;
  uint32_t rest = blockIdx.x;
  const int32_t first_quad = b.channel_tiles.divmod(rest) * kQuadsOfChannelTile;
  // With kGrouped, four adjacent lanes take the same four channels, so one access to shared memory serves all four.
  const uint32_t lane = threadIdx.x % 32, transposed = kGrouped ? lane % 4 * 8 + lane / 4 : lane;
  rest = rest * kThreadsOfRows + threadIdx.x - lane + transposed;
  const int32_t quad = b.quads.divmod(rest), channel = (first_quad + quad) * 4;
  const int32_t column = b.spans.divmod(rest) * kSpan, row = b.strips.divmod(rest) * b.rows;
  const int64_t image = rest;
  const bool active = image < b.images && channel < channels;

  // The weights: with kGrouped in shared memory as [tap][input channel][output channel of the block], else in
  // registers.
  __shared__ alignas(16) float shared[kGrouped ? kTaps * kIn * kQuadsOfChannelTile * 4 : 1];
  float own[kGrouped ? 1 : kTaps][4];
  if constexpr (kGrouped) {
    for (int32_t i = threadIdx.x; i < kTaps * kIn * kQuadsOfChannelTile * 4; i += kThreadsOfRows) {
      constexpr int kOutputs = kQuadsOfChannelTile * 4;
      shared[i] =
          weight_at<kGrouped>(p, w, channels, i / (kOutputs * kIn), i / kOutputs % kIn, first_quad * 4 + i % kOutputs);
    }
    __syncthreads();
  } else {
#pragma unroll
    for (int i = 0; i < kTaps * 4; ++i)
      own[i / 4][i % 4] = active ? weight_at<kGrouped>(p, w, channels, i / 4, 0, channel + i % 4) : 0.0f;
  }
  if (!active) return;

  const int32_t rows = min_of(b.rows, p.height.out - row), columns = p.width.out - column;
  const int32_t first_x = column - p.width.pad;
  const T* line =
      in + image * p.in.image + channel + int64_t(row - p.height.pad) * p.in.row + int64_t(first_x) * p.in.column;
  // the next row of the input to load, and the number of rows left
  int32_t y = row - p.height.pad, left = rows + 2;
  const auto load = [&](Raw(&to)[kReach]) {
    const bool exists = left-- > 0 && uint32_t(y++) < uint32_t(p.height.in);
#pragma unroll
    for (int k = 0; k < kReach; ++k) {
      to[k] = {};
      if (exists && uint32_t(first_x + k) < uint32_t(p.width.in))
        to[k] = *reinterpret_cast<const Raw*>(line + k * p.in.column);
    }
    line += p.in.row;
  };

  float shift[4] = {};
  if (p.has_bias) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shift[i] = float(bias[(channel + i) * p.bias_stride]);
  }
  const auto offset_in = [&](const GroupConvStrides& s) {
    return image * s.image + channel * s.channel + row * int64_t(s.row) + column * int64_t(s.column);
  };
  int64_t at = offset_in(p.out);
  const auto finish = [&](int32_t done, const float(&sums)[kSpan][4]) {
    float v[kSpan * 4];
#pragma unroll
    for (int i = 0; i < kSpan * 4; ++i) v[i] = sums[i / 4][i % 4] + shift[i % 4];
    finish_sums(p, v, alpha, [&](int u, float(&four)[4]) {
      if (u >= columns) return;
      const int64_t from = offset_in(p.residual) + done * int64_t(p.residual.row) + u * int64_t(p.residual.column);
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] += load_residual<T>(p, residual, from + i * p.residual.channel);
    });
#pragma unroll
    for (int u = 0; u < kSpan; ++u)
      if (u < columns)
        store_quad<T>(p, out, at + u * int64_t(p.out.column), {v[u * 4], v[u * 4 + 1], v[u * 4 + 2], v[u * 4 + 3]});
    at += p.out.row;
  };

  const float* const of_quad = shared + (kGrouped ? quad * 4 : 0);
  // The sums of two unfinished rows. `older` needs one more row of the input, `newer` two more.
  float older[kSpan][4] = {}, newer[kSpan][4] = {};
  const auto step = [&](int32_t number, Raw(&raw)[kReach]) {
    float x[kReach][4];
#pragma unroll
    for (int k = 0; k < kReach; ++k) read_quad(x[k], reinterpret_cast<const T*>(&raw[k]));
    load(raw);
    add_row<kGrouped>(2, x, of_quad, own, older, older);
    if (number >= 2) finish(number - 2, older);
    add_row<kGrouped>(1, x, of_quad, own, newer, older);
    constexpr float kZeros[kSpan][4] = {};
    add_row<kGrouped>(0, x, of_quad, own, kZeros, newer);
  };
  Raw even[kReach], odd[kReach];
  load(even);
  load(odd);
#pragma unroll 1
  for (int32_t number = 0; number < rows + 2; number += 2) {
    step(number, even);
    if (number + 1 < rows + 2) step(number + 1, odd);
  }
}

}  // namespace minidnn
