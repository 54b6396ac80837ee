// SPDX-License-Identifier: Apache-2.0
// What the products for the gradients of weights need beside them.
// - rnn_operand_rows: rows [T N, ...] with zeros in rows that belong to no sequence, in which callers may have NaN.
// - rnn_bias_gradient: sums of the gradients of gates over all rows, in a fixed order.
// Bytes: each operand is read and written once.
#include "cpp/rnn/rnn_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/rnn/weight_products_params.h"

namespace minidnn {

template <class Visit> __device__ __forceinline__ void each_column(int64_t width, Visit visit) {
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) visit(i);
}

// Blocks take the rows of [directions, T, N] in turn.
template <class T>
__global__ void __launch_bounds__(256)
    rnn_operand_rows(const __grid_constant__ RnnProblem p, const __grid_constant__ RnnLayer l, RnnOperand operand,
                     T* to, int64_t width, int64_t directions) {
  for (int64_t r = blockIdx.x; r < directions * p.steps * p.batch; r += gridDim.x) {
    const int64_t n = r % p.batch, t = r / p.batch % p.steps, direction = r / p.batch / p.steps, length = l.lengths[n];
    if (p.packed && t >= length) continue;
    const int64_t row = rnn::row_of(p, l, t, n);
    T* const result = to + (direction * p.rows() + row) * width;
    if (t >= length) {
      each_column(width, [&](int64_t i) { result[i] = T(0); });
    } else if (operand == RnnOperand::q) {
      const T* const from = rnn::gate_row<T>(p, l, direction, row) + 3 * p.hidden;
      each_column(width, [&](int64_t i) { result[i] = from[i]; });
    } else {
      const rnn::Elements<T> from = operand == RnnOperand::input ? rnn::input<T>(p, l, t, n)
                                                                 : rnn::h_before<T>(p, l, {direction, n, 0, length},
                                                                                    direction ? length - 1 - t : t);
      each_column(width, [&](int64_t i) { result[i] = T(from[i]); });
    }
  }
  if (!p.packed) return;
  const int64_t first = l.first_rows[p.steps], unused = p.rows() - first;
  for (int64_t r = blockIdx.x; r < directions * unused; r += gridDim.x)
    each_column(width, [&](int64_t i) { to[(r / unused * p.rows() + first + r % unused) * width + i] = T(0); });
}

// A block adds up 32 columns of the gradients of a direction. Thread (x, y) has the rows y, y + 32, ...
template <class T>
__global__ void __launch_bounds__(1024)
    rnn_bias_gradient(const __grid_constant__ RnnProblem p, const __grid_constant__ RnnLayer l) {
  using Acc = Accumulator<T>;
  __shared__ Acc parts[32][33];
  const int64_t width = p.gate_gradients() * p.hidden, direction = blockIdx.y;
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  CompensatedSum<Acc> sum;
  if (column < width)
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < p.rows(); row += 32)
      sum.add(Acc(rnn::dgate_row<T>(p, l, direction, row)[column]));
  parts[threadIdx.y][threadIdx.x] = sum.value();
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  CompensatedSum<Acc> all;
  for (int i = 0; i < 32; ++i) all.add(parts[i][threadIdx.x]);
  const auto store = [&](RnnWeight which, int64_t to) {
    T& result = static_cast<T*>(l.weights[direction][which])[to];
    result = T(all.value() + (p.accumulate ? Acc(result) : Acc(0)));
  };
  // The gates of x come first. The last part of a GRU with reset_after is what n sees of U h + b_hh.
  const int64_t hidden = p.hidden, gates = p.gates() * hidden;
  const bool separate = width > gates;
  if (column < gates) store(kInputBias, column);
  if (!separate || column < 2 * hidden) store(kHiddenBias, column);
  else if (column >= gates) store(kHiddenBias, column - hidden);
}

}  // namespace minidnn
