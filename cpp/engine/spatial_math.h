// SPDX-License-Identifier: Apache-2.0
// The positions of windows over the spatial dimensions of a convolution or pooling. This header uses nothing from std,
// so that CUDA kernels can include it. The structs that describe problems contain SpatialAttributes, and kernels read
// these structs.
#pragma once
#include "cpp/core/host_device/desc.h"

namespace minidnn {

constexpr int kMaxSpatial = 3;

// Element i of each array belongs to dimension 2 + i of x and y. Elements beyond the rank of the tensors have neutral
// values (stride 1, padding 0, dilation 1), so that loops may always run over three dimensions.
struct SpatialAttributes {
  int64_t stride[kMaxSpatial]{1, 1, 1};
  int64_t before[kMaxSpatial]{};  // number of padding elements before x
  int64_t after[kMaxSpatial]{};   // number of padding elements after x
  int64_t dilation[kMaxSpatial]{1, 1, 1};

  // Returns the index in x, along spatial dimension i, of element `r` of the window at output position `p`. If this
  // index is out of bounds, the element is padding.
  MINIDNN_HD int64_t input_index(int i, int64_t p, int64_t r) const {
    return p * stride[i] - before[i] + r * dilation[i];
  }
};

// The size of spatial dimension i; 1 if the tensor does not have this dimension.
MINIDNN_HD int64_t spatial_size(const TensorDesc& d, int i) { return i + 2 < d.rank ? d.shape[i + 2] : 1; }

}  // namespace minidnn
