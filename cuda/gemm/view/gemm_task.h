// SPDX-License-Identifier: Apache-2.0
// The interface between operation families, such as conv and matmul, and the main loops of matrix products: a GemmTask
// describes a product, a GemmPlan runs it. Host only.
#pragma once
#include <vector>

#include "cpp/engine/engine.h"
#include "cuda/gemm/view/problem_to_view.h"

namespace minidnn {

struct GemmTask {
  std::vector<GemmView> views;  // one view, or one for each phase of backward_data
  DType type{}, y{};            // type: dtype of the operands; y: dtype of the result
  Activation activation{};
  bool has_bias = false, has_c = false;
  int64_t alignment = 16;  // alignment of every pointer, in bytes
  double bytes = 0;        // number of bytes read and written, for estimates
  bool promote = false;    // add the sums of tensor cores to float32 sums every few k (kPromote in sm90/kernel.cu)
  bool sums = false;       // also compute the sums of the columns of y and of their squares (GemmArgs::sums)
};

GemmTask gemm_task(const MatmulProblem&);
GemmTask gemm_task(const ConvProblem&);

// A product that is ready to run. run() enqueues it and changes nothing in the plan.
struct GemmPlan {
  virtual ~GemmPlan() = default;
  virtual void run(const GemmArgs&, void* workspace, Stream) const = 0;
};

}  // namespace minidnn
