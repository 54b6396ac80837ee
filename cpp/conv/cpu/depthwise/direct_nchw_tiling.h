// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.direct_nchw divides its work. A phase is the set of result pixels that use the same window elements: in
// backward_data with stride 2, for example, the pixels with even indices. A band is a group of adjacent image rows,
// such as rows 0 to 6, whose input fits a cache. Long rows are divided into chunks of pixels.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/direct_nchw_kernel.h"
#include "cpp/conv/cpu/phases.h"

namespace minidnn {
namespace cpu::conv {

struct DirectNchwTiling {
  // The largest number of filters (output channels) that are computed together.
  static constexpr int64_t kFilters = 8;

  // The sizes of the bands of one phase. All bands of a phase have the same sizes.
  struct Band : ConvPhase {
    // The different offsets of window elements in the first spatial dimension.
    std::vector<int64_t> depths;
    // With stride 2, for example, an input row may be copied as two rows: its even and its odd pixels. Each entry is
    // the first pixel of one copy.
    std::vector<int64_t> columns;
    int64_t weights_at = 0;
    // The number of taps (window elements) per window column. `taps` is sorted by column.
    int64_t height = 1;
    // For each input channel and window column, the offset in the copied input rows.
    std::vector<int64_t> at;
    // For each input channel, the offset in w of each tap (window element).
    std::vector<int64_t> w;
    // The offset of the topmost window row, and the number of input rows of a band.
    int64_t top = 0, lines = 0;
    // The number of image rows per band, and the number of bands.
    int64_t rows = 0, bands = 0;
    // The number of pixels per chunk of an image row, and the number of chunks per row.
    int64_t line_chunk = 0, line_chunks = 0;
    // The number of floats of a padded result row, and of a copied input row.
    int64_t pitch = 0, length = 0;
    // The distance in floats between the copied rows of consecutive channels. It includes one vector of padding.
    int64_t channel = 0;
  };

  ConvProblem p;
  ConvGeometry g;
  const DirectNchwKernels& kernels = direct_nchw_kernels();
  // `in` is read and `out` is written. For dw, `in` is x and `out` is dy.
  ConvTensorView in, out;
  bool backward, filter;
  int64_t threads, w_in, w_out;
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Band> phases;
  // For dw: the number of bands (or parts of bands with long rows), of bands per chunk, and of chunks. Each chunk has
  // its own partial sums.
  int64_t units = 0, bands_of_chunk = 0, chunks = 1;
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // The number of floats of a band's copied input rows, and of its own rows.
  int64_t band_floats = 0, line_floats = 0;

  DirectNchwTiling(const ConvProblem&, const Device&);
  int64_t w_numel() const { return g.groups * in.channels * out.channels * volume(g.window); }

  // Returns the distance in floats between the rows of consecutive filters. One vector of padding keeps it from being a
  // power of two, for which different filters would share few cache sets.
  int64_t filter_floats(const Band& b) const { return b.rows * b.pitch + kernels.lanes; }

 private:
  Band band(ConvPhase&&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
