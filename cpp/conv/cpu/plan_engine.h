// SPDX-License-Identifier: Apache-2.0
// The base class of CPU engines whose plan is derived from a Tiling. A Tiling says how an engine divides its work. Its
// constructor takes a problem and a device, and only computes numbers. `Tiling::bytes` is the size of the workspace.
#pragma once
#include "cpp/conv/conv.h"

namespace minidnn {
namespace cpu::conv {

template <class Tiling, class PlanOfTiling> struct PlanEngine : Engine<ConvProblem> {
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const final {
    return Tiling(p, d).bytes;
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const final {
    return std::make_unique<PlanOfTiling>(p, d);
  }
};

}  // namespace cpu::conv
}  // namespace minidnn
