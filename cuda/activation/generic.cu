// SPDX-License-Identifier: Apache-2.0
// Activations over any strides. A thread an element; the mode is a switch, as in dense.cu.
#include "cpp/activation/activation_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T, bool backward> struct ActivateElement {
  const ActivationProblem& p;
  const ActivationArgs& a;
  int64_t i;
  template <class Mode> __device__ __forceinline__ void operator()(Mode) const {
    activation_element<T, Mode::value, backward>(p, a, i);
  }
};

template <class T, bool backward>
__global__ void __launch_bounds__(256)
    activation_generic(const __grid_constant__ ActivationProblem p, const __grid_constant__ ActivationArgs a) {
  const int64_t n = p.out.numel(), step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    with_activation(p.mode, ActivateElement<T, backward>{p, a, i});
}

}  // namespace minidnn
