// SPDX-License-Identifier: Apache-2.0
// StagedEpilogue: the epilogue of a matrix product, as one warp executes it: y = activation(alpha * sum + beta * c +
// bias). It is for main loops on mma.sync, whose blocks can reuse their shared memory for the epilogue. Bias, c, ReLU and
// float32 y are run-time options, so that one kernel serves all of them. Other activations are a template argument.
// sm90/kernel.cu uses epilogue.cuh instead, because its warpgroups have neither the memory nor the time for this
// epilogue. T is the dtype of the bias. y and c are float32 or have dtype T.
#pragma once
#include "cuda/device/fast_activation.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The offsets of a row in y and c, in elements. y = kNoRow if the row does not exist.
struct alignas(16) OutRow {
  int64_t y, c;
};
constexpr int64_t kNoRow = int64_t(1) << 62;

__device__ __forceinline__ GemmCoordinates32 out_coordinates(const GemmIndex& index, const FastDivmod (&by)[kDigits],
                                                             uint32_t i) {
  GemmCoordinates32 d{{0, 0, 0, i}};
  if (index.first < kDigits - 1)
#pragma unroll
    for (int j = kDigits - 1; j > 0; --j) {
      const uint32_t rest = by[j].quotient(i);
      d.at[j] = i - rest * by[j].divisor;
      d.at[j - 1] = i = rest;
    }
  return d;
}
__device__ __forceinline__ OutRow out_row(const GemmOutput& o, uint32_t row) {
  const GemmCoordinates32 at = out_coordinates(o.m, o.m_divisor, row);
  return {row < o.m.size ? offset_of(o.y_m, at) : kNoRow, offset_of(o.c_m, at)};
}

// The kRows x kColumns sums of a warp in registers. In each lane, of[i][4 j + e] is the sum in row 16 i + lane / 4 + 8
// (e / 2) and column 8 j + 2 (lane % 4) + e % 2.
template <int kRows, int kColumns> struct WarpSums {
  static constexpr int kBlocks = kRows / 16, kCount = kColumns / 2;
  float of[kBlocks][kCount] = {};

  template <class F> __device__ __forceinline__ void each(F&& f) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < kCount; ++e) f(of[i][e], i, e);
  }
};

// The output tile of a warp: the matrix of the batch, the first row and column, and the offsets of its rows.
struct StagedTile {
  uint32_t batch, m, n;
  char* memory;  // the warp's own shared memory, StagedEpilogue::kBytes bytes
  const OutRow* rows;
};

