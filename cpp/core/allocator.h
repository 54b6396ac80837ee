// SPDX-License-Identifier: Apache-2.0
// The stream-ordered caching allocator: one per place. A block that is freed goes back to the stream it was asked for
// on and is handed out there again at once; other streams that used it are waited for, on the device, at that moment. A
// stream that is known by its address alone (a DLPack consumer's) may be gone by then: a block it used is set aside
// until the whole device has been waited for. So is a block of a stream that this thread cannot name: the per-thread
// default stream of another thread.
//
// A CUDA graph holds a share in the storage of each tensor and workspace that captured calls use, until the graph and
// all that was made of it are gone. What is allocated on a stream during its capture is new memory, or memory that was
// allocated on that stream earlier in the capture and that only the graph holds.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
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
  // Work on `stream` reads or writes these bytes: they are not reused before it is done; nor, if the stream is being
  // captured, as long as the graph may run. From any thread.
  virtual void used_on(Stream) {}
  // Work put on `stream` after this call starts when all work that used these bytes so far is done.
  virtual void settle_before(Stream) {}
};

struct AllocatedStorage;

struct AllocatorStats {
  int64_t allocated_bytes = 0;  // in live tensors, and in what captured graphs hold
  int64_t peak_allocated_bytes = 0;
  int64_t cached_bytes = 0;        // free, kept for reuse
  int64_t allocations = 0;         // asked for and given
  int64_t device_allocations = 0;  // of these, passed on to the system or the driver
};

// For tests, which set it before the first allocation; off by default.
struct AllocatorChecks {
  bool exact = false;  // blocks have the size asked for and are not kept, so that sanitizers see what goes beyond them
  int poison = -1;     // a byte that fills blocks when they are handed out, and when they are freed; -1: none
};
void set_allocator_checks(AllocatorChecks);

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
  AllocatorStats stats();
  void reset_peak();
  void release_cached();  // gives every free block back to the system

 private:
  friend struct AllocatedStorage;
  friend Allocator& allocator_of(Place);
  struct Bin {
    Stream stream;
    uint64_t thread;  // see thread_of()
    size_t bytes;
    bool operator==(const Bin&) const = default;
  };
  struct BinHash {
    size_t operator()(const Bin& b) const { return (size_t(b.stream) ^ b.bytes ^ b.thread) * 0x9e3779b97f4a7c15u; }
  };
  struct FreeBlocks {
    std::vector<void*> blocks;
    std::shared_ptr<void> owner;  // of the stream
  };
  using Bins = std::unordered_map<Bin, FreeBlocks, BinHash>;
  // What a captured graph holds.
  struct Graph {
    Allocator& allocator;
    uint64_t id;  // of its capture
    std::unordered_set<std::shared_ptr<AllocatedStorage>> storages{};
  };
  std::shared_ptr<Storage> try_allocate(size_t bytes, Stream);
  std::shared_ptr<Storage> try_allocate_captured(size_t bytes, Stream, const Memory::Capture&);
  void hold(const Memory::Capture&, std::shared_ptr<AllocatedStorage>);  // by the graph
  static void drop(void* graph);                                         // for Memory::give()
  void free_gone();                                                      // storages of graphs that are gone
  void* take_cached(size_t bytes, Stream);
  // `set_aside`: the block waits until the device has been waited for.
  void release(void* data, const Bin&, const std::shared_ptr<void>& owner, bool set_aside) noexcept;
  bool bring_back_set_aside() noexcept;  // false: the device cannot be waited for now
  void count(size_t bytes);
  void poison(void* data, size_t bytes, Stream) noexcept;
  [[noreturn]] void throw_out_of_memory(size_t bytes, const std::string& what) const;

  const Place place_;
  Memory& memory_;  // kept, since a process that is forked or on its way out can no longer ask for it
  const int64_t device_bytes_;
  std::mutex mutex_;  // not held where the driver is called, whose threads call drop()
  Bins free_, set_aside_;
  int64_t set_aside_bytes_ = 0;  // part of stats_.cached_bytes
  std::map<uint64_t, Graph> graphs_, gone_;
  std::atomic<bool> any_gone_ = false;
  std::mutex giving_;  // one thread gives a graph its storages
  AllocatorStats stats_;
};

Allocator& allocator_of(Place);  // DeviceError when there is no such device

}  // namespace minidnn
