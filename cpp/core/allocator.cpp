// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/allocator.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <map>

namespace minidnn {
namespace {

// Sizes are rounded up to an eighth of their power of two, so that at most 12.5 % is lost and blocks meet again.
size_t rounded(size_t bytes) {
  constexpr size_t kSmallest = 512;
  if (bytes <= kSmallest) return kSmallest;
  size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

constexpr int kCachedShare = 8;     // free blocks may hold an eighth of the device's memory; more is given back at once
constexpr int kSetAsideShare = 32;  // and those set aside a 32nd, before the device is waited for

}  // namespace

struct AllocatedStorage final : Storage {
  struct User {
    Stream stream;
    std::shared_ptr<void> owner;
  };
  Allocator& allocator;
  const Stream stream;
  const std::shared_ptr<void> owner;
  std::vector<User> others;      // guarded by the allocator's mutex, like the next one
  bool used_on_unknown = false;  // by a stream that has no owner here

  AllocatedStorage(Allocator& a, size_t n, Stream s) : allocator(a), stream(s), owner(owner_of(s)) {
    bytes = n, place = a.place_;
  }
  ~AllocatedStorage() override {
    if (!data) return;  // there was no room
    for (const User& other : others) order(other.stream, stream);
    allocator.release(data, bytes, stream, owner, used_on_unknown);
  }
  void used_on(Stream s) override {
    if (s == stream) return;
    std::shared_ptr<void> its_owner = owner_of(s);
    std::lock_guard lock(allocator.mutex_);
    if (s && !its_owner) used_on_unknown = true;
    else if (std::ranges::find(others, s, &User::stream) == others.end()) others.push_back({s, its_owner});
  }
  void settle_before(Stream later) override {
    order(stream, later);
    std::unique_lock lock(allocator.mutex_);
    std::vector<User> now = others;
    lock.unlock();
    for (const User& other : now) order(other.stream, later);
  }

 private:
  void order(Stream earlier, Stream later) const {
    if (earlier == later) return;
    try {
      allocator.memory_.order(earlier, later);
    } catch (const Error&) {  // the process is on its way out
    }
  }
};

std::shared_ptr<Storage> Allocator::try_allocate(size_t bytes, Stream stream) {
  if (bytes == 0) {
    auto empty = std::make_shared<Storage>();
    empty->place = place_;
    return empty;
  }
  if (bytes > size_t(device_bytes_)) return nullptr;  // giving up the cached blocks would not help
  size_t size = rounded(bytes);
  // Made before the block is taken, which it owns from then on: nothing that throws can lose one.
  auto storage = std::make_shared<AllocatedStorage>(*this, size, stream);
  storage->data = take_cached(size, stream);
  if (storage->data) return storage;
  storage->data = memory_.allocate(size, stream);
  if (!storage->data) {
    release_cached();
    storage->data = memory_.allocate(size, stream);
  }
  if (!storage->data) return nullptr;
  std::lock_guard lock(mutex_);
  ++stats_.device_allocations;
  count(size);
  return storage;
}

void* Allocator::take_cached(size_t size, Stream stream) {
  std::lock_guard lock(mutex_);
  auto bin = free_.find({stream, size});
  if (bin == free_.end() || bin->second.blocks.empty()) return nullptr;
  void* data = bin->second.blocks.back();
  bin->second.blocks.pop_back();
  stats_.cached_bytes -= int64_t(size);
  count(size);
  return data;
}

void Allocator::count(size_t size) {
  ++stats_.allocations;
  stats_.allocated_bytes += int64_t(size);
  stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
}

void Allocator::release(void* data, size_t size, Stream stream, const std::shared_ptr<void>& owner,
                        bool set_aside) noexcept {
  bool kept = false, wait = false;
  {
    std::lock_guard lock(mutex_);
    stats_.allocated_bytes -= int64_t(size);
    if (stats_.cached_bytes + int64_t(size) <= device_bytes_ / kCachedShare) try {
        FreeBlocks& bin = (set_aside ? set_aside_ : free_)[{stream, size}];
        bin.blocks.push_back(data);
        if (!bin.owner) bin.owner = owner;
        stats_.cached_bytes += int64_t(size);
        if (set_aside) set_aside_bytes_ += int64_t(size);
        wait = set_aside_bytes_ > device_bytes_ / kSetAsideShare;
        kept = true;
      } catch (const std::bad_alloc&) {  // no room to remember it: give it back
      }
  }
  if (wait) bring_back_set_aside();
  if (kept) return;
  if (!set_aside && (!stream || owner)) return memory_.release(data, size, stream);
  try {
    memory_.synchronize_all();
  } catch (const Error&) {  // the process is on its way out
  }
  memory_.release_idle(data, size);
}

void Allocator::bring_back_set_aside() noexcept {
  Bins idle;
  {
    std::lock_guard lock(mutex_);
    idle.swap(set_aside_);
    set_aside_bytes_ = 0;
  }
  try {
    memory_.synchronize_all();
  } catch (const Error&) {  // the process is on its way out
  }
  std::lock_guard lock(mutex_);
  for (auto& [bin, list] : idle) try {
      FreeBlocks& home = free_[bin];
      home.blocks.insert(home.blocks.end(), list.blocks.begin(), list.blocks.end());
      if (!home.owner) home.owner = list.owner;
    } catch (const std::bad_alloc&) {  // no room to remember them: give them back
      for (void* p : list.blocks) memory_.release_idle(p, bin.bytes);
      stats_.cached_bytes -= int64_t(bin.bytes * list.blocks.size());
    }
}

void Allocator::release_cached() {
  bring_back_set_aside();  // waits for the device: then no stream need be asked, whether it lives or not
  Bins blocks;
  {
    std::lock_guard lock(mutex_);
    blocks.swap(free_);
    stats_.cached_bytes = set_aside_bytes_;
  }
  for (auto& [bin, list] : blocks)
    for (void* p : list.blocks) memory_.release_idle(p, bin.bytes);
}

void Allocator::throw_out_of_memory(size_t bytes, const std::string& what) const {
  throw OutOfMemory(cat(what, " needs ", bytes_text(double(bytes)), " on ", name(place_), ", ",
                        bytes_text(double(memory_.free_bytes())), " are free"));
}

AllocatorStats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
}

// Allocators are never destroyed: storages in static or Python globals outlive any order of destruction. A fork waits
// for the host's mutex, so that a child does not inherit it locked by a thread that it does not have.
Allocator& allocator_of(Place place) {
  auto make = [&] { return std::make_unique<Allocator>(place, memory_of(place), device_at(place).memory_bytes); };
  if (!place.is_cuda) {
    static Allocator& host = *make().release();
    [[maybe_unused]] static const int forks_wait =
        pthread_atfork([] { host.mutex_.lock(); }, [] { host.mutex_.unlock(); }, [] { host.mutex_.unlock(); });
    return host;
  }
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::unique_ptr<Allocator>>;
  std::lock_guard lock(mutex);
  auto& slot = all[place.index];
  if (!slot) slot = make();  // throws for an index that does not exist
  return *slot;
}

}  // namespace minidnn
