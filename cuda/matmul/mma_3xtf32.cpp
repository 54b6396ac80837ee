// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.mma_3xtf32: an engine that computes each float32 product as three TF32 products. The result is about as
// accurate as with float32 arithmetic. The main loop is that of cuda.matmul.mma.
#include "cuda/matmul/mma.h"

namespace minidnn {
namespace cuda::matmul {

struct Mma3xtf32 final : MmaEngine {
  Mma3xtf32() : MmaEngine(MmaProducts::three) {}
  std::string name() const override { return "cuda.matmul.mma_3xtf32"; }
};

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Mma3xtf32>();

}  // namespace minidnn
