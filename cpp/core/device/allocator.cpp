// SPDX-License-Identifier: Apache-2.0
// Implements allocator.h: cached blocks, allocations during the capture of a CUDA graph, and statistics.
#include "cpp/core/device/allocator.h"

#include <algorithm>
#include <bit>
#include <map>

#include "cpp/core/platform.h"

namespace minidnn {
namespace {

AllocatorChecks checks;

// Rounds the size of a block up to a multiple of P / 8, where P is the largest power of two below it. Freed blocks then
// fit more of the later requests. At most 12.5 % of a block above 512 bytes is wasted.
size_t rounded(size_t bytes) {
  constexpr size_t kSmallest = 512;
  if (checks.exact) return bytes;
  if (bytes <= kSmallest) return kSmallest;
  size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

// The free blocks of a device have at most 1/8 of its memory in total. A block that would exceed this limit is returned
// to the device immediately.
constexpr int kCachedFraction = 8;
// Some freed blocks are set aside until the device has been synchronised. If they exceed 1/32 of the device's memory,
// the allocator synchronises the device.
constexpr int kSetAsideFraction = 32;

}  // namespace

struct AllocatedStorage final : Storage, std::enable_shared_from_this<AllocatedStorage> {
  struct User {
    Stream stream;
    std::shared_ptr<void> owner;
  };
  Allocator& allocator;
  const Stream stream;
  // CUDA's per-thread default stream has the same handle on every thread. This number tells the threads apart (see
  // thread_of()). It is 0 for any other stream.
  const uint64_t thread;
  // The id of the stream capture during which the storage was allocated; 0 if there was none.
  const uint64_t capture;
  const std::shared_ptr<void> owner;
  // The allocator's mutex guards `others` and `used_on_unknown`.
  std::vector<User> others;
  bool used_on_unknown = false;  // true if the storage was used on a stream without a known owner

  AllocatedStorage(Allocator& a, size_t n, Stream s, uint64_t in)
      : allocator(a), stream(s), thread(thread_of(s)), capture(in), owner(owner_of(s)) {
    bytes = n;
    place = a.place_;
  }
  ~AllocatedStorage() override {
    if (!data) return;  // the allocation has failed, so there is no memory to free
    bool set_aside = used_on_unknown || !named_here();
    for (const User& other : others) set_aside = set_aside || !order(other.stream, stream);
    allocator.release(data, {stream, thread, bytes}, owner, set_aside);
  }
  void used_on(Stream s) override {
    if (const Memory::Capture c = allocator.memory_.capture(s); c.id) allocator.hold(c, shared_from_this());
    if (s == stream && named_here()) return;
    std::shared_ptr<void> its_owner = owner_of(s);
    std::lock_guard lock(allocator.mutex_);
    if (s && !its_owner) used_on_unknown = true;
    else if (std::ranges::find(others, s, &User::stream) == others.end()) others.push_back({s, its_owner});
  }
  void settle_before(Stream later) override {
    if (named_here()) order(stream, later);
    else allocator.memory_.synchronize_all();
    std::unique_lock lock(allocator.mutex_);
    std::vector<User> now = others;
    lock.unlock();
    for (const User& other : now) order(other.stream, later);
  }

