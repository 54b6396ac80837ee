// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.nhwc, compiled once per instruction set, for contiguous channels and for a contiguous last
// dimension. Tensors have three spatial dimensions: missing dimensions are added in front, with size 1.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// The items [begin, end) of a call, which threads share. An item is:
//   contiguous channels, forward: a line of y along its last dimension, for some channels
//   contiguous channels, backward: `slice` indices of dx along dimension `axis`
//   contiguous last dimension: kPlanes channels of y or dx (of one or several images), for `slice` indices along `axis`
struct PoolingChunk {
  int64_t begin, end;
  int64_t first_channel, channels;
  int64_t axis, slice;  // an item has `slice` indices along dimension `axis`
  bool non_temporal;    // true if dx is written with non-temporal stores
};

struct PoolingNhwcKernels {
  using Run = void (*)(const PoolingProblem&, const PoolingArgs&, const PoolingChunk&, float* scratch);
  struct Typed {
    Run forward, backward;
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(PoolingNhwcKernels, pooling_nhwc_kernels)             // the loops for tensors with contiguous channels
MINIDNN_PER_ISA(PoolingNhwcKernels, pooling_nhwc_transposed_kernels)  // the loops for a contiguous last dimension

namespace cpu::pooling {

constexpr int64_t kMaxWindowsOver = 64;  // the largest number of windows that may contain one element of dx
// the number of channels that are transposed at a time; they fill two vectors or more
constexpr int64_t kPlanes = 32;

// Rounds up the length of a line of floats in scratch memory, so that whole vectors can be read and written.
MINIDNN_HD int64_t padded(int64_t n) { return (n + 31) / 32 * 32; }

// The largest window, in elements, that is pooled in registers. Elements of larger windows are combined in scratch
// memory.
constexpr int kFewTaps = 64;

MINIDNN_HD int64_t taps_of(const PoolingProblem& p) { return p.window[0] * p.window[1] * p.window[2]; }

// Returns the largest number of windows along dimension i that contain one index of x.
MINIDNN_HD int64_t most_windows_over(const PoolingProblem& p, int i) {
  if (p.adaptive) return minidnn::detail::windows_over(p, i, 0).size() + 1;
  return min_of((p.window[i] - 1) * p.spatial.dilation[i] / p.spatial.stride[i] + 1, spatial_size(p.dy, i));
}

// Whether there is only one window, which covers a whole plane of x, and whether the plane is contiguous.
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

// The scratch memory of a thread, in floats. `positions` is the number of positions of dx that are summed there: 0 if
// sums are formed in dx itself.
MINIDNN_HD int64_t forward_scratch(int64_t channels) { return 2 * padded(channels); }
MINIDNN_HD int64_t backward_scratch(const PoolingProblem& p, int64_t positions, int64_t channels) {
  // The maxima of a large window and their indices, for the lanes of all channels; else a list of elements.
  const bool large_max = p.mode == PoolingMode::max && taps_of(p) > kFewTaps;
  return positions * padded(channels) + padded(large_max ? 2 * padded(max_of<int64_t>(channels, 256)) : 4 * taps_of(p));
}
// The scratch memory for kPlanes channels, in floats. One vector after the result may be read.
MINIDNN_HD int64_t transposed_scratch(int64_t result, int64_t x, int64_t dy) {
  return (result + 16 + x + dy) * kPlanes;
}

}  // namespace cpu::pooling
}  // namespace minidnn
