// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pointwise.runs, compiled once per instruction set (pointwise_isa.cpp).
#pragma once
#include "cpp/cpu/isa.h"
#include "cpp/pointwise/pointwise_math.h"

namespace minidnn {

constexpr int64_t kPointwiseRun = 512;  // elements worked on at a time: three operands of them stay in the first cache
#define MINIDNN_COUNT(name, group, operands, formula) +1
constexpr int kPointwiseFunctions = MINIDNN_POINTWISE(MINIDNN_COUNT);
#undef MINIDNN_COUNT

// Operands and result as the type that elements are computed in. `out` may be what is read.
using PointwiseRun = void (*)(const void* a, const void* b, const void* c, void* out, int64_t n);
struct PointwiseRuns {
  PointwiseRun function[kPointwiseFunctions];  // null where the dtype will not do
  void (*read)(const void* from, int64_t stride, int64_t n, void* to);
  void (*write)(const void* from, int64_t n, void* to, bool non_temporal);  // contiguous
  void (*write_strided)(const void* from, int64_t n, void* to, int64_t stride);
  void (*write_bool)(const void* from, int64_t n, void* to, int64_t stride);
};
struct PointwiseKernels {
  PointwiseRuns of[9];  // by dtype
  void (*finish)();     // after writes past the caches
};

MINIDNN_PER_ISA(PointwiseKernels, pointwise_kernels)

}  // namespace minidnn
