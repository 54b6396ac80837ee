// SPDX-License-Identifier: Apache-2.0
// Concatenation of tensors, one copy per input.
#pragma once
#include "cpp/transform/transform.h"

namespace minidnn {

// Concatenates along `axis`, which counts from the end if negative. The result has the preferred layout of the first
// tensor.
Tensor concat(const std::vector<Tensor>&, int64_t axis, const Call&);

}  // namespace minidnn
