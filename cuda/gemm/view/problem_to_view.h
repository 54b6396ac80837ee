// SPDX-License-Identifier: Apache-2.0
// Converts the problems of matmul and conv to GemmViews (view.h). Host only.
#pragma once
#include <vector>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"
#include "cuda/gemm/view/view.h"

namespace minidnn {

GemmView gemm_view(const MatmulProblem&);
// The view of a convolution; for backward_data, one view for each phase. backward_bias has no view.
std::vector<GemmView> gemm_views(const ConvProblem&);

GemmArgs gemm_args(const MatmulArgs&);
GemmArgs gemm_args(const ConvProblem&, const ConvArgs&);

}  // namespace minidnn
