// SPDX-License-Identifier: Apache-2.0
// L2 eviction policies for the cache lines that a kernel reads. This file does not use the standard library. Host code
// includes it, too.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// The encodings are those that the PTX instruction createpolicy produces. Lines with evict_first are evicted before
// other lines. The other lines, if modified, can then be written to memory later.
enum class CachePolicy : uint64_t { normal = 0x1000000000000000, evict_first = 0x12F0000000000000 };

// The policy for `bytes` bytes that a kernel reads only once. With evict_first, these bytes do not evict from the L2
// what other kernels have written. If they are 8 times the L2 or more, they evict it anyway, and evict_first is slower
// (docs/notes/memory.md).
MINIDNN_HD CachePolicy policy_of_once(double bytes, int64_t l2_bytes) {
  return bytes < 8 * double(l2_bytes) ? CachePolicy::evict_first : CachePolicy::normal;
}

}  // namespace minidnn
