// SPDX-License-Identifier: Apache-2.0
// Conversion of a generic address to an address of shared memory.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Returns the 32-bit shared-memory address of p. The asm is volatile so that the compiler does not repeat the
// conversion at each use of the address.
__device__ __forceinline__ uint32_t cvta_to_shared(const void* p) {
  uint32_t address;
  asm volatile("{\n.reg .u64 shared;\ncvta.to.shared.u64 shared, %1;\ncvt.u32.u64 %0, shared;\n}"
               : "=r"(address)
               : "l"(p));
  return address;
}

}  // namespace minidnn
