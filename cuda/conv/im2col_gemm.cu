// SPDX-License-Identifier: Apache-2.0
// The two loops of cuda.conv.im2col_gemm: x into columns, and columns summed back into dx (cpp/conv/columns_math.h).
// A thread a point of x's channels and y's positions, with all its taps; a thread an element of dx, without atomics.
#include "cpp/conv/columns_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T>
__global__ void __launch_bounds__(256)
    conv_columns_gather(const __grid_constant__ ConvColumns m, const T* x, T* columns) {
  grid_stride(columns_points(m), [&](int64_t i) { columns_gather(m, x, columns, columns_point(m, i)); });
}

template <class T>
__global__ void __launch_bounds__(256)
    conv_columns_sum(const __grid_constant__ ConvColumns m, const Accumulator<T>* columns, T* dx) {
  grid_stride(conv_out_numel(m.g), [&](int64_t i) {
    ConvPoint point(m.g, m.g.x, i);
    ConvWindow window;
    window.move_to(m.g, point);
    columns_sum<T>(m, columns, dx, point, window);
  });
}

}  // namespace minidnn
