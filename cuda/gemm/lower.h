// SPDX-License-Identifier: Apache-2.0
// Lowers the problems of the operation families to views (view.h). Host only.
#pragma once
#include <vector>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"
#include "cuda/gemm/view.h"

namespace minidnn {

GemmView gemm_view(const MatmulProblem&);
// One view, or one for each phase of backward_data. Not for backward_bias.
std::vector<GemmView> gemm_views(const ConvProblem&);

// Simplifies an index and its strides in several tensors: removes digits of size 1 and joins neighbouring digits over
// which every tensor has one stride.
void join(GemmIndex&, std::initializer_list<GemmStrides*>);

// The output of a view as the epilogue needs it. `alignment`: that of y and c, in bytes. `n_limit`: GemmOutput's, if
// n's last digit was rounded up.
GemmOutput output_of(const GemmView&, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit = 0);

// Fills in the divisors. Callers that change m or n afterwards call it again.
void divide(GemmOutput&);
GemmStore store_of(const GemmOutput&, bool has_c);

GemmArgs gemm_args(const MatmulArgs&);
GemmArgs gemm_args(const ConvProblem&, const ConvArgs&);

}  // namespace minidnn
