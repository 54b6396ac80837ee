// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/gemm_kernel_loop.h"

namespace minidnn::cpu {

// 24 of 32 registers hold sums, 2 a row of b; an element of a is broadcast by the instruction that uses it.
extern const GemmKernels gemm_avx512;
constexpr GemmKernels gemm_avx512 = kernels<64, 12, 2>("avx512");

}  // namespace minidnn::cpu
