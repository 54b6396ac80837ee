// SPDX-License-Identifier: Apache-2.0
// The interface between operation families, such as conv and matmul, and the main loops of matrix products. A GemmTask
// describes a product, and a GemmPlan runs it. Only host code includes this file.
#pragma once
#include <vector>

#include "cpp/engine/engine.h"
#include "cuda/gemm/view/problem_to_view.h"

namespace minidnn {

struct GemmTask {
  std::vector<GemmView> views;  // a single view or, for strided backward_data, one view for each phase (see view.h)
  DType type{}, y{};            // `type` is the dtype of the operands a and b, `y` is the dtype of the result
  Activation activation{};
  bool has_bias = false, has_c = false;
  int64_t alignment = 16;  // the alignment of all pointers of the product, in bytes
  double bytes = 0;        // the number of bytes that the product reads and writes, for estimates of its time
  // Whether the sums of tensor cores are added to float32 sums after every few steps of k (kPromote in sm90/kernel.cu).
  bool promote = false;
  // Whether the kernel also computes the sums of the columns of y and of their squares (GemmArgs::sums).
  bool sums = false;
};

GemmTask gemm_task(const MatmulProblem&);
GemmTask gemm_task(const ConvProblem&);

// A matrix product that is ready to run. run() enqueues the product on a stream and changes nothing in the plan.
struct GemmPlan {
  virtual ~GemmPlan() = default;
  virtual void run(const GemmArgs&, void* workspace, Stream) const = 0;
};

}  // namespace minidnn
