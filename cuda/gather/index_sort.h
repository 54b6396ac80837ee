// SPDX-License-Identifier: Apache-2.0
// Backward, the indices are first sorted by row.
#pragma once
#include <memory>

#include "cpp/gather/gather.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::gather {

inline bool is_backward(const GatherProblem& p) { return p.direction == GatherDirection::backward; }

// Launches the sort of the indices by row.
class IndexSort {
 public:
  IndexSort(const GatherProblem& p, const Device& d);
  GatherOrder run(const GatherArgs& a, void* workspace, Stream stream) const;
  static KernelSpec spec(bool contiguous);

 private:
  GatherProblem problem_;
  std::shared_ptr<const cuda::Kernel> kernel_;
  cuda::LaunchConfig config_;
  int32_t rows_;  // per block
};

// The time of the sort; 0 for the forward direction.
double index_sort_us(const GatherProblem& p, const Device& d);

}  // namespace minidnn::cuda::gather
