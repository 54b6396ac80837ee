// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma_3xtf32: an engine like cuda.conv.wgmma, but it computes each float32 product as three TF32 products
// (cuda/gemm/sm90/tf32x3/three_tf32.h). So in its operands, the summed dimension (channels, filters or images) is three
// times as long.
#include "cpp/engine/engine_object.h"
#include "cuda/conv/implicit_gemm/wgmma.h"
#include "cuda/gemm/sm90/tf32x3/three_tf32.h"

namespace minidnn {
namespace cuda::conv {

struct Wgmma3xtf32 final : ThreeTf32Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma_3xtf32"; }
  const RelayoutEngine<ConvProblem>& plain() const override { return wgmma(); }
  bool convolves() const override { return true; }
  std::string refusal(const ConvProblem& p) const override {
    if (p.groups > 1 && p.direction != ConvDirection::backward_filter)
      return cat("supports groups > 1 in backward_filter only; got groups=", p.groups);
    return ThreeTf32Engine::refusal(p);
  }
  std::array<Operand, 2> operands(const ConvProblem& p) const override {
    const Operand x{&ConvProblem::x, &ConvArgs::x, p.direction == ConvDirection::forward},
        w{&ConvProblem::w, &ConvArgs::w, p.direction == ConvDirection::forward},
        dy{&ConvProblem::y, &ConvArgs::dy, p.direction == ConvDirection::backward_data};
    if (p.direction == ConvDirection::forward) return {x, w};
    if (p.direction == ConvDirection::backward_data) return {dy, w};
    return {dy, x};
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Wgmma3xtf32>();

}  // namespace minidnn
