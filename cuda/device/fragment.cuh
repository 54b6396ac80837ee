// SPDX-License-Identifier: Apache-2.0
// Fragments: the operands of mma.sync in registers, for main loops on sm_80 and later.
//
// A fragment consists of 16 rows of an operand, with 32 bytes along k in each row. Each lane holds four 32-bit words of
// the fragment. Word i of all 32 lanes is a block of 8 rows by 16 bytes: rows 0 to 7 or 8 to 15, and the first or the
// second 16 bytes along k. In each block, lane l holds row l / 4, from byte 4 (l % 4) on. In a fragment of operand a,
// words 0 and 1 are the blocks with the first 16 bytes along k. In a fragment of operand b, which serves two products
// of eight rows each, words 0 and 1 are the blocks with rows 0 to 7.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/ptx/mma_sync.cuh"

namespace minidnn {

constexpr int kFragmentRows = 16, kFragmentBytes = 32;

// The dynamic shared memory of a block. Its alignment of 1024 bytes suffices for all swizzled layouts.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}

}  // namespace minidnn
