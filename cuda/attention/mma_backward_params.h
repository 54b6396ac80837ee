// SPDX-License-Identifier: Apache-2.0
// Parameters of mma_backward.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cuda/attention/mma_params.h"

namespace minidnn {

// What the kernels keep in workspace for each row of q: lse in the unit of the exponential, and the sum of d_o o.
struct alignas(8) AttentionRowSums {
  float lse, delta;
};

// The index of a block counts heads (fastest), sequences, and blocks of rows.
struct AttentionBackwardParams {
  AttentionScoreParams scores;
  AttentionStrides q, k, v, o, d_o, dq, dk, dv;
  int32_t head_size = 0, value_size = 0;
  int32_t stages = 2;                   // of the tiles that a block loops over: 1 or 2
  FastDivmod q_heads, kv_heads, batch;  // kv_heads counts column parts of dk and dv as heads
  FastDivmod q_rows;                    // of a tensor
  int64_t all_q_rows = 0;               // rows of all heads of all sequences
  int32_t delta_lanes = 1;              // the lanes that add up a row of d_o o, a power of two
  float lse_factor = 1;                 // log2(e) for scores without options, else 1
  int32_t dbias_bytes = 0;              // of an element; 0: dbias is not wanted
  int64_t dbias[4]{};                   // the strides of dbias in elements
};

}  // namespace minidnn
