// SPDX-License-Identifier: Apache-2.0
// Padding: the public function, and the struct that describes a call. The formulas are in pad_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"
#include "cpp/pad/pad_math.h"

namespace minidnn {

template <> struct Family<PadProblem> {
  using Args = PadArgs;
  static constexpr const char* name = "pad";
  static std::string text(const PadProblem&);
  static Args scratch(const PadProblem&, Scratch&);
  static const Engines<PadProblem>& cpu_engines();
  static const Engines<PadProblem>& cuda_engines();
};

// Returns the mode of that name; throws ShapeError if there is none.
PadMode pad_mode(const std::string&, const char* call);

// Returns x with widths[d].before and widths[d].after additional elements in dimension d. The mode decides what these
// are: `value`, copies of the edge, or a reflection at the edge.
Tensor pad(const Tensor& x, const std::vector<Sides>& widths, PadMode, double value, const Call&);

// For engines: writes the call to PadLines, and the size of a word in bytes to `word`. A word is one element, or
// several elements of at most `widest` bytes together. Returns "" if the call has this form, else the reason.
std::string pad_lines(const PadProblem&, int64_t widest, PadLines&, int64_t& word);
double pad_bytes(const PadProblem&);

}  // namespace minidnn
