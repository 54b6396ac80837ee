// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.softmax.persistent_rows and cuda.softmax.strided_axis.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/softmax/softmax_math.h"
#include "cuda/rows/rows_params.h"

namespace minidnn {

// The 16-byte vectors of each tensor that a thread holds. They take 32 registers, for x (forward) or for y and dy
// (backward). 16-bit numbers stay packed unless a mask is applied to them.
MINIDNN_HD constexpr int softmax_forward_vectors(int64_t item, SoftmaxMask mask) {
  return mask == SoftmaxMask::none || (item == 4 && mask == SoftmaxMask::keep) ? 8 : 4;
}
// If a row of a 16-bit type has at most this number of vectors, each thread holds fewer vectors (4 instead of 8 in
// forward). More threads then have loads in flight.
constexpr int64_t kSoftmaxShortRow = 256;
constexpr int kSoftmaxBackwardVectors = 4;

// Computes the offset of a row's mask. The row number is split into one index per dimension, the innermost one first.
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
  // one_launch: one launch processes whole rows in registers. Rows that are too long are divided into chunks, and take
  // two launches. `reduce`, the first launch, stores a partial result of each chunk. `finish`, the second launch, joins
  // the partial results of each row and computes the elements.
  enum Stage : int32_t { one_launch, reduce, finish } stage = one_launch;
  int32_t log = 0;
  rows::Shape shape;
  MaskRows mask;
};

// Tensors have the shape [outer, cols, inner]; softmax is along `cols`. A column in the names of fields stands for
// `width` adjacent columns, which form a vector. A block processes `lanes` of these vectors; `lanes` is a power of two.
struct SoftmaxColumns {
  int64_t inner = 0;  // elements after the axis
  int32_t cols = 0, columns = 0, lanes = 0, log = 0;
  FastDivmod columns_of_outer;
};
// The number of vectors (of `width` elements each) that a thread holds.
template <int width> constexpr int kSoftmaxColumnsForward = width == 8 ? 4 : width == 4 ? 8 : 16;
template <int width> constexpr int kSoftmaxColumnsBackward = width == 1 ? 16 : 4;

MINIDNN_HD int64_t softmax_columns_smem(int64_t threads, int64_t lanes, int64_t width) {
  return (threads / max_of<int64_t>(lanes, 32) + 1) * lanes * width * 4;
}

}  // namespace minidnn
