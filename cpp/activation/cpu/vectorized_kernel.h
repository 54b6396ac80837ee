// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.activation.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/core/isa.h"

namespace minidnn {

// Processes n elements, where n is a multiple of the loop's step. Forward loops ignore dy. `out` may be x or dy.
using ActivationLoop = void (*)(const void* x, const void* dy, void* out, int64_t n, float alpha);

struct ActivationLoops {
  ActivationLoop forward[kActivations], backward[kActivations];
  // Applies a loop to any number n of elements. If `non_temporal`, the stores of the result bypass the caches.
  void (*apply)(ActivationLoop, const void* x, const void* dy, void* out, int64_t n, float alpha, bool non_temporal);
};
struct ActivationKernels {
  ActivationLoops of[4];  // the loops for each DType; null for float64
};

MINIDNN_PER_ISA(ActivationKernels, activation_kernels)

}  // namespace minidnn
