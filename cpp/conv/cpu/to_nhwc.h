// SPDX-License-Identifier: Apache-2.0
// A tensor in the form that the micro-kernels read: float32, with the channels of a pixel contiguous. A tensor in
// another form is copied.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct ChannelsLast {
  ConvTensorView side;    // what the micro-kernels read: the tensor itself or the copy
  bool copied = false;    // the members below are used only if true
  DType dtype{};          // the dtype of the tensor
  ConvTensorView source;  // the tensor itself; source.channels counts the channels of one group
  int64_t images = 0, groups = 1;
  int64_t border[kMaxSpatial]{};  // width of the border of zeros around each image of the copy

  // A float32 tensor in any layout that is read in place.
  ChannelsLast(const ConvTensorView& tensor, int64_t n) : side(tensor), source(tensor), images(n) {}
  // Reads the tensor in place if possible. Copies it otherwise, and also if `always`.
  ChannelsLast(const ConvTensorView& tensor, DType, int64_t images, int64_t groups, bool always,
               const int64_t (&border)[kMaxSpatial]);
  // Size of the copy, with space for one vector after the last element.
  size_t bytes() const { return copied ? size_t(images * side.image + 64) * sizeof(float) : 0; }
  // Returns the elements to read. If the tensor must be copied, the copy is written to `scratch`.
  const float* read(const void* tensor, void* scratch) const;
};

}  // namespace minidnn
