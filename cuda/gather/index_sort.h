// SPDX-License-Identifier: Apache-2.0
// The sort of the indices by row. In the backward direction, the engines of gather run it first.
#pragma once
#include <memory>

#include "cpp/gather/gather.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::gather {

inline bool is_backward(const GatherProblem& p) { return p.direction == GatherDirection::backward; }

// Sorts the indices by row. run() launches the kernel, and returns the addresses of the sorted arrays in the workspace.
class IndexSort {
 public:
  IndexSort(const GatherProblem& p, const Device& d);
  GatherOrder run(const GatherArgs& a, void* workspace, Stream stream) const;
  static KernelSpec spec(bool contiguous);

 private:
  GatherProblem problem_;
  std::shared_ptr<const cuda::Kernel> kernel_;
  cuda::LaunchConfig config_;
  int32_t rows_;  // the number of rows whose indices a block sorts
};

// Returns the estimated time of the sort in us. It is 0 in the forward direction, which does not sort.
double index_sort_us(const GatherProblem& p, const Device& d);

}  // namespace minidnn::cuda::gather
