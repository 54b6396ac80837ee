// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch (sm_90): the next grid of a stream may start before this grid ends. Before sm_90, the
// next grid starts only after this one, and both functions do nothing.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// Allows the next grid to start as soon as all blocks of this grid have called this function and resources are free.
__device__ __forceinline__ void griddep_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until the previous grid has ended and its writes are visible.
__device__ __forceinline__ void griddep_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace minidnn
