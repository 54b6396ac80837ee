// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.conv.implicit_gemm_filter: slices of pixels, tiles of filters, and the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

struct ImplicitGemmFilterTiling {
  static constexpr int64_t kSlicePixels = 256;  // the most pixels of a slice: for 16 channels, these take 16 KB

  // A span of pixels in one line of y.
  struct Span {
    int64_t image, line[2], begin, end;
  };

  ConvProblem p;
  bool swap;  // true: x and y are exchanged
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  ChannelsLast x;
  int64_t threads, taps;
  int64_t panels, tiles;    // of a group: panels of input channels, tiles of filters
  int64_t item_tiles;       // tiles of a work item
  bool unit_stride_pixels;  // the pixels of a filter are contiguous in dy, which is then read in place
  bool direct_store;        // sums are written to dw directly
  // The pixels of a panel would map to few cache sets, because their distance is a multiple of 2 or 4 KB. So each panel
  // is copied first.
  bool cache_set_conflict;
  std::vector<Span> spans;
  std::vector<size_t> slices;  // the index in `spans` at which each slice begins; the last entry is the number of spans
  size_t x_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  ImplicitGemmFilterTiling(const ConvProblem&, const Device&);
  int64_t line() const { return taps * panels * kernel.columns; }  // number of sums of one filter
  // Whether x and y of a pointwise convolution are exchanged. This is done if it makes the operand with fewer channels
  // the one that is copied: y is packed, or, if planes of y are read in place, x is copied channels-last.
  static bool swaps(const ConvProblem&, const ConvGeometry&);

 private:
  // The number of tiles of an item with which the slowest thread is done first. Packing takes each item about a third
  // of the time of a tile.
  int64_t tiles_of_item() const;
  void make_slices();
};

}  // namespace cpu::conv
}  // namespace minidnn
