// SPDX-License-Identifier: Apache-2.0
// From the problems of the families to views (view.h). Host only.
#pragma once
#include <vector>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"
#include "cuda/gemm/view.h"

namespace minidnn {

GemmView gemm_view(const MatmulProblem&);
// One view, or one for each phase of backward_data. Not for backward_bias.
std::vector<GemmView> gemm_views(const ConvProblem&);

// An index with the strides of all that walk it: digits of one are dropped, neighbours that all walk as one are joined.
void join(GemmIndex&, std::initializer_list<GemmStrides*>);

// What the epilogue needs of a view. `alignment`: of y and c in bytes. `n_limit`: GemmOutput's, where n's last digit
// was rounded up.
GemmOutput output_of(const GemmView&, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit = 0);

// Fills in the divisors; for who changes m or n afterwards.
void divide(GemmOutput&);
GemmStore store_of(const GemmOutput&, bool has_c);

GemmArgs gemm_args(const MatmulArgs&);
GemmArgs gemm_args(const ConvProblem&, const ConvArgs&);

}  // namespace minidnn
