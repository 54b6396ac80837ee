// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/allocator.h"

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

constexpr int kCachedShare = 8;  // free blocks may hold an eighth of the device's memory; more is given back at once

}  // namespace

struct AllocatedStorage final : Storage {
  Allocator& allocator;
  Stream stream;
  std::vector<Stream> other_streams;

  AllocatedStorage(Allocator& a, void* p, size_t n, Stream s) : allocator(a), stream(s) {
    data = p, bytes = n, place = a.place_;
  }
  ~AllocatedStorage() override {
    for (Stream other : other_streams) {
      try {
        memory_of(place).order(other, stream);
      } catch (const Error&) {  // the stream is gone, and its work with it
      }
    }
    allocator.release(data, bytes, stream);
  }
  void used_on(Stream s) override {
    if (s != stream && std::ranges::find(other_streams, s) == other_streams.end()) other_streams.push_back(s);
  }
};

std::shared_ptr<Storage> Allocator::try_allocate(size_t bytes, Stream stream) {
  if (bytes == 0) {
    auto empty = std::make_shared<Storage>();
    empty->place = place_;
    return empty;
  }
  if (bytes > size_t(1) << 62) return nullptr;  // rounding must not wrap
  size_t size = rounded(bytes);
  void* data = nullptr;
  {
    std::lock_guard lock(mutex_);
    ++stats_.allocations;
    if (auto bin = free_.find({stream, size}); bin != free_.end() && !bin->second.empty()) {
      data = bin->second.back();
      bin->second.pop_back();
      stats_.cached_bytes -= int64_t(size);
    }
  }
  if (!data) {
    Memory& memory = memory_of(place_);
    data = memory.allocate(size, stream);
    if (!data) {
      release_cached();
      data = memory.allocate(size, stream);
    }
    if (!data) return nullptr;
    std::lock_guard lock(mutex_);
    ++stats_.device_allocations;
  }
  {
    std::lock_guard lock(mutex_);
    stats_.allocated_bytes += int64_t(size);
    stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
  }
  return std::make_shared<AllocatedStorage>(*this, data, size, stream);
}

void Allocator::release(void* data, size_t size, Stream stream) noexcept {
  {
    std::lock_guard lock(mutex_);
    stats_.allocated_bytes -= int64_t(size);
    if (stats_.cached_bytes + int64_t(size) <= device_at(place_).memory_bytes / kCachedShare) {
      free_[{stream, size}].push_back(data);
      stats_.cached_bytes += int64_t(size);
      return;
    }
  }
  memory_of(place_).release(data, size, stream);
}

void Allocator::release_cached() {
  decltype(free_) blocks;
  {
    std::lock_guard lock(mutex_);
    blocks.swap(free_);
    stats_.cached_bytes = 0;
  }
  Memory& memory = memory_of(place_);
  for (auto& [bin, list] : blocks)
    for (void* p : list) memory.release(p, bin.bytes, bin.stream);
  // The bytes are free only once the streams have passed these releases.
  for (auto& [bin, list] : blocks) memory.synchronize(bin.stream);
}

void Allocator::throw_out_of_memory(size_t bytes, const std::string& what) const {
  throw OutOfMemory(cat(what, " needs ", bytes_text(double(bytes)), " on ", name(place_), ", ",
                        bytes_text(double(memory_of(place_).free_bytes())), " are free"));
}

AllocatorStats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
}

// Allocators are never destroyed: storages in static or Python globals outlive any order of destruction.
Allocator& allocator_of(Place place) {
  if (!place.is_cuda) {
    static Allocator& host = *new Allocator(place);
    return host;
  }
  device_at(place);  // refuses an index that does not exist
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::unique_ptr<Allocator>>;
  std::lock_guard lock(mutex);
  auto& slot = all[place.index];
  if (!slot) slot = std::make_unique<Allocator>(place);
  return *slot;
}

}  // namespace minidnn
