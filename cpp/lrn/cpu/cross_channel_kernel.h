// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.lrn.cross_channel. Compiled once per instruction set.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

constexpr int64_t kMaxChannelWindow = 32;  // channels of a window, at most
constexpr int64_t kChannelSpan = 128;      // positions of a plane at a time, so a cache holds all channels of a window
constexpr int64_t kChannelChunk = 512;     // channels of a row at a time

struct ChannelWindow {
  int64_t channels, behind, ahead;
  float scale, beta, k;  // scale: alpha / size
};

struct CrossChannelKernels {
  struct Typed {
    // n <= kChannelSpan positions in all channels; the planes of channels are `plane` elements apart.
    void (*forward_planes)(const ChannelWindow&, const void* x, int64_t plane, int64_t n, void* y);
    void (*backward_planes)(const ChannelWindow&, const void* x, const void* dy, int64_t plane, int64_t n, void* dx);
    // Adjacent positions, each with contiguous channels.
    void (*forward_channels)(const ChannelWindow&, const void* x, int64_t positions, void* y);
    void (*backward_channels)(const ChannelWindow&, const void* x, const void* dy, int64_t positions, void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(CrossChannelKernels, cross_channel_kernels)

}  // namespace minidnn
