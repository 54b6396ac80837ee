// SPDX-License-Identifier: Apache-2.0
// Base classes of CPU engines and plans that use a Tiling: a struct that says how an engine divides its work.
// `Tiling::bytes` is the size of the workspace.
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

// A plan (an engine made ready for one problem) that calls Derived::compute<T, Y>(args, workspace). T is the type of
// the operands, and Y is the type of the result. compute() is compiled for all operand types except float64.
template <class Derived, class Tiling> struct TypedPlan : Plan<ConvProblem>, Tiling {
  using Tiling::Tiling;
  void run(const ConvArgs& args, void* workspace, Stream) const final {
    with_conv_types(this->p, [&](auto from, auto to) {
      using T = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      if constexpr (sizeof(T) != 8)
        static_cast<const Derived&>(*this).template compute<T, Y>(args, static_cast<char*>(workspace));
    });
  }
};

}  // namespace cpu::conv
}  // namespace minidnn
