// SPDX-License-Identifier: Apache-2.0
// Who keeps a stream alive. The driver crashes on a stream that was destroyed, so what remembers one (a tensor's
// memory, a free block waiting for reuse) holds a share in its owner; what has no owner is never touched again, only
// waited out.
#pragma once
#include <memory>

#include "cpp/core/device.h"

namespace minidnn {

void own_stream(Stream, std::shared_ptr<void> owner);  // from now on, for as long as someone holds the owner
// Null for the default stream, which needs none, and for a stream known by its address alone.
std::shared_ptr<void> owner_of(Stream);

// CUDA's per-thread default stream, handle 2, is another stream on each thread: then the number of the calling thread,
// never given to another one; else 0. Handle and number together name a stream.
uint64_t thread_of(Stream);

}  // namespace minidnn
