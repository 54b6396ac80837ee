// SPDX-License-Identifier: Apache-2.0
// GPUs in the terms of cpp/core. Host C++ without any CUDA header: safe to include anywhere.
#pragma once
#include "cpp/core/device.h"
#include "cpp/core/memory.h"

namespace minidnn::cuda {

int device_count();             // 0 without a driver or a GPU; never throws
std::string why_unavailable();  // "" if a GPU can be used, else one sentence
// Throws DeviceError with why_unavailable(), or with the valid indices. So does memory().
const Device& device(int index);
Memory& memory(int index);
void* current_context();  // for tests: the CUcontext of the calling thread

}  // namespace minidnn::cuda
