// SPDX-License-Identifier: Apache-2.0
// Code that the CUDA engines of layer norm share: the check for contiguous rows, and the kernel that adds up dscale and
// dbias.
#pragma once
#include "cpp/layer_norm/layer_norm.h"
#include "cuda/layer_norm/persistent_rows_params.h"
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// A kernel of parameter_sums.cu, which adds up `count` pairs of dscale and dbias, [count][columns]. A block has
// `threads` threads and computes `columns` columns.
struct ParameterSums {
  KernelSpec kernel;
  int64_t threads, columns;
};
ParameterSums parameter_sums(int64_t count);

// Checks for contiguous rows, one after another in memory, and fills in the sizes of the tiling. `vector` receives the
// number of elements in a vector. Returns "", or the reason if the layout is another one.
std::string contiguous_rows(const LayerNormProblem&, RowTiling&, int64_t& vector);

}  // namespace minidnn
