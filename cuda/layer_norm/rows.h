// SPDX-License-Identifier: Apache-2.0
// What the engines of cuda.layer_norm share: the layout of contiguous rows, and the launch that joins dscale and dbias.
#pragma once
#include "cpp/layer_norm/layer_norm.h"
#include "cuda/layer_norm/persistent_rows_params.h"
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// The kernel (parameter_sums.cu) that joins pairs of dscale and dbias, [count][columns]; `columns` of them per block.
struct ParameterSums {
  KernelSpec kernel;
  int64_t threads, columns;
};
ParameterSums parameter_sums(int64_t count);

// The layout of cuda.layer_norm.persistent_rows and cuda.layer_norm.two_pass: contiguous rows that follow each other in
// memory. Fills in rows, columns, centered and groups, and the elements of a vector. Returns "", or why the layout is
// another one.
std::string contiguous_rows(const LayerNormProblem&, RowTiling&, int64_t& vector);

}  // namespace minidnn
