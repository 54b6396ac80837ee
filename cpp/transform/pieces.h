// SPDX-License-Identifier: Apache-2.0
// Tensors put together from others, a copy for each piece.
#pragma once
#include "cpp/transform/transform.h"

namespace minidnn {

// One behind the other along `axis`, which counts from the end when negative; in the layout that the first prefers.
Tensor concat(const std::vector<Tensor>&, int64_t axis, const Call&);

}  // namespace minidnn
