// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.softmax.persistent_rows and cuda.softmax.strided_axis.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/softmax/softmax_math.h"
#include "cuda/rows/rows_params.h"

namespace minidnn {

// Returns the number of 16-byte vectors that a thread of the forward kernel keeps in registers. Without a mask, they
// take 32 registers, because 16-bit numbers stay packed. With a mask, 16-bit numbers are converted to float32, so half
// as many vectors take 32 registers. The backward kernel keeps kSoftmaxBackwardVectors vectors of y and as many of dy,
// which also take 32 registers.
MINIDNN_HD constexpr int softmax_forward_vectors(int64_t item, SoftmaxMask mask) {
  return mask == SoftmaxMask::none || (item == 4 && mask == SoftmaxMask::keep) ? 8 : 4;
}
// The maximum number of vectors in a short row of a 16-bit type. In a short row, each thread has fewer vectors (in
// forward, 4 instead of 8). More threads then have loads in flight.
constexpr int64_t kSoftmaxShortRow = 256;
constexpr int kSoftmaxBackwardVectors = 4;

// Computes the offset of a row of the mask. The index of the row is split into one index per dimension, beginning with
// the innermost dimension.
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
  // The stage of a launch. With `one_launch`, one launch processes whole rows in registers. Rows that are too long for
  // this are divided into chunks, and take two launches. The first launch, `reduce`, stores a partial result of each
  // chunk. The second launch, `finish`, joins the partial results of each row and computes the elements.
  enum Stage : int32_t { one_launch, reduce, finish } stage = one_launch;
  int32_t log = 0;
  rows::Shape shape;
  MaskRows mask;
};

// A softmax along the dimension `cols` of tensors of shape [outer, cols, inner]. A column is the `cols` elements of one
// softmax. `columns` is the number of all columns, counted in vectors of `width` adjacent columns. A block processes
// `lanes` of these vectors. `lanes` is a power of two.
struct SoftmaxColumns {
  int64_t inner = 0;  // the number of elements in the dimensions after the axis
  int32_t cols = 0, columns = 0, lanes = 0, log = 0;
  FastDivmod columns_of_outer;
};
// The number of vectors (of `width` elements each) that a thread keeps in registers.
template <int width> constexpr int kSoftmaxColumnsForward = width == 8 ? 4 : width == 4 ? 8 : 16;
template <int width> constexpr int kSoftmaxColumnsBackward = width == 1 ? 16 : 4;

MINIDNN_HD int64_t softmax_columns_smem(int64_t threads, int64_t lanes, int64_t width) {
  return (threads / max_of<int64_t>(lanes, 32) + 1) * lanes * width * 4;
}

}  // namespace minidnn
