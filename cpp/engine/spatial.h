// SPDX-License-Identifier: Apache-2.0
// Stride, padding and dilation as passed by callers: checks, their problem texts, and the output sizes. Layouts of
// images.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cpp/core/layout.h"
#include "cpp/engine/spatial_math.h"

namespace minidnn {

constexpr int64_t kMaxAttribute = 2147483647;  // the product of two attributes fits 64 bits, and so do all indices

struct Sides {
  int64_t before = 0, after = 0;
  bool operator==(const Sides&) const = default;
};

// Returns `rank` values: a single value is repeated for all dimensions. ShapeError for another count, and for a value
// below `least` or above kMaxAttribute. Its text begins with `call` and `name` ("window").
std::vector<int64_t> per_dimension(const char* call, const char* name, const std::vector<int64_t>&, int64_t rank,
                                   int64_t least);

// Each argument is expanded by per_dimension(). Strides and dilations must be at least 1, padding at least 0.
SpatialAttributes spatial_attributes(const char* call, int64_t rank, const std::vector<int64_t>& stride,
                                     const std::vector<Sides>& padding, const std::vector<int64_t>& dilation);

// The number of window positions along each dimension of x, for the spatial `sizes` of x:
//   floor((before + size + after - dilation * (window - 1) - 1) / stride) + 1
// ceil_mode rounds up instead, then drops a last window that would start in the padding behind x. ShapeError if no
// window fits.
Shape output_sizes(const char* call, const SpatialAttributes&, std::span<const int64_t> sizes,
                   std::span<const int64_t> window, bool ceil_mode = false);

// "2" when all values are equal, else "2,1".
std::string attribute_text(std::span<const int64_t>);
// " stride=2 pad=1:2,0 dilation=2": the attributes that differ from the default. Unequal paddings are written
// before:after.
std::string spatial_text(const SpatialAttributes&, int64_t rank, std::span<const int64_t> default_stride);

// The elements of one channel in one sample of x [N, C, spatial...].
int64_t plane_of(const TensorDesc& x);
// NCHW: samples are contiguous, and so is the plane of each channel.
bool channels_in_order(const TensorDesc& x);
// NHWC: samples are contiguous, and so are the channels of a pixel.
bool channels_innermost(const TensorDesc& x);

}  // namespace minidnn
