// SPDX-License-Identifier: Apache-2.0
// The CTC loss for all options and any strides: a block of threads computes one sequence, or one row (ctc_math.h).
// - Grid: blocks that loop over sequences or rows. Block: whole warps, at most 256 threads.
// - Shared memory: the 33 doubles of a reduction.
// - Bytes: rows of alpha and beta are read again from the L2, once for each step.
// - Numerics: those of ctc_math.h, in float32, or float64 for float64.
#include "cpp/ctc/ctc_math.h"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {
namespace {

struct Team : BlockReduce {
  __device__ void sync() { __syncthreads(); }
};

template <class Body> __device__ __forceinline__ void each(int64_t n, Body body) {
  griddep_wait();
  Team team;
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) body(i, team);
}

}  // namespace

// Rows of lse.
template <class Acc> __global__ void __launch_bounds__(256)
    ctc_lse(const __grid_constant__ CtcProblem p, CtcArgs a, void*) {
  each(p.steps() * p.batch(), [&](int64_t row, Team& team) { ctc_row_lse<Acc>(p, a, row, team); });
}
template <class Acc> __global__ void __launch_bounds__(256)
    ctc_forward(const __grid_constant__ CtcProblem p, CtcArgs a, void* workspace) {
  Acc* const losses = ctc_losses<Acc>(p, a, workspace);
  each(p.batch(), [&](int64_t b, Team& team) { ctc_forward_sequence<Acc>(p, a, b, losses, team); });
}
// One block adds up the losses of all sequences.
template <class Acc> __global__ void __launch_bounds__(256)
    ctc_add(const __grid_constant__ CtcProblem p, CtcArgs a, void* workspace) {
  each(1, [&](int64_t, Team& team) { ctc_total(p, a, ctc_losses<Acc>(p, a, workspace), team); });
}

// The gradient of the loss of each sequence.
template <class Acc> __global__ void __launch_bounds__(256)
    ctc_gradients(const __grid_constant__ CtcProblem p, CtcArgs a, Acc* gradients) {
  each(p.batch(), [&](int64_t b, Team& team) {
    const auto g = ctc_gradient<Acc>(p, a, ctc::sequence(p, a, b, team), team);
    if (team.rank() == 0) gradients[b] = g;
  });
}
// Rows of dx, as far as they are the same for all labels.
template <class Acc> __global__ void __launch_bounds__(256)
    ctc_rows(const __grid_constant__ CtcProblem p, CtcArgs a, Acc* gradients) {
  each(p.steps() * p.batch(), [&](int64_t row, Team& team) { ctc_backward_row<Acc>(p, a, row, gradients, team); });
}
template <class Acc> __global__ void __launch_bounds__(256)
    ctc_backward(const __grid_constant__ CtcProblem p, CtcArgs a, Acc* gradients) {
  const auto scratch = CtcScratch<Acc>::of(p, gradients + p.batch());
  each(p.batch(), [&](int64_t b, Team& team) {
    ctc_backward_sequence<Acc>(p, a, gradients[b], ctc::sequence(p, a, b, team), scratch, team);
  });
}

}  // namespace minidnn
