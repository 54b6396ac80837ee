// SPDX-License-Identifier: Apache-2.0
// cpu.activation.reference on contiguous elements.
#pragma once
#include "cpp/activation/activation.h"

namespace minidnn::cpu::activation {

ActivationSpan reference_on_span(const ActivationProblem&);

}  // namespace minidnn::cpu::activation
