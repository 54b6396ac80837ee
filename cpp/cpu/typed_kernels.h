// SPDX-License-Identifier: Apache-2.0
// Which loops of a table of X_isa.cpp are a dtype's. Host only.
#pragma once
#include "cpp/core/dtype.h"

namespace minidnn::cpu {

// Of a table with loops for float32, bfloat16 and float16.
template <class Kernels> const auto& typed_kernels(const Kernels& all, DType t) {
  return t == DType::float32 ? all.f32 : t == DType::bfloat16 ? all.bf16 : all.f16;
}

}  // namespace minidnn::cpu
