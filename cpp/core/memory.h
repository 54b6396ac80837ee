// SPDX-License-Identifier: Apache-2.0
// Raw operations on a place, in stream order. The CPU's are in device.cpp, a GPU's in cuda/runtime/memory.cpp;
// core reaches them through this interface only.
#pragma once
#include <memory>

#include "cpp/core/device.h"

namespace minidnn {

struct Memory {
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
  // Cross-stream order: work put on `later` after this call starts after what is on `earlier` now.
  virtual void order(Stream earlier, Stream later) = 0;
};
Memory& memory_of(Place);  // DeviceError when there is no such device

}  // namespace minidnn
