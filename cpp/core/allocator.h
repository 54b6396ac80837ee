// SPDX-License-Identifier: Apache-2.0
// The stream-ordered caching allocator: one per place. A block that is freed goes back to the stream it was asked for
// on and is handed out there again at once; other streams that used it are waited for, on the device, at that moment. A
// stream that is known by its address alone (a DLPack consumer's) may be gone by then: a block it used is set aside
// until the whole device has been waited for.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cpp/core/memory.h"
#include "cpp/core/stream.h"

namespace minidnn {

// The bytes behind one or more tensors. Destroying it frees them, or drops the import that owns them.
struct Storage {
  void* data = nullptr;
  size_t bytes = 0;
  Place place;
  bool read_only = false;
  virtual ~Storage() = default;
  // Work on `stream` reads or writes these bytes: they are not reused before it is done. From any thread.
  virtual void used_on(Stream) {}
  // Work put on `stream` after this call starts when all work that used these bytes so far is done.
  virtual void settle_before(Stream) {}
};

struct AllocatorStats {
  int64_t allocated_bytes = 0;  // in live tensors
  int64_t peak_allocated_bytes = 0;
  int64_t cached_bytes = 0;        // free, kept for reuse
  int64_t allocations = 0;         // asked for and given
  int64_t device_allocations = 0;  // of these, passed on to the system or the driver
};

class Allocator {
 public:
  Allocator(Place place, Memory& memory, int64_t device_bytes)
      : place_(place), memory_(memory), device_bytes_(device_bytes) {}
  // Never null. `what` ("conv_forward: y [64, 256] float32") opens the OutOfMemory text.
  template <class What> std::shared_ptr<Storage> allocate(size_t bytes, Stream stream, const What& what) {
    std::shared_ptr<Storage> storage = try_allocate(bytes, stream);
    if (!storage) [[unlikely]]
      throw_out_of_memory(bytes, what());
    return storage;
  }
  AllocatorStats stats() const;
  void reset_peak();
  void release_cached();  // gives every free block back to the system

 private:
  friend struct AllocatedStorage;
  friend Allocator& allocator_of(Place);
  struct Bin {
    Stream stream;
    size_t bytes;
    bool operator==(const Bin&) const = default;
  };
  struct BinHash {
    size_t operator()(const Bin& b) const { return (size_t(b.stream) ^ b.bytes) * 0x9e3779b97f4a7c15u; }
  };
  struct FreeBlocks {
    std::vector<void*> blocks;
    std::shared_ptr<void> owner;  // of the stream
  };
  using Bins = std::unordered_map<Bin, FreeBlocks, BinHash>;
  std::shared_ptr<Storage> try_allocate(size_t bytes, Stream);
  void* take_cached(size_t bytes, Stream);
  // `set_aside`: a stream that may be gone used the block.
  void release(void* data, size_t bytes, Stream, const std::shared_ptr<void>& owner, bool set_aside) noexcept;
  void bring_back_set_aside() noexcept;
  void count(size_t bytes);
  [[noreturn]] void throw_out_of_memory(size_t bytes, const std::string& what) const;

  const Place place_;
  Memory& memory_;  // kept, since a process that is forked or on its way out can no longer ask for it
  const int64_t device_bytes_;
  mutable std::mutex mutex_;
  Bins free_, set_aside_;
  int64_t set_aside_bytes_ = 0;  // part of stats_.cached_bytes
  AllocatorStats stats_;
};

Allocator& allocator_of(Place);  // DeviceError when there is no such device

}  // namespace minidnn
