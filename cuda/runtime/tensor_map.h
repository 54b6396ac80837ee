// SPDX-License-Identifier: Apache-2.0
// Tensor maps: descriptions of tensors in global memory for TMA (sm_90 and later). why_not() checks all rules for a
// map, and needs no GPU. encode() succeeds for each map that passes these checks. It takes about 0.13 us on the host,
// so a plan may encode its maps each time it runs.
#pragma once
#include <cstdint>
#include <string>

#include "cpp/core/host_device/desc.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// The fields that both kinds of maps have, tiled and im2col. Dimension 0 is the innermost one and is contiguous.
struct MapTensor {
  const void* address = nullptr;
  DType dtype{};
  // Whether TMA rounds float32 to TF32 when it loads. If TMA does not round, wgmma truncates float32 to TF32, which
  // doubles the error.
  bool tf32 = false;
  int rank = 0;           // the number of dimensions: 1 to 5 for TiledMap, 3 to 5 for Im2colMap
  uint64_t dims[5]{};     // the size of each dimension, in elements
  uint64_t strides[4]{};  // the strides in bytes; strides[i] is the stride of dims[i + 1]
  // The distance between loaded elements, 1 to 8 per dimension, such as the stride of a convolution.
  uint32_t element_strides[5]{1, 1, 1, 1, 1};
  int swizzle_bytes = 0;         // the swizzle in shared memory in bytes: 0 (none), 32, 64 or 128
  int l2_promotion_bytes = 128;  // the granularity of L2 fetches in bytes: 0 (none), 64, 128 or 256
  bool nan_fill = false;  // whether elements outside the tensor are loaded as NaN; if false, they are loaded as zero
};

// A tiled map. TMA loads a box of box[0] x box[1] x ... elements, which begins at given coordinates.
struct TiledMap : MapTensor {
  uint32_t box[5]{};
};

// An im2col map. TMA loads the pixels that one tap of a filter reads: `pixels` pixels with `channels` channels each.
// `dims` are C, W, [H, [D,]] N. `lower` and `upper` bound the positions of the filter's first tap, W first: lower =
// -pad_lo, counted from the first pixel, and upper = pad_hi - (taps - 1) * dilation, counted from the last pixel.
struct Im2colMap : MapTensor {
  int lower[3]{}, upper[3]{};
  uint32_t channels = 0;
  uint32_t pixels = 0;
};

// why_not() returns "" if the map can be encoded. If not, it returns the rule that the map violates, with the values.
std::string why_not(const TiledMap&);
std::string why_not(const Im2colMap&);

// Returns the encoded map, which contains the raw address of the tensor. Throws NotSupported with the text of why_not()
// if the map can not be encoded. Makes the context of `device` current for the calling thread, because a thread that
// another library created may have no context.
CUtensorMap encode(const TiledMap&, int device);
CUtensorMap encode(const Im2colMap&, int device);

}  // namespace minidnn::cuda
