// SPDX-License-Identifier: Apache-2.0
// Prepares GemmViews for the index arithmetic of mma_params.h, which has 32-bit indices, bit masks for windows, and
// vectors of several widths. Only host code includes this file.
#pragma once
#include <string>
#include <vector>

#include "cuda/gemm/mma/mma_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

// The GemmViews of a GemmTask (strided backward_data has several, called phases), and the kernel parameters of each.
// Operands a and b are exchanged if only the columns of y are contiguous. `why` is empty, or names what is not
// supported. plan.cpp completes the parameters.
struct MmaViews {
  std::vector<GemmView> views;
  std::vector<MmaParams> phases;
  bool exchanged = false, wide = false, a_along_k = false, b_along_k = false;
  int64_t element = 4;  // the bytes of an element of a and b
  std::string why;
  explicit MmaViews(const GemmTask&);
};

}  // namespace minidnn
