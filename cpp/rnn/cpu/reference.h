// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "cpp/rnn/rnn.h"

namespace minidnn::cpu::rnn {

// Computes all items of a pass of a layer by the formulas of rnn_math.h, on threads.
void run_reference_pass(RnnPass, const RnnProblem&, const RnnLayer&, int64_t step, int64_t items);

}  // namespace minidnn::cpu::rnn
