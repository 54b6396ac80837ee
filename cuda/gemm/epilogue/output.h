// SPDX-License-Identifier: Apache-2.0
// From a view to the output that the epilogues read (output_params.h), and the choice of the way to store it. Host
// only.
#pragma once
#include <string>

#include "cpp/core/dtype.h"
#include "cuda/gemm/epilogue/output_params.h"
#include "cuda/gemm/view/view.h"

namespace minidnn {

// The output of a view as the epilogue needs it. `alignment`: that of y and c, in bytes. `n_limit`: GemmOutput's, if
// n's last digit was rounded up.
GemmOutput output_of(const GemmView&, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit = 0);

// Fills in the divisors. Callers that change m or n afterwards call it again.
void divide(GemmOutput&);
GemmStore store_of(const GemmOutput&, bool has_c);

// The epilogue of a kernel. It is a compile-time choice because code that is never used takes time too
// (docs/notes/gemm.md).
struct EpilogueTraits {
  Activation activation = Activation::identity;
  bool bias = false, c = false;
  GemmStore store = GemmStore::lines;

  std::string text() const;  // as template arguments
};

}  // namespace minidnn
