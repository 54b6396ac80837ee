// SPDX-License-Identifier: Apache-2.0
// Stride, padding and dilation as callers give them: checks, their part of problem texts, the output size they make.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cpp/core/layout.h"
#include "cpp/engine/spatial_math.h"

namespace minidnn {

constexpr int64_t kMaxAttribute = 2147483647;  // products of two attributes fit 64 bits, and so do all indices

struct Sides {
  int64_t before = 0, after = 0;
  bool operator==(const Sides&) const = default;
};

// One value for each of `rank` spatial dimensions out of one for all, or out of `rank` values. ShapeError for another
// count and for a value below `least` or above kMaxAttribute; `call` and `name` ("window") open its text.
std::vector<int64_t> per_dimension(const char* call, const char* name, const std::vector<int64_t>&, int64_t rank,
                                   int64_t least);

// Each argument as for per_dimension: strides and dilations from 1, padding from 0.
SpatialAttributes spatial_attributes(const char* call, int64_t rank, const std::vector<int64_t>& stride,
                                     const std::vector<Sides>& padding, const std::vector<int64_t>& dilation);

// The number of window positions along each dimension of x, for the spatial `sizes` of x:
//   floor((before + size + after - dilation * (window - 1) - 1) / stride) + 1
// ceil_mode rounds up, then drops a last window that would start in the padding behind x. ShapeError when none fits.
Shape output_sizes(const char* call, const SpatialAttributes&, std::span<const int64_t> sizes,
                   std::span<const int64_t> window, bool ceil_mode = false);

// "2" when all values are equal, else "2,1".
std::string attribute_text(std::span<const int64_t>);
// " stride=2 pad=1:2,0 dilation=2": what is not the default. A pair before:after is written where the two differ.
std::string spatial_text(const SpatialAttributes&, int64_t rank, std::span<const int64_t> default_stride);

}  // namespace minidnn
