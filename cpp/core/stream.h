// SPDX-License-Identifier: Apache-2.0
// Ownership of streams. The driver crashes on a stream that was destroyed. Whatever remembers a stream (a tensor's
// memory, a free block waiting for reuse) therefore shares ownership of it. A stream without a known owner is never
// used again; instead the whole device is synchronised.
#pragma once
#include <memory>

#include "cpp/core/device.h"

namespace minidnn {

void own_stream(Stream, std::shared_ptr<void> owner);  // the registration ends when nothing holds the owner any more
// Null for the default stream, which needs no owner, and for a stream known by its address alone.
std::shared_ptr<void> owner_of(Stream);

// CUDA's per-thread default stream, handle 2, is a different stream on each thread. For handle 2 this returns the
// number of the calling thread, which no other thread ever gets; else 0. Handle and number together identify a stream.
uint64_t thread_of(Stream);

}  // namespace minidnn
