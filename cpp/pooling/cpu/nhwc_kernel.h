// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nhwc over some items of a call, compiled once per instruction set. All tensors have three
// spatial dimensions; missing dimensions are added in front with size 1. There are loops for contiguous channels and
// loops for a contiguous last dimension.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// Some of the items of a call, [begin, end). What an item is depends on the loop:
// Channels contiguous, forward: the positions of a line of y, [image, p0, p1], of some channels.
// Channels contiguous, backward: a slice of dx, which is `slice` indices along `axis` of an image.
// Last dimension contiguous, forward: a slice of kPlanes planes of y. A plane is one channel of one image.
// Last dimension contiguous, backward: a slice of kPlanes planes of dx.
struct PoolingChunk {
  int64_t begin, end;
  int64_t first_channel, channels;
  int64_t axis, slice;  // a slice has `slice` indices along dimension `axis`
  bool non_temporal;    // whether dx is written with non-temporal stores; only if channels are contiguous
};

struct PoolingNhwcKernels {
  using Run = void (*)(const PoolingProblem&, const PoolingArgs&, const PoolingChunk&, float* scratch);
  struct Typed {
    Run forward, backward;
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(PoolingNhwcKernels, pooling_nhwc_kernels)             // loops for contiguous channels
MINIDNN_PER_ISA(PoolingNhwcKernels, pooling_nhwc_transposed_kernels)  // loops for a contiguous last dimension

namespace cpu::pooling {

constexpr int64_t kMaxWindowsOver = 64;  // the largest number of windows that may contain one element of dx
constexpr int64_t kPlanes = 32;          // planes that are transposed at a time: two vectors or more

// Rounds the length of a line in scratch memory up, so that whole vectors can be read and written.
MINIDNN_HD int64_t padded(int64_t n) { return (n + 31) / 32 * 32; }

// The largest number of windows that contain an index of x along dimension i.
MINIDNN_HD int64_t most_windows_over(const PoolingProblem& p, int i) {
  return min_of((p.window[i] - 1) * p.spatial.dilation[i] / p.spatial.stride[i] + 1, spatial_size(p.dy, i));
}

// Whether there is only one window, which covers the whole plane of x, and the plane is contiguous.
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

// The scratch memory of a call, in floats. `positions` is the number of positions of a slice of dx if it is summed in
// scratch memory, else 0.
MINIDNN_HD int64_t forward_scratch(int64_t channels) { return 2 * padded(channels); }
MINIDNN_HD int64_t backward_scratch(const PoolingProblem& p, int64_t positions, int64_t channels) {
  return positions * padded(channels) + padded(4 * p.window[0] * p.window[1] * p.window[2]);
}
// The scratch memory for a slice of kPlanes planes, in floats: the result, x and, for the gradient, dy. One vector
// after the result may be read.
MINIDNN_HD int64_t transposed_scratch(int64_t result, int64_t x, int64_t dy) {
  return (result + 16 + x + dy) * kPlanes;
}

}  // namespace cpu::pooling
}  // namespace minidnn
