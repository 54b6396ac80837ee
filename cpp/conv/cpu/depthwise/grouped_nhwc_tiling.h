// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.grouped_nhwc divides its work: zones of pixels that use the same window elements, chunks of the images
// for dw, and the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/grouped_nhwc_kernel.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"

namespace minidnn {
namespace cpu::conv {

struct GroupedNhwcTiling {
  // A zone: the pixels `begin` to `end` of a result line. In the last spatial dimension, the same taps (window
  // elements) fall on data for all of these pixels. `taps` has their indices.
  struct Zone {
    int64_t begin, end;
    std::vector<int64_t> taps;
  };
  struct Phase : ConvPhase {
    std::vector<Zone> zones;
    // Indices of result lines. All lines between two consecutive boundaries use the same taps (window elements).
    std::vector<int64_t> row_boundaries;
    int64_t weights_at = 0;
    // Whether the taps (window elements) form columns of consecutive lines. If they do, `height` is the number of taps
    // of a column, `top` is the line offset of its first tap, and `next` is the distance of two consecutive taps of a
    // column in `taps`. Otherwise, `height` is 0.
    int64_t height = 0, top = 0, next = 0;
    int64_t rows() const { return height ? kGroupedNhwcRows : 1; }  // number of result lines that are computed together
  };

  ConvProblem p;
  ConvGeometry g;
  const GroupedNhwcKernels& kernels = grouped_nhwc_kernels();
  ChannelsLast in, dy;  // `dy` is used only when dw is computed
  ConvTensorView out;
  bool backward, filter, nhwc_output;
  int64_t size, channels, threads;  // size: channels of a group. channels: channels of all groups.
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Phase> phases;
  int64_t longest = 0;  // number of pixels of the longest line (image row) of the result
  size_t in_at = 0, dy_at = 0, weights_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // For dw: vectors of channels per work item, lines of dy per chunk, and number of chunks.
  int64_t vectors_of_item = 1, lines_of_chunk = 0, chunks = 1;

  GroupedNhwcTiling(const ConvProblem&, const Device&);

 private:
  // The range [first, second) of result pixels in dimension j for which a tap (window element) falls on data.
  std::pair<int64_t, int64_t> pixels_inside(const Phase&, const ConvTap&, int j) const;
  // Indices of result pixels in dimension j. All pixels between two consecutive boundaries use the same taps (window
  // elements).
  std::vector<int64_t> boundaries(const Phase&, int j) const;
  void find_zones(Phase&) const;
  void find_columns(Phase&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
