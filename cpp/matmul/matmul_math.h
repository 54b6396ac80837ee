// SPDX-License-Identifier: Apache-2.0
// The problem of a matrix product: y = activation(alpha * a @ b + beta * c + bias). Shared by CPU and CUDA.
#pragma once
#include "cpp/activation/activation_math.h"

namespace minidnn {

// Transposes and broadcasts are folded into strides: every operand has the full batch shape, with strides of zero where
// it repeats.
struct MatmulProblem {
  TensorDesc a;             // [..., M, K]
  TensorDesc b;             // [..., K, N]
  TensorDesc c;             // [..., M, N]; rank 0 when there is none. May be y itself
  TensorDesc y;             // [..., M, N]; its dtype is a's, or float32
  int64_t bias_stride = 0;  // of bias [N], in elements; its dtype is a's
  int64_t has_bias = 0;
  int64_t ieee = 0;         // 1: float32 products stay float32; 0: they may be rounded to TF32
  Activation activation{};
};

struct MatmulArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  double alpha = 1, beta = 0, activation_alpha = 0;
};

}  // namespace minidnn
