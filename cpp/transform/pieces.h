// SPDX-License-Identifier: Apache-2.0
// Tensors put together from others, a copy for each piece.
#pragma once
#include "cpp/engine/spatial.h"
#include "cpp/transform/transform.h"

namespace minidnn {

// One behind the other along `axis`, which counts from the end when negative; in the layout that the first prefers.
Tensor concat(const std::vector<Tensor>&, int64_t axis, const Call&);

enum class PadMode : int64_t { constant, replicate, reflect };
PadMode pad_mode(const std::string&, const char* call);  // ShapeError for another word

// x with so many elements before and after it in each dimension: `value`, its edge again, or what lies opposite the edge.
Tensor pad(const Tensor& x, const std::vector<Sides>& widths, PadMode, double value, const Call&);

}  // namespace minidnn
