// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over any axis and strides: a row to a block, or to a thread; and what adds up the rows' losses. Forward
// reads x twice, the second time from cache while a block's rows fit there.
#include "cpp/loss/loss_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/team.cuh"

namespace minidnn {
namespace {

template <class T, LossDirection direction, class Team>
__device__ __forceinline__ void loss_row(const LossProblem& p, const LossArgs& a, void* numbers, int64_t row,
                                         Team& team) {
  using Acc = Accumulator<T>;
  if constexpr (direction == LossDirection::forward) loss_forward_row<T>(p, a, row, static_cast<Acc*>(numbers), team);
  else loss_backward_row<T>(p, a, row, static_cast<const Acc*>(numbers), team);
}

// The loss, or the gradient of each row's.
template <class Acc>
__device__ void put_total(const LossProblem& p, const LossArgs& a, Acc sum, Acc count, Acc* numbers) {
  if (threadIdx.x != 0) return;
  if (p.direction == LossDirection::backward) *numbers = *static_cast<const Acc*>(a.loss) / count;
  else *static_cast<Acc*>(a.loss) = p.reduction == LossReduction::mean ? sum / count : sum;
}

}  // namespace

// Blocks of any number of whole warps.
template <class T, LossDirection direction>
__global__ void __launch_bounds__(1024) loss_generic(const __grid_constant__ LossProblem p, LossArgs a, void* numbers) {
  wait_for_grid_before();
  BlockTeam team;
  for (int64_t row = blockIdx.x, rows = p.rows(); row < rows; row += gridDim.x)
    loss_row<T, direction>(p, a, numbers, row, team);
}

template <class T, LossDirection direction>
__global__ void __launch_bounds__(256) loss_thread(const __grid_constant__ LossProblem p, LossArgs a, void* numbers) {
  wait_for_grid_before();
  Solo team;
  grid_stride(p.rows(), [&](int64_t row) { loss_row<T, direction>(p, a, numbers, row, team); });
}

// A sum and a count for each block, or with one block the end of it. It counts while the rows' last losses are made.
template <class Acc>
__global__ void __launch_bounds__(512)
    loss_add(const __grid_constant__ LossProblem p, LossArgs a, Acc* numbers, Acc* parts) {
  let_next_grid_start();
  BlockTeam team;
  CarefulSum<Acc> partial;
  Acc count = 0;
  if (p.reduction == LossReduction::mean)
    grid_stride(p.rows(),
                [&](int64_t row) { count += detail::target_of(p, a, row) == p.ignore_index ? Acc(0) : Acc(1); });
  wait_for_grid_before();
  if (p.direction == LossDirection::forward) grid_stride(p.rows(), [&](int64_t row) { partial.add(numbers[row]); });
  const Acc sum = team.sum(partial.value());
  count = team.sum(count);
  if (gridDim.x == 1) return put_total(p, a, sum, count, numbers);
  if (threadIdx.x == 0) parts[2 * blockIdx.x] = sum, parts[2 * blockIdx.x + 1] = count;
}

template <class Acc>
__global__ void __launch_bounds__(512)
    loss_finish(const __grid_constant__ LossProblem p, LossArgs a, Acc* numbers, const Acc* parts, int32_t blocks) {
  let_next_grid_start();
  wait_for_grid_before();
  BlockTeam team;
  Acc sum = 0, count = 0;
  if (int32_t(threadIdx.x) < blocks) sum = parts[2 * threadIdx.x], count = parts[2 * threadIdx.x + 1];
  sum = team.sum(sum);
  count = team.sum(count);
  put_total(p, a, sum, count, numbers);
}

}  // namespace minidnn