// If kActivation is identity, the argument `relu` of the constructor selects ReLU. kFormula selects the formulas of
// activations.
template <class T, int kRows, int kColumns, Activation kActivation, Formula kFormula> class StagedEpilogue {
 public:
  using Sums = WarpSums<kRows, kColumns>;
  // A warp's shared memory has room for the whole tile in 16 bits, or for 16 rows in float32. A row has kLineBytes
  // bytes or kPitch floats, with padding against bank conflicts.
  static constexpr int kLineBytes = kColumns * 2 + 16, kPitch = kColumns + 8;
  static constexpr int kBytes = kRows * kLineBytes > 64 * kPitch ? kRows* kLineBytes : 64 * kPitch;

  __device__ StagedEpilogue(const GemmOutput& o, const GemmArgs& args, void* y, bool relu, bool y_is_float32,
                            const StagedTile& tile)
      : o_(o),
        args_(args),
        relu_(relu),
        wide_(sizeof(T) == 4 || y_is_float32),
        m_(tile.m),
        n_(tile.n),
        memory_(tile.memory),
        rows_(tile.rows) {
    const int64_t item = wide_ ? 4 : sizeof(T);
    const GemmCoordinates32 at = out_coordinates(o.batch, o.batch_divisor, tile.batch);
    y_ = static_cast<char*>(y) + (o.bounds.y_offset + offset_of(o.y_batch, at)) * item;
    c_ = args.c ? static_cast<const char*>(args.c) + offset_of(o.c_batch, at) * item : nullptr;
    bias_ = args.bias ? static_cast<const T*>(args.bias) + offset_of(o.bias_batch, at) : nullptr;
  }

  __device__ __forceinline__ void store(Sums& sums) const {
    // The fast path needs y and c in vectors of eight columns.
    const bool lines = o_.y_vectors && o_.n.first == kDigits - 1 && (!c_ || o_.c_vectors);
    if (!lines) return store_elements(sums);
    if (args_.alpha != 1) sums.each([&](float& v, int, int) { v *= args_.alpha; });
    if (c_) {
      if (wide_) add_c<float>(sums);
      else if constexpr (sizeof(T) == 2) add_c<T>(sums);
    }
    if (bias_) add_bias(sums);
    if (kActivation != Activation::identity || relu_) sums.each([&](float& v, int, int) { v = activated(v); });
    if (wide_) store_pairs(sums);
    else if constexpr (sizeof(T) == 2) store_lines(sums);
  }

 private:
  // Requires relu_, if kActivation is identity.
  __device__ __forceinline__ float activated(float v) const {
    constexpr Activation kMode = kActivation == Activation::identity ? Activation::relu : kActivation;
    return activate<kMode, kFormula>(v, args_.activation_alpha);
  }
  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ uint32_t column() const { return n_ + lane() % 4 * 2; }

  // Calls f(row offsets, i, half) for each row of the lane that exists: row 16 i + 8 half + lane / 4 of the tile.
  template <class F> __device__ __forceinline__ void each_row(F&& f) const {
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const OutRow row = rows_[16 * i + 8 * half + lane() / 4];
        if (row.y != kNoRow) f(row, i, half);
      }
  }

  template <class C> __device__ __forceinline__ void add_c(Sums& sums) const {
    struct alignas(2 * sizeof(C)) Pair {
      C low, high;
    };
    each_row([&](const OutRow& row, int i, int half) {
      const C* from = reinterpret_cast<const C*>(c_) + row.c + column();
      Pair pairs[kColumns / 8];
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
        if (column() + 8 * j < o_.n.size) pairs[j] = *reinterpret_cast<const Pair*>(from + 8 * j);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        sums.of[i][4 * j + 2 * half] += args_.beta * float(pairs[j].low);
        sums.of[i][4 * j + 2 * half + 1] += args_.beta * float(pairs[j].high);
      }
    });
  }
  __device__ __forceinline__ void add_bias(Sums& sums) const {
    if (o_.bias_by_row) {
      each_row([&](const OutRow&, int i, int half) {
        const uint32_t row = m_ + 16 * i + 8 * half + lane() / 4;
        const float bias = float(bias_[offset_of(o_.bias, out_coordinates(o_.m, o_.m_divisor, row))]);
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) {
          sums.of[i][4 * j + 2 * half] += bias;
          sums.of[i][4 * j + 2 * half + 1] += bias;
        }
      });
      return;
    }
    float bias[kColumns / 4];
