// SPDX-License-Identifier: Apache-2.0
// From a warp's sums to y: activation(alpha * sum + beta * c + bias), for accumulators as mma.sync and wgmma leave
// them: acc[4 j + i] is row lane / 4 + 8 (i / 2), column 8 j + 2 (lane % 4) + i % 2. Any strides. Where rows of y are
// lines in memory, a row's four lanes fill whole sectors of 32 bytes; nothing passes shared memory. Instructions count
// here: the two warpgroups of sm90.cuh spend as many on a tile's end as on a dozen blocks of k. T is the dtype of the
// bias, Y of y and c.
#pragma once
#include "cuda/gemm/view.h"

namespace minidnn {

struct GemmSmallDigits {
  uint32_t at[kDigits];
};
// digits_of() for indices below 2^31.
__device__ __forceinline__ GemmSmallDigits digits_of(const GemmIndex& index, const Divisor (&divisors)[kDigits],
                                                     uint32_t i) {
  GemmSmallDigits d;
#pragma unroll
  for (int j = kDigits - 1; j >= 0; --j) {
    if (j > index.first) {
      const uint32_t rest = divisors[j].quotient(i);
      d.at[j] = i - rest * divisors[j].divisor, i = rest;
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

// Neighbouring lanes exchange words, so that the even one holds the first block of both and the odd one the second.
__device__ __forceinline__ uint2 exchange_pair(uint32_t first, uint32_t second) {
  const bool odd = threadIdx.x & 1;
  const uint32_t other = __shfl_xor_sync(0xffffffff, odd ? first : second, 1);
  return odd ? make_uint2(other, second) : make_uint2(first, other);
}

// A warp's matrix of 8 x 8 16-bit words, a row to four lanes.
__device__ __forceinline__ uint32_t transposed(uint32_t words) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(words));
  return r;
}

// Without kBias or kC, args.bias or args.c is not looked at; with kC there may still be none.
template <class T, class Y, Activation kActivation, bool kBias, bool kC, GemmStore kStore> class GemmEpilogue {
 public:
  // `part` stands for o's own.
  __device__ GemmEpilogue(const GemmOutput& o, const GemmPart& part, const GemmArgs& args, uint32_t batch)
      : o_(o), part_(part), alpha_(args.alpha), beta_(args.beta), activation_alpha_(args.activation_alpha) {
    const GemmSmallDigits at = digits_of(o.batch, o.batch_divisor, batch);
    y_ = static_cast<Y*>(args.y) + part.y_offset + offset_of(o.y_batch, at);
    c_ = kC && args.c ? static_cast<const Y*>(args.c) + offset_of(o.c_batch, at) : nullptr;
    bias_ = kBias ? static_cast<const T*>(args.bias) + offset_of(o.bias_batch, at) : nullptr;
  }

  // A lane's two rows, which it shares with the three lanes beside it, and 2 * kCount columns from n, a multiple of 8.
  // Leaves `acc` in disorder.
  template <int kCount>
  __device__ __forceinline__ void store(float (&acc)[kCount], uint32_t first, uint32_t second, uint32_t n) const {
    if constexpr (kStore == GemmStore::turned) {
      store_turned(acc, first - threadIdx.x % 32 / 4, n);
    } else {
      const Row rows[2] = {row(first), row(second)};
      if constexpr (kStore == GemmStore::lines) store_lines(acc, rows, n);
      else if (o_.n.first == kDigits - 1) store_even(acc, rows, n);
      else store_elements(acc, rows, n);
    }
  }

  // GemmStore::columns: of kBlocks blocks of rows, a lane's are 2 * kBlocks neighbours from m on, one vector of a column
  // of y. Lanes eight apart fill sectors of 32 bytes or a line of 128. Four columns at a time; c is loaded one step ahead.
  template <int kBlocks, int kCount>
  __device__ __forceinline__ void store_columns(float (&acc)[kBlocks][kCount], uint32_t m, uint32_t n) const {
    const Row side = row(m);
    const uint32_t column = n + threadIdx.x % 4 * 2;
    const int left = side.exists ? int(o_.n_limit) - int(column) : 0;
    // A lane's columns are 0 and 1 of each eight: the next is one away, or seven.
    const int64_t step[2] = {o_.y_n.of[3], 7 * o_.y_n.of[3]}, c_step[2] = {o_.c_n.of[3], 7 * o_.c_n.of[3]};
    Y* y = y_ + (side.y + column * step[0]);
    const Y* c = kC && c_ ? c_ + (side.c + column * c_step[0]) : nullptr;
    if (alpha_ != 1)
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) scale(acc[b]);
    struct alignas(8 * kBlocks) Vector {
      float row[2 * kBlocks];
    };
    Vector bias{}, of_c[4]{}, of_c_next[4]{};
    if (kBias && side.exists)
#pragma unroll
      for (int r = 0; r < 2 * kBlocks; ++r) bias.row[r] = float(bias_[side.bias + r * o_.bias.of[3]]);
    auto load = [&](Vector(&to)[4], int first) {
#pragma unroll
      for (int i = 0; i < 4; c += c_step[i++ % 2])
        if (first + i / 2 * 8 + i % 2 < left) to[i] = *reinterpret_cast<const Vector*>(c);
    };
    if (kC && c) load(of_c, 0);
#pragma unroll
    for (int g = 0; g < kCount / 8; ++g) {
      if (kC && c && g + 1 < kCount / 8) load(of_c_next, 16 * (g + 1));
#pragma unroll
      for (int i = 0; i < 4; y += step[i++ % 2]) {
        Vector v;
#pragma unroll
        for (int r = 0; r < 2 * kBlocks; ++r) {
          float sum = acc[r / 2][8 * g + i / 2 * 4 + r % 2 * 2 + i % 2];
          if (kC) sum += beta_ * of_c[i].row[r];
          if (kBias) sum += bias.row[r];
          v.row[r] = activate<kActivation>(sum, activation_alpha_);
        }
        if (16 * g + i / 2 * 8 + i % 2 < left) *reinterpret_cast<Vector*>(y) = v;
      }
      if (kC)
#pragma unroll
        for (int i = 0; i < 4; ++i) of_c[i] = of_c_next[i];
    }
  }

  // GemmStore::phases: the same for columns that lie unevenly: each lane finds out where some are, for all.
  template <int kBlocks, int kCount>
  __device__ __forceinline__ void store_phases(const float (&acc)[kBlocks][kCount], uint32_t m, uint32_t n) const {
    static_assert(!kBias && !kC, "backward_data has neither");
    const uint32_t lane = threadIdx.x % 32;
    int place[kCount / 16];
#pragma unroll
    for (int i = 0; i < kCount / 16; ++i) {
      const GemmSmallDigits at = digits_of(o_.n, o_.n_divisor, n + 32 * i + lane);
      bool exists = true;
#pragma unroll
      for (int d = 0; d < kDigits; ++d) exists = exists && at.at[d] < part_.limit[d];
      place[i] = exists ? int(offset_of(o_.y_n, at)) : -1;
    }
    struct alignas(8 * kBlocks) Vector {
      float row[2 * kBlocks];
    };
    const bool exists = m < o_.m.size;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const int to = __shfl_sync(0xffffffff, place[j / 8], j / 2 % 4 * 8 + lane % 4 * 2 + j % 2);
      Vector v;
#pragma unroll
      for (int r = 0; r < 2 * kBlocks; ++r)
        v.row[r] = activate<kActivation>(alpha_ * acc[r / 2][j / 2 * 4 + r % 2 * 2 + j % 2], activation_alpha_);
      if (exists && to >= 0) *reinterpret_cast<Vector*>(y_ + m + to) = v;
    }
  }

