// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.activation.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/core/cpu/isa.h"

namespace minidnn {

// Computes n elements of y or dx. n is a multiple of kStep, the number of elements that one iteration of the loop
// processes. Forward loops ignore dy. `out` may be the same memory as x or dy.
using ActivationLoop = void (*)(const void* x, const void* dy, void* out, int64_t n, double alpha);

struct ActivationLoops {
  ActivationLoop forward[kActivations], backward[kActivations];
  // Computes any number n of elements with an ActivationLoop, which itself needs a multiple of kStep elements. If
  // `non_temporal` is set, the stores of the result bypass the caches.
  void (*apply)(ActivationLoop, const void* x, const void* dy, void* out, int64_t n, double alpha, bool non_temporal);
};
struct ActivationKernels {
  ActivationLoops of[4];  // the loops for each floating DType
};

MINIDNN_PER_ISA(ActivationKernels, activation_kernels)

}  // namespace minidnn
