// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch (sm_90): the next grid may start before this one ends. Before sm_90 both do nothing,
// because grids follow one another.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// The next grid may start once all blocks have called this, as far as resources are free.
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
