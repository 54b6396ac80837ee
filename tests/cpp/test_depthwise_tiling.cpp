// SPDX-License-Identifier: Apache-2.0
// Tests how cuda.conv.depthwise, cuda.conv.grouped and cuda.conv.direct_nchw divide layers of MobileNet and ResNeXt
// into tiles. The tiles are computed for an H100; no GPU is needed.
#include <iostream>

#include "cuda/conv/depthwise/nchw/nchw.h"
#include "cuda/conv/depthwise/nhwc/nhwc.h"
#include "tests/cpp/h100.h"

using namespace minidnn;
using namespace minidnn::cuda::conv;

static int failures = 0;

static void expect(bool right, const ConvProblem& p, const char* what) {
  if (right) return;
  ++failures;
  std::cout << Family<ConvProblem>::text(p) << ": " << what << std::endl;
}

static ConvProblem conv(ConvDirection direction, int64_t c, int64_t groups, int64_t h, int64_t r, int64_t stride,
                        Layout layout) {
  ConvProblem p;
  p.direction = direction;
  const int64_t out = (h + r / 2 * 2 - r) / stride + 1;
  p.x = dense(DType::float32, Shape{64, c, h, h}, layout, "test");
  p.w = dense(DType::float32, Shape{c, c / groups, r, r}, Layout::channels_first, "test");
  p.y = dense(DType::float32, Shape{64, c, out, out}, layout, "test");
  p.groups = groups;
  for (int j = 0; j < 2; ++j) {
    p.spatial.stride[j] = stride;
    p.spatial.before[j] = p.spatial.after[j] = r / 2;
  }
  return p;
}

static void check_common(const ConvProblem& p, const GroupConvTiling& t) {
  expect(t.why_not.empty(), p, t.why_not.c_str());
  expect(t.threads > 0 && t.threads % 32 == 0 && t.threads <= 1024, p, "not a number of whole warps");
  expect(t.smem_bytes >= 0 && t.smem_bytes <= h100().max_smem_bytes, p, "too much shared memory");
  expect(t.tiles.splits >= 1 && t.tiles.splits <= t.tiles.count, p, "more blocks than tiles");
  expect(int64_t(t.tiles.splits) <= t.most_splits, p, "more blocks than partial sums");
  expect(t.instructions > 0 && issue_us(t, h100()) > 0, p, "no time");
}

// Checks that each output element belongs to one tile, and that each tile reads all elements that its windows contain.
static void check_tiles(const ConvProblem& p, const GroupConvTiling& t) {
  check_common(p, t);
  for (const GroupConvDim* d : {&t.p.height, &t.p.width}) {
    expect(int64_t(d->tiles()) * d->tile * d->spread >= d->out, p, "the tiles do not cover the outputs");
    expect(d->in_tile() == (d->tile - 1) * d->hop + d->taps, p, "a tile does not read its windows");
  }
  expect(t.tiles.count == 64u * uint32_t(t.p.height.tiles()) * uint32_t(t.p.width.tiles()), p, "wrong number of tiles");
}

int main() {
  using enum ConvDirection;
  for (ConvDirection direction : {forward, backward_data, backward_filter})
    for (int64_t stride : {1, 2})
      for (auto [channels, size] : {std::pair(32, 112), std::pair(144, 56), std::pair(960, 7)}) {
        const ConvProblem p = conv(direction, channels, channels, size, 3, stride, Layout::channels_first);
        const NchwTiling nchw = nchw_tiling(p, 1, h100());
        check_tiles(p, nchw);
        expect(nchw.window.columns == 3, p, "wrong specialised window of nchw.cu");
        const ConvProblem q = conv(direction, channels, channels, size, 3, stride, Layout::channels_last);
        check_tiles(q, nhwc_tiling(q, false, h100()));
        const bool rows = direction != backward_filter && stride == 1;
        const auto nhwc_3x3 = nhwc_3x3_tiling(q, false, h100());
        expect(nhwc_3x3.has_value() == rows, q, "wrong choice of nhwc_3x3.cu");
        if (nhwc_3x3) check_common(q, *nhwc_3x3);
      }
  // The kernel nchw_3x3.cu keeps planes (the pixels of one channel) in registers, so it accepts only small problems.
  const ConvProblem large = conv(forward, 144, 144, 56, 3, 1, Layout::channels_first);
  expect(!nchw_3x3_tiling(large, h100()), large, "nchw_3x3.cu takes a problem that exceeds the registers");
  ConvProblem small = conv(forward, 1, 1, 224, 3, 1, Layout::channels_first);
  small.x.shape[0] = small.y.shape[0] = 1;
  expect(nchw_3x3_tiling(small, h100()).has_value(), small, "nchw_3x3.cu does not take one plane");
  // This layer of ResNeXt has 32 groups of 4 channels.
  for (ConvDirection direction : {forward, backward_data, backward_filter}) {
    const ConvProblem p = conv(direction, 128, 32, 56, 3, 1, Layout::channels_last);
    check_tiles(p, nhwc_tiling(p, true, h100()));
    check_tiles(p, nchw_tiling(p, 4, h100()));
  }
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
