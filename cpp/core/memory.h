// SPDX-License-Identifier: Apache-2.0
// Raw operations on a place, in stream order. The CPU's are in device.cpp, a GPU's in cuda/runtime/memory.cpp. core
// uses only this interface.
#pragma once
#include <memory>

#include "cpp/core/device.h"

namespace minidnn {

struct Memory {
  // The CUDA graph that a stream is being captured into: work put on the stream runs whenever the graph does.
  struct Capture {
    uint64_t id = 0;  // of the capture; 0: the stream is not being captured
    void* graph = nullptr;
  };

  virtual ~Memory() = default;
  virtual void* allocate(size_t bytes, Stream) = 0;                // null if there is not enough memory
  virtual void release(void*, size_t bytes, Stream) noexcept = 0;  // never throws: an exiting process may call it
  virtual void release_idle(void*, size_t bytes) noexcept = 0;  // for memory that no work uses any more; uses no stream
  // Either side may be host memory. Returns when the host memory may be reused.
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;
  virtual void fill(void*, int byte, size_t bytes, Stream) = 0;
  virtual void synchronize(Stream) = 0;
  virtual void synchronize_all() = 0;  // for every stream of the place
  virtual size_t free_bytes() = 0;
  // Whether kernels of this place can read `p`; used to check imported pointers.
  virtual bool reaches(const void* p) = 0;
  // Makes work that is put on `later`, perhaps a stream of another place, after this call start after the work that is
  // on `earlier` now. Returns false if that is impossible: one stream is being captured, or they are captured into
  // different graphs.
  virtual bool order(Stream earlier, Place of_later, Stream later) = 0;

  virtual Capture capture(Stream) noexcept { return {}; }
  // Makes the graph, and everything made from it, own the object. drop(object) is called once all of them are destroyed
  // and none runs any more, or before give() throws. Any thread may call drop(), and drop() must not call the driver.
  virtual void give(void* /*graph*/, void* /*object*/, void (* /*drop*/)(void*)) {}
  // Uses no stream; allowed during a capture.
  virtual void* allocate_idle(size_t bytes) { return allocate(bytes, nullptr); }
};
Memory& memory_of(Place);  // DeviceError when there is no such device

}  // namespace minidnn