 private:
  struct Row {
    bool exists;
    int64_t y, c, bias;  // offsets; 0 for a bias that goes with columns
  };
  __device__ __forceinline__ Row row(uint32_t m) const {
    if (o_.m.first == kDigits - 1)
      return {int64_t(m) < part_.limit[3], int64_t(m) * o_.y_m.of[3], kC ? int64_t(m) * o_.c_m.of[3] : 0,
              kBias && o_.bias_by_row ? int64_t(m) * o_.bias.of[3] : 0};
    const GemmSmallDigits at = digits_of(o_.m, o_.m_divisor, m);
    bool exists = true;
#pragma unroll
    for (int j = 0; j < kDigits; ++j) exists = exists && at.at[j] < part_.limit[j];
    return {exists, offset_of(o_.y_m, at), kC ? offset_of(o_.c_m, at) : 0,
            kBias && o_.bias_by_row ? offset_of(o_.bias, at) : 0};
  }
  // Rows of y are lines in memory. Sixteen columns at a time; c is loaded one step ahead. Addresses are a pointer for
  // each row and a constant.
  template <int kCount>
  __device__ __forceinline__ void store_lines(float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
    constexpr int kGroup = kCount % 8 == 0 ? 2 : 1, kGroups = kCount / (4 * kGroup);  // blocks of eight columns
    constexpr bool kExchange = sizeof(Y) == 2 && kGroup == 2;
    const uint32_t column = n + threadIdx.x % 4 * 2;
    // After an exchange the even lane of a pair has four columns of the first block, the odd one of the second.
    const uint32_t first = column + (kExchange && threadIdx.x & 1 ? 6 : 0);
    Y* const y[2] = {y_ + (rows[0].y + first), y_ + (rows[1].y + first)};
    const int left = int(o_.n_limit) - int(first),
              rows_left[2] = {rows[0].exists ? left : 0, rows[1].exists ? left : 0};
    if (alpha_ != 1) scale(acc);
    float c[2][2 * kGroup] = {}, c_next[2][2 * kGroup] = {};
    if (kC && c_) load_c<kGroup>(c, rows, column);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (kC && c_ && g + 1 < kGroups) load_c<kGroup>(c_next, rows, column + 8 * kGroup * (g + 1));
      float v[2][2 * kGroup];
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < 2 * kGroup; ++i) {
          v[r][i] = acc[4 * (g * kGroup + i / 2) + 2 * r + i % 2];
          if (kC) v[r][i] += beta_ * c[r][i];
        }
      if (kBias) add_bias<kGroup>(v, rows, column + 8 * kGroup * g);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int i = 0; i < 2 * kGroup; ++i) v[r][i] = activate<kActivation>(v[r][i], activation_alpha_);
        if constexpr (sizeof(Y) == 4) {
#pragma unroll
          for (int j = 0; j < kGroup; ++j)
            if (8 * (g * kGroup + j) < rows_left[r])
              *reinterpret_cast<float2*>(y[r] + 8 * (g * kGroup + j)) = make_float2(v[r][2 * j], v[r][2 * j + 1]);
        } else if constexpr (kExchange) {
          const uint2 words = exchange_pair(pack(Y(), v[r][0], v[r][1]), pack(Y(), v[r][2], v[r][3]));
          if (16 * g < rows_left[r]) *reinterpret_cast<uint2*>(y[r] + 16 * g) = words;
        } else {
          if (8 * g < rows_left[r]) *reinterpret_cast<uint32_t*>(y[r] + 8 * g) = pack(Y(), v[r][0], v[r][1]);
        }
      }
      if (kC)
