// SPDX-License-Identifier: Apache-2.0
// The place of a warp in a ring of stages. A stage is a buffer in shared memory with two mbarriers: one for "filled", one
// for "read".
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// The stage that a warp uses next, and the parity of its barriers, which changes with each round.
template <int kStages> struct PipelineState {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ void advance(int count) {
    const int rounds = (stage + count) / kStages;
    stage += count - rounds * kStages;
    parity ^= rounds & 1;
  }
};

}  // namespace minidnn
