// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.norm.across, once per instruction set.
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

struct LocalNormKernels {
  struct Typed {
    // n <= kAcrossRun positions in all channels, whose planes are `plane` elements apart.
    void (*forward_run)(const AcrossChannels&, const void* x, int64_t plane, int64_t n, void* y);
    void (*backward_run)(const AcrossChannels&, const void* x, const void* dy, int64_t plane, int64_t n, void* dx);
    // Positions whose channels are contiguous, one position behind the other.
    void (*forward_rows)(const AcrossChannels&, const void* x, int64_t positions, void* y);
    void (*backward_rows)(const AcrossChannels&, const void* x, const void* dy, int64_t positions, void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(LocalNormKernels, local_norm_kernels)

}  // namespace minidnn
