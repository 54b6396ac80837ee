// SPDX-License-Identifier: Apache-2.0
// Reads TF32 operands that are contiguous along their rows, for sm90/kernel.cu. wgmma reads TF32 operands from shared
// memory only if they are contiguous along k. Operand b is therefore transposed in shared memory, and operand a is read
// into registers.
#pragma once
#include "cuda/device/ptx/ld_st.cuh"

namespace minidnn {

// Transposes a chunk of a stage (a buffer in shared memory) in place. A chunk has 32 lines of 32 floats. Before the
// transpose, each line is 32 rows at one k. Afterwards, each line is 32 k of one row. The chunk is in 128-byte swizzle
// before and after. All lanes of one warp call this function.
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

// Returns the first row of operand a that this lane reads into registers, relative to the first row of its warpgroup. A
// lane reads 2 * kBlocks neighbouring rows: two rows for each of kBlocks wgmma blocks of 64 rows. The rows are
// distributed to lanes so that reads from shared memory have no bank conflicts.
template <int kBlocks> __device__ __forceinline__ uint32_t sm90_transposed_row() {
  const uint32_t warp = threadIdx.x / 32 % 4, group = threadIdx.x % 32 / 4;
  if constexpr (kBlocks == 2) return warp * 32 + group % 2 * 16 + group / 2 * 4;
  else return warp / 2 * 32 + group % 2 * 16 + warp % 2 * 8 + group / 4 * 4 + group / 2 % 2 * 2;
}
// Returns the offset, in bytes, of the first element of operand a that this lane reads in a stage (a buffer in shared
// memory). In a stage, each 32 rows of a are 32 lines of 128 bytes: one line for each k, in 128-byte swizzle.
template <int kBlocks> __device__ __forceinline__ uint32_t sm90_transposed_offset() {
  const uint32_t row = sm90_transposed_row<kBlocks>(), k = threadIdx.x % 4;
  return row / 32 * 4096 + k * 128 + (row % 32 / 4 ^ k) * 16 + row % 4 * 4;
}
// Loads this lane's values of a for one wgmma instruction, which multiplies eight k. `address` is an integer, because
// the compiler computes pointers again for each access.
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
