// SPDX-License-Identifier: Apache-2.0
// Softmax of contiguous rows, forward and backward. A row stays in registers from its only read to its only write.
// - Grid, block, cluster: rows::shape_of() chooses them (cuda/rows/rows_params.h). 1 to 1024 threads, or a cluster,
//   share a row.
// - Shared memory: static, less than 4 KB.
// - Bytes: x (in backward, y and dy) is read once, and the result is written once.
// - Rows that exceed the registers of a cluster are read twice, by two launches. The first launch computes the maximum
//   and the sum of each chunk of the row. The second launch computes the results.
// - Numerics: float32 sums, added up pairwise by trees. exponentials_math.h describes the exponentials of 16-bit rows.
#include "cuda/rows/rows.cuh"
#include "cuda/softmax/softmax_params.h"

namespace minidnn {
namespace {

using rows::RowVectors;

// Scales the elements of a vector and applies the mask, which is added (SoftmaxMask::add), or sets elements to -inf
// where it is false (SoftmaxMask::keep).
template <class T, SoftmaxMask kMasked>
__device__ __forceinline__ void scale_and_mask(float* x, float scale, const void* mask, int64_t at) {
  constexpr int kWidth = kVecWidth<T>;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) x[e] *= scale;
  if constexpr (kMasked == SoftmaxMask::add) {
    float add[kWidth];
    Vec<T>::load(static_cast<const T*>(mask) + at).unpack(add);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) x[e] += add[e];
  }
  if constexpr (kMasked == SoftmaxMask::keep) {
    uint32_t keep[kWidth / 4];
    const auto from = reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(mask) + at);
    if constexpr (kWidth == 4) keep[0] = *from;
    else {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      keep[0] = both.x;
      keep[1] = both.y;
    }
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      if (!(keep[e / 4] >> (e % 4 * 8) & 0xff)) x[e] = -INFINITY;
  }
}

// For a row that takes two launches. In the first launch (stage `reduce`), stores the maximum and the sum of this chunk
// of the row, and returns true, which ends the kernel. In other launches, returns false.
__device__ __forceinline__ bool store_partial(const SoftmaxRows& p, const rows::RowReduce& team, rows::Exponentials all,
                                              rows::Exponentials* partials) {
  if (p.stage != SoftmaxRows::reduce) return false;
  if (team.rank == 0 && team.row < p.shape.rows) partials[team.chunk] = all;
  return true;
}
// Returns the maximum and the sum that this thread contributes to the reduction over its row. In the second launch of a
// long row (stage `finish`), these are the stored results of chunks rank, rank + threads and so on. In other launches,
// they are `own`.
template <class T> __device__ __forceinline__ rows::Exponentials load_partial(const SoftmaxRows& p,
                                                                              const rows::RowReduce& team,
                                                                              rows::Exponentials own,
                                                                              const rows::Exponentials* partials,
                                                                              float scale = 1) {
  if (p.stage != SoftmaxRows::finish || team.row >= p.shape.rows) return own;
  rows::Exponentials all{-INFINITY, 0};
#pragma unroll 1
  for (int32_t i = team.rank; i < p.shape.chunks; i += team.threads) all = rows::joined<T>(all, partials[i], scale);
  return all;
}

// The forward softmax for 16-bit numbers without a mask. A thread keeps the packed numbers in registers, and computes
// each exponential twice, with about four instructions each time.
template <class T, int kVectors>
__device__ __forceinline__ void forward_packed(const SoftmaxRows& p, const SoftmaxArgs& a, rows::Exponentials* partials,
                                               const rows::RowReduce& team, const RowVectors<T>& line, int32_t begin,
                                               Vec<T> (&raw)[kVectors]) {
  constexpr int kWidth = kVecWidth<T>;
  const uint32_t signs = a.scale < 0 ? 0x80008000 : 0;
  const rows::HalfScale scale(float(a.scale));
  float largest = -INFINITY;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;

#pragma unroll
    for (uint32_t& word : raw[k].word) word ^= signs;
    float x[kWidth];
    raw[k].unpack(x);
    if (line.holds_all(v)) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) largest = fmaxf(largest, x[e]);
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (line.holds(v, e)) largest = fmaxf(largest, x[e]);
    }
  }
  largest *= 0.5f;
  const float shift = largest == -INFINITY ? 0 : largest;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float x[kWidth];
    raw[k].unpack(x);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) x[e] = scale.term(x[e], shift);
    if (!line.holds_all(v))
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (!line.holds(v, e)) x[e] = 0;
    sum += rows::take_sum(x);
  }
  partials += team.row * p.shape.chunks;
  const float of_half = scale.of_half();
  const rows::Exponentials all = team.join<T>(load_partial<T>(p, team, {largest, sum}, partials, of_half), 0, of_half);
  if (store_partial(p, team, all, partials)) return;
  // If all numbers of a row are -inf, the results are NaN, because they contain the difference of -inf and -inf.
  const float log_of_sum = p.log ? maths::log(all.sum) : ::log2f(all.sum);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float x[kWidth];
    raw[k].unpack(x);
    if (p.log) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[e] = scale.log_share(x[e], all.largest, log_of_sum);
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[e] = scale.share<T>(x[e], all.largest, log_of_sum);
    }
    line.store(a.out, v, x);
  }
}

}  // namespace

