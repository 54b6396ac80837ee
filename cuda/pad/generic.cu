// SPDX-License-Identifier: Apache-2.0
// Padding for any strides. Each thread computes one element of y at a time, in a grid-stride loop. Block: 256 threads.
// No shared memory.
#include "cpp/pad/pad_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T> __global__ void __launch_bounds__(256) pad_generic(const __grid_constant__ PadProblem p, PadArgs a) {
  grid_stride(p.y.numel(), [&](int64_t i) { pad_element<T>(p, a, i); });
}

}  // namespace minidnn
