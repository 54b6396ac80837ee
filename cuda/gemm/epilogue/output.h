// SPDX-License-Identifier: Apache-2.0
// Converts the output of a GemmView to the form that the epilogues read (output_params.h), and chooses the way to store
// it (GemmStore). Host only.
#pragma once
#include <string>

#include "cpp/core/dtype.h"
#include "cuda/gemm/epilogue/output_params.h"
#include "cuda/gemm/view/view.h"

namespace minidnn {

// The output of a GemmView as the epilogue reads it. `alignment` is the alignment of y and c in bytes. `n_limit` is the
// size of the last digit (dimension) of index n before it was rounded up; 0 if it was not.
GemmOutput output_of(const GemmView&, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit = 0);

// Fills in the divisors of the indices m, n and batch. Callers that change m or n afterwards call it again.
void divide(GemmOutput&);
GemmStore store_of(const GemmOutput&, bool has_c);

// The compile-time options of an epilogue. They are not run-time options because unused code costs time, too
// (docs/notes/gemm.md).
struct EpilogueTraits {
  Activation activation = Activation::identity;
  bool bias = false, c = false;
  GemmStore store = GemmStore::lines;

  std::string text() const;  // these options as C++ template arguments
};

}  // namespace minidnn
