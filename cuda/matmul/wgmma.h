// SPDX-License-Identifier: Apache-2.0
// The engine cuda.matmul.wgmma. The engine cuda.matmul.wgmma_3xtf32 uses its checks and its copies of operands. Host
// only.
#pragma once
#include "cpp/engine/engine_object.h"
#include "cuda/gemm/sm90/operand_relayout.h"

namespace minidnn::cuda::matmul {

struct Wgmma final : RelayoutEngine<MatmulProblem> {
  std::string name() const override;
  std::string refusal(const MatmulProblem&) const override;
  OperandRelayout<MatmulProblem> relayout(const MatmulProblem&) const override;
  GemmArgs product_args(const MatmulProblem&, const MatmulArgs&) const override;
  std::vector<KernelSpec> kernels() const override;
};

}  // namespace minidnn::cuda::matmul
