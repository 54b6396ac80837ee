// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.activation.dense, compiled once per instruction set (activation_isa.cpp).
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/cpu/isa.h"

namespace minidnn {

// n floats, a whole number of steps; dy only backward. `out` may be x or dy.
using ActivationLoop = void (*)(const float* x, const float* dy, float* out, int64_t n, float alpha);

struct ActivationKernels {
  ActivationLoop forward[kActivations], backward[kActivations];
  // n elements of a floating dtype through a loop; null for float64. `past_caches`: the result is not to fill them.
  void (*apply[4])(ActivationLoop, const void* x, const void* dy, void* out, int64_t n, float alpha, bool past_caches);
};

MINIDNN_PER_ISA(ActivationKernels, activation_kernels)

}  // namespace minidnn
