// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace minidnn::cpu {
namespace {

thread_local bool inside_body = false;

// One job at a time; a caller that finds the pool busy (another Python thread) works alone rather than waiting.
class Pool {
 public:
  explicit Pool(int workers) {
    try {
      for (int i = 0; i < workers; ++i) std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {  // the process may have no more threads: those that there are do the work
    }
  }

  bool try_run(int64_t pieces, const std::function<void(int64_t)>& piece) {
    std::unique_lock only_job(job_mutex_, std::try_to_lock);
    if (!only_job) return false;
    {
      std::lock_guard lock(mutex_);
      piece_ = &piece, pieces_ = pieces, next_ = 0;
      ++generation_;
    }
    wake_.notify_all();
    take_pieces();
    std::unique_lock lock(mutex_);
    pieces_ = 0;  // a worker that wakes only now finds nothing to do
    done_.wait(lock, [this] { return active_ == 0; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }

 private:
  void work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (next_ >= pieces_) continue;
      ++active_;
      lock.unlock();
      take_pieces();
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  void take_pieces() {
    inside_body = true;
    for (int64_t i; (i = next_.fetch_add(1)) < pieces_;) {
      try {
        (*piece_)(i);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
    inside_body = false;
  }

  std::mutex job_mutex_, mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int64_t)>* piece_ = nullptr;
  std::atomic<int64_t> pieces_ = 0, next_ = 0;
  std::exception_ptr error_;
  uint64_t generation_ = 0;
  int active_ = 0;
};

// The pool is leaked on purpose: its threads may outlive static destructors. A forked child has none of them, so it
// starts a pool of its own.
std::atomic<Pool*> the_pool = nullptr;
std::mutex making;

Pool& pool() {
  if (Pool* p = the_pool.load(std::memory_order_acquire)) return *p;
  std::lock_guard lock(making);
  if (!the_pool) {
    static std::once_flag once;
    std::call_once(once, [] {
      pthread_atfork([] { making.lock(); }, [] { making.unlock(); },
                     [] {
                       the_pool = nullptr;
                       making.unlock();
                     });
    });
    the_pool = new Pool(thread_count() - 1);
  }
  return *the_pool;
}

}  // namespace

int thread_count() {
  static const int count = [] {
    constexpr int kMost = 1024;  // a larger number is a slip
    if (const char* text = std::getenv("OMP_NUM_THREADS"))
      if (int n = std::atoi(text); n > 0) return n < kMost ? n : kMost;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1, int(std::thread::hardware_concurrency()));
  }();
  return count;
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  // Up to four pieces a thread even out unequal work.
  int64_t pieces = std::min(n / std::max<int64_t>(grain, 1), int64_t(thread_count()) * 4);
  auto piece = [&](int64_t i) { body(n * i / pieces, n * (i + 1) / pieces); };
  if (pieces > 1 && thread_count() > 1 && !inside_body && pool().try_run(pieces, piece)) return;
  body(0, n);
}

}  // namespace minidnn::cpu
