// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over any axis and strides: one block or one thread computes each row. This file also has the kernels
// that add up the partial sums of all blocks.
// - Grid: blocks that loop over rows. Block: whole warps (1024 threads at most) per row, or 256 threads with one row
//   each.
// - Shared memory: less than 1 KB.
// - Bytes: forward reads x twice. The second read is from the cache if the rows of a block fit the cache.
// - Numerics: the formulas of loss_math.h, in the accumulator's type. Sums over rows are compensated.
#include "cpp/loss/loss_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/loss/block_sums.cuh"

namespace minidnn {
namespace {

// Processes every `step`-th row, beginning with row `begin`. `numbers` receives a partial sum per block (forward with a
// reduction) or the loss of each row (forward without a reduction), or has the gradients of the losses (backward).
template <class T, LossDirection direction, class Team>
__device__ __forceinline__ void loss_rows(const LossProblem& p, const LossArgs& a, void* numbers, int64_t begin,
                                          int64_t step, Team team) {
  using Acc = Accumulator<T>;
  auto own = static_cast<Acc*>(numbers);
  const bool reduced = p.reduction != LossReduction::none;
  CompensatedSum<Acc> sum;
  Acc count = 0;
  for (int64_t row = begin, rows = p.rows(); row < rows; row += step) {
    if constexpr (direction == LossDirection::backward) {
      loss_backward_row<T>(p, a, row, own, team);
    } else {
      loss_forward_row<T>(p, a, row, team, [&](Acc loss, bool counts) {
        if (reduced) {
          sum.add(loss);
          count += Acc(counts);
        } else own[row] = loss;
      });
    }
  }
  if (direction == LossDirection::forward && reduced) store_block_sums(sum.value(), count, own);
}

// Stores the result of a reduction. In forward, it is the sum or the mean of the losses of all rows. In backward of a
// mean, it is the gradient that each row receives.
template <class Acc>
__device__ void store_result(const LossProblem& p, const LossArgs& a, Acc sum, Acc count, Acc* numbers) {
  if (threadIdx.x != 0) return;
  if (p.direction == LossDirection::backward) *numbers = *static_cast<const Acc*>(a.loss) / count;
  else *static_cast<Acc*>(a.loss) = p.reduction == LossReduction::mean ? sum / count : sum;
}

}  // namespace

// A kernel of cross-entropy in which one block computes each row. Blocks may have any number of whole warps.
template <class T, LossDirection direction>
__global__ void __launch_bounds__(1024)
    loss_block_per_row(const __grid_constant__ LossProblem p, LossArgs a, void* numbers) {
  griddep_wait();
  loss_rows<T, direction>(p, a, numbers, blockIdx.x, gridDim.x, BlockReduce());
}

template <class T, LossDirection direction>
__global__ void __launch_bounds__(256)
    loss_thread_per_row(const __grid_constant__ LossProblem p, LossArgs a, void* numbers) {
  griddep_wait();
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  loss_rows<T, direction>(p, a, numbers, int64_t(blockIdx.x) * blockDim.x + threadIdx.x, threads, SingleThread());
}

// Adds up `sum` and `count` over the threads of the block. Stores the final result if the grid has one block. Otherwise
// stores partial totals, which a further launch adds up.
template <class Acc>
__device__ void store_total(const LossProblem& p, const LossArgs& a, Acc sum, Acc count, Acc* block_sums) {
  if (gridDim.x > 1) return store_block_sums(sum, count, block_sums);
  BlockReduce team;
  sum = team.sum(sum);
  count = team.sum(count);
  store_result(p, a, sum, count, block_sums);
}

// Counts the rows whose target is not ignore_index. The gradient of a mean loss is divided by this number.
template <class Acc>
__global__ void __launch_bounds__(512) loss_count(const __grid_constant__ LossProblem p, LossArgs a, Acc* block_sums) {
  griddep_launch_dependents();
  Acc count = 0;
  grid_stride(p.rows(), [&](int64_t row) { count += Acc(detail::target_of(p, a, row) != p.ignore_index); });
  store_total(p, a, Acc(0), count, block_sums);
}

// Adds up n pairs of a partial sum and a count of rows. Stores the final result if the grid has one block, and
// otherwise the totals of each block.
template <class Acc>
__global__ void __launch_bounds__(512)
    loss_add_sums(const __grid_constant__ LossProblem p, LossArgs a, const Acc* sums, int32_t n, Acc* block_sums) {
  griddep_launch_dependents();
  griddep_wait();
  CompensatedSum<Acc> sum;
  Acc count = 0;
  grid_stride(n, [&](int64_t i) {
    sum.add(sums[2 * i]);
    count += sums[2 * i + 1];
  });
  store_total(p, a, sum.value(), count, block_sums);
}

}  // namespace minidnn
