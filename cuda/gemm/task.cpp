// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/task.h"

namespace minidnn {

std::string EpilogueTraits::text() const {
  constexpr const char* stores[] = {"lines", "turned", "any", "columns", "phases", "summed"};
  return cat("minidnn::Activation::", name(activation), bias ? ", true" : ", false", c ? ", true" : ", false",
             ", minidnn::GemmStore::", stores[int(store)]);
}

GemmTask gemm_task(const MatmulProblem& p) {
  return {{gemm_view(p)},  p.a.dtype,     p.y.dtype,   p.activation,
          p.has_bias != 0, p.c.rank != 0, p.alignment, matmul_bytes(p)};
}

GemmTask gemm_task(const ConvProblem& p) {
  return {gemm_views(p),   operand_dtype(p),     out_dtype(p), p.activation,
          p.has_bias != 0, p.residual.rank != 0, p.alignment,  conv_bytes(p)};
}

}  // namespace minidnn
