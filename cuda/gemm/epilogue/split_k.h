// SPDX-License-Identifier: Apache-2.0
// Products whose k is split: each split writes float32 sums to the workspace, [splits, batch, m, columns]. A second
// kernel adds them in the order of the splits and applies the epilogue (split_k.cu). Host only.
#pragma once
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/epilogue/split_k_params.h"
#include "cuda/gemm/view/gemm_task.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// The layout of the sums of all splits in the workspace. The sums of two splits are `partition_stride` elements apart.
// `by_columns`: the layout is [splits, batch, n, columns], for a y whose rows (m) are neighbours in memory.
struct SplitKWorkspace {
  GemmOutput output;
  int64_t columns = 0, partition_stride = 0;
  explicit SplitKWorkspace(const GemmView&, bool by_columns = false);
  size_t bytes(int64_t splits) const { return size_t(splits * partition_stride) * sizeof(float); }
};

class SplitKReduce {
 public:
  SplitKReduce(const GemmTask&, const GemmView&, int64_t splits, const Device&);
  // `whole`: the result, with as many rows as a partition. `columns`: those of a partition, a multiple of four.
  SplitKReduce(const GemmTask&, const GemmOutput& whole, int64_t columns, int64_t splits, const Device&);
  void run(const GemmArgs&, const void* workspace, Stream) const;

 private:
  std::shared_ptr<const cuda::Kernel> kernel_;
  GemmOutput output_;
  SplitKPartitions sums_;
  cuda::LaunchConfig launch_;
};

std::vector<KernelSpec> split_k_reduce_kernels();

}  // namespace minidnn
