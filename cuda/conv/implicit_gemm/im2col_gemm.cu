// SPDX-License-Identifier: Apache-2.0
// The two loops of cuda.conv.im2col_gemm: x into columns, and columns summed back into dx (cpp/conv/im2col_math.h).
// conv_columns_gather: a thread copies all taps of one channel of x at one position of y. conv_columns_sum: a thread
// sums one element of dx, without atomics. Both have blocks of 256 threads.
#include "cpp/conv/im2col_math.h"
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
