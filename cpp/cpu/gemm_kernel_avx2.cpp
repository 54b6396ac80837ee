// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/gemm_kernel_loop.h"

namespace minidnn::cpu {

// 12 of 16 registers hold sums, 2 a row of b, 1 an element of a.
extern const GemmKernels gemm_avx2;
constexpr GemmKernels gemm_avx2 = kernels<32, 6, 2>("avx2");

}  // namespace minidnn::cpu
