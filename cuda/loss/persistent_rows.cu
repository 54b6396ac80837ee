// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of contiguous rows. In forward, a few lanes of a warp, or a block, read a row once, and keep a running
// maximum and sum (Milakov & Gimelshein 2018, arXiv:1805.02867). Backward computes dx elementwise, without a reduction.
// - Grid: blocks of rows. In forward, each team of threads processes rows_per_team rows. Block: 256 threads at most.
// - Shared memory: static, less than 2 KB.
// - Bytes: x is read once, and dx is written once.
// - Numerics: float32 sums, added up pairwise by trees.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/loss/block_sums.cuh"
#include "cuda/loss/loss_params.h"
#include "cuda/rows/rows.cuh"

namespace minidnn {
namespace {

__device__ __forceinline__ int64_t target_of_row(const LossRows& p, const LossArgs& a, int64_t row) {
  return p.narrow_target ? static_cast<const int32_t*>(a.target)[row] : static_cast<const int64_t*>(a.target)[row];
}

}  // namespace

// The forward kernel of cross-entropy. A team of threads processes p.rows_per_team rows, which are p.row_step rows
// apart. The loads of the next row begin before the reduction of the current row.
template <class T>
__global__ void __launch_bounds__(256, 4)
    loss_rows_forward(const __grid_constant__ LossRows p, LossArgs a, float* losses_or_sums) {
  constexpr int kWidth = kVecWidth<T>, kVectors = kLossVectors;
  rows::Shape shape = p.shape;
  shape.chunks = 1;
  // Constants let the compiler remove the code for chunks and clusters, which this kernel does not use.
  shape.clustered = 0;
  const rows::RowReduce team(shape);
  const int32_t reach = kVectors * team.threads;
  Vec<T> raw[kVectors];
  auto load = [&](const rows::RowVectors<T>& line, int32_t begin) {
    if (begin + reach - team.threads < line.vectors) {
#pragma unroll
      for (int k = 0; k < kVectors; ++k) raw[k] = Vec<T>::load(line.at(a.x, begin + k * team.threads), p.policy);
    } else {
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        const int32_t v = begin + k * team.threads;
        raw[k] = Vec<T>::filled(kMinusInfinity<T>);
        if (v < line.vectors) raw[k] = Vec<T>::load(line.at(a.x, v), p.policy);
      }
    }
  };
  int64_t row = team.row, target = 0;
  rows::RowVectors<T> line(shape, row);
  auto begin_row = [&] {
    line = rows::RowVectors<T>(shape, row);
    load(line, team.rank);
    if (team.rank == 0 && row < shape.rows) target = target_of_row(p, a, row);
  };
  begin_row();
  float losses = 0, count = 0;
#pragma unroll 1
  for (int32_t i = 0; i < p.rows_per_team; ++i) {
    const int64_t mine = row;
    const bool writes = team.rank == 0 && mine < shape.rows, known = writes && 0 <= target && target < shape.cols;
    const bool counts = writes && target != p.ignore_index;
    T logit(0.f);
    if (known) logit = static_cast<const T*>(a.x)[mine * shape.cols + target];
    float largest = -INFINITY, sum = 0, logits = 0;
#pragma unroll 1
    for (int32_t step = 0, begin = team.rank; step < p.steps; ++step) {
      if (p.smoothed) {
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
          float x[kWidth];
          raw[k].unpack(x);
#pragma unroll
          for (int e = 0; e < kWidth; ++e) x[e] = line.holds(begin + k * team.threads, e) ? x[e] : 0;
          logits += rows::take_sum(x);
        }
      }
      if (!line.whole()) {
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
          const int32_t v = begin + k * team.threads;
          if (!line.holds_all(v)) raw[k] = line.own(raw[k], v);
        }
      }
      const float most = fmaxf(largest, rows::largest_of<T>(raw)), shift = most == -INFINITY ? 0 : most;
      sum *= fast::exp_of_negative_ftz<T>(largest - shift);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        float x[kWidth];
        raw[k].unpack(x);
#pragma unroll
        for (int e = 0; e < kWidth; ++e) x[e] = fast::exp_of_negative_ftz<T>(x[e] - shift);
        sum += rows::take_sum(x);
      }
      largest = most;
      begin += reach;
      if (step + 1 < p.steps) load(line, begin);
    }
    row += p.row_step;
    if (i + 1 < p.rows_per_team) begin_row();
    const auto [most, all] = team.join<T>({largest, sum}, i);
    if (p.smoothed) logits = team.reduce<SumOp, 2>(logits);
    if (writes) {
      const float log_sum = maths::log(all), at_target = known ? float(logit) : INFINITY - INFINITY;
      static_cast<float*>(a.lse)[mine] = most + log_sum;
      float loss = 0;
      if (counts)
        loss = detail::loss_of<float>(most, log_sum, at_target, logits, shape.cols, p.smoothed, float(a.smoothing));
      if (p.reduced) {
        losses += loss;
        count += float(counts);
      } else losses_or_sums[mine] = loss;
    }
  }
  griddep_launch_dependents();
  if (p.reduced) store_block_sums(losses, count, losses_or_sums);
}

template <class T>
__global__ void __launch_bounds__(256)
    loss_rows_backward(const __grid_constant__ LossRows p, LossArgs a, const float* gradient) {
  constexpr int kWidth = kVecWidth<T>, kVectors = kLossVectors;
  const rows::RowReduce team(p.shape);
  const rows::RowVectors<T> line(p.shape, team.row);
  const int32_t begin = team.chunk * team.threads * kVectors + team.rank;
  // The threads of this kernel do not synchronise, so some threads may return early.
  if (begin >= line.vectors) return;
  Vec<T> raw[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (begin + k * team.threads < line.vectors) raw[k] = line.load(a.x, begin + k * team.threads);
  const int64_t target = target_of_row(p, a, team.row);
  const bool ignored = target == p.ignore_index, known = 0 <= target && target < p.shape.cols;
  const float lse = static_cast<const float*>(a.lse)[team.row];
  const float each = float(a.smoothing) / float(p.shape.cols), hit = 1 - float(a.smoothing) + each;
  griddep_wait();
  float g = gradient[p.reduced ? 0 : team.row];
  if (!known) g = INFINITY - INFINITY;
  // The index of the target's element, counted from the row's first aligned vector.
  const int32_t at = known ? int32_t(target) + line.skip : -1;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int32_t v = begin + k * team.threads;
    if (v >= line.vectors) continue;
    float x[kWidth];
    raw[k].unpack(x);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float less = v * kWidth + e == at ? hit : each;
      x[e] = ignored ? 0 : g * (maths::exp(x[e] - lse) - less);
    }
    line.store(a.dx, v, x);
  }
}

}  // namespace minidnn
