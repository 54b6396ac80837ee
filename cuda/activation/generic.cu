// SPDX-License-Identifier: Apache-2.0
// Activations over any strides, and over dense tensors whose elements correspond by offset. A thread an element.
#include "cpp/activation/activation_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T, Activation mode, bool backward>
__global__ void __launch_bounds__(256)
    activation_generic(const __grid_constant__ ActivationProblem p, ActivationArgs a) {
  grid_stride(p.out.numel(), [&](int64_t i) { activation_element<T, mode, backward>(p, a, i); });
}

template <class T, Activation mode, bool backward>
__global__ void __launch_bounds__(256) activation_dense(const __grid_constant__ ActivationProblem p, ActivationArgs a) {
  grid_stride(p.out.numel(), [&](int64_t i) { activation_element<T, mode, backward>(a, i, i, i); });
}

}  // namespace minidnn
