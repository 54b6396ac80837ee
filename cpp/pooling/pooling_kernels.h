// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.lines over a part of a problem, once per instruction set. Problems come with three spatial
// dimensions, those that are missing in front, and their lines contiguous: along the channels, or the last dimension.
#pragma once
#include "cpp/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// Items, and channels where they are lines' elements. An item is
//   channels forward   a line of y's positions, [image, p0, p1]
//   channels backward  `step` indices of dx along `axis`, and all of the other axes: [image, indices / step]
//   rows forward       a line of y, [image, channel, p0, p1]
//   rows backward      a plane, [image, channel]
struct PoolingShare {
  int64_t begin, end;
  int64_t first_channel, channels;
  int64_t axis, step;
  bool stream;  // results go past the caches
};

struct PoolingKernels {
  using Run = void (*)(const PoolingProblem&, const PoolingArgs&, const PoolingShare&, float* room);
  struct Typed {
    Run channels_forward, channels_backward, rows_forward, rows_backward;
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(PoolingKernels, pooling_kernels)

namespace pooling {

constexpr int64_t kMaxWindowsOver = 64;  // of windows that overlap in an element of dx

// A line in `room`: vectors are read and written whole, past its end, whatever the instruction set.
MINIDNN_HD int64_t padded(int64_t n) { return (n + 63) / 32 * 32; }

// The last dimension by the stride of windows: element i is element i / stride of phase i % stride. Forward, element 0 is
// the first that a window touches, padding included; backward, that of x.
MINIDNN_HD int64_t line_span(const PoolingProblem& p) {
  return (spatial_size(p.dy, 2) - 1) * p.spatial.stride[2] + (p.window[2] - 1) * p.spatial.dilation[2] + 1;
}
MINIDNN_HD int64_t phase_pitch(const PoolingProblem& p, int64_t elements) {
  return padded(ceil_div(elements, p.spatial.stride[2]));
}
// Backward, a line of averages has zeros for the windows before the first and behind the last that its elements ask for.
MINIDNN_HD int64_t zeros_before(const PoolingProblem& p) {
  return max_of<int64_t>(ceil_div((p.window[2] - 1) * p.spatial.dilation[2] - p.spatial.before[2], p.spatial.stride[2]),
                         0);
}
MINIDNN_HD int64_t shares_pitch(const PoolingProblem& p) {
  int64_t asked = ceil_div(spatial_size(p.x, 2) + p.spatial.before[2], p.spatial.stride[2]) + 1;
  return padded(zeros_before(p) + max_of(asked, spatial_size(p.dy, 2)));
}

// Whether the only window sees all of a plane, and that is one run of elements.
MINIDNN_HD bool sees_all_as_a_run(const PoolingProblem& p) {
  int64_t run = 1;
  for (int i = kMaxSpatial - 1; i >= 0; --i) {
    const int64_t size = spatial_size(p.x, i);
    if (spatial_size(p.dy, i) != 1 || detail::taps_in_x(p, i, 0).size() != size) return false;
    if (size != 1 && (p.x.stride[i + 2] != run || p.spatial.dilation[i] != 1)) return false;
    run *= size;
  }
  return true;
}

// Windows over one index of x along dimension i, at most.
MINIDNN_HD int64_t most_windows_over(const PoolingProblem& p, int i) {
  return min_of((p.window[i] - 1) * p.spatial.dilation[i] / p.spatial.stride[i] + 1, spatial_size(p.dy, i));
}
// Backward along rows: whether elements of dx ask windows for what they found, or windows tell them.
MINIDNN_HD bool gathers(const PoolingProblem& p) {
  constexpr int64_t kFewTaps = 32;
  return p.window[0] * p.window[1] * p.window[2] <= kFewTaps;
}

// Floats of room that a call needs.
MINIDNN_HD int64_t channels_forward_room(int64_t channels) { return 2 * padded(channels); }
// `positions` of windows, and `indices` of dx along the last axis, are those of an item.
MINIDNN_HD int64_t channels_backward_room(const PoolingProblem& p, int64_t positions, int64_t indices) {
  const int64_t taps = p.window[0] * p.window[1] * p.window[2];
  return positions * padded(p.x.shape[1]) + padded(3 * taps + indices * (most_windows_over(p, 2) + 1) * 2);
}
// What is the same for all rows comes first.
MINIDNN_HD int64_t rows_tables(const PoolingProblem& p) {
  return 3 * padded(p.window[2]) + padded(p.spatial.stride[2]) + padded(spatial_size(p.dy, 2));
}
MINIDNN_HD int64_t padded_line(const PoolingProblem& p) {
  return padded(line_span(p)) + p.spatial.stride[2] * phase_pitch(p, line_span(p));
}
MINIDNN_HD int64_t rows_forward_room(const PoolingProblem& p) {
  return rows_tables(p) + padded_line(p) + padded(spatial_size(p.dy, 2));
}
MINIDNN_HD int64_t rows_backward_room(const PoolingProblem& p) {
  const int64_t W = spatial_size(p.x, 2), rows = spatial_size(p.x, 0) * spatial_size(p.x, 1);
  const int64_t windows = spatial_size(p.dy, 0) * spatial_size(p.dy, 1), Q = spatial_size(p.dy, 2);
  const int64_t line = p.spatial.stride[2] * phase_pitch(p, W) + padded(W), tables = rows_tables(p);
  if (p.mode != PoolingMode::max) return tables + (windows + 1) * shares_pitch(p) + line;
  const int64_t find = padded_line(p) + 2 * rows * padded(Q);
  if (gathers(p)) return tables + 2 * windows * shares_pitch(p) + line + find;
  return tables + padded(rows * W) + (1 + windows) * padded(Q) + find;
}

}  // namespace pooling
}  // namespace minidnn
