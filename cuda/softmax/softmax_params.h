// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.softmax.persistent_rows and cuda.softmax.strided_axis.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/softmax/softmax_math.h"
#include "cuda/rows/rows_params.h"

namespace minidnn {

// The 16-byte vectors of a tensor that a thread holds: 32 registers of x, or of y and dy. 16-bit numbers are kept
// packed, except where a mask is applied to them.
MINIDNN_HD constexpr int softmax_forward_vectors(int64_t item, SoftmaxMask mask) {
  return mask == SoftmaxMask::none || (item == 4 && mask == SoftmaxMask::keep) ? 8 : 4;
}
// 16-bit types: up to this number of vectors in a row, a thread holds half as many, so more threads wait for loads.
constexpr int64_t kSoftmaxShortRow = 256;
constexpr int kSoftmaxBackwardVectors = 4;

// The offset of a row's mask. The row number is split into one index per dimension, the innermost first.
struct MaskRows {
  int64_t stride[kMaxRank]{};
  FastDivmod size[kMaxRank]{};
  int32_t dims = 0;

  MINIDNN_HD int64_t offset_of(int64_t row) const {
    uint32_t rest = uint32_t(row);
    int64_t offset = 0;
    for (int i = 0; i < dims; ++i) offset += size[i].divmod(rest) * stride[i];
    return offset;
  }
};

struct SoftmaxRows {
  // one_launch: whole rows stay in registers. reduce: first launch over chunks of rows, which stores the partial result
  // of each chunk. finish: second launch over the chunks, which combines the partial results of a row.
  enum Stage : int32_t { one_launch, reduce, finish } stage = one_launch;
  int32_t log = 0;
  rows::Shape shape;
  MaskRows mask;
};

// Tensors are [outer, cols, inner]. A column here is `width` adjacent ones; a block has `lanes` of these, a power of
// two.
struct SoftmaxColumns {
  int64_t inner = 0;  // elements
  int32_t cols = 0, columns = 0, lanes = 0, log = 0;
  FastDivmod columns_of_outer;
};
// Vectors of `width` elements that a thread holds.
template <int width> constexpr int kSoftmaxColumnsForward = width == 8 ? 4 : width == 4 ? 8 : 16;
template <int width> constexpr int kSoftmaxColumnsBackward = width == 1 ? 16 : 4;

MINIDNN_HD int64_t softmax_columns_smem(int64_t threads, int64_t lanes, int64_t width) {
  return (threads / max_of<int64_t>(lanes, 32) + 1) * lanes * width * 4;
}

}  // namespace minidnn
