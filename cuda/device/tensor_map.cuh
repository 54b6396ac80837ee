// SPDX-License-Identifier: Apache-2.0
// A tensor map as a kernel parameter. It has the 128 bytes of the driver's struct CUtensorMap. This file does not use
// the standard library, because kernels include it. Host code includes it, too.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

struct alignas(64) TensorMap {
  uint64_t words[16];
};

}  // namespace minidnn
