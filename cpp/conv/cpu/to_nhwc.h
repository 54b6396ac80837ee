// SPDX-License-Identifier: Apache-2.0
// A tensor in the form that the micro-kernels read: channels-last, which means that the channels of a pixel are
// contiguous, in float32 or, for products of pairs, in bfloat16. A tensor in another form is copied to this form.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct ChannelsLast {
  // The sizes and strides of the data that the micro-kernels read: the tensor itself or its copy.
  ConvTensorView side;
  // True if the tensor is copied. If false, `dtype`, `source`, `images` and `groups` are not used, and `border` is 0.
  bool copied = false;
  DType dtype{};                  // dtype of the tensor that is copied
  DType wanted = DType::float32;  // dtype of the copy: float32, or bfloat16 for a bfloat16 tensor
  // The sizes and strides of the tensor itself, not of its copy. `source.channels` is the number of channels of one
  // group.
  ConvTensorView source;
  int64_t images = 0, groups = 1;
  // The number of zeros on each side of an image of the copy, in each dimension.
  int64_t border[kMaxSpatial]{};

  // Describes a float32 tensor in any layout. The micro-kernels read it in place.
  ChannelsLast(const ConvTensorView& tensor, int64_t n) : side(tensor), source(tensor), images(n) {}
  // Describes a tensor in any dtype and layout. It is read in place if it is channels-last, its dtype is `wanted`, and
  // `always` is false. In all other cases, it is copied to channels-last.
  ChannelsLast(const ConvTensorView& tensor, DType, int64_t images, int64_t groups, bool always,
               const int64_t (&border)[kMaxSpatial], DType wanted = DType::float32);
  // Returns the size of the copy in bytes, including space for one vector after the last element. Returns 0 if the
  // tensor is read in place.
  size_t bytes() const { return copied ? size_t(images * side.image + 64) * sizeof(float) : 0; }
  // Returns a pointer to the elements that the micro-kernels read. If the tensor must be copied, this function writes
  // the copy to `scratch`.
  const void* read(const void* tensor, void* scratch) const;
  const float* read_floats(const void* tensor, void* scratch) const {
    return static_cast<const float*>(read(tensor, scratch));
  }
};

}  // namespace minidnn
