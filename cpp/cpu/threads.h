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

// `check` throws where the user has asked to stop (Ctrl-C). Long work calls check_interrupt() now and then: it calls
// `check`, on the thread that may do so, no more than ten times a second.
void set_interrupt_check(void (*check)());
void check_interrupt();

namespace detail {
int threads_allowed();
using Call = void (*)(void* body, int64_t begin, int64_t end);
void run_pieces(int64_t n, int64_t grain, int64_t pieces, Call, void* body);
int64_t pieces_of(int64_t n, int64_t grain);  // 1 where threads would not pay, or are not to be had
}  // namespace detail

// Calls body(begin, end) on pieces of [0, n) of at least `grain` items each; returns when all are done. The caller
// works too. Runs inline when there is one piece, or when called from inside a body. The first exception is rethrown,
// and pieces that no thread has begun are left out.
template <class Body> void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  const int64_t pieces = detail::pieces_of(n, grain);
  if (pieces <= 1 && n <= grain) return body(int64_t(0), n);
  using B = std::remove_reference_t<Body>;
  auto call = [](void* b, int64_t begin, int64_t end) { (*static_cast<B*>(b))(begin, end); };
  detail::run_pieces(n, grain, pieces, call, const_cast<void*>(static_cast<const void*>(&body)));
}

// Calls body(begin, end, thread) for batches of [0, n) in the order in which `threads` threads get to them. No two
// calls at a time have the same `thread`, which is below `threads`.
template <class Body> void parallel_batches(int64_t n, int64_t batch, int64_t threads, Body&& body) {
  std::atomic<int64_t> next = 0;
  parallel_for(threads, 1, [&](int64_t first, int64_t last) {
    try {
      for (int64_t thread = first; thread < last; ++thread)
        for (int64_t begin; (begin = next.fetch_add(batch)) < n;) {
          body(begin, begin + batch < n ? begin + batch : n, thread);
          check_interrupt();
        }
    } catch (...) {
      next = n;  // the other threads stop, too
      throw;
    }
  });
}

// Calls body(item, thread) for each item of [0, n); `thread` is below thread_count().
template <class Body> void parallel_items(int64_t n, Body&& body) {
  const int64_t threads = n < detail::threads_allowed() ? n : detail::threads_allowed();
  parallel_batches(n, 1, threads, [&](int64_t item, int64_t, int64_t thread) { body(item, thread); });
}

}  // namespace minidnn::cpu
