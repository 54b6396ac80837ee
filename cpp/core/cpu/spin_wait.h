// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread, by polling first.
#pragma once
#include <atomic>

namespace minidnn::cpu {

// The number of times that a waiting thread polls before it blocks. The polls take about 20 us. Waking a blocked thread
// takes as long, and what it waits for often comes sooner.
constexpr int kSpins = 500;

inline void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Waits until the atomic `value` differs from `old`, and returns the new value.
template <class T> T changed(const std::atomic<T>& value, T old, int spins = kSpins) {
  for (int i = 0; i < spins; ++i) {
    if (T now = value.load(std::memory_order_acquire); now != old) return now;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace minidnn::cpu
