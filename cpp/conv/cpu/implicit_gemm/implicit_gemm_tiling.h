// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.implicit_gemm divides its work into blocks of pixels and output channels, and the layout of the
// workspace. A strided backward_data is divided into phases: sets of result pixels that use the same window elements.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

// The largest number of tiles in a block (work item). The input of these tiles stays in the first two cache levels
// while the kernel loops over the weights.
constexpr int64_t kBlockTiles = 16;

struct ImplicitGemmTiling {
  struct Phase : ConvPhase {
    // The offset of the packed weights of this phase, in floats. A phase is a set of result pixels that use the same
    // window elements.
    int64_t weights_at = 0;
    // The inner dimension k of the product is divided into segments: the input channels at one window element. For each
    // segment, this is the byte offset of its input. It is relative to the input pixel t * in_step, where t is the
    // index of the result pixel in the phase.
    std::vector<int64_t> segments;
    // In each dimension, the smallest and the largest distance from a pixel to an element of its window, in input
    // pixels.
    int64_t low[kMaxSpatial]{}, high[kMaxSpatial]{};
  };

  // A work item. It computes `rows` result pixels of each of `phases` phases. A phase is a set of result pixels that
  // use the same window elements. For each pixel, it computes `panels` panels of output channels, as many channels each
  // as a tile has columns.
  struct Block {
    int64_t phase, phases, group, row, rows, panel, panels;
  };

  ConvProblem p;
  ConvGeometry g;
  const GemmKernels& kernels = gemm_kernels();
  const GemmKernel<float>& kernel = kernels.f32;
  bool backward;
  // The number of window elements whose channels the micro-kernel reads as contiguous memory: 1, or a whole row of the
  // window.
  int64_t threads, merged = 1;

  // The input of the convolution, or the float32 channels-last copy of it.
  ChannelsLast input;
  // `in` has the sizes and strides of the input or of its copy. `out` has the sizes and strides of the result.
  ConvTensorView in, out;
  bool nhwc_output = false;  // true if the result is channels-last
  // True if each block (work item) transposes its input pixels to [pixel, channel] in the scratch memory of its thread.
  bool transposes_pixels = false;
  // For each group of the convolution: the number of input channels (`channels`), of output channels (`columns`), and
  // of panels. A panel has as many output channels as a tile has columns.
  int64_t channels, columns, panels;
  // The distance between neighbouring pixels of a phase: `step` in pixels of the result, `in_step` in pixels of the
  // input. A phase is a set of result pixels that use the same window elements.
  int64_t step[kMaxSpatial], in_step[kMaxSpatial];

  // The strides of w along the input channels (w_in) and along the output channels (w_out).
  int64_t w_in, w_out;
  // True if the window elements of a filter are contiguous in memory. They begin at the offset `lowest_tap`.
  bool dense_taps = false;
  // The offset in w of the window element that has the lowest address.
  int64_t lowest_tap = 0;
  // True if each block (work item) packs the weights that it reads. If false, all weights are packed in advance.
  bool packs_panels = false;

  std::vector<Phase> phases;
  // The largest number of rows (result pixels) in a block (work item).
  int64_t block_rows;
  std::vector<Block> blocks;

  size_t weights_at = 0, copy_at = 0, zeros_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;
  // Byte offsets in the scratch memory of a thread. The scratch memory begins with GemmSegments, which hold the offsets
  // of the inputs that the tiles read.
  size_t sums_at = 0, transposed_at = 0, pixels_at = 0, panel_at = 0;

  ImplicitGemmTiling(const ConvProblem&, const Device&);
  // Returns true if each block (work item) transposes its input pixels to [pixel, channel]. This is the case for a
  // pointwise convolution of stride 1 whose input is dense, float32 and channels-first.
  static bool transposes(const ConvProblem&, const ConvGeometry&);
  // Returns true if the micro-kernel reads the input of a whole window row as contiguous memory. This is the case for a
  // forward convolution with few input channels, such as the first layer of a network. The input is then copied with
  // its padding.
  static bool merges(const ConvGeometry&);

 private:
  static ChannelsLast input_of(const ConvProblem&, const ConvGeometry&);
  void find_taps();
  void find_segments(Phase&) const;
  void make_blocks();
  void lay_out_workspace();
  // Returns the number of packed weights of one panel (some output channels). Each phase (set of result pixels that use
  // the same window elements) has its own packed weights, and all of them are counted.
  int64_t floats_of_panel() const;
};

}  // namespace cpu::conv
}  // namespace minidnn
