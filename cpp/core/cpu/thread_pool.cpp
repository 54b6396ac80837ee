// SPDX-License-Identifier: Apache-2.0
// The thread pool of the CPU, the division of work into chunks, and the check for Ctrl-C.
#include "cpp/core/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cpp/core/cpu/spin_wait.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/core/platform.h"

namespace minidnn::cpu {
namespace {

thread_local bool inside_body = false;
// The largest number of threads that may work on a parallel loop that this thread starts; 0 means no limit.
thread_local int most_threads = 0;

struct Job {
  int64_t n, grain, chunks;
  detail::Call call;
  void* body;
  // a flag that is set if another thread's part of the job throws an exception
  const std::atomic<bool>* stop = nullptr;
  // Returns n * i / chunks, without the overflow of the product.
  int64_t begin_of(int64_t i) const { return n / chunks * i + n % chunks * i / chunks; }
  // Computes a chunk, and checks for Ctrl-C about every 500 us, that is, after 64 grains (the least work that is worth
  // another thread).
  void run(int64_t i) const {
    constexpr int64_t kGrains = 64;
    const int64_t end = begin_of(i + 1);
    const int64_t most =
        std::clamp<int64_t>(grain, 1, end) < end / kGrains ? std::max<int64_t>(grain, 1) * kGrains : end;
    for (int64_t begin = begin_of(i), next; begin < end; begin = next) {
      next = begin + std::min(most, end - begin);
      call(body, begin, next);
      check_interrupt();
      if (stop && *stop) return;
    }
  }
};

// Executes one job at a time. If the pool is busy, the caller computes its job alone.
class Pool {
 public:
  explicit Pool(int workers) : workers_(size_t(workers)) {
    try {
      for (Worker& w : workers_) {
        // A guess at the worker's core: the core of the thread that creates it.
        w.cpu = platform::current_core();
        std::thread thread([this, &w] { work(w); });
        w.thread = thread.native_handle();
        thread.detach();
      }
    } catch (const std::system_error&) {  // no more threads can be created, so the pool uses fewer
    }
  }

  bool try_run(const Job& job) {
    std::unique_lock only_job(busy_, std::try_to_lock);
    if (!only_job) return false;
    job_ = job;
    next_ = 0;
    stop_ = false;
    job_.stop = &stop_;
    may_join_ = most_threads ? most_threads - 1 : std::numeric_limits<int>::max();
    keep_off(platform::current_core());
    open_ = true;
    ++generation_;
    generation_.notify_all();
    take_chunks();
    // All chunks are taken, but some workers may still compute. inside_ counts them. A worker that comes later sees
    // that open_ is false.
    open_ = false;
    for (int n; (n = inside_) != 0;) changed(inside_, n);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }

 private:
  struct Worker {
    std::thread::native_handle_type thread{};
    std::atomic<int> cpu = -1;  // the core on which the worker last woke up
  };

  // Keeps workers off the core of the calling thread. There they would wait until the caller has done all the work.
  // Linux 6.18 left such a worker there for whole seconds while another core was idle (observed on a machine with 2
  // cores).
  void keep_off(int core) {
    for (Worker& w : workers_) {
      if (w.cpu.load(std::memory_order_relaxed) == core && cores_.restrict_without(core, w.thread)) w.cpu = -1;
    }
  }

  void work(Worker& self) {
    // Otherwise, a worker waits for milliseconds while threads of another library poll for work on all cores, as those
    // of OpenMP do between two loops.
    platform::ask_for_short_slices();
    for (uint32_t seen = 0;;) {
      seen = changed(generation_, seen);
      self.cpu.store(platform::current_core(), std::memory_order_relaxed);
      // A worker increments inside_ before it reads open_. The caller clears open_ before it reads inside_. So a worker
      // that still sees the job as open is seen by the caller, which waits for it.
      ++inside_;
      if (open_ && may_join_-- > 0) take_chunks();
      if (--inside_ == 0) inside_.notify_one();
    }
  }

  void take_chunks() {
    inside_body = true;
    for (int64_t i; (i = next_++) < job_.chunks;) try {
        job_.run(i);
      } catch (...) {
        std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
        stop_ = true;
        next_ = job_.chunks;
      }
    inside_body = false;
  }

  std::vector<Worker> workers_;
  const platform::Cores cores_;
  std::mutex busy_, error_mutex_;
  // The current job. It changes only while no worker computes a part of the previous job.
  Job job_{};
  std::atomic<int64_t> next_ = 0;
  std::atomic<int> may_join_ = 0;  // the number of workers that may still join the current job
  std::atomic<bool> open_ = false, stop_ = false;
  std::atomic<uint32_t> generation_ = 0;
  std::atomic<int> inside_ = 0;
  std::exception_ptr error_;
};

std::atomic<int64_t> the_work_divisor = 1;
std::atomic<void (*)()> the_interrupt_check = nullptr;

// The pool is never destroyed, because its threads may outlive static destructors. A forked child process has none of
// these threads, so it creates a new pool.
std::atomic<Pool*> the_pool = nullptr;
std::mutex making;

Pool& pool() {
  if (Pool* p = the_pool.load(std::memory_order_acquire)) return *p;
  std::lock_guard lock(making);
  if (!the_pool) {
    static std::once_flag once;
    std::call_once(once, [] {
      platform::at_fork([] { making.lock(); }, [] { making.unlock(); },
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
    // The largest number of threads. A larger value of OMP_NUM_THREADS is taken for a typing error and replaced by this
    // number.
    constexpr int kMost = 1024;
    if (const char* text = std::getenv("OMP_NUM_THREADS"))
      if (int n = std::atoi(text); n > 0) return n < kMost ? n : kMost;
    return platform::Cores().count();
  }();
  return count;
}

void set_interrupt_check(void (*check)()) { the_interrupt_check = check; }

void check_interrupt() {
  using Clock = std::chrono::steady_clock;
  static thread_local Clock::time_point next{};
  void (*const check)() = the_interrupt_check.load(std::memory_order_relaxed);
  if (!check) return;
  const Clock::time_point now = Clock::now();
  if (now < next) return;
  next = now + std::chrono::milliseconds(100);
  check();
}

int64_t work_divisor() { return the_work_divisor.load(std::memory_order_relaxed); }
void set_work_divisor(int64_t divisor) { the_work_divisor = std::max<int64_t>(divisor, 1); }

ThreadLimit::ThreadLimit(int most) : before_(most_threads) { most_threads = most; }
ThreadLimit::~ThreadLimit() { most_threads = before_; }

namespace detail {

int threads_allowed() { return most_threads ? std::min(most_threads, thread_count()) : thread_count(); }

int64_t chunks_of(int64_t n, int64_t grain) {
  const int threads = threads_allowed();
  if (threads == 1 || inside_body) return 1;
  // There are at most four chunks per thread. More chunks than threads balance the load.
  return std::min(n / std::max<int64_t>(grain, 1), int64_t(threads) * 4);
}

void run_chunks(int64_t n, int64_t grain, int64_t chunks, Call call, void* body) {
  if (chunks <= 1 || !pool().try_run({n, grain, chunks, call, body})) Job{n, grain, 1, call, body}.run(0);
}

}  // namespace detail
}  // namespace minidnn::cpu
