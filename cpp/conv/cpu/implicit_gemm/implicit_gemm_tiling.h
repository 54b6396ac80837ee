// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.conv.implicit_gemm: phases, blocks of rows and panels, and the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

// The most tiles of a block. The input of so many tiles stays in the first cache levels while the kernel loops over the
// weights.
constexpr int64_t kBlockTiles = 16;

struct ImplicitGemmTiling {
  struct Phase : ConvPhase {
    int64_t weights_at = 0;         // offset of the packed weights of the first group and panel, in floats
    std::vector<int64_t> segments;  // byte offset from the input under a pixel to the start of each segment of k
    int64_t low[kMaxSpatial]{}, high[kMaxSpatial]{};  // smallest and largest shift of all taps
  };

  // One work item: `rows` rows of each of `phases` phases, times `panels` panels of output channels.
  struct Block {
    int64_t phase, phases, group, row, rows, panel, panels;
  };

  ConvProblem p;
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  bool backward;
  int64_t threads, merged = 1;  // merged: number of taps that form one segment of k

  ChannelsLast input;                 // the input: in place, or the copy of it that the kernel reads
  ConvTensorView in, out;             // the input as the kernel reads it, and the result
  bool nhwc_output = false;           // the result is channels-last
  bool transposes_pixels = false;     // each block transposes the pixels that it reads into its thread's scratch
  int64_t channels, columns, panels;  // per group: input channels, output channels, panels of output channels
  // Step from one pixel of a phase to the next: in the result, and in the input.
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];

  int64_t w_in, w_out;        // strides of the weights by input and by output channel
  bool dense_taps = false;    // the taps of a filter are contiguous in memory and begin at lowest_tap
  int64_t lowest_tap = 0;     // the least offset of a tap
  bool packs_panels = false;  // each block packs the panels that it reads, instead of all being packed in advance

  std::vector<Phase> phases;
  int64_t block_rows;  // the most rows of a block
  std::vector<Block> blocks;

  size_t weights_at = 0, copy_at = 0, zeros_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // Offsets in the scratch of a thread, in bytes. Offset 0 has the segments.
  size_t sums_at = 0, transposed_at = 0, pixels_at = 0, panel_at = 0;

  ImplicitGemmTiling(const ConvProblem&, const Device&);
  // True for a pointwise convolution of float32 channels-first planes: each block then transposes its own pixels.
  static bool transposes(const ConvProblem&, const ConvGeometry&);
  // True for an input of few channels (a first layer's): it is copied together with its padding, and one segment of k
  // then covers all taps of a line of the window.
  static bool merges(const ConvGeometry&);

 private:
  static ChannelsLast input_of(const ConvProblem&, const ConvGeometry&);
  void find_taps();
  void find_segments(Phase&) const;
  void make_blocks();
  void lay_out_workspace();
  int64_t floats_of_panel() const;  // the weights of one panel, of all phases
};

}  // namespace cpu::conv
}  // namespace minidnn
