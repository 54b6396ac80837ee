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

// Pads x. In dimension d, the result has widths[d].before elements before those of x, and widths[d].after elements
// after them: the given `value`, copies of the edge of x, or a reflection of x, depending on the mode.
Tensor pad(const Tensor& x, const std::vector<Sides>& widths, PadMode, double value, const Call&);

// For engines: stores the description of a padding as PadLines, and the size in bytes of a word (elements that are
// copied together, at most `widest` bytes). Returns "", or the reason if there is no such description.
std::string pad_lines(const PadProblem&, int64_t widest, PadLines&, int64_t& word);
double pad_bytes(const PadProblem&);

}  // namespace minidnn
