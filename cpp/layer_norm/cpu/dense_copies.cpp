// SPDX-License-Identifier: Apache-2.0
// cpu.layer_norm.dense_copies: the other engines on dense copies of tensors whose strides they do not support, such as
// rows that are not contiguous (cpp/engine/dense_copies.h).
#include "cpp/engine/dense_copies.h"
#include "cpp/engine/engine_object.h"
#include "cpp/layer_norm/layer_norm.h"

namespace minidnn {
namespace cpu::layer_norm {

struct DenseCopies final : DenseCopiesEngine<LayerNormProblem> {
  std::string name() const override { return "cpu.layer_norm.dense_copies"; }

 protected:
  std::span<const CopiedTensor<LayerNormProblem>> tensors() const override {
    using P = LayerNormProblem;
    using Args = LayerNormArgs;
    static constexpr CopiedTensor<P> kTensors[] = {
        {&P::x, &Args::x}, {&P::dy, &Args::dy}, {&P::out, nullptr, &Args::out}};
    return kTensors;
  }
  std::vector<Layout> layouts(const LayerNormProblem& p) const override {
    if (p.kind != RowNorm::group) return {Layout::channels_first};
    return {Layout::channels_first, Layout::channels_last};
  }
};

}  // namespace cpu::layer_norm

template const Engine<LayerNormProblem>& engine_object<LayerNormProblem, cpu::layer_norm::DenseCopies>();

}  // namespace minidnn
