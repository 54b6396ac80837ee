// SPDX-License-Identifier: Apache-2.0
// A GPU as core sees it. Host C++ without any CUDA header: safe to include anywhere.
#pragma once
#include "cpp/core/device.h"
#include "cpp/core/memory.h"

namespace minidnn::cuda {

int device_count();               // 0 without a driver or a GPU; never throws
std::string why_unavailable();    // "" when a GPU can be used, else one sentence
const Device& device(int index);  // DeviceError with why_unavailable(), or naming the indices there are
Memory& memory(int index);        // likewise
void* current_context();          // for tests: the calling thread's CUcontext

}  // namespace minidnn::cuda
