// SPDX-License-Identifier: Apache-2.0
// The two kernels of cuda.conv.im2col_gemm (cpp/conv/im2col_math.h). conv_columns_gather copies x to an im2col matrix:
// for one position of y and one channel, a thread copies all elements of x in the window. conv_columns_sum adds the
// elements of an im2col matrix to dx: a thread sums one element of dx, without atomics. The blocks of both kernels have
// 256 threads.
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
