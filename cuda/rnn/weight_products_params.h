// SPDX-License-Identifier: Apache-2.0
// Parameters of weight_products.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Which rows rnn_operand_rows() writes: the input of a layer [rows, I], or for each direction h before the step, or q of
// a GRU with reset_before [directions, rows, H].
enum class RnnOperand : int64_t { input, state, q };

}  // namespace minidnn
