// SPDX-License-Identifier: Apache-2.0
// Prepares GemmViews for the index arithmetic of mma_params.h, which has 32-bit indices, bit masks for windows, and
// vectors of several widths. Only host code includes this file.
#pragma once
#include <string>
#include <vector>

#include "cuda/gemm/mma/mma_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

// The GemmViews of a GemmTask, and the parameters of mma/kernel.cu for each of them. Strided backward_data has several
// views, which are called phases; all other products have one. Operands a and b are exchanged if y has contiguous
// columns (neighbouring rows are neighbours in memory), no contiguous rows, and more than eight columns. For all views,
// the kernel reads an operand by vectors of the same width, along the same index. plan.cpp then sets MmaParams::y and
// the order of blocks. `why` is empty, or says what the kernel does not support.
struct MmaViews {
  std::vector<GemmView> views;
  std::vector<MmaParams> phases;
  bool exchanged = false, wide = false, a_along_k = false, b_along_k = false;
  int64_t element = 4;  // the size of an element of operands a and b, in bytes
  std::string why;
  explicit MmaViews(const GemmTask&);
};

}  // namespace minidnn
