// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.implicit_gemm divides its work, and the layout of the workspace. A phase is the set of result pixels
// that use the same window elements: in backward_data with stride 2, for example, the pixels with even indices. A panel
// is as many output channels as a tile of the micro-kernel has columns, such as 32. A block is a work item: some result
// pixels and some panels.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

// The largest number of tiles in a work item. Their input stays in the first two cache levels while the kernel loops
// over the weights.
constexpr int64_t kBlockTiles = 16;

struct ImplicitGemmTiling {
  struct Phase : ConvPhase {
    int64_t weights_at = 0;
    // For each window element (or row of window elements), the byte offset of its input from pixel t * in_step.
    std::vector<int64_t> segments;
    // In each dimension, the smallest and the largest offset of a window element, in input pixels.
    int64_t low[kMaxSpatial]{}, high[kMaxSpatial]{};
  };

  // A work item: `rows` result pixels of each of `phases` phases, times `panels` groups of output channels.
  struct Block {
    int64_t phase, phases, group, row, rows, panel, panels;
  };

  ConvProblem p;
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  bool backward;
  // The number of window elements that the micro-kernel reads as contiguous memory: 1, or a whole row of the window.
  int64_t threads, merged = 1;

  // True if the operands are multiplied as pairs of bfloat16 along the input channels (GemmKernels::pairs). The input is
  // then bfloat16 in memory, and else float32.
  bool pairs;
  // Not null if pairs are multiplied by AMX. A work item then copies those rows of its product that a tile register
  // cannot load in place. A row has, for each window element, the input channels of a pixel, with zeros up to a multiple
  // of kBf16Steps. Copied rows are `pixel_pitch` elements apart.
  const Bf16Kernels* amx;
  int64_t pixel_pitch = 0;
  // The input of the convolution, or the channels-last copy of it.
  ChannelsLast input;
  ConvTensorView in, out;
  bool nhwc_output = false;  // true if the result is channels-last
  // True if each work item transposes its input pixels to [pixel, channel].
  bool transposes_pixels = false;
  // Per group of the convolution: input channels, output channels, and panels of output channels.
  int64_t channels, columns, panels;
  // The number of elements that the micro-kernel reads of a pixel: input channels, or pairs of them and of zeros.
  int64_t units;
  // The distance between consecutive pixels of a phase: in the result, and in the input.
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];

  // The strides of w along the input channels (w_in) and along the output channels (w_out).
  int64_t w_in, w_out;
  // True if the window elements of a filter are contiguous in memory. They begin at the offset `lowest_tap`.
  bool dense_taps = false;
  // The offset in w of the window element that has the lowest address.
  int64_t lowest_tap = 0;
  // True if each work item packs the weights that it reads, false if all weights are packed in advance.
  bool packs_panels = false;

  std::vector<Phase> phases;
  // The largest number of result pixels in a work item.
  int64_t block_rows;
  std::vector<Block> blocks;

  size_t weights_at = 0, copy_at = 0, zeros_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // Byte offsets in the scratch memory of a thread, which begins with the offsets of the tiles' inputs.
  size_t sums_at = 0, transposed_at = 0, pixels_at = 0, amx_rows_at = 0, panel_at = 0;

  ImplicitGemmTiling(const ConvProblem&, const Device&);
  int64_t input_size() const { return pairs ? 2 : 4; }  // bytes of an element of the input
  // Returns true if work items transpose their input pixels to [pixel, channel]: for a pointwise convolution of stride
  // 1 with a dense, float32, channels-first input.
  static bool transposes(const ConvProblem&, const ConvGeometry&);
  static bool has_pairs(const ConvProblem&, const ConvGeometry&);
  // Returns true if the micro-kernel reads a whole window row as contiguous memory: for a forward convolution with few
  // input channels, such as the first layer of a network. The input is then copied with its padding.
  static bool merges(const ConvGeometry&);

 private:
  static ChannelsLast input_of(const ConvProblem&, const ConvGeometry&);
  void find_taps();
  void find_segments(Phase&) const;
  void make_blocks();
  void lay_out_workspace();
  // Returns the number of packed floats or pairs of weights of one group of output channels.
  int64_t floats_of_panel() const;
};

}  // namespace cpu::conv
}  // namespace minidnn
