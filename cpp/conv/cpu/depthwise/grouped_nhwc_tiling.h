// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.grouped_nhwc divides its work. A zone is a range of pixels of an image row that use the same window
// elements: with a 3 x 3 window and padding, the first pixel, the middle, and the last pixel. For dw, image rows are
// divided into chunks. The file also defines the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/grouped_nhwc_kernel.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"

namespace minidnn {
namespace cpu::conv {

struct GroupedNhwcTiling {
  // The pixels [begin, end) of an image row use the window elements `taps`.
  struct Zone {
    int64_t begin, end;
    std::vector<int64_t> taps;
  };
  struct Phase : ConvPhase {
    std::vector<Zone> zones;
    // The image rows at which the set of taps (window elements) that fall on data changes.
    std::vector<int64_t> row_boundaries;
    int64_t weights_at = 0;
    // For windows that are computed column by column: the height of a column (else 0), the offset of its first row, and
    // the distance of its elements in `taps`.
    int64_t height = 0, top = 0, next = 0;
    int64_t rows() const { return height ? kGroupedNhwcRows : 1; }
  };

  ConvProblem p;
  ConvGeometry g;
  const GroupedNhwcKernels& kernels = grouped_nhwc_kernels();
  // `in` is the tensor that the convolution reads. `dy` is used only when dw is computed.
  ChannelsLast in, dy;
  ConvTensorView out;
  bool backward, filter, nhwc_output;
  // `size` is the number of channels of a group. `channels` is the number of channels of all groups.
  int64_t size, channels, threads;
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Phase> phases;
  // The number of pixels of the longest result row.
  int64_t longest = 0;
  size_t in_at = 0, dy_at = 0, weights_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // For dw: vectors of channels per work item, image rows of dy per chunk, and number of chunks.
  int64_t vectors_of_item = 1, lines_of_chunk = 0, chunks = 1;

  GroupedNhwcTiling(const ConvProblem&, const Device&);

 private:
  // Returns the range [first, second) of result pixels in dimension j for which this tap (window element) falls on
  // data.
  std::pair<int64_t, int64_t> pixels_inside(const Phase&, const ConvTap&, int j) const;
  // Returns the indices in dimension j at which the set of taps (window elements) that fall on data changes.
  std::vector<int64_t> boundaries(const Phase&, int j) const;
  void find_zones(Phase&) const;
  void find_columns(Phase&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
