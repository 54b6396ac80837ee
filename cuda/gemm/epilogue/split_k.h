// SPDX-License-Identifier: Apache-2.0
// Matrix products whose k is split. Each split writes its float32 sums to the workspace, whose layout is [splits,
// batch, m, columns]. A second kernel (split_k.cu) adds up the sums of all splits in a fixed order, and applies the
// epilogue. Only host code includes this file.
#pragma once
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/epilogue/split_k_params.h"
#include "cuda/gemm/view/gemm_task.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// The layout of the sums of all splits of k in the workspace: [splits, batch, m, columns]. `columns` is n, rounded up
// to a multiple of eight. `partition_stride` is the number of elements from the sums of one split to the sums of the
// next split.
// If `by_columns`, the layout is [splits, batch, n, columns], and `columns` is m, rounded up to a multiple of eight.
// This layout is for a y whose columns are contiguous.
struct SplitKWorkspace {
  GemmOutput output;
  int64_t columns = 0, partition_stride = 0;
  explicit SplitKWorkspace(const GemmView&, bool by_columns = false);
  size_t bytes(int64_t splits) const { return size_t(splits * partition_stride) * sizeof(float); }
};

class SplitKReduce {
 public:
  SplitKReduce(const GemmTask&, const GemmView&, int64_t splits, const Device&);
  // `whole` describes y. A partition is the sums of one split of k; it has as many rows as y, and `columns` columns, a
  // multiple of four.
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
