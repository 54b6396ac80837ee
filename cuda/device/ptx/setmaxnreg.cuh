// SPDX-License-Identifier: Apache-2.0
// setmaxnreg (sm_90a) changes the number of registers that each thread of a warpgroup has. All warps of the warpgroup
// must execute the same setmaxnreg instruction.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Decreases the number of registers per thread to kRegisters.
template <int kRegisters> __device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Waits until the block has enough free registers, then increases the number of registers per thread to kRegisters.
template <int kRegisters> __device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace minidnn
