// SPDX-License-Identifier: Apache-2.0
// The named barriers 1 to 15 of a block. `threads` is the number of threads that take part, a multiple of 32.
// __syncwarp() makes the threads of a warp converge first, as the instructions require.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace minidnn
