// SPDX-License-Identifier: Apache-2.0
// A tensor as the CPU's tiles read it: float32, the channels of a pixel side by side. A tensor that is not so is
// copied.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct ChannelsLast {
  ConvTensorView side;    // where elements lie: in the tensor itself, or in the copy
  bool copied = false;    // then the rest counts
  DType dtype{};          // of the tensor
  ConvTensorView source;  // where its elements lie; `channels` are those of a group
  int64_t images = 0, groups = 1;
  int64_t border[kMaxSpatial]{};  // zeros around each image of the copy

  // Float32 in any order, read in place.
  ChannelsLast(const ConvTensorView& tensor, int64_t n) : side(tensor), source(tensor), images(n) {}
  // Reads the tensor in place if it can be, unless `always`.
  ChannelsLast(const ConvTensorView& tensor, DType, int64_t images, int64_t groups, bool always,
               const int64_t (&border)[kMaxSpatial]);
  // With room for a vector beyond the last element.
  size_t bytes() const { return copied ? size_t(images * side.image + 64) * sizeof(float) : 0; }
  // The tensor's elements, which are copied into `room` where they must be.
  const float* read(const void* tensor, void* room) const;
};

}  // namespace minidnn
