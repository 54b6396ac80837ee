// SPDX-License-Identifier: Apache-2.0
// Ownership of CUDA streams. The CUDA driver crashes if it is called with a stream that was destroyed. Therefore, an
// object that remembers a stream, such as the memory of a tensor or a free block, shares ownership of the stream. A
// stream without a known owner is never used later. Instead, the whole device is synchronised.
#pragma once
#include <memory>

#include "cpp/core/device/device.h"

namespace minidnn {

// Registers the owner of a stream. The registration ends when the owner is destroyed.
void own_stream(Stream, std::shared_ptr<void> owner);
// Returns the owner of a stream, or null if none is registered. The default stream needs no owner. The owner of a
// stream that another library passed as an address is unknown.
std::shared_ptr<void> owner_of(Stream);

// CUDA's per-thread default stream has the handle 2 on every thread, but is a different stream on each thread. For the
// handle 2 this function returns the number of the calling thread, which no other thread ever gets. For any other
// handle it returns 0. The handle and this number together identify a stream.
uint64_t thread_of(Stream);

}  // namespace minidnn
