// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/cpu/thread_team.h"

#include <algorithm>
#include <chrono>

#include "cpp/core/cpu/spin_wait.h"
#include "cpp/core/cpu/thread_pool.h"

namespace minidnn::cpu {
namespace {

// Threads that join later than the first member allows find the team closed.
constexpr int kClosed = 1 << 24;

struct Team {
  std::atomic<int> joined = 0;   // kClosed or more: closed
  std::atomic<int> members = 0;  // set when the team is closed
  int most;
  double patience_us;
  detail::MemberCall call;
  void* body;

  // Waits for other threads, and closes the team.
  int close() {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double, std::micro>(patience_us);
    while (joined.load(std::memory_order_relaxed) < most && Clock::now() < end)
      for (int i = 0; i < 16; ++i) relax();
    const int n = joined.exchange(kClosed);
    members.store(n, std::memory_order_release);
    members.notify_all();
    return n;
  }
  void join() {
    const int member = joined.fetch_add(1);
    if (member >= kClosed) return;
    call(body, member, member == 0 ? close() : changed(members, 0));
  }
};

}  // namespace

void Barrier::wait(int members) {
  if (members == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < members) {
    changed(phase_, phase, 5 * kSpins);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  phase_.store(phase + 1, std::memory_order_release);
  phase_.notify_all();
}

namespace detail {

void run_team(int most, double patience_us, MemberCall call, void* body) {
  most = std::min(most, threads_allowed());
  if (chunks_of(most, 1) <= 1) return call(body, 0, 1);
  Team team{.most = most, .patience_us = patience_us, .call = call, .body = body};
  // Each chunk is an attempt to join. Whoever computes all chunks is alone, because the pool is busy.
  const Call attempt = [](void* t, int64_t begin, int64_t end) {
    Team& of = *static_cast<Team*>(t);
    if (end - begin > 1) of.most = 1;
    of.join();
  };
  run_chunks(most, 1, most, attempt, &team);
}

}  // namespace detail
}  // namespace minidnn::cpu
