// SPDX-License-Identifier: Apache-2.0
// Tensor maps: the description of a tensor in global memory for the TMA unit of sm_90 and later. why_not() checks every
// rule and needs no GPU; encode() encodes every map that passes. Encoding costs the host about 0.13 us, so a plan may
// encode per run.
#pragma once
#include <cstdint>
#include <string>

#include "cpp/core/desc.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// Common to both kinds of map. Dimensions are ordered from the innermost, contiguous one outwards.
struct MapTensor {
  const void* address = nullptr;
  DType dtype{};
  // float32 is rounded to TF32 when it is loaded. Without it wgmma truncates, which doubles the error.
  bool tf32 = false;
  int rank = 0;           // 1..5 tiled, 3..5 im2col
  uint64_t dims[5]{};     // elements
  uint64_t strides[4]{};  // bytes; strides[i] belongs to dims[i + 1]
  // Step between the elements that are loaded, 1..8; a convolution's stride goes here.
  uint32_t element_strides[5]{1, 1, 1, 1, 1};
  int swizzle_bytes = 0;         // of shared memory: 0, 32, 64 or 128
  int l2_promotion_bytes = 128;  // 0, 64, 128 or 256
  bool nan_fill = false;         // out-of-bounds elements read as NaN, not zero
};

// A box of `box` elements around a coordinate.
struct TiledMap : MapTensor {
  uint32_t box[5]{};
};

// The pixels that one filter tap reads: `pixels` pixels with `channels` channels each. dims are C, W[, H[, D]], N. The
// corners bound the tap's positions in each spatial dimension, W first: lower = -pad_lo from the near edge, upper =
// pad_hi - (taps - 1) * dilation from the far edge.
struct Im2colMap : MapTensor {
  int lower[3]{}, upper[3]{};
  uint32_t channels = 0;
  uint32_t pixels = 0;
};

std::string why_not(const TiledMap&);  // "", or the rule that is violated, with the values
std::string why_not(const Im2colMap&);

// Throws NotSupported with why_not(). The map contains the raw address. The context of `device` is made current for
// the calling thread, because threads created by others may have no context.
CUtensorMap encode(const TiledMap&, int device);
CUtensorMap encode(const Im2colMap&, int device);

}  // namespace minidnn::cuda
