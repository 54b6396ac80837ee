// SPDX-License-Identifier: Apache-2.0
// Conversion of generic addresses.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// The 32-bit address of shared memory. It is volatile because the compiler would otherwise convert again for each use.
__device__ __forceinline__ uint32_t cvta_to_shared(const void* p) {
  uint32_t address;
  asm volatile("{\n.reg .u64 shared;\ncvta.to.shared.u64 shared, %1;\ncvt.u32.u64 %0, shared;\n}"
               : "=r"(address)
               : "l"(p));
  return address;
}

}  // namespace minidnn
