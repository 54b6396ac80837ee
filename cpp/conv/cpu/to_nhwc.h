// SPDX-License-Identifier: Apache-2.0
// A tensor in the form that the micro-kernels read: float32 channels-last (the channels of a pixel are contiguous). A
// tensor in another form is copied to this form.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct ChannelsLast {
  ConvTensorView side;  // sizes and strides of what the micro-kernels read: the tensor itself or its copy
  bool copied = false;  // whether the tensor is copied; if not, the members below are not used
  DType dtype{};        // dtype of the tensor
  // sizes and strides of the tensor itself; source.channels is the number of channels of one group
  ConvTensorView source;
  int64_t images = 0, groups = 1;
  int64_t border[kMaxSpatial]{};  // width of the zeros around each image of the copy

  // Describes a float32 tensor in any layout that is read in place.
  ChannelsLast(const ConvTensorView& tensor, int64_t n) : side(tensor), source(tensor), images(n) {}
  // Reads the tensor in place if it is float32 channels-last and `always` is false. Copies it otherwise.
  ChannelsLast(const ConvTensorView& tensor, DType, int64_t images, int64_t groups, bool always,
               const int64_t (&border)[kMaxSpatial]);
  // Size of the copy in bytes, with space for one vector after the last element.
  size_t bytes() const { return copied ? size_t(images * side.image + 64) * sizeof(float) : 0; }
  // Returns a pointer to the elements that the micro-kernels read. If the tensor must be copied, this function writes
  // the copy to `scratch`.
  const float* read(const void* tensor, void* scratch) const;
};

}  // namespace minidnn
