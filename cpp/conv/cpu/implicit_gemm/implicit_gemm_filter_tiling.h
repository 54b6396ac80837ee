// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.implicit_gemm_filter divides its work. A slice is at most 256 pixels of dy, a tile is a few filters
// (rows of the micro-kernel), and a panel is a group of input channels (columns of the micro-kernel). The file also
// defines the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

struct ImplicitGemmFilterTiling {
  // The largest number of pixels in a slice. A slice of 16 channels takes 16 KB.
  static constexpr int64_t kSlicePixels = 256;

  // The pixels from `begin` to `end` of one image row of y.
  struct Span {
    int64_t image, line[2], begin, end;
  };

  ConvProblem p;
  // Not null if operands of bfloat16 are multiplied by AMX. A work item is then some filters, some input channels and
  // some window elements.
  const Bf16Kernels* amx;
  // True if x takes the place of dy in the matrix product, and dy the place of x.
  bool swap;
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  ChannelsLast x;
  int64_t threads, taps;
  // The numbers of panels of input channels and of tiles of filters, in each group of the convolution.
  int64_t panels, tiles;
  // The largest number of tiles of filters in a work item.
  int64_t item_tiles;
  // With AMX, the largest numbers of filters, of input channels and of window elements in a work item, and the number of
  // rows of sums in each group.
  int64_t item_filters = 0, item_channels = 0, item_taps = 0, sum_rows;
  // True if dy is float32 and the pixels of a channel are contiguous. dy is then read in place, without packing.
  bool unit_stride_pixels;
  // True if the kernel writes its sums directly to dw, false if it writes them to the workspace.
  bool direct_store;
  // True if the distance between pixels of x is a multiple of 2 or 4 KB, so that they share few cache sets. x is then
  // copied panel by panel.
  bool cache_set_conflict;
  std::vector<Span> spans;
  // For each slice of pixels, the index of its first element in `spans`.
  std::vector<size_t> slices;
  size_t x_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  ImplicitGemmFilterTiling(const ConvProblem&, const Device&);
  // Returns the number of sums per filter, including padding.
  int64_t line() const { return taps * panels * kernel.columns; }
  // Returns true if x and dy should exchange roles in the product, so that the tensor with fewer channels is copied. It
  // is true only for pointwise convolutions.
  static bool swaps(const ConvProblem&, const ConvGeometry&);

 private:
  // Returns the number of tiles per work item that minimises the time of the slowest thread. Packing dy takes a work
  // item about a third of the time of a tile.
  int64_t tiles_of_item() const;
  void divide_for_amx();
  void make_slices();
};

}  // namespace cpu::conv
}  // namespace minidnn
