// SPDX-License-Identifier: Apache-2.0
// Raw memory operations of one device, in stream order. device.cpp has those of the CPU, cuda/runtime/memory.cpp those
// of a GPU. The rest of cpp/core uses only this interface.
#pragma once
#include <memory>

#include "cpp/core/device.h"

namespace minidnn {

struct Memory {
  // The CUDA graph into which a stream is being captured. Work that is put on the stream then runs whenever the graph
  // runs.
  struct Capture {
    uint64_t id = 0;  // the id of the capture; 0 if the stream is not being captured
    void* graph = nullptr;
  };

  virtual ~Memory() = default;
  // Returns null if there is not enough memory.
  virtual void* allocate(size_t bytes, Stream) = 0;
  // Releases memory in the order of the stream. Never throws, because an exiting process may call it.
  virtual void release(void*, size_t bytes, Stream) noexcept = 0;
  // Releases memory that no work uses any more, so that no stream is needed.
  virtual void release_idle(void*, size_t bytes) noexcept = 0;
  // Copies memory. Source and destination may be host memory. Returns when the host memory may be reused.
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;
  virtual void fill(void*, int byte, size_t bytes, Stream) = 0;
  virtual void synchronize(Stream) = 0;
  virtual void synchronize_all() = 0;  // waits for all streams of the device
  virtual size_t free_bytes() = 0;
  // Whether kernels of this device can read memory at `p`. Imported pointers are checked by it.
  virtual bool reaches(const void* p) = 0;
  // Makes work that is put on the stream `later` after this call wait for the work that is on the stream `earlier` now.
  // `later` may be a stream of another device. Returns false if that is impossible: only one of the streams is being
  // captured, or they are captured into different graphs.
  virtual bool order(Stream earlier, Place of_later, Stream later) = 0;

  virtual Capture capture(Stream) noexcept { return {}; }
  // Makes the CUDA graph, and everything made from it, own the object. drop(object) is called once all of them are
  // destroyed and none of them runs any more. It is also called before give() throws. Any thread may call drop(), and
  // drop() must not call the CUDA driver.
  virtual void give(void* /*graph*/, void* /*object*/, void (* /*drop*/)(void*)) {}
  // Allocates without a stream, which is allowed during a capture.
  virtual void* allocate_idle(size_t bytes) { return allocate(bytes, nullptr); }
};
Memory& memory_of(Place);  // memory_of() throws DeviceError if there is no such device

}  // namespace minidnn
