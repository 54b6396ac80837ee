// SPDX-License-Identifier: Apache-2.0
// The softmax of attention along tiles of columns, in the fragments of scores.cuh. A lane keeps a reference and the sum
// of each of its two rows. If a maximum exceeds the reference by a large factor, it becomes the reference, and all sums
// of the row are multiplied to fit.
#pragma once
#include "cpp/core/host_device/maths.h"
#include "cuda/attention/scores.cuh"

namespace minidnn {

// The two rows of a lane: `largest` is a reference near the maximum of the scores so far, and `sum` is the sum of
// exp(score - largest). Four lanes share a row. Each of them has the reference, and the sum of its own columns.
struct SoftmaxRows {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // After the last tile: adds the sums of the lanes of a row. `scale` brings the maxima to natural units.
  __device__ __forceinline__ void finish(float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
      if (largest[h] != -INFINITY) largest[h] *= scale;
    }
  }
};

// Hides the scores that a row does not see. `h` is the row in the lane, `seen` are its columns, and `column` is that of
// element 0 of the first fragment in this lane.
template <int kFragments>
__device__ __forceinline__ void hide_columns(float (&z)[kFragments][4], int h, IndexRange seen, int32_t column) {
  const int32_t begin = seen.begin - column, end = seen.end - column;
#pragma unroll
  for (int j = 0; j < kFragments; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (8 * j + e < begin || 8 * j + e >= end) z[j][2 * h + e] = -INFINITY;
}

// Replaces the scores of both rows by exponentials, and updates `rows`. Sums of products with earlier exponentials are to
// be multiplied by shrink[h]. Returns whether shrink[h] is other than 1 for some row of the warp. Exponentials are at most
// 2^kMostGrowth: a larger reference would change nothing but cost a multiplication of all sums.
// Plain scores are multiplied by c = scale * log2(e) here. Other scores (kNatural) are in natural units. Their difference
// to the maximum comes first, because the product of a bias of -3e38 would be -inf.
template <bool kNatural, int kFragments>
__device__ __forceinline__ bool exponentials(float (&s)[kFragments][4], float c, SoftmaxRows& rows,
                                             float (&shrink)[2]) {
  constexpr float kMostGrowth = 8;
  bool any_grown = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = rows.largest[h];
#pragma unroll
    for (int j = 0; j < kFragments; ++j) most = fmaxf(most, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
    const bool grown = (most - rows.largest[h]) * c > kMostGrowth;
    any_grown |= grown;
    most = grown ? most : rows.largest[h];
    const float from = most == -INFINITY ? 0.0f : most, product = from * c;
    shrink[h] = fast::exp2_ftz((rows.largest[h] - from) * c);
    rows.largest[h] = most;
    float added[2] = {0, 0};  // of two columns, because one chain of additions would take longer
#pragma unroll
    for (int j = 0; j < kFragments; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& z = s[j][2 * h + e];
        z = fast::exp2_ftz(kNatural ? (z - from) * c : z * c - product);
        added[e] += z;
      }
    rows.sum[h] = rows.sum[h] * shrink[h] + (added[0] + added[1]);
  }
  return __any_sync(0xffffffff, any_grown);
}

// How a row ends: its sums are multiplied by `before`, then by `factor`.
struct RowEnd {
  float before, factor, lse;

  // A row without visible columns is 0, even if v has NaN.
  __device__ __forceinline__ float of(float sum) const { return before * factor == 0 ? 0.0f : sum * before * factor; }
};
// `largest` is the maximum of the scores in natural units, and `sum` the sum of exp(score - largest). `exists` says
// whether the row is within its sequence.
__device__ __forceinline__ RowEnd row_end(const AttentionScoreParams& p, const AttentionArgs& a, int32_t head,
                                          bool exists, float largest, float sum) {
  if (!exists) return {1, 0, -INFINITY};
  const bool has_sink = p.has_sink;
  const float sink = has_sink ? static_cast<const float*>(a.sink)[head] : 0.0f;
  float most = has_sink ? fmaxf(largest, sink) : largest;
  if (most == -INFINITY) most = 0;
  const float before = has_sink ? fast::exp2_ftz((largest - most) * fast::kLog2E) : 1.0f;
  sum *= before;
  if (has_sink) sum += fast::exp2_ftz((sink - most) * fast::kLog2E);
  return {before, sum == 0 ? 0.0f : float(a.keep) / sum, sum == 0 ? -INFINITY : most + maths::log(sum)};
}

// Writes zeros to the rows of packed o that belong to no sequence, and -inf to their lse: the rows from the end of a
// sequence to the next one, and, for sequence 0, those before. The threads are `rank` < `size`.
template <class T>
__device__ __noinline__ void clear_gaps(const AttentionScoreParams& p, const AttentionArgs& a,
                                        const AttentionStrides& o, int32_t value_size, const SequenceRows& s,
                                        IndexRange of_heads, int32_t rank, int32_t size) {
  const int32_t* const cu = static_cast<const int32_t*>(a.cu_q);
  const int32_t next = s.b + 1 < p.batch ? clamped(cu[s.b + 1], 0, p.q_rows) : p.q_rows;
  const int32_t before = s.b == 0 ? s.q_first : 0, after = max(0, next - s.q_first - s.q_length);
  const int32_t heads = of_heads.end - of_heads.begin;
  for (int32_t n = 0; n < (before + after) * heads; ++n) {
    const int32_t head = of_heads.begin + n % heads, g = n / heads;
    const int32_t t = g < before ? g : s.q_first + s.q_length + g - before;
    T* const row = static_cast<T*>(a.o) + head * o.head + t * o.row;
    for (int32_t d = rank; d < value_size; d += size) row[d] = T(0.0f);
    if (rank == 0) static_cast<float*>(a.lse)[int64_t(head) * p.q_rows + t] = -INFINITY;
  }
}

}  // namespace minidnn
