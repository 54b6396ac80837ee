// SPDX-License-Identifier: Apache-2.0
// Converts the output of a GemmView to the form that the epilogues read (output_params.h). Chooses the way to store the
// output (GemmStore). Only host code includes this file.
#pragma once
#include <string>

#include "cpp/core/dtype.h"
#include "cuda/gemm/epilogue/output_params.h"
#include "cuda/gemm/view/view.h"

namespace minidnn {

// Returns the output of a GemmView in the form that the epilogue reads. `alignment` is the alignment of y and c in
// bytes. If the GemmView has rounded up the size of the last digit (dimension) of index n, `n_limit` is the exact size;
// else it is 0.
GemmOutput output_of(const GemmView&, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit = 0);

// Fills in the divisors (FastDivmod objects) of the indices m, n and batch of the output. A caller that changes m or n
// afterwards must call divide() again.
void divide(GemmOutput&);
GemmStore store_of(const GemmOutput&, bool has_c);

// The compile-time options of an epilogue. With run-time options, the code for unused options would cost time, too
// (docs/notes/gemm.md).
struct EpilogueTraits {
  Activation activation = Activation::identity;
  bool bias = false, c = false;
  GemmStore store = GemmStore::lines;

  std::string text() const;  // the options of the epilogue as text: C++ template arguments
};

}  // namespace minidnn
