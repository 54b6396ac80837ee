// SPDX-License-Identifier: Apache-2.0
// Generates the source of a kernel for a region of single elements: the struct Region that cuda/graph/elementwise.cu
// reads. It has one line for each step, which calls functions of the headers of maths and has no formula of its own. It
// has no sizes and no strides, so regions that differ in these alone share a kernel.
#pragma once
#include "cpp/graph/step_source.h"

namespace minidnn {

// The vectors that a thread loads of each tensor, and the elements in a vector.
struct ElementVectors {
  int vectors, width;
};
ElementVectors element_vectors(const Region&, const ElementRegion&);

// `rounding_each`: whether each step rounds its result to its dtype.
GeneratedSource element_source(const Region&, const ElementRegion&, bool rounding_each);

}  // namespace minidnn
