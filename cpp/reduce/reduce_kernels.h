// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.runs, compiled once per instruction set (reduce_isa.cpp).
#pragma once
#include "cpp/cpu/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// *result = *result combined with n elements beside each other.
using ReduceAlong = void (*)(const void* x, int64_t n, double* result);
// results[j] = results[j] combined with x[i * pitch + j] for all i < rows, for at most kReduceColumns columns j.
using ReduceAcross = void (*)(const void* x, int64_t pitch, int64_t rows, int64_t columns, double* results);
constexpr int64_t kReduceColumns = 256;

struct ReduceKernels {
  ReduceAlong along[4][11];  // by dtype and mode, up to `all`; null for float64
  ReduceAcross across[4][11];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
