// SPDX-License-Identifier: Apache-2.0
// Raw memory operations of one device, in stream order. device.cpp implements them for the CPU, cuda/runtime/memory.cpp
// for a GPU. The rest of cpp/core uses only this interface.
#pragma once
#include <memory>

#include "cpp/core/device/device.h"

namespace minidnn {

struct Memory {
  // The CUDA graph into which a stream is being captured. Work that is put on the stream during the capture runs
  // whenever the graph runs.
  struct Capture {
    uint64_t id = 0;  // the id of the capture; 0 if the stream is not being captured
    void* graph = nullptr;
  };

  virtual ~Memory() = default;
  // Returns null if the device does not have enough memory.
  virtual void* allocate(size_t bytes, Stream) = 0;
  // Releases memory in the order of the stream. Never throws, because an exiting process may call it.
  virtual void release(void*, size_t bytes, Stream) noexcept = 0;
  // Releases memory that no work uses any more. Therefore, it needs no stream.
  virtual void release_idle(void*, size_t bytes) noexcept = 0;
  // Copies memory. Source and destination may be host memory. The function returns when the host memory may be reused.
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;
  virtual void fill(void*, int byte, size_t bytes, Stream) = 0;
  virtual void synchronize(Stream) = 0;
  virtual void synchronize_all() = 0;  // waits for all streams of the device
  virtual size_t free_bytes() = 0;
  // Whether kernels of this device can read memory at `p`. Imported pointers are checked by this function.
  virtual bool reaches(const void* p) = 0;
  // Makes work that is put on the stream `later` after this call wait for the work that is already on the stream
  // `earlier`. `later` may be a stream of another device. Returns false if this is not possible, because only one of
  // the streams is being captured, or because they are captured into different graphs.
  virtual bool order(Stream earlier, Place of_later, Stream later) = 0;

  virtual Capture capture(Stream) noexcept { return {}; }
  // Makes the CUDA graph, and everything made from it, owners of the object. drop(object) is called after all owners
  // are destroyed, or if give() throws. Any thread may call drop(), and drop() must not call the CUDA driver.
  virtual void give(void* /*graph*/, void* /*object*/, void (* /*drop*/)(void*)) {}
  // Allocates memory without a stream. This is allowed while a stream is being captured.
  virtual void* allocate_idle(size_t bytes) { return allocate(bytes, nullptr); }
};
Memory& memory_of(Place);  // memory_of() throws DeviceError if the machine does not have the device

}  // namespace minidnn
