// SPDX-License-Identifier: Apache-2.0
// From a warp's sums to y = activation(alpha * sum + beta * c + bias) through shared memory, 16 rows at a time: a lane
// then has eight neighbours of a row and stores them as vectors where y has them side by side. Whether there is a bias,
// a c, any activation or a float32 y is asked at run time, mostly once for eight elements, so that a kernel does for
// all of these. (epilogue.cuh is for sm90.cuh, whose warpgroups have neither the shared memory nor the instructions to
// spare.) T is the dtype of the bias, and of y and c unless these are float32.
#pragma once
#include "cuda/gemm/gather.h"

namespace minidnn {

template <class T, int kColumns> class StagedEpilogue {
 public:
  static constexpr int kPitch = kColumns + 8;  // words: what a warp puts at once meets in no bank
  static constexpr int kWords = 16 * kPitch;   // of a warp

  // For columns from n on. `words` are the warp's.
  __device__ StagedEpilogue(const GemmOutput& o, const GemmArgs& args, Activation activation, bool y_is_float32,
                            uint32_t batch, uint32_t n, float* words)
      : o_(o), args_(args), activation_(activation), wide_(sizeof(T) == 4 || y_is_float32), words_(words) {
    const int64_t item = wide_ ? 4 : sizeof(T);
    const GemmDigits at = digits_of(o.batch, batch);
    y_ = static_cast<char*>(args.y) + (o.part.y_offset + offset_of(o.y_batch, at)) * item;
    c_ = args.c ? static_cast<const char*>(args.c) + offset_of(o.c_batch, at) * item : nullptr;
    bias_ = args.bias ? static_cast<const T*>(args.bias) + offset_of(o.bias_batch, at) : nullptr;
    column_ = n + threadIdx.x % kPerRow * 8;
    vectors_ = o.y_vectors && o.n.first == kDigits - 1;
    plain_ = vectors_ && (!c_ || (o.c_pairs && wide_ == (sizeof(T) == 4))) &&
             (activation == Activation::identity || activation == Activation::relu);
    if (plain_ && bias_ && !o.bias_by_row)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        column_bias_[i] = column_ < o.n.size ? float(bias_[(column_ + i) * o.bias.of[kDigits - 1]]) : 0;
  }

  // 16 rows from m; sums as mma.sync leaves them, 16 x 8 of them after another.
  __device__ __forceinline__ void store(const float (&sums)[kColumns / 2], uint32_t m) const {
    const int lane = threadIdx.x % 32;
    Words c[kSteps];
    const uint32_t first_row = m + lane / kPerRow;
    if (c_ && plain_)
#pragma unroll
      for (int i = 0; i < kSteps; ++i) c[i] = load_c(first_row + i * kRowsAtOnce);
    float* const put = words_ + lane / 4 * kPitch + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      *reinterpret_cast<float2*>(put + 8 * j) = make_float2(sums[4 * j], sums[4 * j + 1]);
      *reinterpret_cast<float2*>(put + 8 * j + 8 * kPitch) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
    }
    __syncwarp();
    float* get = words_ + lane / kPerRow * kPitch + lane % kPerRow * 8;
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i, get += kRowsAtOnce * kPitch) {
      finish(get, first_row + i * kRowsAtOnce, c[0]);
#pragma unroll
      for (int j = 0; j + 1 < kSteps; ++j) c[j] = c[j + 1];
    }
    __syncwarp();
  }

 private:
  static constexpr int kPerRow = kColumns / 8, kRowsAtOnce = 32 / kPerRow, kSteps = 16 / kRowsAtOnce;
  struct Words {  // eight elements of c
    uint32_t of[2 * sizeof(T)];
  };

  __device__ __forceinline__ Digits digits(const GemmIndex& index, const Divisor (&by)[kDigits], uint32_t i) const {
    Digits d{{0, 0, 0, i}};
    if (index.first < kDigits - 1)
#pragma unroll
      for (int j = kDigits - 1; j > 0; --j) {
        const uint32_t rest = by[j].quotient(i);
        d.at[j] = i - rest * by[j].divisor, d.at[j - 1] = i = rest;
      }
    return d;
  }
  __device__ __forceinline__ Words load_c(uint32_t row) const {
    Words w;
    const T* from = reinterpret_cast<const T*>(c_) + offset_of(o_.c_m, digits(o_.m, o_.m_divisor, row)) + column_;
    const bool exists = row < o_.m.size && column_ < o_.n.size;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if constexpr (sizeof(T) == 2) {
        w.of[i] = exists ? reinterpret_cast<const uint32_t*>(from)[i] : 0;
      } else {
        const uint2 pair = exists ? reinterpret_cast<const uint2*>(from)[i] : make_uint2(0, 0);
        w.of[2 * i] = pair.x, w.of[2 * i + 1] = pair.y;
      }
    return w;
  }
  __device__ __forceinline__ static float element(const Words& w, int i) {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(w.of[i]);
    } else {
      T t;
      t.bits = uint16_t(w.of[i / 2] >> i % 2 * 16);
      return float(t);
    }
  }

  // Eight neighbours of a row.
  __device__ __forceinline__ void finish(float* get, uint32_t row, const Words& c) const {
    if (row >= o_.m.size || column_ >= o_.n.size) return;
    const Digits at = digits(o_.m, o_.m_divisor, row);
    if (!plain_) {
      each(get, at);
      if (!vectors_) return;
    }
    const float4 low = reinterpret_cast<const float4*>(get)[0], high = reinterpret_cast<const float4*>(get)[1];
    float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (plain_) {
      const float row_bias = bias_ && o_.bias_by_row ? float(bias_[offset_of(o_.bias, at)]) : 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        v[i] *= args_.alpha;
        if (c_) v[i] += args_.beta * element(c, i);
        if (bias_) v[i] += o_.bias_by_row ? row_bias : column_bias_[i];
        if (activation_ == Activation::relu) v[i] = activate<Activation::relu>(v[i], 0.0f);
      }
    }
    char* const to = y_ + (offset_of(o_.y_m, at) + column_) * (wide_ ? 4 : sizeof(T));
    if (wide_) {
      reinterpret_cast<float4*>(to)[0] = {v[0], v[1], v[2], v[3]};
      reinterpret_cast<float4*>(to)[1] = {v[4], v[5], v[6], v[7]};
    } else if constexpr (sizeof(T) == 2) {
      auto pair = [&](int i) { return uint32_t(T(v[i]).bits) | uint32_t(T(v[i + 1]).bits) << 16; };
      *reinterpret_cast<uint4*>(to) = make_uint4(pair(0), pair(2), pair(4), pair(6));
    }
  }

  // What is rare, an element at a time: any activation, c in any strides; y too, or the results stay in shared memory.
  __device__ __forceinline__ void each(float* get, const Digits& at_m) const {
    const int64_t y = offset_of(o_.y_m, at_m), c = offset_of(o_.c_m, at_m);
    const uint32_t count = min_of(uint32_t(8), uint32_t(o_.n.size) - column_);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
      const Digits at_n = digits(o_.n, o_.n_divisor, column_ + i);
      float v = args_.alpha * get[i];
      if (c_) {
        const int64_t at = c + offset_of(o_.c_n, at_n);
        v += args_.beta * (wide_ ? reinterpret_cast<const float*>(c_)[at] : float(reinterpret_cast<const T*>(c_)[at]));
      }
      if (bias_) v += float(bias_[o_.bias_by_row ? offset_of(o_.bias, at_m) : offset_of(o_.bias, at_n)]);
      v = activate(activation_, v, args_.activation_alpha);
      const int64_t to = y + offset_of(o_.y_n, at_n);
      if (vectors_) get[i] = v;
      else if (wide_) reinterpret_cast<float*>(y_)[to] = v;
      else reinterpret_cast<T*>(y_)[to] = T(v);
    }
  }

  const GemmOutput& o_;
  const GemmArgs& args_;
  const Activation activation_;
  const bool wide_;
  float* const words_;
  bool vectors_;  // eight columns of y are there or not, side by side and aligned
  bool plain_;    // so are pairs of c, and the activation is short
  uint32_t column_;
  char* y_;
  const char* c_;
  const T* bias_;
  float column_bias_[8];
};

}  // namespace minidnn
