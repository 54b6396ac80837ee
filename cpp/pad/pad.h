// SPDX-License-Identifier: Apache-2.0
// Padding of tensors: the public function, and functions for engines. The formulas are in pad_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"
#include "cpp/pad/pad_math.h"

namespace minidnn {

template <> struct Family<PadProblem> {
  using Args = PadArgs;
  static constexpr const char* name = "pad";
  static std::string text(const PadProblem&);
  static void ports(const PadProblem&, Args&, Ports&);
  static const Engines<PadProblem>& cpu_engines();
  static const Engines<PadProblem>& cuda_engines();
};

// Returns the padding mode that has the given name. Throws ShapeError if no mode has this name.
PadMode pad_mode(const std::string&, const char* call);

// Pads x. In each dimension d, the result has widths[d].before additional elements before those of x, and
// widths[d].after additional elements after them. The mode decides the values of the additional elements: the given
// `value`, copies of the edge of x, or a reflection of x at the edge.
Tensor pad(const Tensor& x, const std::vector<Sides>& widths, PadMode, double value, const Call&);

// For engines: checks whether PadLines can describe a padding. If it can, stores the description, stores the size of a
// word in bytes in `word`, and returns an empty string. If it cannot, returns the reason. A word is one element, or
// several elements that are copied together and have at most `widest` bytes.
std::string pad_lines(const PadProblem&, int64_t widest, PadLines&, int64_t& word);
double pad_bytes(const PadProblem&);

}  // namespace minidnn
