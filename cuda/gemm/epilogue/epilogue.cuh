// SPDX-License-Identifier: Apache-2.0
// GemmEpilogue: the epilogue of a matrix product, as one warp executes it: y = activation(alpha * sum + beta * c +
// bias).
// Accumulators are in the layout of mma.sync and wgmma: in each lane, acc[4 j + i] is the sum in row lane / 4 + 8 (i /
// 2) and column 8 j + 2 (lane % 4) + i % 2. y, c and bias may have any strides. If the rows of y are contiguous, or if
// its columns are contiguous and have 16-bit elements, the sums pass through a small buffer in shared memory, and the
// warp writes whole lines of 128 bytes.
// T is the dtype of the bias. Y is the dtype of y and c. The files store_*.cuh contain the ways to store y (GemmStore).
#pragma once
#include "cuda/gemm/epilogue/store_columns.cuh"
#include "cuda/gemm/epilogue/store_elements.cuh"
#include "cuda/gemm/epilogue/store_lines.cuh"

namespace minidnn {

template <class T, class Y, Activation kActivation, bool kBias, bool kC, GemmStore kStore, Formula kFormula>
struct GemmEpilogue : GemmEpilogueContext<T, Y, kActivation, kBias, kC, kStore, kFormula> {
  using Context = GemmEpilogueContext<T, Y, kActivation, kBias, kC, kStore, kFormula>;
  using Context::Context;

  // Stores the sums of two rows in 2 * kCount columns from column n on; n is a multiple of 8. All lanes of a warp call
  // this function together; lanes 4 i to 4 i + 3 pass the same rows. For GemmStore::transposed, a whole warpgroup calls
  // it for 64 consecutive rows; only the first `rows` exist. `bias` is tile_bias() from column n on. `acc` is
  // overwritten.
  template <int kCount>
  __device__ __forceinline__ void store(float (&acc)[kCount], uint32_t first, uint32_t second, uint32_t n,
                                        const typename Context::template TileBias<kCount>& bias,
                                        uint32_t rows = 64) const {
    const Context& e = *this;
    if constexpr (kStore == GemmStore::transposed) {
      gemm_store_transposed(e, acc, first - (threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4), rows, n, bias);
    } else if constexpr (kStore == GemmStore::lines) {
      NoColumnSums none;
      gemm_store_lines(e, acc, first, second, n, bias, none);
    } else {
      const typename Context::Row both[2] = {e.row(first), e.row(second)};
      if (e.output.n.first == kDigits - 1) gemm_store_even(e, acc, both, n);
      else gemm_store_elements(e, acc, both, n);
    }
  }
};

}  // namespace minidnn
