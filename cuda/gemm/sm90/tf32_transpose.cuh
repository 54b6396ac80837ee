// SPDX-License-Identifier: Apache-2.0
// Reads TF32 operands that are contiguous along their rows, for sm90/kernel.cu. wgmma reads TF32 operands from shared
// memory only if they are contiguous along k. Operand b is therefore transposed in shared memory, and operand a is read
// into registers.
#pragma once
#include "cuda/device/ptx/ld_st.cuh"

namespace minidnn {

// Transposes a chunk of 32 x 32 floats, [k][row] to [row][k], in place, in 128-byte swizzle. All lanes of one warp call
// it.
__device__ __forceinline__ void sm90_transpose(char* chunk) {
  const uint32_t lane = threadIdx.x % 32;
  float v[32];
#pragma unroll
  for (uint32_t k = 0; k < 32; ++k)
    v[k] = *reinterpret_cast<const float*>(chunk + k * 128 + ((lane / 4 ^ k % 8) * 16 + lane % 4 * 4));
  __syncwarp();
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j)
    *reinterpret_cast<float4*>(chunk + lane * 128 + (j ^ lane % 8) * 16) =
        make_float4(v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3]);
}

// The first row of a that this lane reads, relative to its warpgroup. A lane reads 2 * kBlocks adjacent rows. Their
// assignment to lanes avoids bank conflicts.
template <int kBlocks> __device__ __forceinline__ uint32_t sm90_transposed_row() {
  const uint32_t warp = threadIdx.x / 32 % 4, group = threadIdx.x % 32 / 4;
  if constexpr (kBlocks == 2) return warp * 32 + group % 2 * 16 + group / 2 * 4;
  else return warp / 2 * 32 + group % 2 * 16 + warp % 2 * 8 + group / 4 * 4 + group / 2 % 2 * 2;
}
// The byte offset of this lane's first element of a in a stage. Each 32 rows of a are 32 lines of 128 bytes, one for
// each k, in 128-byte swizzle.
template <int kBlocks> __device__ __forceinline__ uint32_t sm90_transposed_offset() {
  const uint32_t row = sm90_transposed_row<kBlocks>(), k = threadIdx.x % 4;
  return row / 32 * 4096 + k * 128 + (row % 32 / 4 ^ k) * 16 + row % 4 * 4;
}
// Loads this lane's values of a for one wgmma (eight k). `address` is an integer, because the compiler would compute a
// pointer again for each access.
template <int kBlocks>
__device__ __forceinline__ void sm90_load_transposed(uint32_t address, int step, uint32_t (&a)[kBlocks][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t from = (half ? (address ^ 64) + 4 * 128 : address) + uint32_t(step) * 8 * 128;
    if constexpr (kBlocks == 2)
      ld_shared_unordered(from, a[0][2 * half], a[0][2 * half + 1], a[1][2 * half], a[1][2 * half + 1]);
    else ld_shared_unordered(from, a[0][2 * half], a[0][2 * half + 1]);
  }
}

}  // namespace minidnn
