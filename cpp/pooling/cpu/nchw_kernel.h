// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nchw, compiled once per instruction set. They compute some slices of a call (a slice is some
// rows of a channel). All tensors have three spatial dimensions: missing dimensions are added in front, with size 1.
// The first spatial dimension counts planes.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// The slices [begin, end) of a call. A slice is `rows` rows of a plane of dx (H x W of one channel).
struct PoolingNchwChunk {
  int64_t begin, end, rows;
  bool non_temporal;  // whether dx is written with non-temporal stores
};

struct PoolingNchwKernels {
  using Run = void (*)(const PoolingProblem&, const PoolingArgs&, const PoolingNchwChunk&, float* scratch);
  Run f32, bf16, f16;
};

MINIDNN_PER_ISA(PoolingNchwKernels, pooling_nchw_kernels)

namespace cpu::pooling {

// The largest window and the largest stride along a dimension that the engine supports.
constexpr int64_t kMostWindow = 16, kMostStride = 8;

// The layout of the scratch memory for a slice, which is some rows of a channel. Elements of the padded x are stored in
// several planes: one for each pair of the row modulo the vertical stride and the column modulo the horizontal stride.
// In these planes, the offset of a tap (element of a window) relative to its window is the same for all windows. Two
// more planes have one element per window. One holds the index of the window's first maximum, counted within the
// window. The other holds the window's dy. In these two planes, rows and columns of padding, whose dy is zero, precede
// the windows.
struct SliceLayout {
  int64_t pitch;  // the number of elements from one row to the next, in all arrays of the scratch memory
  // In the arrays with one element per window, the number of rows and of columns of padding before the windows.
  int64_t above, left;
  // Elements of x whose rows have the same remainder modulo the vertical stride, and whose columns have the same
  // remainder modulo the horizontal stride, are stored in one array. `x_rows` and `x_plane` are the numbers of rows and
  // of elements of this array.
  int64_t x_rows, x_plane;
  // `windows` is the number of rows of windows. `plane` is the number of elements, padding included, of each of the two
  // arrays that have one element per window.
  int64_t windows, plane;
  MINIDNN_HD SliceLayout(const PoolingProblem& p, int64_t rows) {
    constexpr int64_t kVectors = 32;  // the number of elements after the last row that may be read or written
    const SpatialAttributes& s = p.spatial;
    const int64_t down = s.stride[1], right = s.stride[2], reach = (p.window[1] - 1) * s.dilation[1];
    above = reach / down;
    left = (p.window[2] - 1) * s.dilation[2] / right;
    pitch = max_of(spatial_size(p.dy, 2) + left, ceil_div(s.before[2] + spatial_size(p.x, 2), right));
    windows = min_of((rows - 1 + max_of(reach, down - 1)) / down + 1, spatial_size(p.dy, 1));
    x_rows = windows + above + 1;
    x_plane = x_rows * pitch + kVectors;
    plane = (windows + above + ceil_div(rows, down) + 1) * pitch + left + kVectors;
  }
  MINIDNN_HD int64_t floats(const PoolingProblem& p) const {
    return p.spatial.stride[1] * p.spatial.stride[2] * x_plane + 2 * plane;
  }
};

}  // namespace cpu::pooling
}  // namespace minidnn
