// SPDX-License-Identifier: Apache-2.0
// mma.sync (sm_80): a warp computes 16 x 8 sums over 32 bytes along k, which are 16 elements of 16 bits or 8 elements
// of TF32.
#pragma once
#include "cpp/core/host_device/half.h"

namespace minidnn {

// sums += a * b for operands of type T. For TF32 operands, T is float; cvt_rna_tf32() converts float32 to TF32. Lane l
// holds four float32 sums, in row-major order: rows l / 4 and l / 4 + 8 of columns 2 (l % 4) and 2 (l % 4) + 1.
template <class T> constexpr bool kIsFloat16 = false;
template <> constexpr bool kIsFloat16<float16> = true;
template <class T>
__device__ __forceinline__ void mma_sync(float* sums, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#define MINIDNN_MMA(shape, type)                                   \
  asm("mma.sync.aligned." shape ".row.col.f32." type "." type      \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "        \
      "{%0, %1, %2, %3};"                                          \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (sizeof(T) == 4) MINIDNN_MMA("m16n8k8", "tf32");
  else if constexpr (kIsFloat16<T>) MINIDNN_MMA("m16n8k16", "f16");
  else MINIDNN_MMA("m16n8k16", "bf16");
#undef MINIDNN_MMA
}

}  // namespace minidnn
