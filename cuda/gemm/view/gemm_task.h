// SPDX-License-Identifier: Apache-2.0
// The interface between the operation families and the tensor-core main loops: a task, and a plan for it. Host only.
#pragma once
#include <vector>

#include "cpp/engine/engine.h"
#include "cuda/gemm/view/problem_to_view.h"

namespace minidnn {

struct GemmTask {
  std::vector<GemmView> views;  // one, or one for each phase
  DType type{}, y{};            // dtype of the operands and of the result
  Activation activation{};
  bool has_bias = false, has_c = false;
  int64_t alignment = 16;  // of every pointer, in bytes
  double bytes = 0;        // bytes read and written, for estimates
  bool promote = false;    // sums of tensor cores are kept short (kPromote in sm90/kernel.cu)
  bool sums = false;       // also needed: sums of the columns of y and of their squares (GemmArgs::sums)
};

GemmTask gemm_task(const MatmulProblem&);
GemmTask gemm_task(const ConvProblem&);

// Enqueues the product; immutable.
struct GemmPlan {
  virtual ~GemmPlan() = default;
  virtual void run(const GemmArgs&, void* workspace, Stream) const = 0;
};

}  // namespace minidnn
