// SPDX-License-Identifier: Apache-2.0
// Implements handle.h: the handles that are entered on each thread, the default handles, and the locks for fork().
#include "cpp/core/handle.h"

#include <algorithm>

#include "cpp/core/platform.h"

namespace minidnn {

// All handles of the process. fork() locks their mutexes. Otherwise a child process could inherit a mutex locked by a
// thread that the child lacks.
struct AllHandles {
  std::mutex mutex;
  std::vector<Handle*> handles;
  std::vector<std::weak_ptr<Handle>> defaults;  // the default handles of all threads of the process

  static AllHandles& get() {
    static AllHandles& all = *new AllHandles;
    [[maybe_unused]] static const int forks_wait =
        platform::at_fork([] { all.lock(); }, [] { all.unlock(false); }, [] { all.unlock(true); });
    return all;
  }

 private:
  void lock() {
    mutex.lock();
    for (Handle* h : handles) {
      h->mutex_.lock();
      for (auto& cache : h->caches_)
        if (cache) cache->mutex.lock();
    }
  }
  // The child process replaces shared mutexes by new ones. Unlocking a mutex would pass it to a waiting thread, which
  // the child lacks.
  void unlock(bool in_child) {
    for (Handle* h : handles) {
      for (auto& cache : h->caches_) {
        if (!cache) continue;
        if (in_child) new (&cache->mutex) std::shared_mutex;
        else cache->mutex.unlock();
      }
      h->mutex_.unlock();
    }
    mutex.unlock();
  }
};

namespace {

thread_local std::vector<HandlePtr> entered;
// The default handles of this thread. They are few, so they are searched linearly.
thread_local std::vector<HandlePtr> defaults;

Handle& default_handle(Place place) {
  for (const HandlePtr& h : defaults)
    if (h->place() == place) return *h;
  HandlePtr& made = defaults.emplace_back(std::make_shared<Handle>(place, nullptr, HandleOptions{}));
  AllHandles& all = AllHandles::get();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.defaults, [](auto& h) { return h.expired(); });
  all.defaults.push_back(made);
  return *made;
}

}  // namespace

void Handle::add_to_all() {
  AllHandles& all = AllHandles::get();
  std::lock_guard lock(all.mutex);
  all.handles.push_back(this);
}

Handle::~Handle() {
  AllHandles& all = AllHandles::get();
  std::lock_guard lock(all.mutex);
  std::erase(all.handles, this);
}

void Handle::close() {
  closed_ = true;
  drop_plans();
}

void Handle::drop_plans() {
  // Dropped plans are destroyed after the lock is released, because `dropped` is declared before the lock.
  std::vector<std::shared_ptr<HandleCache>> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(caches_);
}

void Handle::synchronize() const { memory_of(place_).synchronize(stream_); }

Handle& handle_for(const HandlePtr& given, Place place, const char* call, const char* tensor) {
  Handle* handle = given.get();
  if (!handle) {
    for (size_t i = entered.size(); i-- > 0 && !handle;)
      if (entered[i]->place() == place) handle = entered[i].get();
    if (!handle) return default_handle(place);
  }
  MINIDNN_CHECK(DeviceError, !handle->closed(), call, ": the handle for ", name(handle->place()),
                " is closed; make a new Handle");
  MINIDNN_CHECK(DeviceError, handle->place() == place, call, ": ", tensor, " is on ", name(place),
                ", the handle is for ", name(handle->place()), "; move one with .to(device=...)");
  return *handle;
}

HandlePtr entered_handle() { return entered.empty() ? nullptr : entered.back(); }
Place current_place() { return entered.empty() ? Place{} : entered.back()->place(); }

void enter(HandlePtr handle) {
  MINIDNN_CHECK(DeviceError, !handle->closed(), "Handle: this handle for ", name(handle->place()),
                " is closed; make a new one");
  entered.push_back(std::move(handle));
}

void leave(const Handle& handle) {
  const auto found = std::find_if(entered.rbegin(), entered.rend(), [&](auto& h) { return h.get() == &handle; });
  const bool innermost = found == entered.rbegin() && found != entered.rend();
  if (found != entered.rend()) entered.erase(std::next(found).base());
  MINIDNN_CHECK(DeviceError, innermost, "Handle: the handle to exit is not the innermost one entered on this thread");
}

void drop_plans_of_default_handles(Place place) {
  std::vector<HandlePtr> handles;
  {
    AllHandles& all = AllHandles::get();
    std::lock_guard lock(all.mutex);
    for (auto& weak : all.defaults)
      if (HandlePtr h = weak.lock(); h && h->place() == place) handles.push_back(std::move(h));
  }
  for (const HandlePtr& h : handles) h->drop_plans();
}

}  // namespace minidnn
