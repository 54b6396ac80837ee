// SPDX-License-Identifier: Apache-2.0
// rnn_finish_input_gradient: the gradient of the input of a layer from its sums [rows, I]. If `to` is null, they are
// multiplied by the factors of dropout in place. Else they are rounded to T, and stored to a tensor [T, N, I], or [rows, I]
// of packed rows.
// Bytes: the sums are read once, and the result is written once.
#include "cpp/rnn/rnn_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T>
__global__ void __launch_bounds__(256)
    rnn_finish_input_gradient(void* sums, void* to, const __grid_constant__ TensorDesc d, int64_t elements,
                              const __grid_constant__ RnnLayer l) {
  using Acc = Accumulator<T>;
  Acc* const from = static_cast<Acc*>(sums);
  grid_stride(elements, [&](int64_t i) {
    if (to) static_cast<T*>(to)[d.offset_of(i)] = T(from[i]);
    else from[i] *= rnn::is_kept(l, i) ? Acc(l.keep) : Acc(0);
  });
}

}  // namespace minidnn
