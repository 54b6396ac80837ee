// SPDX-License-Identifier: Apache-2.0
// A handle: where and how calls run. Its options are fixed at construction, so that a cached plan stays valid for the
// handle's life. Calls without a handle use the innermost one entered on this thread, else the thread's default for the
// device.
#pragma once
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "cpp/core/tensor.h"

namespace minidnn {

enum class Math { ieee, tf32 };  // float32 products: true float32, or rounded to TF32 where an engine can use it

struct HandleOptions {
  // The bytes that a call may use in addition to its tensors.
  size_t max_workspace = std::numeric_limits<size_t>::max();
  bool deterministic = false;  // forbids engines whose results vary from run to run
  Math math = Math::tf32;
  int threads = 0;          // the most CPU threads of a call; 0: all
  size_t max_plans = 4096;  // the most plans that are kept for each problem type
};

// The data that a handle keeps for one problem type. The mutex is in the base class, so that fork() can lock all of
// them.
struct HandleCache {
  virtual ~HandleCache() = default;
  std::shared_mutex mutex;
};

class Handle {
 public:
  // `stream_owner` keeps the stream alive; null if the stream's creator guarantees that.
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

  // A closed handle holds no plans. Using it again throws an error.
  void close();
  void drop_plans();
  bool closed() const { return closed_; }
  void synchronize() const;

  // The plan cache of one problem type, created at first use. Each type `Cache` has one static slot number. The result
  // is shared, since another thread may close the handle meanwhile.
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

// The handle a call uses: `given` if not null, else the innermost handle entered for that place, else the default.
// DeviceError for a closed handle or a handle of another place. Its text begins with `call` and `tensor`.
Handle& handle_for(const HandlePtr& given, Place, const char* call, const char* tensor);
// The innermost handle entered on this thread, or null.
HandlePtr entered_handle();
void enter(HandlePtr);
void leave(const Handle&);  // DeviceError if it is not the innermost; it is removed from the stack anyway
void drop_plans_of_default_handles(Place);  // of all threads

}  // namespace minidnn
