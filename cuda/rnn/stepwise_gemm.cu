// SPDX-License-Identifier: Apache-2.0
// The part of a step of a recurrent layer beside its products: a thread computes a unit of a sequence, by rnn_math.h, from
// sums in workspace. Products of the next step read what it leaves in RnnStepSums::operand.
// - Grid: x is for the units, y for the sequences, z for the directions. Blocks have 256 threads.
// - Bytes: sums, gates and states of the step, each once.
#include "cpp/rnn/rnn_math.h"
#include "cuda/device/grid.cuh"
#include "cuda/rnn/stepwise_gemm_params.h"

namespace minidnn {

// The sums of a step, from products. See rnn::ComputedSums.
template <class T> struct RnnGivenSums {
  using Acc = Accumulator<T>;
  const RnnProblem& p;
  const RnnLayer& l;
  const RnnStepSums& s;

  __device__ __forceinline__ Acc of_x(const rnn::Unit& u, int64_t t, int64_t k) const {
    const int64_t row = p.packed ? rnn::row_of(p, l, t, u.n) : t * s.input_step + u.n * s.input_row;
    const int64_t gate = k * p.hidden + u.unit;
    return static_cast<const Acc*>(s.input)[(row * p.directions + u.direction) * p.gates() * p.hidden + gate] +
           rnn::value_or_zero<T>(l.weights[u.direction][kInputBias], gate);
  }
  __device__ __forceinline__ Acc of_h(const rnn::Unit& u, int64_t k, rnn::Elements<T>) const {
    const int64_t gate = k * p.hidden + u.unit;
    return static_cast<const Acc*>(s.of_state)[(u.direction * p.batch + u.n) * p.gates() * p.hidden + gate] +
           rnn::value_or_zero<T>(l.weights[u.direction][kHiddenBias], gate);
  }
  template <int kUnits>
  __device__ __forceinline__ void add_gradients(const rnn::Unit& first, int64_t, int64_t, Acc (&sums)[kUnits]) const {
    sums[0] += static_cast<const Acc*>(s.of_state)[rnn::state_index(p, first)];
  }
};

// Before the first step: h0 as operand of the first product.
template <class T>
__global__ void __launch_bounds__(256)
    rnn_first_states(const __grid_constant__ RnnProblem p, const __grid_constant__ RnnLayer l,
                     const __grid_constant__ RnnStepSums s, int64_t items) {
  grid_stride(items, [&](int64_t i) { static_cast<T*>(s.operand)[i] = l.h0 ? static_cast<const T*>(l.h0)[i] : T(0); });
}

// Calls visit(unit) for the units of this thread.
template <class Visit>
__device__ __forceinline__ void each_unit(const RnnProblem& p, const RnnLayer& l, Visit visit) {
  const int64_t unit = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (unit < p.hidden)
    for (int64_t n = blockIdx.y; n < p.batch; n += gridDim.y) visit(rnn::Unit{blockIdx.z, n, unit, l.lengths[n]});
}

template <class T>
__global__ void __launch_bounds__(256)
    rnn_step_forward(const __grid_constant__ RnnProblem p, const __grid_constant__ RnnLayer l,
                     const __grid_constant__ RnnStepSums s, int64_t step) {
  each_unit(p, l, [&](const rnn::Unit& u) {
    rnn::forward_unit<T>(p, l, step, u, RnnGivenSums<T>{p, l, s});
    if (step < u.length) static_cast<T*>(s.operand)[rnn::state_index(p, u)] = rnn::output<T>(p, l, u, u.time(step));
  });
}

template <class T>
__global__ void __launch_bounds__(256)
    rnn_step_backward(const __grid_constant__ RnnProblem p, const __grid_constant__ RnnLayer l,
                      const __grid_constant__ RnnStepSums s, int64_t step) {
  each_unit(p, l, [&](const rnn::Unit& u) {
    rnn::backward_units<1, T>(p, l, step, u, RnnGivenSums<T>{p, l, s});
    if (step < 0 || step >= u.length) return;
    // U of a GRU sees dr, dz and r dn, the last part of dgates.
    const T* const from = rnn::dgate_row<T>(p, l, u.direction, rnn::row_of(p, l, u.time(step), u.n)) + u.unit;
    T* const to = static_cast<T*>(s.operand) + (u.direction * p.batch + u.n) * p.gates() * p.hidden + u.unit;
    for (int64_t k = 0; k < p.gates(); ++k)
      to[k * p.hidden] = from[(p.mode == RnnMode::gru && k == 2 ? 3 : k) * p.hidden];
  });
}

}  // namespace minidnn
