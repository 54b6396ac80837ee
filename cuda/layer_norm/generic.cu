// SPDX-License-Identifier: Apache-2.0
// Layer, RMS, group and instance norm of tensors with any strides. One block computes a row (the elements that share a
// mean). In backward, a second launch computes the gradients of scale and bias, with one block per parameter.
#include "cpp/layer_norm/layer_norm_math.h"
#include "cuda/device/reduce.cuh"

namespace minidnn {

template <class T, int kPass>  // kPass 0: forward; 1: dx of the rows; 2: gradients of the parameters
__global__ void __launch_bounds__(256) layer_norm_generic(const __grid_constant__ LayerNormSpaces s, LayerNormArgs a) {
  const int64_t items = kPass == 2 ? s.parameters.size : s.rows.size;
  for (int64_t i = blockIdx.x; i < items; i += gridDim.x) {
    if constexpr (kPass == 0) norm_row_forward<T>(s, a, BlockReduce{}, i);
    else if constexpr (kPass == 1) norm_row_backward<T>(s, a, BlockReduce{}, i);
    else norm_parameter_sums<T>(s, a, BlockReduce{}, i);
  }
}

}  // namespace minidnn
