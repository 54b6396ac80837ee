// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch (sm_90): the next grid of a stream may start before this grid ends. On devices before
// sm_90, the next grid starts only after this grid, and the functions in this file do nothing.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Allows the next grid of the stream to start as soon as all blocks of this grid have called this function and the
// device has free resources.
__device__ __forceinline__ void griddep_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until the previous grid of the stream has ended and its writes are visible.
__device__ __forceinline__ void griddep_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace minidnn
