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

// The layout of the splits' sums in the workspace: [splits, batch, m, n] or, if by_columns, [splits, batch, n, m]. The
// last dimension is rounded up to a multiple of eight (`columns`). partition_stride is the stride of splits. by_columns
// is for a y with contiguous columns.
struct SplitKWorkspace {
  GemmOutput output;
  int64_t columns = 0, partition_stride = 0;
  explicit SplitKWorkspace(const GemmView&, bool by_columns = false);
  size_t bytes(int64_t splits) const { return size_t(splits * partition_stride) * sizeof(float); }
};

class SplitKReduce {
 public:
  SplitKReduce(const GemmTask&, const GemmView&, int64_t splits, const Device&);
  // `whole` describes y. `columns` is the padded row length of the sums in the workspace, a multiple of four.
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
