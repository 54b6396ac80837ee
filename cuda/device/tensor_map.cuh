// SPDX-License-Identifier: Apache-2.0
// A tensor map as kernels take it, a CUtensorMap to the byte. Std-free, for the host too.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

struct alignas(64) TensorMap {
  uint64_t words[16];
};

}  // namespace minidnn
