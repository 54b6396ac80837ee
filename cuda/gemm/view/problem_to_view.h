// SPDX-License-Identifier: Apache-2.0
// Converts the descriptions of a matmul and of a convolution (MatmulProblem, ConvProblem) to GemmViews (view.h). Only
// host code includes this file.
#pragma once
#include <vector>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"
#include "cuda/gemm/view/view.h"

namespace minidnn {

GemmView gemm_view(const MatmulProblem&);
// The GemmViews of a convolution. backward_data has one view for each phase (the positions of dx that use the same
// taps), and backward_bias has no view.
std::vector<GemmView> gemm_views(const ConvProblem&);

GemmArgs gemm_args(const MatmulArgs&);
GemmArgs gemm_args(const ConvProblem&, const ConvArgs&);

}  // namespace minidnn
