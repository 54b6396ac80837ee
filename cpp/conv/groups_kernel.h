// SPDX-License-Identifier: Apache-2.0
// The loops of convolutions with few channels in a group, channels last, compiled once per instruction set: a vector is
// some channels of one pixel. `size` is that of a group, on both sides, 1, 2, 4 or 8 and no longer than a vector.
#pragma once
#include <cstdint>

#include "cpp/cpu/isa.h"

namespace minidnn {

struct GroupsKernels {
  int64_t lanes;
  // y[p, c] = sum over taps t and channels i of c's group of x[at[t] + p * x_step + i] * w[w_at[t] + i * w_step + c],
  // p < pixels, c < channels, these a multiple of lanes. Offsets and steps are in elements.
  void (*pixels)(int64_t size, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step,
                 const float* w, int64_t w_step, float* y, int64_t y_step, int64_t pixels, int64_t channels);
  // sums[(t * size + i) * lanes + c] += sum over p of dy[p * dy_step + c] * x[at[t] + p * x_step + i], c < lanes.
  void (*filters)(int64_t size, const int64_t* at, int64_t taps, const float* x, int64_t x_step, const float* dy,
                  int64_t dy_step, int64_t pixels, float* sums);
};

MINIDNN_PER_ISA(GroupsKernels, groups_kernels)

}  // namespace minidnn