#pragma unroll
        for (int i = 0; i < 2 * kGroup; ++i) c[0][i] = c_next[0][i], c[1][i] = c_next[1][i];
    }
  }

  template <int kCount> __device__ __forceinline__ void scale(float (&acc)[kCount]) const {
    asm volatile("");  // so that this stays a branch, not a selection for each sum
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] *= alpha_;
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

  template <int kGroup>
  __device__ __forceinline__ void add_bias(float (&v)[2][2 * kGroup], const Row (&rows)[2], uint32_t column) const {
    if (o_.bias_by_row) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!rows[r].exists) continue;
        const float bias = float(bias_[rows[r].bias]);
#pragma unroll
        for (int i = 0; i < 2 * kGroup; ++i) v[r][i] += bias;
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 2 * kGroup; ++i) {
      const uint32_t at = column + 8 * (i / 2) + i % 2;
      if (at >= o_.n_limit) continue;
      const float bias = float(bias_[at * o_.bias.of[3]]);
      v[0][i] += bias, v[1][i] += bias;
    }
  }

  // 16-bit rows are neighbours in memory and columns lie evenly, as in NCHW: of each 16 rows from m and eight columns
  // two matrices are transposed, so that a lane has four rows of a column, and four lanes a sector of 32 bytes.
  template <int kCount> __device__ __forceinline__ void store_turned(float (&acc)[kCount], uint32_t m,
                                                                     uint32_t n) const {
    const uint32_t lane = threadIdx.x % 32;
    const Row four = row(m + (lane % 2 ? 8 : 0) + lane % 4 / 2 * 4), none[2] = {};
    const int left = four.exists ? int(o_.n_limit) - int(n + lane / 4) : 0;
    const int64_t step = o_.y_n.of[3];
    Y* y = y_ + four.y + (n + lane / 4) * step;
    if (alpha_ != 1) scale(acc);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j, y += 8 * step) {
      float v[2][2] = {{acc[4 * j], acc[4 * j + 1]}, {acc[4 * j + 2], acc[4 * j + 3]}};
      if (kBias) add_bias<1>(v, none, n + 8 * j + lane % 4 * 2);
      uint32_t words[2];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        words[r] = transposed(pack(Y(), activate<kActivation>(v[r][0], activation_alpha_),
                                   activate<kActivation>(v[r][1], activation_alpha_)));
      const uint2 pair = exchange_pair(words[0], words[1]);
      if (8 * j < left) *reinterpret_cast<uint2*>(y) = pair;
    }
  }

  // Columns lie evenly, as in NCHW, where eight rows are neighbours.
  template <int kCount>
  __device__ __forceinline__ void store_even(float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
    const uint32_t first = n + threadIdx.x % 4 * 2;
    const int left = int(o_.n_limit) - int(first);
    const int64_t step = o_.y_n.of[3], c_step = kC ? o_.c_n.of[3] : 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!rows[r].exists) continue;
      Y* y = y_ + rows[r].y + first * step;
      const Y* c = kC && c_ ? c_ + rows[r].c + first * c_step : nullptr;
