// SPDX-License-Identifier: Apache-2.0
// From a warp's sums to y: activation(alpha * sum + beta * c + bias), for accumulators as mma.sync and wgmma leave them:
// acc[4 j + i] is row lane / 4 + 8 (i / 2), column 8 j + 2 (lane % 4) + i % 2. Any strides. Where eight columns are neighbours
// in y, the four lanes of a row exchange 16-bit results so that each stores 16 bytes; nothing passes shared memory.
// T is the dtype of the bias, Y of y and c.
#pragma once
#include "cuda/gemm/view.h"

namespace minidnn {

struct GemmSmallDigits {
  uint32_t at[kDigits];
};
// digits_of() for indices below 2^31.
__device__ __forceinline__ GemmSmallDigits digits_of(const GemmIndex& index, const GemmDivisor (&divisors)[kDigits],
                                                     uint32_t i) {
  GemmSmallDigits d;
#pragma unroll
  for (int j = kDigits - 1; j >= 0; --j) {
    if (j > index.first) {
      const uint32_t rest = divisors[j].quotient(i);
      d.at[j] = i - rest * divisors[j].by, i = rest;
    } else {
      d.at[j] = i, i = 0;
    }
  }
  return d;
}
__device__ __forceinline__ int64_t offset_of(const GemmStrides& s, const GemmSmallDigits& d) {
  int64_t offset = 0;
#pragma unroll
  for (int j = 0; j < kDigits; ++j) offset += int64_t(d.at[j]) * s.of[j];
  return offset;
}

__device__ __forceinline__ uint32_t pack(float16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ uint32_t pack(bfloat16, float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// A 4 x 4 transpose among the four lanes of a row: lane t gets word t of each, in the order of the lanes.
__device__ __forceinline__ void transpose_quad(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  uint32_t a = __shfl_xor_sync(0xffffffff, odd ? w[0] : w[1], 1), b = __shfl_xor_sync(0xffffffff, odd ? w[2] : w[3], 1);
  if (odd) w[0] = a, w[2] = b;
  else w[1] = a, w[3] = b;
  a = __shfl_xor_sync(0xffffffff, high ? w[0] : w[2], 2), b = __shfl_xor_sync(0xffffffff, high ? w[1] : w[3], 2);
  if (high) w[0] = a, w[1] = b;
  else w[2] = a, w[3] = b;
}

template <class T, class Y, Activation kActivation> class GemmEpilogue {
 public:
  // `part` stands for o's own.
  __device__ GemmEpilogue(const GemmOutput& o, const GemmPart& part, const GemmArgs& args, int64_t batch)
      : o_(o), part_(part), alpha_(args.alpha), beta_(args.beta), activation_alpha_(args.activation_alpha) {
    const GemmDigits at = digits_of(o.batch, batch);
    y_ = static_cast<Y*>(args.y) + part.y_offset + offset_of(o.y_batch, at);
    c_ = args.c ? static_cast<const Y*>(args.c) + offset_of(o.c_batch, at) : nullptr;
    bias_ = args.bias ? static_cast<const T*>(args.bias) + offset_of(o.bias_batch, at) : nullptr;
  }

  // A warp's 16 rows from m and 2 * kCount columns from n, a multiple of 8. Leaves `acc` in disorder.
  template <int kCount> __device__ __forceinline__ void store(float (&acc)[kCount], uint32_t m, uint32_t n) const {
    const uint32_t lane = threadIdx.x % 32;
    const Row rows[2] = {row(m + lane / 4), row(m + lane / 4 + 8)};
    if (o_.y_vectors && o_.n.first == kDigits - 1 && (!c_ || o_.c_pairs)) store_lines(acc, rows, n);
    else store_elements(acc, rows, n);
  }

 private:
  struct Row {
    bool exists;
    int64_t y, c;
    float bias;
  };
  __device__ __forceinline__ Row row(uint32_t m) const {
    const GemmSmallDigits at = digits_of(o_.m, o_.m_divisor, m);
    bool exists = true;
#pragma unroll
    for (int j = 0; j < kDigits; ++j) exists = exists && at.at[j] < part_.limit[j];
    Row r{exists, offset_of(o_.y_m, at), c_ ? offset_of(o_.c_m, at) : 0, 0};
    if (bias_ && o_.bias_by_row && r.exists) r.bias = float(bias_[offset_of(o_.bias, at)]);
    return r;
  }
  __device__ float result(float sum, float c, float bias) const {
    return activate<kActivation>(alpha_ * sum + beta_ * c + bias, activation_alpha_);
  }

  // Rows of y are lines in memory: 32 columns at a time, 16 bytes a store, c one step ahead.
  template <int kCount>
  __device__ __forceinline__ void store_lines(const float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
    constexpr int kGroup = kCount % 16 == 0 ? 4 : 1, kGroups = kCount / (4 * kGroup);  // blocks of eight columns
    const uint32_t lane = threadIdx.x % 4, columns = uint32_t(o_.n_limit);
    float c[2][2 * kGroup] = {}, c_next[2][2 * kGroup] = {};
    if (c_) load_c<kGroup>(c, rows, n + 2 * lane);
#pragma unroll
    for (int g = 0; g < kGroups; ++g, n += 8 * kGroup) {
      if (c_ && g + 1 < kGroups) load_c<kGroup>(c_next, rows, n + 8 * kGroup + 2 * lane);
      uint32_t words[2][kGroup];
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        const uint32_t column = n + 8 * j + 2 * lane;
        float bias[2] = {};
        if (bias_ && !o_.bias_by_row && column < columns)
          bias[0] = float(bias_[column * o_.bias.of[3]]), bias[1] = float(bias_[(column + 1) * o_.bias.of[3]]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float* sums = acc + 4 * (g * kGroup + j) + 2 * r;
          const float low = result(sums[0], c[r][2 * j], bias[0] + rows[r].bias);
          const float high = result(sums[1], c[r][2 * j + 1], bias[1] + rows[r].bias);
          if constexpr (sizeof(Y) == 2) words[r][j] = pack(Y(), low, high);
          else if (rows[r].exists && column < columns)
            *reinterpret_cast<float2*>(y_ + rows[r].y + column) = make_float2(low, high);
        }
      }
      if constexpr (sizeof(Y) == 2) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if constexpr (kGroup == 4) {
            transpose_quad(words[r]);
            if (rows[r].exists && n + 8 * lane < columns)
              *reinterpret_cast<uint4*>(y_ + rows[r].y + n + 8 * lane) =
                  make_uint4(words[r][0], words[r][1], words[r][2], words[r][3]);
          } else if (rows[r].exists && n + 2 * lane < columns) {
            *reinterpret_cast<uint32_t*>(y_ + rows[r].y + n + 2 * lane) = words[r][0];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 2 * kGroup; ++i) c[0][i] = c_next[0][i], c[1][i] = c_next[1][i];
    }
  }

  template <int kGroup>
  __device__ __forceinline__ void load_c(float (&c)[2][2 * kGroup], const Row (&rows)[2], uint32_t column) const {
    struct alignas(2 * sizeof(Y)) Pair {
      Y low, high;
    };
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (rows[r].exists && column + 8 * j < o_.n_limit) {
          const Pair pair = *reinterpret_cast<const Pair*>(c_ + rows[r].c + column + 8 * j);
          c[r][2 * j] = float(pair.low), c[r][2 * j + 1] = float(pair.high);
        }
  }

  // Any strides, an element at a time. The loop is kept small: it looks at eight columns of `acc`, then moves the rest up.
  template <int kCount>
  __device__ __forceinline__ void store_elements(float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
#pragma unroll 1
    for (int j = 0; j < kCount / 4; ++j, n += 8) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t column = n + threadIdx.x % 4 * 2 + i;
        const GemmSmallDigits at = digits_of(o_.n, o_.n_divisor, column);
        if (column >= o_.n.size || at.at[kDigits - 1] >= o_.n_limit) continue;
        const float bias = bias_ && !o_.bias_by_row ? float(bias_[offset_of(o_.bias, at)]) : 0;
        const int64_t y = offset_of(o_.y_n, at), c = offset_of(o_.c_n, at);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (rows[r].exists)
            y_[rows[r].y + y] =
                Y(result(acc[2 * r + i], c_ ? float(c_[rows[r].c + c]) : 0, bias + rows[r].bias));
      }
#pragma unroll
      for (int i = 0; i + 4 < kCount; ++i) acc[i] = acc[i + 4];
    }
  }

  const GemmOutput& o_;
  const GemmPart& part_;
  const float alpha_, beta_, activation_alpha_;
  Y* y_;
  const Y* c_;
  const T* bias_;
};

}  // namespace minidnn
