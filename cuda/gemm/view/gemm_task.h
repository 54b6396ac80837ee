// SPDX-License-Identifier: Apache-2.0
// The interface between operation families, such as conv and matmul, and the main loops of matrix products. A GemmTask
// describes a product, and a GemmPlan runs it. Only host code includes this file.
#pragma once
#include <vector>

#include "cpp/engine/engine.h"
#include "cuda/gemm/view/problem_to_view.h"

namespace minidnn {

struct GemmTask {
  std::vector<GemmView> views;  // one view or, for strided backward_data, one for each phase
  DType type{}, y{};            // the dtypes of the operands and of the result
  Activation activation{};
  bool has_bias = false, has_c = false;
  int64_t alignment = 16;  // the alignment of all pointers, in bytes
  double bytes = 0;        // the memory traffic of the product, for time estimates
  // Whether tensor cores' sums are added to float32 sums every few steps of k (kPromote in sm90/kernel.cu).
  bool promote = false;
  // Whether to compute GemmArgs::sums, too.
  bool sums = false;
};

// Whether epilogues use short formulas of activations (cuda/device/fast_activation.cuh): for 16-bit results, and for
// sums of TF32 products that are not `exact`, that is, neither promoted nor made of three products.
inline bool has_fast_activation(const GemmTask& t, bool exact) {
  return itemsize(t.y) == 2 || (t.type == DType::float32 && !exact);
}

GemmTask gemm_task(const MatmulProblem&);
GemmTask gemm_task(const ConvProblem&);

// A matrix product that is ready to run on a stream.
struct GemmPlan {
  virtual ~GemmPlan() = default;
  virtual void run(const GemmArgs&, void* workspace, Stream) const = 0;
};

}  // namespace minidnn
