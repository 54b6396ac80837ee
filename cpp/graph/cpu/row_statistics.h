// SPDX-License-Identifier: Apache-2.0
// The calls of statistics of rows, by the loops of the norms, of softmax and of reduce. Arguments are slots of a tape:
// those of elements have float32 elements, those of numbers have one float for each row of the block. The calls of
// statistics get all elements of a block. Those of elements get a span: a part of a row, or several whole rows.
#pragma once
#include "cpp/graph/cpu/tape.h"

namespace minidnn::cpu::graph {

inline float* floats(const Span& s, int slot) { return static_cast<float*>(s.slot[slot]); }

// RMS norm has neither mean nor rest: their slots are -1.
struct NormSlots {
  int mean, rest, inv_std;
};
// `mean_result` is a second slot for the mean, or -1.
Call norm_statistics(const RegionNode&, int64_t cols, int x, const NormSlots&, int mean_result);
// `scale` and `bias` are -1 if the norm has none.
Call normalized_elements(int64_t cols, int x, const NormSlots&, int scale, int bias, int y);

// The exponentials are stored in slot `e`, unless it is -1. `sum` gets the logarithm of their sum for log-softmax, else
// the inverse of the sum.
Call softmax_statistics(const RegionNode&, int64_t cols, int x, int e, int largest, int sum);
Call softmax_gradient_statistics(const RegionNode&, int64_t cols, int y, int dy, int sum);
Call softmax_gradient_elements(const RegionNode&, int64_t cols, int y, int dy, int sum, int dx);
// All elements of short rows of softmax, or of its gradient. Softmax ignores `dy`.
Call short_softmax(const RegionNode&, int64_t cols, int in, int dy, int out);

Call reduced_rows(const RegionNode&, int64_t cols, int x, int y);

}  // namespace minidnn::cpu::graph
