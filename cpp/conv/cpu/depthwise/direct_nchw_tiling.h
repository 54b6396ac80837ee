// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.direct_nchw divides its work: bands of input lines (image rows), chunks of the images for dw, and the
// layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/direct_nchw_kernel.h"
#include "cpp/conv/cpu/phases.h"

namespace minidnn {
namespace cpu::conv {

struct DirectNchwTiling {
  static constexpr int64_t kFilters = 8;  // largest number of filters (output channels) that are computed together

  // A band is some neighbouring result lines (image rows) of one phase. Its input lines fit a cache. Long lines are
  // divided into chunks. One struct describes all bands of a phase, because they have the same sizes.
  struct Band : ConvPhase {
    std::vector<int64_t> depths;  // distinct offsets of window elements in the first spatial dimension
    // For each value, a copy of the input lines is made. It holds every stride-th pixel, beginning with this pixel.
    std::vector<int64_t> columns;
    // offset of the packed weights of this phase (result pixels that use the same window elements), in floats
    int64_t weights_at = 0;
    // Number of taps (window elements) in each column of taps. `taps` is sorted by column.
    int64_t height = 1;
    // For each input channel, the offset in the band of each column of taps (window elements).
    std::vector<int64_t> at;
    std::vector<int64_t> w;  // For each input channel, the offset in w of each tap (window element).
    // top: smallest offset of a window element in the second spatial dimension. lines: input lines of a band.
    int64_t top = 0, lines = 0;
    int64_t rows = 0, bands = 0;  // rows: result lines per band (neighbouring lines); bands: number of bands
    // line_chunk: pixels per chunk of a result line. line_chunks: number of chunks.
    int64_t line_chunk = 0, line_chunks = 0;
    int64_t pitch = 0, length = 0;  // pitch: floats of a result line. length: floats of a copied input line.
    // Floats from the copied lines of one channel to those of the next channel. The step is one vector more than the
    // lines take.
    int64_t channel = 0;
  };

  ConvProblem p;
  ConvGeometry g;
  const DirectNchwKernels& kernels = direct_nchw_kernels();
  ConvTensorView in, out;  // the tensors that are read and written; when dw is computed, `in` is x and `out` is dy
  bool backward, filter;
  int64_t threads, w_in, w_out;
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Band> phases;
  // For dw. units: number of bands (neighbouring lines) of all images. chunks: number of parts that the bands are
  // divided into. bands_of_chunk: bands per chunk.
  int64_t units = 0, bands_of_chunk = 0, chunks = 1;
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // band_floats: floats of a band's copied input lines. line_floats: floats of a band's lines of the result, or of dy
  // when dw is computed.
  int64_t band_floats = 0, line_floats = 0;

  DirectNchwTiling(const ConvProblem&, const Device&);
  int64_t w_numel() const { return g.groups * in.channels * out.channels * volume(g.window); }

  // Floats from the lines of one filter (of the result or of dy) to those of the next filter: one vector more than the
  // lines take. With a power of two, the same elements of different filters would share few cache sets.
  int64_t filter_floats(const Band& b) const { return b.rows * b.pitch + kernels.lanes; }

 private:
  Band band(ConvPhase&&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
