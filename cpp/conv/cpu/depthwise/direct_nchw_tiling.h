// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.direct_nchw divides its work into bands of neighbouring image rows, and the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/depthwise/direct_nchw_kernel.h"
#include "cpp/conv/cpu/phases.h"

namespace minidnn {
namespace cpu::conv {

struct DirectNchwTiling {
  // The largest number of filters (output channels) that are computed together.
  static constexpr int64_t kFilters = 8;

  // A band is a number of neighbouring result lines (image rows). The input lines of a band fit a cache. Long lines are
  // divided into chunks. A phase is a set of result pixels that use the same window elements. All bands of a phase have
  // the same sizes, so one struct describes them.
  struct Band : ConvPhase {
    // The offsets of the window elements in the first spatial dimension, each listed once.
    std::vector<int64_t> depths;
    // Several copies may be made of each input line (image row). A copy holds every stride-th pixel. `columns` has one
    // element per copy: the input pixel with which the copy begins.
    std::vector<int64_t> columns;
    // The offset of the packed weights of this phase, in floats. A phase is a set of result pixels that use the same
    // window elements.
    int64_t weights_at = 0;
    // The number of taps (window elements) in each window column. `taps` is sorted by column.
    int64_t height = 1;
    // For each input channel, the offset of each window column (vertically adjacent window elements) in the copied
    // input lines (image rows).
    std::vector<int64_t> at;
    // For each input channel, the offset in w of each tap (window element).
    std::vector<int64_t> w;
    // `top` is the smallest offset of a window element in the second spatial dimension. `lines` is the number of input
    // lines (image rows) that a band of result lines reads.
    int64_t top = 0, lines = 0;
    // A band is a group of adjacent result lines (image rows). `rows` is the number of lines in a band. `bands` is the
    // number of bands.
    int64_t rows = 0, bands = 0;
    // `line_chunk` is the number of pixels in a chunk of a result line (image row). `line_chunks` is the number of
    // chunks of a line.
    int64_t line_chunk = 0, line_chunks = 0;
    // `pitch` is the number of floats of a result line (image row), including padding. `length` is the number of floats
    // of a copied input line.
    int64_t pitch = 0, length = 0;
    // The distance in floats between the copied lines (image rows) of two consecutive channels: the size of the lines
    // of one channel, plus one vector.
    int64_t channel = 0;
  };

  ConvProblem p;
  ConvGeometry g;
  const DirectNchwKernels& kernels = direct_nchw_kernels();
  // `in` describes the tensor that is read, and `out` the tensor that is written. When dw is computed, `in` describes
  // x, and `out` describes dy.
  ConvTensorView in, out;
  bool backward, filter;
  int64_t threads, w_in, w_out;
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];
  std::vector<Band> phases;
  // For dw. A unit is one band (neighbouring image rows of dy), or a range of pixels of a band if its rows are long. A
  // work item processes a group of units. `units` is the number of units of all images, `bands_of_chunk` is the number
  // of units in a group, and `chunks` is the number of groups.
  int64_t units = 0, bands_of_chunk = 0, chunks = 1;
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // A band is a group of adjacent result lines (image rows). `band_floats` is the number of floats of the input lines
  // that are copied for a band. `line_floats` is the number of floats of the band's own lines, which are lines of dy
  // when dw is computed.
  int64_t band_floats = 0, line_floats = 0;

  DirectNchwTiling(const ConvProblem&, const Device&);
  int64_t w_numel() const { return g.groups * in.channels * out.channels * volume(g.window); }

  // Returns the distance in floats between the lines (image rows) of two consecutive filters, of the result or of dy:
  // the size of the lines of one filter, plus one vector. If the distance were a power of two, the same elements of
  // different filters would share few cache sets.
  int64_t filter_floats(const Band& b) const { return b.rows * b.pitch + kernels.lanes; }

 private:
  Band band(ConvPhase&&) const;
};

}  // namespace cpu::conv
}  // namespace minidnn
