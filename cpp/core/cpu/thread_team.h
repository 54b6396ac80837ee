// SPDX-License-Identifier: Apache-2.0
// Threads of the pool that work at the same time, so that they may wait for each other. parallel_for() does not promise
// this: there, one thread may compute several chunks, one after the other.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace minidnn::cpu {

// A barrier for the members of a team. A waiting thread polls for about 100 us, and then blocks, so that it leaves its
// core to a member that the system has interrupted.
class alignas(64) Barrier {
 public:
  // Returns when `members` threads have called wait(). All calls must have the same number.
  void wait(int members);

 private:
  std::atomic<int> arrived_ = 0;
  std::atomic<uint32_t> phase_ = 0;
};

namespace detail {
using MemberCall = void (*)(void* body, int member, int members);
void run_team(int most, double patience_us, MemberCall, void* body);
}  // namespace detail

// Calls body(member, members) once on each thread of a team, and returns when all calls have returned. `member` is in
// [0, members), and `members` is at most `most`. The team has the threads that are ready within `patience_us`: if the
// others are busy, it is the calling thread alone. The body must not throw, because its members may wait for each other.
template <class Body> void parallel_team(int most, double patience_us, Body&& body) {
  auto call = [](void* b, int member, int members) {
    (*static_cast<std::remove_reference_t<Body>*>(b))(member, members);
  };
  detail::run_team(most, patience_us, call, const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace minidnn::cpu
