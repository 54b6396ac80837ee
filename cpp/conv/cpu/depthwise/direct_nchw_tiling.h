// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.conv.direct_nchw: bands of input lines, chunks of a filter gradient, and the layout of the
// workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/direct_nchw_kernel.h"
#include "cpp/conv/cpu/phases.h"

namespace minidnn {
namespace cpu::conv {

struct DirectNchwTiling {
  static constexpr int64_t kFilters = 8;  // the most filters that are computed at a time

  // A band: neighbouring lines of the result, in one phase, whose input lines fit a cache. Long lines are divided into
  // chunks. All bands of a phase have the same sizes, which are these.
  struct Band : ConvPhase {
    std::vector<int64_t> depths;   // distinct shifts in the first dimension
    std::vector<int64_t> columns;  // first pixels: from each of them, every stride-th pixel of a line is copied
    int64_t weights_at = 0;        // offset of the phase's packed weights, in floats
    int64_t height = 1;            // number of taps of each column of taps; `taps` is sorted by column
    std::vector<int64_t> at;       // offset in the band of each column of taps, for all channels
    std::vector<int64_t> w;        // offset of the weight of each tap, for all channels
    int64_t top = 0, lines = 0;    // smallest shift in the second dimension; input lines of a band
    int64_t rows = 0, bands = 0;   // result lines per band; number of bands
    int64_t line_chunk = 0, line_chunks = 0;  // pixels per chunk of a line; number of chunks
    int64_t pitch = 0, length = 0;            // floats of a result line; floats of an input line of the band
    int64_t channel = 0;  // step from one channel's lines to the next channel's: one vector more than the lines take
  };

  ConvProblem p;
  ConvGeometry g;
  const DirectNchwKernels& kernels = direct_nchw_kernels();
  ConvTensorView in, out;  // for a filter gradient, `out` is dy
  bool backward, filter;
  int64_t threads, w_in, w_out;
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Band> phases;
  // For a filter gradient: bands of all images, bands of a chunk, number of chunks.
  int64_t units = 0, bands_of_chunk = 0, chunks = 1;
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;
  int64_t band_floats = 0, line_floats = 0;  // floats of a band, and of its lines of the result or of dy

  DirectNchwTiling(const ConvProblem&, const Device&);
  int64_t w_numel() const { return g.groups * in.channels * out.channels * volume(g.window); }

  // Floats from one filter's lines (of the result or of dy) to the next filter's: one vector more than the lines take.
  // At a power-of-two distance, elements of different filters would map to few cache sets.
  int64_t filter_floats(const Band& b) const { return b.rows * b.pitch + kernels.lanes; }

 private:
  Band band(ConvPhase&&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
