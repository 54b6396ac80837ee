// SPDX-License-Identifier: Apache-2.0
// cuda.conv.mma: an engine that computes an implicit GEMM by mma.sync (mma.h). It computes each float32 product as one
// TF32 product.
#include "cuda/conv/implicit_gemm/mma.h"

namespace minidnn {
namespace cuda::conv {

struct Mma final : MmaEngine {
  Mma() : MmaEngine(MmaProducts::one) {}
  std::string name() const override { return "cuda.conv.mma"; }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Mma>();

}  // namespace minidnn
