// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.implicit_gemm divides its work: phases (of a strided backward_data), blocks of pixels and output
// channels, and the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

// Largest number of tiles of a block. Their input stays in the first two cache levels while the kernel loops over the
// weights.
constexpr int64_t kBlockTiles = 16;

struct ImplicitGemmTiling {
  struct Phase : ConvPhase {
    // offset of the packed weights of this phase (result pixels that use the same window elements), in floats
    int64_t weights_at = 0;
    // For each segment of k (the input channels at a window element): byte offset of its input from that of the pixel.
    std::vector<int64_t> segments;
    // In each dimension, the smallest and the largest offset of a window element from its pixel, in input pixels.
    int64_t low[kMaxSpatial]{}, high[kMaxSpatial]{};
  };

  // A work item: `rows` result pixels of each of `phases` phases, times `panels` panels of output channels.
  struct Block {
    int64_t phase, phases, group, row, rows, panel, panels;
  };

  ConvProblem p;
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  bool backward;
  int64_t threads, merged = 1;  // merged: number of window elements that form one segment of k

  ChannelsLast input;        // the input, or the float32 channels-last copy of it
  ConvTensorView in, out;    // in: sizes and strides of the input, or of its copy. out: those of the result.
  bool nhwc_output = false;  // whether the result is channels-last
  // whether each block copies its input pixels to [pixel, channel] in the scratch memory of its thread
  bool transposes_pixels = false;
  // Per group: number of input channels, of output channels, and of panels (some output channels).
  int64_t channels, columns, panels;
  // Step from one pixel of a phase to the next, in pixels of the result (step) and of the input (in_step).
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];

  int64_t w_in, w_out;  // strides of w along the input channels (w_in) and the output channels (w_out)
  // whether the window elements of a filter are contiguous in memory, beginning at lowest_tap
  bool dense_taps = false;
  int64_t lowest_tap = 0;  // offset of the window element with the lowest address
  // whether each block packs the weights that it reads, instead of packing all weights in advance
  bool packs_panels = false;

  std::vector<Phase> phases;
  int64_t block_rows;  // largest number of rows (result pixels) of a block
  std::vector<Block> blocks;

  size_t weights_at = 0, copy_at = 0, zeros_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // Byte offsets in the scratch memory of a thread. The GEMM segments (where tiles read) are at offset 0.
  size_t sums_at = 0, transposed_at = 0, pixels_at = 0, panel_at = 0;

  ImplicitGemmTiling(const ConvProblem&, const Device&);
  // Whether each block transposes its input pixels to [pixel, channel]. True for a pointwise convolution of stride 1
  // whose input is dense, float32 and channels-first.
  static bool transposes(const ConvProblem&, const ConvGeometry&);
  // Whether all window elements of a window line form one segment of k. True for a forward convolution with few input
  // channels, such as the first layer of a network. The input is then copied with its padding.
  static bool merges(const ConvGeometry&);

 private:
  static ChannelsLast input_of(const ConvProblem&, const ConvGeometry&);
  void find_taps();
  void find_segments(Phase&) const;
  void make_blocks();
  void lay_out_workspace();
  int64_t floats_of_panel() const;  // number of weights of one panel (some output channels), over all phases
};

}  // namespace cpu::conv
}  // namespace minidnn
