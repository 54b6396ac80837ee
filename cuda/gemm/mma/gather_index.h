// SPDX-License-Identifier: Apache-2.0
// Prepares views for the index arithmetic of mma_params.h: 32-bit indices, the bits of windows, and the widths of
// vectors. Host only.
#pragma once
#include <string>
#include <vector>

#include "cuda/gemm/mma/mma_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

// A task's views, prepared for the kernel: a and b are exchanged if neighbouring rows of y are neighbours in memory,
// and the way to read each operand is the same in all phases. The caller fills in blocks and outputs. `why` is empty,
// or says what the kernel does not support.
struct MmaViews {
  std::vector<GemmView> views;
  std::vector<MmaParams> phases;
  bool exchanged = false, wide = false, a_along_k = false, b_along_k = false;
  int64_t element = 4;  // bytes
  std::string why;
  explicit MmaViews(const GemmTask&);
};

}  // namespace minidnn
