// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what the TMA unit of sm_90 and later knows of a tensor in global memory. why_not() holds every rule and
// needs no GPU; what it lets through, encode() encodes. That costs the host about 0.13 us: a plan may encode per run.
#pragma once
#include <cstdint>
#include <string>

#include "cpp/core/desc.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// Common to both: dimensions go from the innermost, contiguous one outwards.
struct MapTensor {
  const void* address = nullptr;
  DType dtype{};
  bool tf32 = false;      // float32 is rounded to TF32 on its way in; without it wgmma truncates, twice the error
  int rank = 0;           // 1..5 tiled, 3..5 im2col
  uint64_t dims[5]{};     // elements
  uint64_t strides[4]{};  // bytes; strides[i] belongs to dims[i + 1]
  uint32_t element_strides[5]{1, 1, 1, 1, 1};  // steps of the walk, 1..8; a convolution's stride goes here
  int swizzle_bytes = 0;                       // of shared memory: 0, 32, 64 or 128
  int l2_promotion_bytes = 128;                // 0, 64, 128 or 256
  bool nan_fill = false;                       // out-of-bounds elements read as NaN, not zero
};

// A box of `box` elements around a coordinate.
struct TiledMap : MapTensor {
  uint32_t box[5]{};
};

// The pixels that one filter tap sees, `pixels` of them with `channels` channels each; dims are C, W[, H[, D]], N.
// The corners bound the tap's positions in each spatial dimension, W first: lower = -pad_lo from the near edge,
// upper = pad_hi - (taps - 1) * dilation from the far one.
struct Im2colMap : MapTensor {
  int lower[3]{}, upper[3]{};
  uint32_t channels = 0;
  uint32_t pixels = 0;
};

std::string why_not(const TiledMap&);  // "" or the rule that is broken, with the values
std::string why_not(const Im2colMap&);

// NotSupported with why_not(). The map holds the raw address; `device` gives the calling thread a context, which
// threads made by others may lack.
CUtensorMap encode(const TiledMap&, int device);
CUtensorMap encode(const Im2colMap&, int device);

}  // namespace minidnn::cuda
