// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.norm.across and cpu.norm.around, once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/cpu/isa.h"

namespace minidnn {

constexpr int64_t kMostAcross = 32;    // channels of a window
constexpr int64_t kAcrossRun = 128;    // positions of a plane at a time: those of a window's channels stay in the cache
constexpr int64_t kAcrossPiece = 512;  // channels of a row at a time

struct AcrossChannels {
  int64_t channels, behind, ahead;
  float scale, beta, k;  // scale: alpha / size
};

// Elements [begin, end) of a row and their windows in space: the position before lies `step` elements away. Rows of the
// windows lie `row` elements apart, the first `above` of them before this one, the last `below` behind.
constexpr int64_t kAroundPiece = 512;  // elements at most
struct AroundPiece {
  int64_t begin, end, row, step, above, below, behind, ahead;
  float scale, beta, k;  // scale: alpha / size^d
};

struct LocalNormKernels {
  struct Typed {
    // n <= kAcrossRun positions in all channels, whose planes are `plane` elements apart.
    void (*forward_run)(const AcrossChannels&, const void* x, int64_t plane, int64_t n, void* y);
    void (*backward_run)(const AcrossChannels&, const void* x, const void* dy, int64_t plane, int64_t n, void* dx);
    // Positions whose channels are contiguous, one position behind the other.
    void (*forward_rows)(const AcrossChannels&, const void* x, int64_t positions, void* y);
    void (*backward_rows)(const AcrossChannels&, const void* x, const void* dy, int64_t positions, void* dx);
    // Pointers are to the row's first element. means may be null.
    void (*around)(const AroundPiece&, const void* x, const void* means, void* y);
    // Leaves g and dy s^-beta of the piece, and the gradient of its means, if there are any.
    void (*around_weights)(const AroundPiece&, const void* x, const void* means, const void* dy, float* g, float* own,
                           void* dmeans);
    void (*around_gradient)(const AroundPiece&, const void* x, const void* means, const float* g, const float* own,
                            void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(LocalNormKernels, local_norm_kernels)

}  // namespace minidnn
