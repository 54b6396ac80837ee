// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nhwc over a chunk of a problem, compiled once per instruction set. Problems have three
// spatial dimensions; missing ones are added in front with size 1. For channels, either the channels are contiguous in
// all tensors, or the last dimension is.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// Items:
//   channels forward   a line of y's positions, [image, p0, p1], of some channels
//   channels backward  a slice of dx: [image, `slice` indices along `axis`]
//   planes forward     a slice of y, of kPlanes planes; a plane is one channel of one image
//   planes backward    a slice of dx, of kPlanes planes
struct PoolingChunk {
  int64_t begin, end;
  int64_t first_channel, channels;
  int64_t axis, slice;  // slices of `slice` indices along `axis`
  bool non_temporal;    // dx is written past the caches, where channels are contiguous
};

struct PoolingNhwcKernels {
  using Run = void (*)(const PoolingProblem&, const PoolingArgs&, const PoolingChunk&, float* scratch);
  struct Typed {
    Run forward, backward;
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(PoolingNhwcKernels, pooling_nhwc_kernels)             // channels are contiguous
MINIDNN_PER_ISA(PoolingNhwcKernels, pooling_nhwc_transposed_kernels)  // the last dimension is contiguous

namespace cpu::pooling {

constexpr int64_t kMaxWindowsOver = 64;  // windows that overlap in an element of dx
constexpr int64_t kPlanes = 32;          // two vectors of any instruction set

// The size of a line in `scratch`: whole vectors are read and written.
MINIDNN_HD int64_t padded(int64_t n) { return (n + 31) / 32 * 32; }

// The maximum number of windows over one index of x along dimension i.
MINIDNN_HD int64_t most_windows_over(const PoolingProblem& p, int i) {
  return min_of((p.window[i] - 1) * p.spatial.dilation[i] / p.spatial.stride[i] + 1, spatial_size(p.dy, i));
}

// Whether there is only one window, it covers the whole plane, and the plane is contiguous.
MINIDNN_HD bool is_one_contiguous_window(const PoolingProblem& p) {
  int64_t elements = 1;
  for (int i = kMaxSpatial - 1; i >= 0; --i) {
    const int64_t size = spatial_size(p.x, i);
    if (spatial_size(p.dy, i) != 1 || minidnn::detail::taps_in_x(p, i, 0).size() != size) return false;
    if (size != 1 && (p.x.stride[i + 2] != elements || p.spatial.dilation[i] != 1)) return false;
    elements *= size;
  }
  return true;
}

// Floats of scratch that a call needs. `positions` are those of a slice of dx, if it is summed in scratch, else 0.
MINIDNN_HD int64_t forward_scratch(int64_t channels) { return 2 * padded(channels); }
MINIDNN_HD int64_t backward_scratch(const PoolingProblem& p, int64_t positions, int64_t channels) {
  return positions * padded(channels) + padded(4 * p.window[0] * p.window[1] * p.window[2]);
}
// Floats for kPlanes planes of a slice: its result, x, and backward dy. One vector beyond the result is read.
MINIDNN_HD int64_t transposed_scratch(int64_t result, int64_t x, int64_t dy) {
  return (result + 16 + x + dy) * kPlanes;
}

}  // namespace cpu::pooling
}  // namespace minidnn