 private:
  bool named_here() const { return thread == thread_of(stream); }
  bool order(Stream earlier, Stream later) const {
    try {
      return allocator.memory_.order(earlier, place, later);
    } catch (const Error&) {  // the driver reports an error because the process is exiting
      return true;
    }
  }
};

std::shared_ptr<Storage> Allocator::try_allocate(size_t bytes, Stream stream) {
  if (bytes == 0) {
    auto empty = std::make_shared<Storage>();
    empty->place = place_;
    return empty;
  }
  // A request that is larger than the memory of the device fails. Releasing cached blocks would not help.
  if (bytes > size_t(device_bytes_)) return nullptr;
  free_gone();
  size_t size = rounded(bytes);
  if (const Memory::Capture c = memory_.capture(stream); c.id) return try_allocate_captured(size, stream, c);
  // The storage object is created before its block is allocated, and owns the block from then on. Therefore, an
  // exception cannot leak the block.
  auto storage = std::make_shared<AllocatedStorage>(*this, size, stream, 0);
  storage->data = take_cached(size, stream);
  if (!storage->data) {
    storage->data = memory_.allocate(size, stream);
    if (!storage->data) {
      release_cached();
      storage->data = memory_.allocate(size, stream);
    }
    if (!storage->data) return nullptr;
    std::lock_guard lock(mutex_);
    ++stats_.device_allocations;
    count(size);
  }
  poison(storage->data, size, stream);
  return storage;
}

// An allocation during a capture does not reuse free blocks: earlier work on the stream may still use them, and the
// captured graph would not wait for this work.
std::shared_ptr<Storage> Allocator::try_allocate_captured(size_t size, Stream stream, const Memory::Capture& c) {
  {
    std::lock_guard lock(mutex_);
    if (auto graph = graphs_.find(c.id); graph != graphs_.end())
      for (const std::shared_ptr<AllocatedStorage>& s : graph->second.storages)
        if (s.use_count() == 1 && s->capture == c.id && s->stream == stream && s->thread == thread_of(stream) &&
            s->bytes == size && s->others.empty() && !s->used_on_unknown) {
          ++stats_.allocations;
          return s;
        }
  }
  auto storage = std::make_shared<AllocatedStorage>(*this, size, stream, c.id);
  storage->data = memory_.allocate_idle(size);
  if (!storage->data) return nullptr;
  {
    std::lock_guard lock(mutex_);
    ++stats_.device_allocations;
    count(size);
  }
  hold(c, storage);
  return storage;
}

void Allocator::hold(const Memory::Capture& c, std::shared_ptr<AllocatedStorage> storage) {
  std::lock_guard one_at_a_time(giving_);
  std::unique_lock lock(mutex_);
  auto [graph, fresh] = graphs_.try_emplace(c.id, Graph{*this, c.id});
  graph->second.storages.insert(std::move(storage));
  lock.unlock();
  if (fresh) memory_.give(c.graph, &graph->second, &Allocator::drop);
}

void Allocator::drop(void* pointer) {
  Graph& graph = *static_cast<Graph*>(pointer);
  Allocator& a = graph.allocator;
  std::lock_guard lock(a.mutex_);
  a.gone_.insert(a.graphs_.extract(graph.id));
  a.any_gone_ = true;
}

void Allocator::free_gone() {
  if (!any_gone_.load(std::memory_order_relaxed)) return;
  // `gone` is declared before the lock, so it is destroyed after the lock is released: freeing storage takes the lock.
  std::map<uint64_t, Graph> gone;
  std::lock_guard lock(mutex_);
  gone.swap(gone_);
  any_gone_ = false;
}

void* Allocator::take_cached(size_t size, Stream stream) {
  std::lock_guard lock(mutex_);
  auto bin = free_.find({stream, thread_of(stream), size});
  if (bin == free_.end() || bin->second.blocks.empty()) return nullptr;
  void* data = bin->second.blocks.back();
  bin->second.blocks.pop_back();
  stats_.cached_bytes -= int64_t(size);
  count(size);
  return data;
}

void Allocator::poison(void* data, size_t size, Stream stream) noexcept {
  if (checks.poison >= 0) try {
      memory_.fill(data, checks.poison, size, stream);
    } catch (const Error&) {  // the driver reports an error because the process is exiting
    }
}

void Allocator::count(size_t size) {
  ++stats_.allocations;
  stats_.allocated_bytes += int64_t(size);
  stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
}

void Allocator::release(void* data, const Bin& bin, const std::shared_ptr<void>& owner, bool set_aside) noexcept {
  const auto size = int64_t(bin.bytes);
  const bool on_stream = !set_aside && (!bin.stream || owner);
  // Whether the stream of the block is being captured. In that case, the block cannot be released in stream order.
  const bool captured = on_stream && memory_.capture(bin.stream).id;
  bool kept = false, wait = false;
  if (on_stream && !captured) poison(data, bin.bytes, bin.stream);
  {
    std::lock_guard lock(mutex_);
    stats_.allocated_bytes -= size;
    const bool fits = !checks.exact && stats_.cached_bytes + size <= device_bytes_ / kCachedFraction;
    if (captured || fits) try {
        FreeBlocks& home = (set_aside ? set_aside_ : free_)[bin];
        home.blocks.push_back(data);
        if (!home.owner) home.owner = owner;
        stats_.cached_bytes += size;
        if (set_aside) set_aside_bytes_ += size;
        wait = set_aside_bytes_ > device_bytes_ / kSetAsideFraction;
        kept = true;
      } catch (const std::bad_alloc&) {  // the host has no memory to record the free block
      }
  }
  if (wait) bring_back_set_aside();
  if (kept) return;
  // The host has no memory to record this block, so the block leaks. It cannot be freed, because the captured graph may
  // still use it.
  if (captured) return;
  if (on_stream) return memory_.release(data, bin.bytes, bin.stream);
  try {
    memory_.synchronize_all();
  } catch (const Error&) {
    // The device cannot be synchronised during a capture, or while the process exits. The block leaks, because work may
    // still use it.
    return;
  }
  memory_.release_idle(data, bin.bytes);
}

bool Allocator::bring_back_set_aside() noexcept {
  Bins idle;
  {
    std::lock_guard lock(mutex_);
    idle.swap(set_aside_);
    set_aside_bytes_ = 0;
  }
  bool waited = true;
  try {
    memory_.synchronize_all();
  } catch (const Error&) {  // the device cannot be synchronised during a capture, or while the process exits
    waited = false;
  }
  std::lock_guard lock(mutex_);
  for (auto& [bin, list] : idle) {
    const auto bytes = int64_t(bin.bytes * list.blocks.size());
    try {
      FreeBlocks& home = (waited ? free_ : set_aside_)[bin];
      home.blocks.insert(home.blocks.end(), list.blocks.begin(), list.blocks.end());
      if (!home.owner) home.owner = list.owner;
      if (!waited) set_aside_bytes_ += bytes;
    } catch (const std::bad_alloc&) {  // the host has no memory to record these blocks, so they leak
      stats_.cached_bytes -= bytes;
    }
  }
  return waited;
}

void Allocator::release_cached() {
  free_gone();
  // bring_back_set_aside() synchronises the device. After that, no block has to wait for a stream, not even for a
  // stream that was destroyed.
  if (!bring_back_set_aside()) return;
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
  throw OutOfMemory(cat(what, " needs ", bytes_text(double(bytes)), " on ", name(place_), "; ",
                        bytes_text(double(memory_.free_bytes())), " are free"));
}

void set_allocator_checks(AllocatorChecks c) { checks = c; }

AllocatorStats Allocator::stats() {
  free_gone();
  std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
}

// Allocators are never destroyed, because static variables and Python globals may own storage. fork() locks the mutex
// of the host allocator. Otherwise a child process could inherit it locked by a thread that the child lacks.
Allocator& allocator_of(Place place) {
  auto make = [&] { return std::make_unique<Allocator>(place, memory_of(place), device_at(place).memory_bytes); };
  if (!place.is_cuda) {
    static Allocator& host = *make().release();
    [[maybe_unused]] static const int forks_wait =
        platform::at_fork([] { host.mutex_.lock(); }, [] { host.mutex_.unlock(); }, [] { host.mutex_.unlock(); });
    return host;
  }
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::unique_ptr<Allocator>>;
  std::lock_guard lock(mutex);
  auto& slot = all[place.index];
  if (!slot) slot = make();  // make() throws DeviceError if the machine does not have the device
  return *slot;
}

}  // namespace minidnn
