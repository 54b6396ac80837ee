// SPDX-License-Identifier: Apache-2.0
// Convolution by its definition (cpp/conv/conv_math.h). Each element of y or dx is computed by a thread of its own, and
// each element of dw or db by a block of 256 threads. All kernels are grid-stride loops. T is the dtype of the
// operands; Y is the dtype of the result.
#include "cpp/conv/conv_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {

template <class T, class Y>
__global__ void __launch_bounds__(256) conv_direct(const __grid_constant__ ConvGeometry g, ConvArgs a) {
  grid_stride(conv_out_numel(g), [&](int64_t i) {
    ConvPoint point(g, conv_out(g), i);
    ConvWindow window;
    window.move_to(g, point);
    conv_element<T, Y>(g, a, point, window);
  });
}

template <class T, class Y>
__global__ void __launch_bounds__(256) conv_direct_filter(const __grid_constant__ ConvGeometry g, ConvArgs a) {
  BlockReduce team;
  for (int64_t i = blockIdx.x; i < conv_weights(g); i += gridDim.x) conv_filter_element<T, Y>(g, a, i, team);
}

template <class T>
__global__ void __launch_bounds__(256) conv_direct_bias(const __grid_constant__ ConvGeometry g, ConvArgs a) {
  BlockReduce team;
  for (int64_t k = blockIdx.x; k < g.groups * g.y.channels; k += gridDim.x) conv_bias_element<T>(g, a, k, team);
}

}  // namespace minidnn
