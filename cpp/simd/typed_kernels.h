// SPDX-License-Identifier: Apache-2.0
// Selects the loops of one dtype from a kernel table of an X_isa.cpp file. Host only.
#pragma once
#include "cpp/core/dtype.h"

namespace minidnn::cpu {

// For tables with loops for float32, bfloat16 and float16.
template <class Kernels> const auto& typed_kernels(const Kernels& all, DType t) {
  return t == DType::float32 ? all.f32 : t == DType::bfloat16 ? all.bf16 : all.f16;
}

}  // namespace minidnn::cpu
