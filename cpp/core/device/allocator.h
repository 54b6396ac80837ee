// SPDX-License-Identifier: Apache-2.0
// A caching allocator in stream order; each device has one. A freed block returns to the free list of the stream for
// which it was allocated. Later work on that stream can reuse the block immediately. If other streams used the block,
// that stream waits for them first, but the host does not.
//
// Some freed blocks are set aside until the whole device has been synchronised: blocks that were used on a stream that
// may have been destroyed since, such as that of a DLPack consumer, and blocks of another thread's per-thread default
// stream.
//
// A CUDA graph shares ownership of the memory that its captured calls use. An allocation during a capture returns new
// memory, or memory that was allocated earlier in the same capture and that only the graph still owns.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cpp/core/device/memory.h"
#include "cpp/core/device/stream.h"

namespace minidnn {

// The memory of one or more tensors. The destructor frees the memory, or releases the imported object that owns the
// memory.
struct Storage {
  void* data = nullptr;
  size_t bytes = 0;
  Place place;
  bool read_only = false;
  virtual ~Storage() = default;
  // Records that work on `stream` reads or writes the bytes of this storage. The allocator does not reuse the bytes
  // before that work is done. If the stream is being captured, the allocator does not reuse the bytes as long as the
  // captured graph may run. Any thread may call this function.
  virtual void used_on(Stream) {}
  // Makes all work that is put on `stream` after this call wait for all work that has used the bytes of this storage so
  // far.
  virtual void settle_before(Stream) {}
};

struct AllocatedStorage;

struct AllocatorStats {
  // The number of bytes of live tensors, and of storage that captured graphs own.
  int64_t allocated_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t cached_bytes = 0;        // number of bytes of the free blocks that are kept for reuse
  int64_t allocations = 0;         // number of successful allocations of at least one byte
  int64_t device_allocations = 0;  // number of allocations that called the system or the CUDA driver
};

// Options that help tests to find memory errors. They are off by default, and set before the first allocation.
struct AllocatorChecks {
  // If true, blocks have exactly the requested size and are not cached, so that sanitizers detect accesses beyond the
  // end of a block.
  bool exact = false;
  // The byte that fills blocks when they are allocated and when they are freed. If it is -1, blocks are not filled.
  int poison = -1;
};
void set_allocator_checks(AllocatorChecks);

class Allocator {
 public:
  Allocator(Place place, Memory& memory, int64_t device_bytes)
      : place_(place), memory_(memory), device_bytes_(device_bytes) {}
  // Throws OutOfMemory instead of returning null. The error's text begins with the result of the function `what`, such
  // as "conv_forward: y [64, 256] float32".
  template <class What> std::shared_ptr<Storage> allocate(size_t bytes, Stream stream, const What& what) {
    std::shared_ptr<Storage> storage = try_allocate(bytes, stream);
    if (!storage) [[unlikely]]
      throw_out_of_memory(bytes, what());
    return storage;
  }
  AllocatorStats stats();
  void reset_peak();
  // Returns all free blocks to the system or the CUDA driver.
  void release_cached();

 private:
  friend struct AllocatedStorage;
  friend Allocator& allocator_of(Place);
  struct Bin {
    Stream stream;
    // CUDA's per-thread default stream has the same handle on every thread. This number tells the threads apart (see
    // thread_of()). It is 0 for any other stream.
    uint64_t thread;
    size_t bytes;
    bool operator==(const Bin&) const = default;
  };
  struct BinHash {
    size_t operator()(const Bin& b) const { return (size_t(b.stream) ^ b.bytes ^ b.thread) * 0x9e3779b97f4a7c15u; }
  };
  struct FreeBlocks {
    std::vector<void*> blocks;
    std::shared_ptr<void> owner;  // the object that keeps the stream of these blocks alive
  };
  using Bins = std::unordered_map<Bin, FreeBlocks, BinHash>;
  // The storage that one captured CUDA graph owns.
  struct Graph {
    Allocator& allocator;
    uint64_t id;  // the id of the stream capture that made the graph
    std::unordered_set<std::shared_ptr<AllocatedStorage>> storages{};
  };
  std::shared_ptr<Storage> try_allocate(size_t bytes, Stream);
  std::shared_ptr<Storage> try_allocate_captured(size_t bytes, Stream, const Memory::Capture&);
  // Makes the CUDA graph that is being captured an owner of the storage.
  void hold(const Memory::Capture&, std::shared_ptr<AllocatedStorage>);
  // The callback that the CUDA driver calls when a CUDA graph that owns storage is destroyed.
  static void drop(void* graph);
  // Frees the storage of CUDA graphs that have been destroyed.
  void free_gone();
  void* take_cached(size_t bytes, Stream);
  // Releases a block. If `set_aside` is true, the block may be reused only after the device has been synchronised.
  void release(void* data, const Bin&, const std::shared_ptr<void>& owner, bool set_aside) noexcept;
  // Synchronises the device, and moves the blocks that were set aside to the free lists. Returns false if the device
  // cannot be synchronised now.
  bool bring_back_set_aside() noexcept;
  void count(size_t bytes);
  void poison(void* data, size_t bytes, Stream) noexcept;
  [[noreturn]] void throw_out_of_memory(size_t bytes, const std::string& what) const;

  const Place place_;
  // The memory operations of the device. They are stored here, because memory_of() may not work any more in a forked or
  // exiting process.
  Memory& memory_;
  const int64_t device_bytes_;
  // This mutex is never locked during a call of the CUDA driver, because threads of the driver call drop(), which locks
  // it.
  std::mutex mutex_;
  Bins free_, set_aside_;
  // The number of bytes of the blocks that are set aside. They are included in stats_.cached_bytes.
  int64_t set_aside_bytes_ = 0;
  std::map<uint64_t, Graph> graphs_, gone_;
  std::atomic<bool> any_gone_ = false;
  // A thread locks this mutex while it makes a CUDA graph an owner of storage.
  std::mutex giving_;
  AllocatorStats stats_;
};

Allocator& allocator_of(Place);  // allocator_of() throws DeviceError if the machine does not have the device

}  // namespace minidnn
