// SPDX-License-Identifier: Apache-2.0
// Shared memory by its own 32-bit addresses.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// volatile: else the compiler finds the address anew for every copy.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  uint32_t address;
  asm volatile("{\n.reg .u64 shared;\ncvta.to.shared.u64 shared, %1;\ncvt.u32.u64 %0, shared;\n}"
               : "=r"(address)
               : "l"(p));
  return address;
}

}  // namespace minidnn
