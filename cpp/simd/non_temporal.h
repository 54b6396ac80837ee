// SPDX-License-Identifier: Apache-2.0
// Decides when a result is written by non-temporal stores, which bypass the caches. The cache lines of the result are
// then not read before they are written. A copy moves its data twice instead of three times. In return, the next reader
// must load the result from memory. So results that fit into half of the last-level cache are stored as usual. Measured
// on 2 cores with 32 MB of it (2026-11): sums of two tensors of 4 to 8 MB take 0.5 to 0.6 of the time of non-temporal
// stores, those of 16 to 32 MB as long, and those of 128 MB take 1.1 times as long.
#pragma once
#include <cstdint>

#include "cpp/core/cpu/work_size.h"

namespace minidnn::cpu {

// Half of the last-level cache, but at least 4 MB and at most 16 MB: the cache may be shared with other cores.
int64_t non_temporal_bytes();
inline bool non_temporal(double result_bytes) { return result_bytes >= double(work_size(non_temporal_bytes())); }

}  // namespace minidnn::cpu
