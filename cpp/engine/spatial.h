// SPDX-License-Identifier: Apache-2.0
// The window attributes of convolution and pooling (stride, padding, dilation) as callers pass them. This header has
// checks of the attributes, writes them as parts of problem texts, and computes the sizes of outputs. It also has
// checks of image layouts.
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

// Returns `rank` values of a window attribute, one for each spatial dimension. A single value is repeated for all
// dimensions. Throws ShapeError for another number of values, and for a value below `least` or above kMaxAttribute. The
// text of the error begins with `call` and with `name`, such as "window".
std::vector<int64_t> per_dimension(const char* call, const char* name, const std::vector<int64_t>&, int64_t rank,
                                   int64_t least);

// Returns the window attributes with one value for each spatial dimension (see per_dimension()). Strides and dilations
// must be at least 1, and padding at least 0.
SpatialAttributes spatial_attributes(const char* call, int64_t rank, const std::vector<int64_t>& stride,
                                     const std::vector<Sides>& padding, const std::vector<int64_t>& dilation);

// Returns the size of the output in each spatial dimension, which is the number of window positions. `sizes` are the
// spatial sizes of x. In this formula, `before` and `after` are the padding:
//   floor((before + size + after - dilation * (window - 1) - 1) / stride) + 1
// If ceil_mode is true, the quotient is rounded up. A last window that would start in the padding behind x is then
// dropped. Throws ShapeError if no window fits.
Shape output_sizes(const char* call, const SpatialAttributes&, std::span<const int64_t> sizes,
                   std::span<const int64_t> window, bool ceil_mode = false);

// The values of a window attribute as text: "2" if all values are equal, else for example "2,1".
std::string attribute_text(std::span<const int64_t>);
// The window attributes that differ from the default, as text: " stride=2 pad=1:2,0 dilation=2". Padding that differs
// before and after x is written before:after.
std::string spatial_text(const SpatialAttributes&, int64_t rank, std::span<const int64_t> default_stride);

// The number of elements in one channel of one sample of x, whose shape is [N, C, spatial...].
int64_t plane_of(const TensorDesc& x);
// Whether the channel stride and the sample stride of x are those of NCHW without gaps. For an image of H x W, these
// are H * W and C * H * W.
bool channels_in_order(const TensorDesc& x);
// Whether the channel stride and the sample stride of x are those of NHWC without gaps. For an image of H x W, these
// are 1 and C * H * W.
bool channels_innermost(const TensorDesc& x);

}  // namespace minidnn
