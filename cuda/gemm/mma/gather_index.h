// SPDX-License-Identifier: Apache-2.0
// Prepares GemmViews for the index arithmetic of mma_params.h: 32-bit indices, bit masks for windows, and the widths of
// vectors. Host only.
#pragma once
#include <string>
#include <vector>

#include "cuda/gemm/mma/mma_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

// The views of a task, prepared for mma/kernel.cu. `exchanged`: a and b are exchanged if neighbouring rows of y are
// contiguous in memory. Each operand is read in the same way in all phases. The caller sets the order of blocks and the
// outputs. `why` is empty, or says what the kernel does not support.
struct MmaViews {
  std::vector<GemmView> views;
  std::vector<MmaParams> phases;
  bool exchanged = false, wide = false, a_along_k = false, b_along_k = false;
  int64_t element = 4;  // size of an element of a and b in bytes
  std::string why;
  explicit MmaViews(const GemmTask&);
};

}  // namespace minidnn
