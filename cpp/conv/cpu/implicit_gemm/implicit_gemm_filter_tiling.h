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
  // The largest number of pixels in a slice. The pixels of dy are divided into slices. The data of a slice for 16
  // channels takes 16 KB.
  static constexpr int64_t kSlicePixels = 256;

  // The pixels from `begin` to `end` of one image row of y.
  struct Span {
    int64_t image, line[2], begin, end;
  };

  ConvProblem p;
  // True if x takes the place of dy in the matrix product, and dy the place of x.
  bool swap;
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  ChannelsLast x;
  int64_t threads, taps;
  // A panel is some input channels, and a tile is some filters. These are the numbers of panels and of tiles in each
  // group of the convolution.
  int64_t panels, tiles;
  // The largest number of tiles (groups of filters) that a work item computes.
  int64_t item_tiles;
  // True if dy is float32 and the pixels of each channel are contiguous. dy is then read in place. If false, dy is
  // packed.
  bool unit_stride_pixels;
  // True if the kernel writes its sums directly to dw, false if it writes them to the workspace.
  bool direct_store;
  // True if the distance of neighbouring pixels in x is a multiple of 2 or 4 KB, so that the pixels share few cache
  // sets. If true, each panel (some channels of the pixels) is copied to contiguous memory before it is used.
  bool cache_set_conflict;
  std::vector<Span> spans;
  // For each slice (some pixels of dy), the index in `spans` of its first Span. The last element of `slices` is the
  // number of spans.
  std::vector<size_t> slices;
  size_t x_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  ImplicitGemmFilterTiling(const ConvProblem&, const Device&);
  // Returns the number of sums that are stored per filter, including padding.
  int64_t line() const { return taps * panels * kernel.columns; }
  // Returns true if x and dy should exchange their roles in the matrix product of a pointwise convolution. The product
  // copies one of the two tensors. Usually this is dy, which is packed. If both are float32 and channels-first, it is
  // x, which is copied to channels-last. With exchanged roles, the product copies the other tensor. This is faster if
  // the other tensor has fewer channels.
  static bool swaps(const ConvProblem&, const ConvGeometry&);

 private:
  // A tile is some filters. Returns the number of tiles in a work item for which the slowest thread takes the least
  // time. Each work item also packs dy, which takes about a third of the time of a tile.
  int64_t tiles_of_item() const;
  void make_slices();
};

}  // namespace cpu::conv
}  // namespace minidnn
