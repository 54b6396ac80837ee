// SPDX-License-Identifier: Apache-2.0
// The instructions of sm_80 and later behind a tensor-core loop: asynchronous copies into shared memory, matrices out
// of it, products. A warp's product is 16 x 8 over 32 bytes of k: 16 elements of 16 bits, 8 of TF32.
//
// A fragment is four words of each lane that hold 16 rows by 32 bytes of k: rows 0-7 or 8-15, the first 16 bytes or the
// other, bytes 4 (l % 4) of row l / 4 in lane l. As a product's a, words 0 and 1 have the first 16 bytes; as the b of
// two products, words 0 and 1 have rows 0-7.
#pragma once
#include "cpp/core/half.h"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/matrix.cuh"

namespace minidnn {

constexpr int kFragmentRows = 16, kFragmentBytes = 32;

// Dynamic shared memory, aligned for every layout here.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}

__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint16_t v) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(v) : "memory");
}

// sums += a b, of operands of type T; float means TF32 and takes what to_tf32() gives. The four sums are float32: rows
// l / 4 and l / 4 + 8 of lane l, columns 2 (l % 4) and the next, row by row.
template <class T> constexpr bool kIsFloat16 = false;
template <> constexpr bool kIsFloat16<float16> = true;
template <class T>
__device__ __forceinline__ void mma(float* sums, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
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

// The nearest TF32 value, ties away from zero; NaN stays.
__device__ __forceinline__ uint32_t to_tf32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return bits;
}

}  // namespace minidnn
