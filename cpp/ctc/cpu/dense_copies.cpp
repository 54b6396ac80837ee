// SPDX-License-Identifier: Apache-2.0
// cpu.ctc.dense_copies: cpu.ctc.vectorized on dense copies of tensors whose classes are not contiguous
// (cpp/engine/dense_copies.h).
#include "cpp/engine/dense_copies.h"
#include "cpp/ctc/ctc.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::ctc {

struct DenseCopies final : DenseCopiesEngine<CtcProblem> {
  std::string name() const override { return "cpu.ctc.dense_copies"; }

 protected:
  std::span<const CopiedTensor<CtcProblem>> tensors() const override {
    static constexpr CopiedTensor<CtcProblem> kTensors[] = {{&CtcProblem::x, &CtcArgs::x},
                                                            {&CtcProblem::dx, nullptr, &CtcArgs::dx}};
    return kTensors;
  }
  std::vector<Layout> layouts(const CtcProblem&) const override { return {Layout::channels_first}; }
};

}  // namespace cpu::ctc

template const Engine<CtcProblem>& engine_object<CtcProblem, cpu::ctc::DenseCopies>();

}  // namespace minidnn
