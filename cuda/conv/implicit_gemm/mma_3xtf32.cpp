// SPDX-License-Identifier: Apache-2.0
// cuda.conv.mma_3xtf32: an engine that computes an implicit GEMM by mma.sync (mma.h). It computes each float32 product
// as three TF32 products.
#include "cuda/conv/implicit_gemm/mma.h"

namespace minidnn {
namespace cuda::conv {

struct Mma3xtf32 final : MmaEngine {
  Mma3xtf32() : MmaEngine(MmaProducts::three) {}
  std::string name() const override { return "cuda.conv.mma_3xtf32"; }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Mma3xtf32>();

}  // namespace minidnn
