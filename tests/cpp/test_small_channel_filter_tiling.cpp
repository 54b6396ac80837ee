// SPDX-License-Identifier: Apache-2.0
// Tests how cpu.conv.small_channel_filter divides its work. Tiles of weights and panels of filters must cover dw. A
// thread's scratch memory must hold the offsets of the lines of dy that it computes together. The arrays in the
// workspace must not overlap.
#include "cpp/conv/cpu/implicit_gemm/small_channel_filter_tiling.h"

#include "tests/cpp/conv_problem.h"

using namespace minidnn;
using cpu::conv::SmallChannelFilterTiling;

static void check(const ConvProblem& p, int64_t weights, bool copies_x, bool copies_dy) {
  constexpr int kThreads = 8;
  const SmallChannelFilterTiling t(p, cpu_with_threads(kThreads));
  expect(t.weights == weights, p, "wrong number of weights of a filter");
  expect(t.x.copied == copies_x, p, "wrong choice of whether x is copied");
  expect(t.dy.copied == copies_dy, p, "wrong choice of whether dy is copied");
  expect(t.tiles * t.kernel.rows >= weights && (t.tiles - 1) * t.kernel.rows < weights, p,
         "the tiles do not cover the weights of a filter, or one is empty");
  expect(t.pitch == t.panels * t.kernel.columns && t.pitch >= t.g.y.channels, p,
         "the panels do not cover the filters of a group");
  expect(t.item_tiles >= 1 && t.item_tiles <= t.tiles, p, "wrong number of tiles of a work item");
  expect(t.slice_lines >= 1 && (t.slice_lines == 1 || t.slice_lines * t.g.y.size[2] <= t.slice_pixels), p,
         "a slice has more pixels than it may have");
  expect(size_t(t.item_tiles * t.slice_lines) * sizeof(GemmSegment) <= t.scratch_bytes, p,
         "the segments of a slice do not fit the scratch");
  expect(t.x_at + t.x.bytes() <= t.dy_at && t.dy_at + t.dy.bytes() <= t.sums_at, p, "the copies of x and dy overlap");
  const size_t sums = size_t(t.g.groups * t.tiles * t.kernel.rows * t.pitch) * sizeof(float);
  expect(t.sums_at + sums <= t.scratch_at, p, "the sums overlap the scratch");
  expect(t.bytes >= t.scratch_at + t.scratch_bytes * kThreads, p, "the scratch of 8 threads is not in the workspace");
}

int main() {
  using enum ConvDirection;
  check(square_conv(backward_filter, 32, 3, 224, 64, 7, 2), 147, true, false);  // x is copied, because it has padding
  check(square_conv(backward_filter, 8, 1, 28, 96, 5, 1), 25, true, false);
  // x is channels last and has no padding, so it is read in place.
  check(square_conv(backward_filter, 8, 4, 28, 96, 1, 1), 4, false, false);
  check(square_conv(backward_filter, 8, 4, 28, 96, 1, 1, Layout::channels_first), 4, true, true);
  // The filters do not fill the last panel (a group of filters).
  check(square_conv(backward_filter, 8, 4, 28, 10, 1, 1), 4, false, true);
  // A line (image row) of dy has more pixels than are computed together.
  check(square_conv(backward_filter, 1, 3, 1000, 64, 3, 1), 27, true, false);
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
