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
  static constexpr int64_t kSlicePixels = 256;  // a slice of 16 channels: 16 KB

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
  int64_t panels, tiles, item_tiles;  // per group
  bool unit_stride_pixels;            // the pixels of a filter are contiguous in dy, which is then read in place
  bool direct_store;                  // sums are written to dw directly
  bool cache_set_conflict;  // at this pixel step a panel would map to few cache sets: each panel is copied first
  std::vector<Span> spans;
  std::vector<size_t> slices;  // index in `spans` at which each slice begins, and the end
  size_t x_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  ImplicitGemmFilterTiling(const ConvProblem&, const Device&);
  int64_t line() const { return taps * panels * kernel.columns; }  // sums of one filter
  // For the filter gradient of a pointwise convolution, x and y may be exchanged. The side with fewer channels should
  // be the one that is copied: packed, or made channels-last if planes are read in place.
  static bool swaps(const ConvProblem&, const ConvGeometry&);

 private:
  // Tiles per item for which the last thread ends first. Packing costs each item about a third of a tile.
  int64_t even_share() const;
  void make_slices();
};

}  // namespace cpu::conv
}  // namespace minidnn
