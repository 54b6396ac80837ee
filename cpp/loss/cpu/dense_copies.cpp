// SPDX-License-Identifier: Apache-2.0
// cpu.loss.dense_copies: the other engines on dense copies of tensors with gaps or with another order of dimensions,
// whose rows of classes are adjacent for a few elements only (cpp/engine/dense_copies.h).
#include "cpp/engine/dense_copies.h"
#include "cpp/engine/engine_object.h"
#include "cpp/loss/loss.h"

namespace minidnn {
namespace cpu::loss {

struct DenseCopies final : DenseCopiesEngine<LossProblem> {
  std::string name() const override { return "cpu.loss.dense_copies"; }

 protected:
  std::span<const CopiedTensor<LossProblem>> tensors() const override {
    static constexpr CopiedTensor<LossProblem> kTensors[] = {{&LossProblem::x, &LossArgs::x},
                                                             {&LossProblem::dx, nullptr, &LossArgs::dx}};
    return kTensors;
  }
  std::vector<Layout> layouts(const LossProblem&) const override { return {Layout::channels_first}; }
};

}  // namespace cpu::loss

template const Engine<LossProblem>& engine_object<LossProblem, cpu::loss::DenseCopies>();

}  // namespace minidnn
