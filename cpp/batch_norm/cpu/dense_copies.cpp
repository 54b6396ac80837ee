// SPDX-License-Identifier: Apache-2.0
// cpu.batch_norm.dense_copies: cpu.batch_norm.vectorized on dense copies of tensors whose strides that engine does not
// support (cpp/engine/dense_copies.h).
#include "cpp/engine/dense_copies.h"
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::batch_norm {

struct DenseCopies final : DenseCopiesEngine<BatchNormProblem> {
  std::string name() const override { return "cpu.batch_norm.dense_copies"; }

 protected:
  std::span<const CopiedTensor<BatchNormProblem>> tensors() const override {
    using P = BatchNormProblem;
    using Args = BatchNormArgs;
    static constexpr CopiedTensor<P> kTensors[] = {{&P::x, &Args::x},
                                                   {&P::dy, &Args::dy},
                                                   {&P::other, &Args::other},
                                                   {&P::out, nullptr, &Args::out},
                                                   {&P::dresidual, nullptr, &Args::dresidual}};
    return kTensors;
  }
  std::vector<Layout> layouts(const BatchNormProblem&) const override {
    return {Layout::channels_first, Layout::channels_last};
  }
};

}  // namespace cpu::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cpu::batch_norm::DenseCopies>();

}  // namespace minidnn
