// SPDX-License-Identifier: Apache-2.0
// A tensor map as kernels take it, a CUtensorMap to the byte. Std-free, for the host too.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

struct alignas(64) TensorMap {
  uint64_t words[16];
};

// What the L2 does with the lines that are brought: words as createpolicy makes them.
enum class CachePolicy : uint64_t { normal = 0x1000000000000000, evict_first = 0x12F0000000000000 };

}  // namespace minidnn
