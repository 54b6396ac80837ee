// SPDX-License-Identifier: Apache-2.0
// The problems of the operation families as views (view.h). Host only.
#pragma once
#include <vector>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"
#include "cuda/gemm/view/view.h"

namespace minidnn {

GemmView gemm_view(const MatmulProblem&);
// One view, or one for each phase of backward_data. Not for backward_bias.
std::vector<GemmView> gemm_views(const ConvProblem&);

GemmArgs gemm_args(const MatmulArgs&);
GemmArgs gemm_args(const ConvProblem&, const ConvArgs&);

}  // namespace minidnn
