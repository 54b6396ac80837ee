// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.implicit_gemm_filter divides its work: slices of pixels, tiles of filters, and the layout of the
// workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

struct ImplicitGemmFilterTiling {
  // The pixels of dy are split into slices of at most this many pixels. With 16 channels, a slice takes 16 KB.
  static constexpr int64_t kSlicePixels = 256;

  // The pixels from `begin` to `end` of one line (image row) of y.
  struct Span {
    int64_t image, line[2], begin, end;
  };

  ConvProblem p;
  bool swap;  // true if x and y are exchanged (see swaps()), else false
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  ChannelsLast x;
  int64_t threads, taps;
  int64_t panels, tiles;  // Per group: number of panels of input channels, and number of tiles of filters.
  int64_t item_tiles;     // largest number of tiles (of filters) that a work item computes
  // Whether the pixels of each channel of dy are contiguous floats. dy is then read in place, else packed.
  bool unit_stride_pixels;
  bool direct_store;  // whether the kernel writes its sums directly to dw, and not to the workspace
  // Whether pixels are a multiple of 2 or 4 KB apart in x, so that they would share few cache sets. If so, each panel
  // (some channels of these pixels) is copied to contiguous memory first.
  bool cache_set_conflict;
  std::vector<Span> spans;
  // For each slice (some pixels of dy), the index of its first entry in `spans`. The last entry is the number of spans.
  std::vector<size_t> slices;
  size_t x_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  ImplicitGemmFilterTiling(const ConvProblem&, const Device&);
  // number of sums that are stored per filter, with padding
  int64_t line() const { return taps * panels * kernel.columns; }
  // Whether x and y of a pointwise convolution are exchanged. One of the two must be copied: y is packed, or x is
  // copied to channels-last if y is channels-first and read in place. The exchange is made if the copied tensor then
  // has fewer channels.
  static bool swaps(const ConvProblem&, const ConvGeometry&);

 private:
  // Returns how many tiles a work item gets. It is the number with which the slowest thread takes the least time.
  // Packing takes each item about a third of the time of a tile.
  int64_t tiles_of_item() const;
  void make_slices();
};

}  // namespace cpu::conv
}  // namespace minidnn
