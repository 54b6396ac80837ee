// SPDX-License-Identifier: Apache-2.0
// The dimensions of a copy over which the engines of transform loop. Host only.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cpp/transform/transform_math.h"

namespace minidnn {

struct CopyDimension {
  int64_t size, x, y;  // the size of the dimension, and the strides of x and y in elements
};

// Returns the dimensions of a copy, from the outermost to the innermost dimension of y. Dimensions of size 1 are left
// out, and dimensions that need no separate strides are merged.
inline std::vector<CopyDimension> copy_dimensions(const TransformProblem& p) {
  std::vector<CopyDimension> dims;
  for (int i = 0; i < p.y.rank; ++i)
    if (p.y.shape[i] != 1) dims.push_back({p.y.shape[i], p.x.stride[i], p.y.stride[i]});
  std::ranges::sort(dims, std::ranges::greater{}, [](const CopyDimension& d) { return std::abs(d.y); });
  for (size_t i = 0; i + 1 < dims.size();) {
    const CopyDimension &outer = dims[i], &inner = dims[i + 1];
    if (outer.x == inner.x * inner.size && outer.y == inner.y * inner.size) {
      dims[i] = {outer.size * inner.size, inner.x, inner.y};
      dims.erase(dims.begin() + std::ptrdiff_t(i) + 1);
    } else ++i;
  }
  return dims;
}

}  // namespace minidnn
