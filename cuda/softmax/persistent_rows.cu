// SPDX-License-Identifier: Apache-2.0
// Softmax of contiguous rows, which are held in registers: x (or y and dy) is read once, the result is written once. A
// row that exceeds the registers of a cluster is read twice, in two launches: the first computes the maximum and sum of
// each piece of the row, the second computes the results.
#include "cuda/rows/rows.cuh"
#include "cuda/softmax/softmax_params.h"

namespace minidnn {
namespace {

using rows::kWidth;
using rows::Line;

// Scales the elements of a vector and applies the mask: adds it, or (keep) sets the masked elements to -inf.
template <class T, SoftmaxMask masked>
__device__ __forceinline__ void scale_and_mask(float* x, float scale, const void* mask, int64_t at) {
  constexpr int kW = kWidth<T>;
#pragma unroll
  for (int e = 0; e < kW; ++e) x[e] *= scale;
  if constexpr (masked == SoftmaxMask::add) {
    float add[kW];
    rows::unpack<T>(*reinterpret_cast<const uint4*>(static_cast<const T*>(mask) + at), add);
#pragma unroll
    for (int e = 0; e < kW; ++e) x[e] += add[e];
  }
  if constexpr (masked == SoftmaxMask::keep) {
    uint32_t keep[kW / 4];
    const auto from = reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(mask) + at);
    if constexpr (kW == 4) keep[0] = *from;
    else {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      keep[0] = both.x, keep[1] = both.y;
    }
#pragma unroll
    for (int e = 0; e < kW; ++e)
      if (!(keep[e / 4] >> (e % 4 * 8) & 0xff)) x[e] = -INFINITY;
  }
}

// Stage `part`: stores a piece's maximum and sum for the second launch, and returns true: the kernel ends there.
__device__ __forceinline__ bool leaves(const SoftmaxRows& p, const rows::Team& team, rows::Exponentials all,
                                       rows::Exponentials* parts) {
  if (p.stage != SoftmaxRows::part) return false;
  if (team.rank == 0 && team.row < p.shape.rows) parts[team.piece] = all;
  return true;
}
// The maximum and sum that a thread contributes to those of the row: its own, or in stage `finish` those of every
// team.threads-th piece.
template <class T> __device__ __forceinline__ rows::Exponentials load_partial(const SoftmaxRows& p,
                                                                              const rows::Team& team,
                                                                              rows::Exponentials own,
                                                                              const rows::Exponentials* parts,
                                                                              float scale = 1) {
  if (p.stage != SoftmaxRows::finish || team.row >= p.shape.rows) return own;
  rows::Exponentials all{-INFINITY, 0};
#pragma unroll 1
  for (int32_t i = team.rank; i < p.shape.pieces; i += team.threads) all = rows::joined<T>(all, parts[i], scale);
  return all;
}

// Forward, 16-bit numbers without a mask. A thread keeps the numbers packed. It does not keep their exponentials but
// computes them again, by four instructions.
template <class T, int kV>
__device__ __forceinline__ void forward_packed(const SoftmaxRows& p, const SoftmaxArgs& a, rows::Exponentials* parts,
                                               const rows::Team& team, const Line<T>& line, int32_t begin,
                                               uint4 (&raw)[kV]) {
  constexpr int kW = kWidth<T>;
  const uint32_t signs = a.scale < 0 ? 0x80008000 : 0;
  const rows::HalfScale scale(float(a.scale));
  float largest = -INFINITY;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    raw[k].x ^= signs, raw[k].y ^= signs, raw[k].z ^= signs, raw[k].w ^= signs;
    float x[kW];
    rows::unpack<T>(raw[k], x);
    if (line.holds_all(v)) {
#pragma unroll
      for (int e = 0; e < kW; ++e) largest = fmaxf(largest, x[e]);
    } else {
#pragma unroll
      for (int e = 0; e < kW; ++e)
        if (line.holds(v, e)) largest = fmaxf(largest, x[e]);
    }
  }
  largest *= 0.5f;
  const float shift = largest == -INFINITY ? 0 : largest;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float x[kW];
    rows::unpack<T>(raw[k], x);
#pragma unroll
    for (int e = 0; e < kW; ++e) x[e] = scale.term(x[e], shift);
    if (!line.holds_all(v))
#pragma unroll
      for (int e = 0; e < kW; ++e)
        if (!line.holds(v, e)) x[e] = 0;
    sum += rows::take_sum(x);
  }
  parts += team.row * p.shape.pieces;
  const float of_half = scale.of_half();
  const rows::Exponentials all = team.join<T>(load_partial<T>(p, team, {largest, sum}, parts, of_half), 0, of_half);
  if (leaves(p, team, all, parts)) return;
  // A row of nothing but -inf becomes NaN: -inf - -inf.
  const float log_of_sum = p.log ? maths::log(all.sum) : ::log2f(all.sum);
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float x[kW];
    rows::unpack<T>(raw[k], x);
    if (p.log) {
#pragma unroll
      for (int e = 0; e < kW; ++e) x[e] = scale.log_share(x[e], all.largest, log_of_sum);
    } else {
#pragma unroll
      for (int e = 0; e < kW; ++e) x[e] = scale.share<T>(x[e], all.largest, log_of_sum);
    }
    line.store(a.out, v, x);
  }
}

}  // namespace

