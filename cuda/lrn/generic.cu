// SPDX-License-Identifier: Apache-2.0
// Local response and local contrast norm of tensors with any strides. A thread computes one element.
#include "cpp/lrn/lrn_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T, int kPass>  // kPass 0: forward; 1: the factor g of backward; 2: dx
__global__ void __launch_bounds__(256) lrn_generic(const __grid_constant__ LrnProblem p, LrnArgs a, void* workspace) {
  auto* const g = static_cast<Accumulator<T>*>(workspace);
  grid_stride(p.x.numel(), [&](int64_t i) {
    if constexpr (kPass == 0) local_norm_forward<T>(p, a, i);
    else if constexpr (kPass == 1) local_norm_weight<T>(p, a, g, i);
    else local_norm_backward<T>(p, a, g, i);
  });
}

}  // namespace minidnn
