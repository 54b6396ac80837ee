// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/handle.h"

namespace minidnn {
namespace {

thread_local std::vector<HandlePtr> entered;
thread_local std::vector<HandlePtr> defaults;  // a handful at most: searched linearly

Handle& default_handle(Place place) {
  for (const HandlePtr& h : defaults)
    if (h->place() == place) return *h;
  return *defaults.emplace_back(std::make_shared<Handle>(place, nullptr, HandleOptions{}));
}

}  // namespace

void Handle::close() {
  closed_ = true;
  std::vector<std::shared_ptr<void>> dropped;
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

void enter(HandlePtr handle) {
  MINIDNN_CHECK(DeviceError, !handle->closed(), "Handle: this handle for ", name(handle->place()),
                " is closed; make a new one");
  entered.push_back(std::move(handle));
}

void leave(const Handle& handle) {
  MINIDNN_CHECK(DeviceError, !entered.empty() && entered.back().get() == &handle,
                "Handle: leaving a handle that is not the innermost one entered on this thread");
  entered.pop_back();
}

}  // namespace minidnn
