// SPDX-License-Identifier: Apache-2.0
#include "cpp/simd/non_temporal.h"

#include <algorithm>

#include "cpp/core/platform.h"

namespace minidnn::cpu {

int64_t non_temporal_bytes() {
  static const int64_t bytes = std::clamp<int64_t>(platform::last_level_cache_bytes() / 2, 4 << 20, 16 << 20);
  return bytes;
}

}  // namespace minidnn::cpu
