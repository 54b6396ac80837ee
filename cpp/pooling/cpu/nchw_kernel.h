// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nchw over some slices, compiled once per instruction set. All tensors have three spatial
// dimensions; missing dimensions are added in front with size 1. The first spatial dimension counts planes.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// Some of the slices of a call, [begin, end). A slice is `rows` rows of a plane of dx.
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

// The largest supported window and stride of a dimension.
constexpr int64_t kMostWindow = 16, kMostStride = 8;

// The memory layout of a slice. The padded x is split by the remainders of its rows and columns modulo the strides:
// each pair of remainders has its own plane. In such a plane, the offset of a tap (element of a window) is the same for
// all windows. Two more planes have one element per window: the number of its first maximum, and its dy. Rows and
// columns of padding precede the windows; they match no element of x.
struct SliceLayout {
  int64_t pitch;            // elements from one row to the next, in all planes of the layout
  int64_t above, left;      // rows and columns of padding that precede the windows
  int64_t x_rows, x_plane;  // rows and elements of x for one pair of remainders
  int64_t windows, plane;   // rows of windows of the slice; elements of a plane of windows, with padding
  MINIDNN_HD SliceLayout(const PoolingProblem& p, int64_t rows) {
    constexpr int64_t kVectors = 32;  // number of elements after the last row that may be read or written
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
