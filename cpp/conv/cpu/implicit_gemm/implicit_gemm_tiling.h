// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.conv.implicit_gemm: phases, blocks of rows and panels, and the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

// tiles per block: their input stays in the first cache levels while the kernel loops over the weights
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
  bool backward;
  int64_t threads, merged = 1;  // number of taps that form one segment of k
  ChannelsLast input_;
  ConvTensorView in, out;             // the input as the kernel reads it (perhaps a copy), and the result
  bool last = false;                  // the result is channels-last
  int64_t channels, columns, panels;  // per group: input channels, output channels, panels of output channels
  // weight strides by input and output channel; step between a phase's pixels in the result
  int64_t w_in, w_out, step[kMaxSpatial];
  int64_t in_step[kMaxSpatial];  // step between these pixels in the input
  bool lines = false;            // the taps of a filter are contiguous in memory and begin at lowest_tap
  int64_t lowest_tap = 0;
  std::vector<Phase> phases;
  std::vector<Block> blocks;
  size_t weights_at = 0, copy_at = 0, zeros_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  bool local = false;      // each block transposes its pixels into its thread's scratch
  bool by_panels = false;  // each block packs the weights that it reads
  int64_t block_rows;
  // byte offsets in a thread's scratch, after the segments
  size_t sums_at = 0, lines_at = 0, local_at = 0, panel_at = 0;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;

  ImplicitGemmTiling(const ConvProblem&, const Device&);
  // True for a pointwise convolution of float32 channels-first planes: each block then transposes its own pixels.
  static bool transposes(const ConvProblem&, const ConvGeometry&);
  // True for an input of few channels (a first layer's): it is copied together with its padding, and one segment of k
  // then covers all taps of a line of the window.
  static bool merges(const ConvGeometry&);

 private:
  static ChannelsLast input(const ConvProblem&, const ConvGeometry&);
  void find_segments(Phase&) const;
  void make_blocks();
};

}  // namespace cpu::conv
}  // namespace minidnn
