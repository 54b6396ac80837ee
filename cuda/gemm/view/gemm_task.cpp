// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

GemmTask gemm_task(const MatmulProblem& p) {
  return {{gemm_view(p)},  p.a.dtype,     p.y.dtype,   p.activation,
          p.has_bias != 0, p.c.rank != 0, p.alignment, matmul_bytes(p)};
}

GemmTask gemm_task(const ConvProblem& p) {
  return {gemm_views(p),   operand_dtype(p),     out_dtype(p), p.activation,
          p.has_bias != 0, p.residual.rank != 0, p.alignment,  conv_bytes(p)};
}

}  // namespace minidnn
