// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.lrn.cross_channel. They are compiled once per CPU instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/hd.h"

namespace minidnn {

constexpr int64_t kMaxChannelWindow = 32;  // the largest window size in channels that the engine supports
// In NCHW, the number of positions that are processed together. A cache then holds all channels of a window.
constexpr int64_t kChannelSpan = 128;
constexpr int64_t kChannelChunk = 512;  // In NHWC, the number of channels of a position that are processed together.

struct ChannelWindow {
  int64_t channels, behind, ahead;
  float scale, beta, k;  // scale is alpha divided by the number of channels of a window
};

struct CrossChannelKernels {
  struct Typed {
    // For NCHW: process at most kChannelSpan positions of all channels, which are `plane` elements apart.
    void (*forward_planes)(const ChannelWindow&, const void* x, int64_t plane, int64_t n, void* y);
    void (*backward_planes)(const ChannelWindow&, const void* x, const void* dy, int64_t plane, int64_t n, void* dx);
    // For NHWC: process `positions` adjacent positions with contiguous channels.
    void (*forward_channels)(const ChannelWindow&, const void* x, int64_t positions, void* y);
    void (*backward_channels)(const ChannelWindow&, const void* x, const void* dy, int64_t positions, void* dx);
  } f32, bf16, f16;
};

MINIDNN_PER_ISA(CrossChannelKernels, cross_channel_kernels)

}  // namespace minidnn
