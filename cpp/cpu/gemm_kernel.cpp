// SPDX-License-Identifier: Apache-2.0
// The kernel for every machine of this architecture, and the choice among all.
#include "cpp/cpu/gemm_kernel_loop.h"

namespace minidnn::cpu {
namespace {

// 8 of 16 registers hold sums: without a fused multiply-add each product needs one more.
constexpr GemmKernels portable = kernels<16, 4, 2>("portable");

}  // namespace

#ifdef __x86_64__
extern const GemmKernels gemm_avx2, gemm_avx512;

const GemmKernels* gemm_kernels(int i) {
  if (__builtin_cpu_supports("avx512f") && i-- == 0) return &gemm_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && i-- == 0) return &gemm_avx2;
  return i == 0 ? &portable : nullptr;
}
#else
const GemmKernels* gemm_kernels(int i) { return i == 0 ? &portable : nullptr; }
#endif

}  // namespace minidnn::cpu
