// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.wgmma_3xtf32: an engine that computes each float32 product as three TF32 products
// (cuda/gemm/sm90/tf32x3/three_tf32.h). Its main loop is that of cuda.matmul.wgmma.
#include "cuda/gemm/sm90/tf32x3/three_tf32.h"
#include "cuda/matmul/wgmma.h"

namespace minidnn {
namespace cuda::matmul {

struct Wgmma3xtf32 final : ThreeTf32Engine<MatmulProblem> {
  std::string name() const override { return "cuda.matmul.wgmma_3xtf32"; }
  const RelayoutEngine<MatmulProblem>& plain() const override {
    return static_cast<const Wgmma&>(engine_object<MatmulProblem, Wgmma>());
  }
  bool convolves() const override { return false; }
  std::array<Operand, 2> operands(const MatmulProblem& p) const override {
    const int last = int(p.y.rank) - 1;
    return {{{&MatmulProblem::a, &MatmulArgs::a, last}, {&MatmulProblem::b, &MatmulArgs::b, last - 1}}};
  }
};

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Wgmma3xtf32>();

}  // namespace minidnn
