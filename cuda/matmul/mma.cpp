// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.mma: an engine for matrix products of any strides, by tensor cores of sm_80 and later. Its main loop is
// cuda/gemm/mma/kernel.cu.
#include "cuda/matmul/mma.h"

namespace minidnn {
namespace cuda::matmul {

struct Mma final : MmaEngine {
  Mma() : MmaEngine(MmaProducts::one) {}
  std::string name() const override { return "cuda.matmul.mma"; }
};

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Mma>();

}  // namespace minidnn
