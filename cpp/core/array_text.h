// SPDX-License-Identifier: Apache-2.0
// The elements of a tensor as text: the same text as that of numpy.array2string(), in less time.
#pragma once
#include <string>

#include "cpp/core/tensor.h"

namespace minidnn {

// The options that numpy.set_printoptions() sets, and those of one call.
struct ArrayTextOptions {
  bool summarize = false;    // "..." stands for the elements between the first and the last of a long dimension
  int64_t edge_items = 3;    // the number of elements at each end of a summarized dimension: at least 1
  int64_t line_width = 75;   // characters in a line
  int64_t prefix_width = 0;  // characters that the caller writes before the text in its first line
  int64_t precision = 8;     // digits after the decimal point: 0 to kMaxPrecision
  bool suppress = false;     // no scientific notation for small numbers
  char sign = '-';           // of positive numbers: '-' means none, '+' or ' '
  std::string float_mode = "maxprec";  // "fixed", "unique", "maxprec" or "maxprec_equal"
  std::string nan = "nan";             // ASCII without line breaks
  std::string inf = "inf";
  // Arrays with a number of this magnitude or a larger one are in scientific notation. NumPy 2.3 made the limit depend
  // on the dtype.
  double scientific_from = 1e8;
};
constexpr int64_t kMaxPrecision = 100;

// Returns the elements as text. The separator is ", ". The tensor must be on the CPU. bfloat16 is written as float32.
std::string array_text(const Tensor&, const ArrayTextOptions&);

}  // namespace minidnn
