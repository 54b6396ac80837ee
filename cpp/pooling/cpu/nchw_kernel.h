// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nchw, compiled once per instruction set. A slice is some adjacent rows of one channel, which
// are computed together. Tensors have three spatial dimensions: missing dimensions are added in front, with size 1.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// The slices [begin, end) of a call, each of `rows` rows of dx.
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

// The layout of the scratch memory. Padded x is split by the remainders of row and column modulo the strides: with
// stride 2, for example, into four arrays. In an array, adjacent windows read adjacent elements. Two more arrays have
// one element per window: the index of its maximum, and its dy. Rows and columns of zeros precede them.
struct SliceLayout {
  int64_t pitch;  // the number of elements from one row to the next, in all arrays
  // The number of rows and columns of zeros before the windows.
  int64_t above, left;
  // The numbers of rows and of elements in each array of x.
  int64_t x_rows, x_plane;
  // The number of rows of windows, and the size of an array with one element per window.
  int64_t windows, plane;
  MINIDNN_HD SliceLayout(const PoolingProblem& p, int64_t rows) {
    constexpr int64_t kVectors = 32;  // vectors may access this number of elements after the last row
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
