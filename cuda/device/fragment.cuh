// SPDX-License-Identifier: Apache-2.0
// Fragments: operands of mma.sync in registers, for main loops on sm_80 and later.
//
// A fragment is 16 rows by 32 bytes of k, as four words in each lane. A word of all lanes covers eight rows (0 to 7, or
// 8 to 15) and 16 bytes of k (the first or the second 16). Lane l holds 4 of these 16 bytes, from byte 4 (l % 4) on, of
// the (l / 4)-th of these rows. If the fragment is operand a of a product, words 0 and 1 have the first 16 bytes of k.
// If it is operand b of two products, words 0 and 1 have rows 0 to 7.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/ptx/mma_sync.cuh"

namespace minidnn {

constexpr int kFragmentRows = 16, kFragmentBytes = 32;

// The block's dynamic shared memory. The alignment of 1024 bytes suffices for all swizzled layouts.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}

}  // namespace minidnn
