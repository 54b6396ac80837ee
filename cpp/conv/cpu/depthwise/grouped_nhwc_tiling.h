// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.conv.grouped_nhwc: zones of pixels with the same taps, chunks of a filter gradient, and the layout
// of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/grouped_nhwc_kernel.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"

namespace minidnn {
namespace cpu::conv {

struct GroupedNhwcTiling {
  // Pixels of a line, from `begin` to `end`, that use the same taps: for each of these pixels, exactly these taps fall
  // on data in the last dimension.
  struct Zone {
    int64_t begin, end;
    std::vector<int64_t> taps;
  };
  struct Phase : ConvPhase {
    std::vector<Zone> zones;
    std::vector<int64_t> row_boundaries;  // indices of lines: all lines between two of them use the same taps
    int64_t weights_at = 0;
    // If the taps form columns of `height` taps on consecutive lines: `top` is the shift of the first tap of a column,
    // and the weights of two consecutive taps of a column are `next` taps apart. Otherwise, `height` is 0.
    int64_t height = 0, top = 0, next = 0;
    int64_t rows() const { return height ? kGroupedNhwcRows : 1; }  // result lines computed at a time
  };

  ConvProblem p;
  ConvGeometry g;
  const GroupedNhwcKernels& kernels = grouped_nhwc_kernels();
  ChannelsLast in, dy;  // dy is only used for a filter gradient
  ConvTensorView out;
  bool backward, filter, nhwc_output;
  int64_t size, channels, threads;  // channels of a group; channels in total
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Phase> phases;
  int64_t longest = 0;  // the longest line of a result
  size_t in_at = 0, dy_at = 0, weights_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // For a filter gradient: vectors of a work item, lines of a chunk, number of chunks.
  int64_t vectors_of_item = 1, lines_of_chunk = 0, chunks = 1;

  GroupedNhwcTiling(const ConvProblem&, const Device&);

 private:
  // The range of pixels in dimension j for which a tap falls on data.
  std::pair<int64_t, int64_t> pixels_inside(const Phase&, const ConvTap&, int j) const;
  // Indices in dimension j: all pixels between two of these use the same taps.
  std::vector<int64_t> boundaries(const Phase&, int j) const;
  void find_zones(Phase&) const;
  void find_columns(Phase&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
