// SPDX-License-Identifier: Apache-2.0
// Raw operations on a place, in stream order. The CPU's are in device.cpp, a GPU's in cuda/runtime/memory.cpp;
// core reaches them through this interface only.
#pragma once
#include <memory>

#include "cpp/core/device.h"

namespace minidnn {

struct Memory {
  // The CUDA graph that a stream is being captured into: what is put on the stream runs whenever the graph does.
  struct Capture {
    uint64_t id = 0;  // of the capture; 0: there is none
    void* graph = nullptr;
  };

  virtual ~Memory() = default;
  virtual void* allocate(size_t bytes, Stream) = 0;                // null when there is no room
  virtual void release(void*, size_t bytes, Stream) noexcept = 0;  // never throws: a process on its way out may call it
  virtual void release_idle(void*, size_t bytes) noexcept = 0;     // of memory that no work uses any more; on no stream
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;  // either side may be host memory; returns
                                                                            // when host memory may be reused
  virtual void fill(void*, int byte, size_t bytes, Stream) = 0;
  virtual void synchronize(Stream) = 0;
  virtual void synchronize_all() = 0;  // every stream of the place
  virtual size_t free_bytes() = 0;
  // Whether kernels of this place may read `p`: what an imported pointer is asked before it is believed.
  virtual bool reaches(const void* p) = 0;
  // Work put on `later`, a stream of another place perhaps, after this call starts after what is on `earlier` now. False
  // where that cannot be: one of the two is being captured, or each into another graph.
  virtual bool order(Stream earlier, Place of_later, Stream later) = 0;

  virtual Capture capture(Stream) noexcept { return {}; }
  // The graph, and whatever is made of it, owns the object from now on. drop(object) is called once all of them are gone
  // and none runs any more, or before this throws; by any thread, and it may not call the driver.
  virtual void give(void* /*graph*/, void* /*object*/, void (* /*drop*/)(void*)) {}
  virtual void* allocate_idle(size_t bytes) { return allocate(bytes, nullptr); }  // on no stream, during a capture too
};
Memory& memory_of(Place);  // DeviceError when there is no such device

}  // namespace minidnn
