// SPDX-License-Identifier: Apache-2.0
// The CPU engines' threads: a pool made at first use, remade in a forked child. An item of a range is
// computed whole by one thread, so results do not depend on how many there are.
#pragma once
#include <cstdint>
#include <functional>

namespace minidnn::cpu {

// OMP_NUM_THREADS if set, else the cores this process may run on.
int thread_count();

// Calls body(begin, end) on pieces of [0, n) of at least `grain` items each; returns when all are done. The caller works
// too. Runs inline when there is one piece, or when called from inside a body. The first exception is rethrown.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace minidnn::cpu
