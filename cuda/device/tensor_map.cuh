// SPDX-License-Identifier: Apache-2.0
// A tensor map as a kernel parameter; it has the bytes of a CUtensorMap. Std-free, for the host too.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

struct alignas(64) TensorMap {
  uint64_t words[16];
};

}  // namespace minidnn
