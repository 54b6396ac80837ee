// SPDX-License-Identifier: Apache-2.0
// The common part of CPU engines whose plan is derived from a tiling: a struct that a constructor computes from a
// problem and a device, without building anything. Its member `bytes` is the size of the workspace.
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
