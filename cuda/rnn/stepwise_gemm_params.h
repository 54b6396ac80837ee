// SPDX-License-Identifier: Apache-2.0
// Parameters of stepwise_gemm.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

struct RnnStepSums {
  // Forward: W x [rows, directions, gates H], of the type of sums. The row of step t of sequence n is t `input_step` + n
  // `input_row`, unless rows are packed.
  const void* input = nullptr;
  int64_t input_step = 0, input_row = 1;
  // The product of the step, of the type of sums. Forward: U h [directions, N, gates H]. Backward: the gradients of h by
  // the gates of the next step [directions, N, H].
  void* of_state = nullptr;
  // The other operand of the product of the next step, of x's dtype. Forward: h [directions, N, H]. Backward: the
  // gradients of the gates that U sees [directions, N, gates H].
  void* operand = nullptr;
};

}  // namespace minidnn