// The forward kernel of softmax. Each thread computes exponentials relative to its own maximum. The threads of a row
// synchronise once. `partials` has the maximum and the sum of each chunk of a long row.
template <class T, SoftmaxMask kMasked>
__global__ void __launch_bounds__(1024)
    softmax_rows_forward(const __grid_constant__ SoftmaxRows p, SoftmaxArgs a, rows::Exponentials* partials) {
  constexpr int kWidth = kVecWidth<T>, kVectors = softmax_forward_vectors(sizeof(T), kMasked);
  const rows::RowReduce team(p.shape);
  const RowVectors<T> line(p.shape, team.row);
  const int32_t begin = team.chunk * team.threads * kVectors + team.rank;

  Vec<T> raw[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (begin + k * team.threads < line.vectors) raw[k] = line.load(a.in, begin + k * team.threads);
  if constexpr (sizeof(T) == 2 && kMasked == SoftmaxMask::none) {
    forward_packed<T, kVectors>(p, a, partials, team, line, begin, raw);
    return;
  }
  const int64_t mask_row = kMasked == SoftmaxMask::none ? 0 : p.mask.offset_of(team.row);
  const float scale = float(a.scale);
  float kept[kVectors][kWidth], largest = -INFINITY;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    raw[k].unpack(kept[k]);
    scale_and_mask<T, kMasked>(kept[k], scale, a.mask, mask_row + v * kWidth);
    if (!line.holds_all(v))
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (!line.holds(v, e)) kept[k][e] = -INFINITY;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) largest = fmaxf(largest, kept[k][e]);
  }

  const float shift = largest == -INFINITY ? 0 : largest;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (begin + k * team.threads >= line.vectors) continue;
    float terms[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float shifted = kept[k][e] - shift;
      terms[e] = fast::exp_of_negative<T>(shifted);
      kept[k][e] = p.log ? shifted : terms[e];
    }
    sum += rows::take_sum(terms);
  }
  partials += team.row * p.shape.chunks;
  const rows::Exponentials all = team.join<T>(load_partial<T>(p, team, {largest, sum}, partials));
  if (store_partial(p, team, all, partials)) return;

  // If all numbers of a row are -inf, the results are NaN: 0 / 0 for softmax, or -inf + inf for log-softmax.
  const rows::Exponentials share{largest, rcp_approx(all.sum)};
  const float factor = p.log ? 1 : share.moved<T>(all.largest, 1);
  const float term = p.log ? (shift - all.largest) - maths::log(all.sum) : 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) kept[k][e] = kept[k][e] * factor + term;
    line.store(a.out, v, kept[k]);
  }
}

// The backward kernel of softmax, which computes dx. `partials` has a sum for each chunk of a long row.
template <class T, bool kLog>
__global__ void __launch_bounds__(1024)
    softmax_rows_backward(const __grid_constant__ SoftmaxRows p, SoftmaxArgs a, float* partials) {
  constexpr int kWidth = kVecWidth<T>, kVectors = kSoftmaxBackwardVectors;
  const rows::RowReduce team(p.shape);
  const RowVectors<T> line(p.shape, team.row);
  const int32_t begin = team.chunk * team.threads * kVectors + team.rank;

  Vec<T> ys[kVectors], dys[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v < line.vectors) {
      dys[k] = line.load(a.dy, v);
      ys[k] = line.load(a.in, v);
    }
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float y[kWidth], dy[kWidth];
    dys[k].unpack(dy);
    if (!kLog) ys[k].unpack(y);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      if (!kLog) dy[e] *= y[e];
      if (!line.holds(v, e)) dy[e] = 0;
    }
    sum += rows::take_sum(dy);
  }
  partials += team.row * p.shape.chunks;
  if (p.stage == SoftmaxRows::finish && team.row < p.shape.rows) {
    sum = 0;
#pragma unroll 1
    for (int32_t i = team.rank; i < p.shape.chunks; i += team.threads) sum += partials[i];
  }
  sum = team.reduce<SumOp, 0>(sum);
  if (p.stage == SoftmaxRows::reduce) {
    if (team.rank == 0 && team.row < p.shape.rows) partials[team.chunk] = sum;
    return;
  }

  const float scale = float(a.scale);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float y[kWidth], dy[kWidth];
    dys[k].unpack(dy);
    ys[k].unpack(y);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      if (kLog) dy[e] = y[e] == -INFINITY ? 0 : (dy[e] - maths::exp(y[e]) * sum) * scale;
      else dy[e] = y[e] * (dy[e] - sum) * scale;
    }
    line.store(a.out, v, dy);
  }
}

}  // namespace minidnn
