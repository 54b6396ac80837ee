// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.softmax.persistent_rows and cuda.softmax.strided_axis.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/softmax/softmax_math.h"
#include "cuda/rows/rows_params.h"

namespace minidnn {

// Returns the number of 16-byte vectors that a thread of the forward kernel keeps, in 32 registers. With a mask, 16-bit
// numbers are converted to float32, so half as many vectors fit.
MINIDNN_HD constexpr int softmax_forward_vectors(int64_t item, SoftmaxMask mask) {
  return mask == SoftmaxMask::none || (item == 4 && mask == SoftmaxMask::keep) ? 8 : 4;
}
// The maximum number of vectors in a short row of a 16-bit type. A thread has fewer vectors of a short row (in forward,
// 4 instead of 8), so that more threads have loads in flight.
constexpr int64_t kSoftmaxShortRow = 256;
constexpr int kSoftmaxBackwardVectors = 4;

// Computes the offset of a row of the mask, beginning with the innermost dimension.
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
  // Rows that do not fit in registers are divided into chunks, and take two launches: `reduce` stores a partial result
  // of each chunk, and `finish` computes the elements. All other rows take one.
  enum Stage : int32_t { one_launch, reduce, finish } stage = one_launch;
  int32_t log = 0;
  rows::Shape shape;
  MaskRows mask;
};

// A softmax along the dimension `cols` of tensors of shape [outer, cols, inner]. A column is the `cols` elements of one
// softmax. `columns` is the number of all columns divided by `width`, the elements of a vector. A block processes
// `lanes` vectors of adjacent columns, a power of two.
struct SoftmaxColumns {
  int64_t inner = 0;  // the number of elements in the dimensions after the axis
  int32_t cols = 0, columns = 0, lanes = 0, log = 0;
  FastDivmod columns_of_outer;
};
// The number of vectors of `width` elements that a thread keeps in registers.
template <int width> constexpr int kSoftmaxColumnsForward = width == 8 ? 4 : width == 4 ? 8 : 16;
template <int width> constexpr int kSoftmaxColumnsBackward = width == 1 ? 16 : 4;

MINIDNN_HD int64_t softmax_columns_smem(int64_t threads, int64_t lanes, int64_t width) {
  return (threads / max_of<int64_t>(lanes, 32) + 1) * lanes * width * 4;
}

}  // namespace minidnn
