// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of rows that lie end to end. Forward a few lanes or a block stream through a row once, with a maximum
// and a sum that follow it (Milakov & Gimelshein 2018, arXiv:1805.02867); backward is one pass without any reduction.
#include "cuda/device/grid.cuh"
#include "cuda/loss/parts.cuh"
#include "cuda/loss/rows_task.h"
#include "cuda/rows/rows.cuh"

namespace minidnn {
namespace {

__device__ __forceinline__ int64_t target_of_row(const LossRows& p, const LossArgs& a, int64_t row) {
  return p.narrow_target ? static_cast<const int32_t*>(a.target)[row] : static_cast<const int64_t*>(a.target)[row];
}

}  // namespace

template <class T>
__global__ void __launch_bounds__(256, 3)  // for four blocks of an SM 16-bit rows spill many registers
    loss_rows_forward(const __grid_constant__ LossRows p, LossArgs a, float* losses_or_parts) {
  constexpr int kW = rows::kWidth<T>, kV = kLossVectors;
  const rows::Team team(p.shape);
  const rows::Line<T> line(p.shape, team.row);
  // The target's logit is far away, and asked for as soon as the row is.
  const bool tells = team.rank == 0 && team.row < p.shape.rows;
  const int64_t target = tells ? target_of_row(p, a, team.row) : -1;
  const bool known = 0 <= target && target < p.shape.cols;
  float logit = INFINITY - INFINITY;
  float largest = -INFINITY, sum = 0, logits = 0;
#pragma unroll 1
  for (int32_t begin = team.rank; begin < line.vectors; begin += kV * team.threads) {
    uint4 raw[kV];
#pragma unroll
    for (int k = 0; k < kV; ++k)
      if (begin + k * team.threads < line.vectors) raw[k] = line.load(a.x, begin + k * team.threads);
    if (begin == 0 && known) logit = float(static_cast<const T*>(a.x)[team.row * p.shape.cols + target]);
    float x[kV][kW], most = largest;
#pragma unroll
    for (int k = 0; k < kV; ++k) {
      const int32_t v = begin + k * team.threads;
      if (v < line.vectors) rows::unpack<T>(raw[k], x[k]);
      if (v >= line.vectors || !line.holds_all(v)) {
#pragma unroll
        for (int e = 0; e < kW; ++e)
          if (v >= line.vectors || !line.holds(v, e)) x[k][e] = -INFINITY;
          else logits += p.smoothed ? x[k][e] : 0;
      } else if (p.smoothed) {
#pragma unroll
        for (int e = 0; e < kW; ++e) logits += x[k][e];
      }
#pragma unroll
      for (int e = 0; e < kW; ++e) most = fmaxf(most, x[k][e]);
    }
    const float shift = most == -INFINITY ? 0 : most;
    float few = 0;
#pragma unroll
    for (int k = 0; k < kV; ++k)
#pragma unroll
      for (int e = 0; e < kW; ++e) few += rows::exp_of_negative<T>(x[k][e] - shift);
    sum = sum * rows::exp_of_negative<T>(largest - shift) + few;
    largest = most;
  }
  let_next_grid_start();
  const auto [most, all] = team.join<T>({largest, sum});
  sum = all;
  if (p.smoothed) logits = team.reduce<rows::Sum, 2>(logits);
  const bool counts = tells && target != p.ignore_index;
  float loss = 0;
  if (tells) {
    const float lse = most + maths::log(sum);
    static_cast<float*>(a.lse)[team.row] = lse;
    if (counts) loss = detail::loss_of<float>(lse, logit, logits, p.shape.cols, p.smoothed, float(a.smoothing));
  }
  if (p.reduced) put_part(loss, float(counts), losses_or_parts);
  else if (tells) losses_or_parts[team.row] = loss;
}

template <class T>
__global__ void __launch_bounds__(256)
    loss_rows_backward(const __grid_constant__ LossRows p, LossArgs a, const float* gradient) {
  constexpr int kW = rows::kWidth<T>, kV = kLossVectors;
  const rows::Team team(p.shape);
  const rows::Line<T> line(p.shape, team.row);
  const int32_t begin = team.piece * team.threads * kV + team.rank;
  if (begin >= line.vectors) return;  // nothing is shared between threads here
  uint4 raw[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k)
    if (begin + k * team.threads < line.vectors) raw[k] = line.load(a.x, begin + k * team.threads);
  const int64_t target = target_of_row(p, a, team.row);
  const bool ignored = target == p.ignore_index, known = 0 <= target && target < p.shape.cols;
  const float lse = static_cast<const float*>(a.lse)[team.row];
  const float each = float(a.smoothing) / float(p.shape.cols), hit = 1 - float(a.smoothing) + each;
  wait_for_grid_before();
  float g = gradient[p.reduced ? 0 : team.row];
  if (!known) g = INFINITY - INFINITY;
  const int32_t at = known ? int32_t(target) + line.skip : -1;  // as vectors count
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float x[kW];
    rows::unpack<T>(raw[k], x);
#pragma unroll
    for (int e = 0; e < kW; ++e) {
      const float less = v * kW + e == at ? hit : each;
      x[e] = ignored ? 0 : g * (maths::exp(x[e] - lse) - less);
    }
    line.store(a.dx, v, x);
  }
}

}  // namespace minidnn