#pragma unroll
    for (int e = 0; e < kColumns / 4; ++e) {
      const uint32_t at = column() + e / 2 * 8 + e % 2;
      bias[e] = at < o_.n.size ? float(bias_[at * o_.bias.of[kDigits - 1]]) : 0;
    }
    sums.each([&](float& v, int, int e) { v += bias[e / 4 * 2 + e % 2]; });
  }

  // Stores float32 sums directly from registers, in whole 32-byte sectors of memory.
  __device__ __forceinline__ void store_pairs(const Sums& sums) const {
    each_row([&](const OutRow& row, int i, int half) {
      float* to = reinterpret_cast<float*>(y_) + row.y + column();
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
        if (column() + 8 * j < o_.n.size)
          *reinterpret_cast<float2*>(to + 8 * j) =
              make_float2(sums.of[i][4 * j + 2 * half], sums.of[i][4 * j + 2 * half + 1]);
    });
  }
  // Stores 16-bit results through shared memory, in vectors of eight columns.
  __device__ __forceinline__ void store_lines(const Sums& sums) const {
    char* const put = memory_ + lane() / 4 * kLineBytes + lane() % 4 * 4;
#pragma unroll
    for (int i = 0; i < 2 * Sums::kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const float* pair = sums.of[i / 2] + 4 * j + i % 2 * 2;
        *reinterpret_cast<uint32_t*>(put + i * 8 * kLineBytes + j * 16) =
            uint32_t(T(pair[0]).bits) | uint32_t(T(pair[1]).bits) << 16;
      }
    __syncwarp();
    constexpr int kPerRow = kColumns / 8, kRowsAtOnce = 32 / kPerRow;
    const int first = lane() / kPerRow, at = lane() % kPerRow;
    if (n_ + 8 * at >= o_.n.size) return;
    T* const y = reinterpret_cast<T*>(y_) + n_ + 8 * at;
    const char* const get = memory_ + first * kLineBytes + at * 16;
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
      const int64_t row = rows_[first + i * kRowsAtOnce].y;
      const uint4 line = *reinterpret_cast<const uint4*>(get + i * kRowsAtOnce * kLineBytes);
      if (row != kNoRow) *reinterpret_cast<uint4*>(y + row) = line;
    }
  }

  // Stores single elements, for any strides. The loop over blocks of 16 rows is not unrolled, to keep the code small. It
  // shifts `sums`, so that all register indices are constants.
  __device__ __forceinline__ void store_elements(Sums& sums) const {
    float* const words = reinterpret_cast<float*>(memory_);
    const bool along_m = o_.y_m.of[kDigits - 1] == 1 && o_.y_n.of[kDigits - 1] != 1;
#pragma unroll 1
    for (int first = 0; first < kRows; first += 16) {
      __syncwarp();
      float* const put = words + lane() / 4 * kPitch + lane() % 4 * 2;
#pragma unroll
      for (int e = 0; e < Sums::kCount; ++e) put[e / 4 * 8 + e % 2 + e / 2 % 2 * 8 * kPitch] = sums.of[0][e];
#pragma unroll
      for (int i = 0; i + 1 < Sums::kBlocks; ++i)
#pragma unroll
        for (int e = 0; e < Sums::kCount; ++e) sums.of[i][e] = sums.of[i + 1][e];
      __syncwarp();
#pragma unroll 1
      for (int e = lane(); e < 16 * kColumns; e += 32) {
        const int i = along_m ? e % 16 : e / kColumns, j = along_m ? e / 16 : e % kColumns;
        const OutRow row = rows_[first + i];
        if (row.y == kNoRow || n_ + j >= o_.n.size) continue;
        const GemmCoordinates32 at = out_coordinates(o_.n, o_.n_divisor, n_ + j);
        float v = args_.alpha * words[i * kPitch + j];
        if (c_) {
          const int64_t from = row.c + offset_of(o_.c_n, at);
          v += args_.beta *
               (wide_ ? reinterpret_cast<const float*>(c_)[from] : float(reinterpret_cast<const T*>(c_)[from]));
        }
        if (bias_) {
          const GemmCoordinates32 by_row = out_coordinates(o_.m, o_.m_divisor, m_ + first + i);
          v += float(bias_[o_.bias_by_row ? offset_of(o_.bias, by_row) : offset_of(o_.bias, at)]);
        }
        if (kActivation != Activation::identity || relu_) v = activated(v);
        const int64_t to = row.y + offset_of(o_.y_n, at);
        if (wide_) reinterpret_cast<float*>(y_)[to] = v;
        else reinterpret_cast<T*>(y_)[to] = T(v);
      }
    }
  }

  const GemmOutput& o_;
  const GemmArgs& args_;
  const bool relu_, wide_;
  const uint32_t m_, n_;
  char* const memory_;
  const OutRow* const rows_;
  char* y_;
  const char* c_;
  const T* bias_;
};

}  // namespace minidnn
