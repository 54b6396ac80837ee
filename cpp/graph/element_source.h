// SPDX-License-Identifier: Apache-2.0
// Generates the source of a kernel for a region of single elements: the struct Region that cuda/graph/elementwise.cu
// reads. It has one line for each step, which calls functions of the headers of maths and has no formula of its own. It
// has no sizes and no strides, so regions that differ in these alone share a kernel.
#pragma once
#include "cpp/graph/element_region.h"

namespace minidnn {

struct ElementSourceText {
  std::string text;
  // Where ElementwiseArgs takes its numbers and words from: indices into RegionArgs::words.
  std::vector<size_t> numbers, words;
};

// The vectors that a thread loads of each tensor, and the elements in a vector.
struct ElementVectors {
  int vectors, width;
};
ElementVectors element_vectors(const Region&, const ElementRegion&);

// The numbers and the words that the text needs. This is faster than making the text.
struct ElementCounts {
  size_t numbers = 0, words = 0;
};
ElementCounts element_counts(const Region&, const ElementRegion&);

// `rounding_each`: whether each step rounds its result to its dtype.
ElementSourceText element_source(const Region&, const ElementRegion&, bool rounding_each);

}  // namespace minidnn
