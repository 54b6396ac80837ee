// SPDX-License-Identifier: Apache-2.0
// Generates the source of a kernel for a region of single rows: the struct Region that cuda/graph/row_reduction.cu
// reads. It has no sizes and no strides, so regions that differ in these alone share a kernel.
#pragma once
#include "cpp/graph/step_source.h"

namespace minidnn {

// What a thread has of a row in registers.
struct RowVectors {
  int vectors, width;  // at most `vectors` vectors of `width` elements of each dense tensor
  int registers = 64;  // the most that a thread has, 64 or 80, but for sm_120
  int kept = 0;        // the number of values of each element that stay in registers between statistics
};
// A value that many instructions compute is kept, if it is used before and after a statistic. Others are computed
// again.
RowVectors row_vectors(const Region&, const RowRegion&);

// How a kernel loads a tensor: once into registers, at each use from the number of its column (such as a bias), or at
// each use from another offset.
enum class RowLoad { dense, column, other };
RowLoad row_load_of(const RowRegion&, const ElementOperand&);

GeneratedSource row_source(const Region&, const RowRegion&);

}  // namespace minidnn
