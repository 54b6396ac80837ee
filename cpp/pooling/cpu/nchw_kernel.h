// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nchw over a part of a problem, compiled once per instruction set. Problems have three
// spatial dimensions; missing ones are added in front with size 1. The first spatial dimension counts as a further
// dimension of planes.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// An item is a slice of `rows` rows of a plane of dx.
struct PoolingNchwChunk {
  int64_t begin, end, rows;
  bool non_temporal;  // dx is written past the caches
};

struct PoolingNchwKernels {
  using Run = void (*)(const PoolingProblem&, const PoolingArgs&, const PoolingNchwChunk&, float* scratch);
  Run f32, bf16, f16;
};

MINIDNN_PER_ISA(PoolingNchwKernels, pooling_nchw_kernels)

namespace cpu::pooling {

constexpr int64_t kMostWindow = 16, kMostStride = 8;  // along a dimension

// Layout of a slice in memory. x: one plane for each pair of remainders of the rows and columns of the padded x modulo
// the strides. In it a tap has the same offset for all windows, and rows need not begin at a multiple of a vector.
// Windows: their first maxima and their dy, preceded by rows and columns of padding that match no element.
struct SliceLayout {
  int64_t pitch;            // elements from one row to the next, in all of these planes
  int64_t above, left;      // padding of the windows, in front
  int64_t x_rows, x_plane;  // per pair of remainders
  int64_t windows, plane;   // rows of windows of the slice; elements of their plane, with padding
  MINIDNN_HD SliceLayout(const PoolingProblem& p, int64_t rows) {
    constexpr int64_t kVectors = 32;  // elements that may be read or written beyond the last row
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
