// SPDX-License-Identifier: Apache-2.0
// Converts the output of a GemmView to the form that the epilogues read (output_params.h). Chooses the way to store the
// output (GemmStore). Only host code includes this file.
#pragma once
#include <string>

#include "cpp/core/dtype.h"
#include "cuda/gemm/epilogue/output_params.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

// Converts the output of a GemmView. `alignment` is that of y and c in bytes. `n_limit`: the exact size of the last
// dimension of n if the GemmView has rounded it up, else 0.
GemmOutput output_of(const GemmView&, DType y, int64_t alignment, bool has_c, bool has_bias, int64_t n_limit = 0);

// Sets the divisors of m, n and batch. Call it again after any change of m or n.
void divide(GemmOutput&);
GemmStore store_of(const GemmOutput&, bool has_c);
// The estimated microseconds that c costs if it alone keeps y from being stored in vectors. An example is a c of one
// value for each row.
double scattered_c_us(const GemmTask&, GemmStore with_c, GemmStore without_c, const Device&);

// Compile-time options, because unused run-time options would cost time (docs/notes/gemm.md).
struct EpilogueTraits {
  Activation activation = Activation::identity;
  bool bias = false, c = false;
  GemmStore store = GemmStore::lines;

  std::string text() const;  // returns C++ template arguments
};

}  // namespace minidnn
