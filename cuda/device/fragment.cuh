// SPDX-License-Identifier: Apache-2.0
// Fragments: the operands of mma.sync in registers, for main loops on sm_80 and later.
//
// A fragment is 16 rows of an operand, with 32 bytes along k in each row. Each lane of a warp holds four 32-bit words
// of it. Word i of all lanes together is one quarter of the fragment: 8 rows with 16 bytes each. In a quarter, lane l
// holds bytes 4 (l % 4) to 4 (l % 4) + 3 of row l / 4. In operand a, words 0 and 1 are the quarters with the first 16
// bytes along k. In operand b, words 0 and 1 are the quarters with rows 0 to 7.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/ptx/mma_sync.cuh"

namespace minidnn {

constexpr int kFragmentRows = 16, kFragmentBytes = 32;

// Dynamic shared memory, aligned to 1024 bytes for swizzled layouts.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}

}  // namespace minidnn
