// SPDX-License-Identifier: Apache-2.0
// L2 eviction policies for the cache lines that a kernel reads. This file does not use the standard library, because
// kernels include it. Host code includes it, too.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// The L2 eviction policies, as the 64-bit values that the PTX instruction createpolicy produces. The L2 evicts lines
// that were loaded with evict_first before all other lines. Modified lines can therefore stay in the L2 longer before
// they are written to memory.
enum class CachePolicy : uint64_t { normal = 0x1000000000000000, evict_first = 0x12F0000000000000 };

// The eviction policy for `bytes` bytes of data that a kernel reads only once. evict_first keeps the results of other
// kernels in the L2. It is slower if the data is at least 8 times as large as the L2 (docs/notes/memory.md).
MINIDNN_HD CachePolicy policy_of_once(double bytes, int64_t l2_bytes) {
  return bytes < 8 * double(l2_bytes) ? CachePolicy::evict_first : CachePolicy::normal;
}

}  // namespace minidnn