#pragma unroll
      for (int j = 0; j < kCount / 4; ++j, y += 8 * step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * j + i >= left) continue;
          float v = alpha_ * acc[4 * j + 2 * r + i];
          if (kC && c) v += beta_ * float(c[i * c_step]);
          if (kBias) v += float(bias_[rows[r].bias + (o_.bias_by_row ? 0 : (first + 8 * j + i) * o_.bias.of[3])]);
          y[i * step] = Y(activate<kActivation>(v, activation_alpha_));
        }
        if (kC && c) c += 8 * c_step;
      }
    }
  }

  // Any strides, an element at a time. The loop is kept small: it looks at eight columns of `acc`, then moves the rest
  // up.
  template <int kCount>
  __device__ __forceinline__ void store_elements(float (&acc)[kCount], const Row (&rows)[2], uint32_t n) const {
#pragma unroll 1
    for (int j = 0; j < kCount / 4; ++j, n += 8) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t column = n + threadIdx.x % 4 * 2 + i;
        const GemmSmallDigits at = digits_of(o_.n, o_.n_divisor, column);
        if (column >= o_.n.size || at.at[kDigits - 1] >= o_.n_limit) continue;
        const int64_t y = offset_of(o_.y_n, at), c = kC ? offset_of(o_.c_n, at) : 0;
        const int64_t bias = kBias && !o_.bias_by_row ? offset_of(o_.bias, at) : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if (!rows[r].exists) continue;
          float v = alpha_ * acc[2 * r + i];
          if (kC && c_) v += beta_ * float(c_[rows[r].c + c]);
          if (kBias) v += float(bias_[rows[r].bias + bias]);
          y_[rows[r].y + y] = Y(activate<kActivation>(v, activation_alpha_));
        }
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
