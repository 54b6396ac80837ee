// SPDX-License-Identifier: Apache-2.0
// Layouts that tensor maps support. One dimension is contiguous, and the strides of all other dimensions are multiples
// of 16 bytes. Only host code includes this file.
#pragma once
#include <vector>

#include "cpp/core/dtype.h"
#include "cpp/core/host_device/desc.h"

namespace minidnn {

// The dense layout of `d`, with its innermost dimension padded to 16 bytes. `order`: the dimensions, outermost first.
inline TensorDesc tma_layout(TensorDesc d, const std::vector<int>& order) {
  const int64_t line = 16 / int64_t(itemsize(d.dtype));
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    d.stride[order[i]] = step;
    step *= d.shape[order[i]];
    if (i + 1 == order.size()) step = ceil_div(step, line) * line;
  }
  return d;
}

// Whether a tensor map supports the layout `d` with `inner` as its contiguous dimension.
inline bool fits_tma(const TensorDesc& d, int inner) {
  const int64_t item = int64_t(itemsize(d.dtype));
  for (int i = 0; i < d.rank; ++i)
    if (d.shape[i] > 1 && (i == inner ? d.stride[i] != 1 : d.stride[i] <= 0 || d.stride[i] * item % 16)) return false;
  return true;
}

}  // namespace minidnn
