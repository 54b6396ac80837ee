// SPDX-License-Identifier: Apache-2.0
// The positions of windows over the spatial dimensions of a convolution or pooling. Std-free: part of problems, read by
// kernels.
#pragma once
#include "cpp/core/desc.h"

namespace minidnn {

constexpr int kMaxSpatial = 3;

// Entry i belongs to dimension 2 + i of x and y. Entries beyond the tensors' rank have neutral values (stride 1,
// padding 0, dilation 1), so that code may loop over all three.
struct SpatialAttributes {
  int64_t stride[kMaxSpatial]{1, 1, 1};
  int64_t before[kMaxSpatial]{};  // padding in front of the first element
  int64_t after[kMaxSpatial]{};   // padding behind the last element
  int64_t dilation[kMaxSpatial]{1, 1, 1};

  // The index in x of element `r` of the window at output position `p`. An index out of bounds means padding.
  MINIDNN_HD int64_t input_index(int i, int64_t p, int64_t r) const {
    return p * stride[i] - before[i] + r * dilation[i];
  }
};

// The length of spatial dimension i; 1 beyond the rank.
MINIDNN_HD int64_t spatial_size(const TensorDesc& d, int i) { return i + 2 < d.rank ? d.shape[i + 2] : 1; }

}  // namespace minidnn
