// SPDX-License-Identifier: Apache-2.0
// setmaxnreg (sm_90a): the registers of each thread of a warpgroup. All warps of the warpgroup call the same function.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// Releases registers, down to kRegisters a thread.
template <int kRegisters> __device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Waits until enough registers of the block are free, then has kRegisters a thread.
template <int kRegisters> __device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace minidnn
