// SPDX-License-Identifier: Apache-2.0
// The description of a tensor: element type, shape and strides. It uses nothing from std, so kernels take it as a
// parameter by value. Every field has 64 bits, so there is no padding: structs made of descriptions are hashed and
// compared as bytes.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

enum class DType : int64_t { float32, float64, float16, bfloat16, int8, uint8, int32, int64, boolean };

constexpr int kMaxRank = 8;

struct TensorDesc {
  DType dtype{};
  int64_t rank = 0;
  int64_t shape[kMaxRank]{};
  // Strides count elements. The stride of a broadcast dimension is zero. Imported arrays may have negative strides.
  int64_t stride[kMaxRank]{};

  MINIDNN_HD int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }

  // Returns the offset in elements of element number `linear`. Elements are counted in row-major order of the shape.
  MINIDNN_HD int64_t offset_of(int64_t linear) const {
    int64_t offset = 0;
    for (int i = int(rank) - 1; i > 0; --i) {
      offset += linear % shape[i] * stride[i];
      linear /= shape[i];
    }
    return rank ? offset + linear * stride[0] : 0;
  }
};

}  // namespace minidnn
