// SPDX-License-Identifier: Apache-2.0
// The window attributes of convolution and pooling (stride, padding, dilation) as callers pass them: checks, texts for
// problems, and the sizes of outputs. Also checks of the layouts of images.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cpp/core/layout.h"
#include "cpp/engine/spatial_math.h"

namespace minidnn {

// The largest stride, padding, dilation or window size. The limit ensures that the product of two attributes, and all
// indices, fit 64 bits.
constexpr int64_t kMaxAttribute = 2147483647;

struct Sides {
  int64_t before = 0, after = 0;
  bool operator==(const Sides&) const = default;
};

// Returns `rank` values of an attribute. A single value is repeated for all dimensions. Throws ShapeError for another
// number of values, and for a value below `least` or above kMaxAttribute. The text of the error begins with `call` and
// `name`, such as "window".
std::vector<int64_t> per_dimension(const char* call, const char* name, const std::vector<int64_t>&, int64_t rank,
                                   int64_t least);

// Expands each attribute by per_dimension(). Strides and dilations must be at least 1, and padding at least 0.
SpatialAttributes spatial_attributes(const char* call, int64_t rank, const std::vector<int64_t>& stride,
                                     const std::vector<Sides>& padding, const std::vector<int64_t>& dilation);

// Returns the size of the output in each spatial dimension: the number of window positions. `sizes` are the spatial
// sizes of x.
//   floor((before + size + after - dilation * (window - 1) - 1) / stride) + 1
// If ceil_mode is true, the quotient is rounded up, and a last window that would start in the padding behind x is
// dropped. Throws ShapeError if no window fits.
Shape output_sizes(const char* call, const SpatialAttributes&, std::span<const int64_t> sizes,
                   std::span<const int64_t> window, bool ceil_mode = false);

// The values of an attribute as text: "2" if all values are equal, else for example "2,1".
std::string attribute_text(std::span<const int64_t>);
// The attributes that differ from the default, as text: " stride=2 pad=1:2,0 dilation=2". Padding that differs before
// and after x is written before:after.
std::string spatial_text(const SpatialAttributes&, int64_t rank, std::span<const int64_t> default_stride);

// The number of elements in one channel of one sample of x, whose shape is [N, C, spatial...].
int64_t plane_of(const TensorDesc& x);
// Whether x has the strides of NCHW for channels and samples: the planes of the channels follow each other without
// gaps, and so do the samples.
bool channels_in_order(const TensorDesc& x);
// Whether x has the strides of NHWC for channels and samples: the channels of a pixel are contiguous, and the samples
// follow each other without gaps.
bool channels_innermost(const TensorDesc& x);

}  // namespace minidnn
