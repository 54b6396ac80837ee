// SPDX-License-Identifier: Apache-2.0
// Activations of tensors with any strides, one element per thread. A `switch` in the kernel selects the activation.
#include "cpp/activation/activation_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T, bool kBackward> struct ActivateElement {
  const ActivationArgs& a;
  int64_t x_at, dy_at, out_at;
  template <class Mode> __device__ __forceinline__ void operator()(Mode) const {
    activation_element<T, Mode::value, kBackward>(a, x_at, dy_at, out_at);
  }
};

// The offsets are computed outside the `switch`, because otherwise each of the thirteen cases would have a copy of this
// code, and compilation would take three times as long.
template <class T, bool kBackward>
__global__ void __launch_bounds__(256)
    activation_generic(const __grid_constant__ ActivationProblem p, const __grid_constant__ ActivationArgs a) {
  grid_stride(p.out.numel(), [&](int64_t i) {
    with_activation(p.mode, ActivateElement<T, kBackward>{a, p.x.offset_of(i), kBackward ? p.dy.offset_of(i) : 0,
                                                          p.out.offset_of(i)});
  });
}

}  // namespace minidnn
