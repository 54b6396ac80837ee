// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.norm.across and cpu.norm.around. Compiled once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

constexpr int64_t kMostAcross = 32;    // channels of a window, at most
constexpr int64_t kAcrossRun = 128;    // positions of a plane at a time, so a cache holds all channels of a window
constexpr int64_t kAcrossPiece = 512;  // channels of a row at a time

struct AcrossChannels {
  int64_t channels, behind, ahead;
  float scale, beta, k;  // scale: alpha / size
};

// Elements [begin, end) of a row, and their windows in space. Adjacent positions of a row are `step` elements apart.
// Rows are `row` elements apart; windows have `above` rows before this one and `below` after it. Within a row, windows
// have `behind` positions before an element and `ahead` after it.
constexpr int64_t kAroundPiece = 512;  // elements at most
struct AroundPiece {
  int64_t begin, end, row, step, above, below, behind, ahead;
  float scale, beta, k;  // scale: alpha / size^d
};

struct LocalNormKernels {
  struct Typed {
    // n <= kAcrossRun positions in all channels; the planes of channels are `plane` elements apart.
    void (*forward_run)(const AcrossChannels&, const void* x, int64_t plane, int64_t n, void* y);
    void (*backward_run)(const AcrossChannels&, const void* x, const void* dy, int64_t plane, int64_t n, void* dx);
    // Adjacent positions, each with contiguous channels.
    void (*forward_rows)(const AcrossChannels&, const void* x, int64_t positions, void* y);
    void (*backward_rows)(const AcrossChannels&, const void* x, const void* dy, int64_t positions, void* dx);
    // Pointers are to the first element of the row. means may be null.
    void (*around)(const AroundPiece&, const void* x, const void* means, void* y);
    // Writes g and dy s^-beta of the chunk and, if there are means, their gradient.
    void (*around_weights)(const AroundPiece&, const void* x, const void* means, const void* dy, float* g, float* own,
                           void* dmeans);
    void (*around_gradient)(const AroundPiece&, const void* x, const void* means, const float* g, const float* own,
                            void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(LocalNormKernels, local_norm_kernels)

}  // namespace minidnn
