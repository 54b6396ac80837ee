// SPDX-License-Identifier: Apache-2.0
// What the L2 does with lines that a kernel reads. Std-free, for the host too.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// As createpolicy makes them. evict_first: these lines leave before others, which then need not be written to memory yet.
enum class CachePolicy : uint64_t { normal = 0x1000000000000000, evict_first = 0x12F0000000000000 };

// Of `bytes` that a kernel reads once: they shall not push out what others wrote; of much more than the L2 holds they do so
// anyway, and then take longer (docs/measured_facts.md).
MINIDNN_HD CachePolicy policy_of_once(double bytes, int64_t l2_bytes) {
  return bytes < 8 * double(l2_bytes) ? CachePolicy::evict_first : CachePolicy::normal;
}

}  // namespace minidnn
