// SPDX-License-Identifier: Apache-2.0
// L2 eviction policies for the lines that a kernel reads. Std-free, for the host too.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// The encodings that createpolicy produces. evict_first: these lines are evicted before others, which then need not be
// written to memory yet.
enum class CachePolicy : uint64_t { normal = 0x1000000000000000, evict_first = 0x12F0000000000000 };

// The policy for `bytes` that a kernel reads once. evict_first keeps them from evicting what other kernels wrote. If
// they are much more than the L2 holds, they evict it anyway, and evict_first is slower (docs/notes/memory.md).
MINIDNN_HD CachePolicy policy_of_once(double bytes, int64_t l2_bytes) {
  return bytes < 8 * double(l2_bytes) ? CachePolicy::evict_first : CachePolicy::normal;
}

}  // namespace minidnn