// Forward. Each thread computes exponentials relative to its own maximum; the threads of a row synchronise once, to
// join their maxima and sums. parts: the maximum and sum of each piece of each row.
template <class T, SoftmaxMask masked>
__global__ void __launch_bounds__(1024)
    softmax_rows_forward(const __grid_constant__ SoftmaxRows p, SoftmaxArgs a, rows::Exponentials* parts) {
  constexpr int kW = kWidth<T>, kV = softmax_forward_vectors(sizeof(T), masked);
  const rows::Team team(p.shape);
  const Line<T> line(p.shape, team.row);
  const int32_t begin = team.piece * team.threads * kV + team.rank;

  uint4 raw[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k)
    if (begin + k * team.threads < line.vectors) raw[k] = line.load(a.in, begin + k * team.threads);
  if constexpr (sizeof(T) == 2 && masked == SoftmaxMask::none) {
    forward_packed<T, kV>(p, a, parts, team, line, begin, raw);
    return;
  }
  const int64_t mask_row = masked == SoftmaxMask::none ? 0 : p.mask.offset_of(team.row);
  const float scale = float(a.scale);
  float held[kV][kW], largest = -INFINITY;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    rows::unpack<T>(raw[k], held[k]);
    scale_and_mask<T, masked>(held[k], scale, a.mask, mask_row + v * kW);
    if (!line.holds_all(v))
#pragma unroll
      for (int e = 0; e < kW; ++e)
        if (!line.holds(v, e)) held[k][e] = -INFINITY;
#pragma unroll
    for (int e = 0; e < kW; ++e) largest = fmaxf(largest, held[k][e]);
  }

  const float shift = largest == -INFINITY ? 0 : largest;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    if (begin + k * team.threads >= line.vectors) continue;
    float terms[kW];
#pragma unroll
    for (int e = 0; e < kW; ++e) {
      const float shifted = held[k][e] - shift;
      terms[e] = rows::exp_of_negative<T>(shifted);
      held[k][e] = p.log ? shifted : terms[e];
    }
    sum += rows::take_sum(terms);
  }
  parts += team.row * p.shape.pieces;
  const rows::Exponentials all = team.join<T>(load_partial<T>(p, team, {largest, sum}, parts));
  if (leaves(p, team, all, parts)) return;

  // A row of nothing but -inf becomes NaN: 0 / 0, or -inf + inf.
  const rows::Exponentials share{largest, rcp_approx(all.sum)};
  const float factor = p.log ? 1 : share.moved<T>(all.largest, 1);
  const float term = p.log ? (shift - all.largest) - maths::log(all.sum) : 0;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
#pragma unroll
    for (int e = 0; e < kW; ++e) held[k][e] = held[k][e] * factor + term;
    line.store(a.out, v, held[k]);
  }
}

// dx. parts: a sum for each piece of each row.
template <class T, bool log>
__global__ void __launch_bounds__(1024)
    softmax_rows_backward(const __grid_constant__ SoftmaxRows p, SoftmaxArgs a, float* parts) {
  constexpr int kW = kWidth<T>, kV = kSoftmaxBackwardVectors;
  const rows::Team team(p.shape);
  const Line<T> line(p.shape, team.row);
  const int32_t begin = team.piece * team.threads * kV + team.rank;

  uint4 ys[kV], dys[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v < line.vectors) dys[k] = line.load(a.dy, v), ys[k] = line.load(a.in, v);
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float y[kW], dy[kW];
    rows::unpack<T>(dys[k], dy);
    if (!log) rows::unpack<T>(ys[k], y);
#pragma unroll
    for (int e = 0; e < kW; ++e) {
      if (!log) dy[e] *= y[e];
      if (!line.holds(v, e)) dy[e] = 0;
    }
    sum += rows::take_sum(dy);
  }
  parts += team.row * p.shape.pieces;
  if (p.stage == SoftmaxRows::finish && team.row < p.shape.rows) {
    sum = 0;
#pragma unroll 1
    for (int32_t i = team.rank; i < p.shape.pieces; i += team.threads) sum += parts[i];
  }
  sum = team.reduce<rows::Sum, 0>(sum);
  if (p.stage == SoftmaxRows::part) {
    if (team.rank == 0 && team.row < p.shape.rows) parts[team.piece] = sum;
    return;
  }

  const float scale = float(a.scale);
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float y[kW], dy[kW];
    rows::unpack<T>(dys[k], dy);
    rows::unpack<T>(ys[k], y);
#pragma unroll
    for (int e = 0; e < kW; ++e) {
      if (log) dy[e] = y[e] == -INFINITY ? 0 : (dy[e] - maths::exp(y[e]) * sum) * scale;
      else dy[e] = y[e] * (dy[e] - sum) * scale;
    }
    line.store(a.out, v, dy);
  }
}

}  // namespace minidnn
