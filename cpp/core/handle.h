// SPDX-License-Identifier: Apache-2.0
// A handle holds where and how calls run: a device, a stream and options. The options are fixed at construction, so
// that a cached plan stays valid for the life of the handle. A call without a handle uses the innermost handle entered
// on this thread, else the thread's default handle for the device.
#pragma once
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "cpp/core/tensor.h"

namespace minidnn {

// How engines multiply float32 numbers. With `ieee`, factors are float32. With `tf32`, engines may round factors to
// TF32, which tensor cores multiply.
enum class Math { ieee, tf32 };

struct HandleOptions {
  // The most bytes of workspace that a call may use in addition to its tensors.
  size_t max_workspace = std::numeric_limits<size_t>::max();
  bool deterministic = false;  // true excludes engines whose results vary between equal calls
  Math math = Math::tf32;
  // The most CPU threads that a call may use; 0 means all threads.
  int threads = 0;
  // For each family of functions, such as conv, the handle caches at most this many plans (calls made ready to run).
  size_t max_plans = 4096;
};

// The base class of the caches that a handle has: one for each problem type, such as ConvProblem. The mutex is in this
// class, so that fork() can lock the mutexes of all caches.
struct HandleCache {
  virtual ~HandleCache() = default;
  std::shared_mutex mutex;
};

class Handle : public std::enable_shared_from_this<Handle> {
 public:
  // `stream_owner` keeps the stream alive. It is null if the code that created the stream keeps it alive.
  Handle(Place place, Stream stream, HandleOptions options, std::shared_ptr<void> stream_owner = nullptr)
      : place_(place),
        device_(&device_at(place)),
        stream_(stream),
        stream_owner_(std::move(stream_owner)),
        options_(options) {
    add_to_all();
  }
  ~Handle();
  Handle(const Handle&) = delete;

  Place place() const { return place_; }
  const Device& device() const { return *device_; }
  Stream stream() const { return stream_; }
  const HandleOptions& options() const { return options_; }

  // close() destroys the handle's plans (calls made ready to run). After that, a call that uses the handle throws an
  // error.
  void close();
  void drop_plans();
  bool closed() const { return closed_; }
  void synchronize() const;

  // Returns the handle's plan cache of type `Cache`, and creates it at first use. The pointer is shared, because
  // another thread may close the handle while the cache is in use.
  template <class Cache> std::shared_ptr<Cache> cache() {
    static const size_t slot = next_slot++;
    std::lock_guard lock(mutex_);
    if (slot >= caches_.size()) caches_.resize(slot + 1);
    if (!caches_[slot]) caches_[slot] = std::make_shared<Cache>();
    return std::static_pointer_cast<Cache>(caches_[slot]);
  }

 private:
  friend struct AllHandles;
  void add_to_all();
  static inline std::atomic<size_t> next_slot = 0;
  const Place place_;
  const Device* device_;
  const Stream stream_;
  const std::shared_ptr<void> stream_owner_;
  const HandleOptions options_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<HandleCache>> caches_;
};

using HandlePtr = std::shared_ptr<Handle>;

// Returns the handle that a call uses on a device: `given` if it is not null, else the innermost handle entered for
// this device, else the default handle. Throws DeviceError if the handle is closed or belongs to another device. The
// text of the error names `call` and `tensor`.
Handle& handle_for(const HandlePtr& given, Place, const char* call, const char* tensor);
// Returns the innermost handle that is entered on this thread, or null if there is none.
HandlePtr entered_handle();
// Returns the device of the innermost entered handle, or the CPU if there is none.
Place current_place();
void enter(HandlePtr);
// Removes the handle from the stack of entered handles. Throws DeviceError if this handle was not the innermost one.
void leave(const Handle&);
// Destroys the plans (calls made ready to run) of one device in the default handles of all threads.
void drop_plans_of_default_handles(Place);

}  // namespace minidnn
