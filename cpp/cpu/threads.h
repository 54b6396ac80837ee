// SPDX-License-Identifier: Apache-2.0
// The CPU engines' threads: a pool made at first use, remade in a forked child. An item of a range is
// computed whole by one thread, so results do not depend on how many there are.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace minidnn::cpu {

// OMP_NUM_THREADS if set, else the cores this process may run on.
int thread_count();

// While it lives, what its thread asks of the pool is done by at most so many; 0: by all.
class ThreadLimit {
 public:
  explicit ThreadLimit(int most);
  ThreadLimit(const ThreadLimit&) = delete;
  ~ThreadLimit();

 private:
  const int before_;
};

namespace detail {
int threads_allowed();
void run_pieces(int64_t n, int64_t pieces, void (*call)(void*, int64_t, int64_t), void* body);
int64_t pieces_of(int64_t n, int64_t grain);  // 1 where threads would not pay, or are not to be had
}  // namespace detail

// Calls body(begin, end) on pieces of [0, n) of at least `grain` items each; returns when all are done. The caller
// works too. Runs inline when there is one piece, or when called from inside a body. The first exception is rethrown.
template <class Body> void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  const int64_t pieces = detail::pieces_of(n, grain);
  if (pieces <= 1) return body(int64_t(0), n);
  using B = std::remove_reference_t<Body>;
  auto call = [](void* b, int64_t begin, int64_t end) { (*static_cast<B*>(b))(begin, end); };
  detail::run_pieces(n, pieces, call, const_cast<void*>(static_cast<const void*>(&body)));
}

// Calls body(item, room) for each item of [0, n), in whatever order threads come to them. No two calls at a time have
// one room, of which there are thread_count().
template <class Body> void parallel_items(int64_t n, Body&& body) {
  std::atomic<int64_t> next = 0;
  parallel_for(n < detail::threads_allowed() ? n : detail::threads_allowed(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t room = begin; room < end; ++room)
      for (int64_t item; (item = next++) < n;) body(item, room);
  });
}

}  // namespace minidnn::cpu
