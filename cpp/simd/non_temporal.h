// SPDX-License-Identifier: Apache-2.0
// Decides when a result is written past the caches (non-temporal stores). Its cache lines are then not read before they
// are written: a copy moves two streams instead of three. But the next reader has to load it from memory. Copies on 2
// Zen 3 cores (2026-11): 49 to 65 GB/s at 8 MB, 31 to 54 GB/s at 64 MB.
#pragma once
#include <cstdint>

#include "cpp/core/work_size.h"

namespace minidnn::cpu {

constexpr int64_t kPastCaches = 4 << 20;
inline bool non_temporal(double result_bytes) { return result_bytes >= double(work_size(kPastCaches)); }

}  // namespace minidnn::cpu
