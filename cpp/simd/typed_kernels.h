// SPDX-License-Identifier: Apache-2.0
// Selects the kernels for a dtype from a table of kernels that a file X_isa.cpp defines. Only host code uses this
// header.
#pragma once
#include "cpp/core/dtype.h"

namespace minidnn::cpu {

// The table type Kernels must have the members f32, bf16 and f16: the kernels for float32, bfloat16 and float16. It may
// have f64.
template <class Kernels> const auto& typed_kernels(const Kernels& all, DType t) {
  if constexpr (requires { all.f64; })
    if (t == DType::float64) return all.f64;
  return t == DType::float32 ? all.f32 : t == DType::bfloat16 ? all.bf16 : all.f16;
}

}  // namespace minidnn::cpu
