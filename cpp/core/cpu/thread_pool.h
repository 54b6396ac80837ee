// SPDX-License-Identifier: Apache-2.0
// The thread pool of the CPU engines. It is created at first use, and again in a forked child process. A single thread
// computes each element of a parallel range, so results do not depend on the number of threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace minidnn::cpu {

// The value of OMP_NUM_THREADS if it is set, else the number of cores on which this process may run.
int thread_count();

// While an object of this class exists, at most `most` threads work on the parallel calls of the current thread. If
// `most` is 0, there is no limit.
class ThreadLimit {
 public:
  explicit ThreadLimit(int most);
  ThreadLimit(const ThreadLimit&) = delete;
  ~ThreadLimit();

 private:
  const int before_;
};

// Installs `check`, a function that throws if the user asked to stop (Ctrl-C). Code that runs for long calls
// check_interrupt() now and then. check_interrupt() calls `check` at most ten times a second on each thread. On a
// thread that must not handle signals, `check` returns at once.
void set_interrupt_check(void (*check)());
void check_interrupt();

namespace detail {
int threads_allowed();
using Call = void (*)(void* body, int64_t begin, int64_t end);
void run_chunks(int64_t n, int64_t grain, int64_t chunks, Call, void* body);
// The number of chunks into which a range of n elements is divided. It is at most 1 if the range is too short to be
// worth a second thread, or if no second thread is available.
int64_t chunks_of(int64_t n, int64_t grain);
}  // namespace detail

// Calls body(begin, end) on chunks of the range [0, n), in parallel, and returns when all chunks are done. A chunk has
// at least `grain` elements of the range. The calling thread works, too. It computes the whole range alone if there is
// only one chunk, or if it is already executing the body of another parallel call. If the body throws, the chunks that
// no thread has begun are skipped, and the first exception is rethrown.
template <class Body> void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  const int64_t chunks = detail::chunks_of(n, grain);
  if (chunks <= 1 && n <= grain) return body(int64_t(0), n);
  using B = std::remove_reference_t<Body>;
  auto call = [](void* b, int64_t begin, int64_t end) { (*static_cast<B*>(b))(begin, end); };
  detail::run_chunks(n, grain, chunks, call, const_cast<void*>(static_cast<const void*>(&body)));
}

// Calls body(begin, end, thread) for batches of the range [0, n), on `threads` threads. A thread that is free takes the
// next batch. `thread` is the index of the thread, in [0, threads). Two calls that run at the same time never have the
// same index.
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
      // If the body throws, the range is marked as done. The other threads then find no more batches, and stop.
      next = n;
      throw;
    }
  });
}

// Calls body(item, thread) for each integer `item` in [0, n). `thread` is the index of the thread, below
// thread_count().
template <class Body> void parallel_items(int64_t n, Body&& body) {
  const int64_t threads = n < detail::threads_allowed() ? n : detail::threads_allowed();
  parallel_batches(n, 1, threads, [&](int64_t item, int64_t, int64_t thread) { body(item, thread); });
}

}  // namespace minidnn::cpu
