// SPDX-License-Identifier: Apache-2.0
#include "cuda/matmul/engines.h"

namespace minidnn {

const Engines<MatmulProblem>& Family<MatmulProblem>::cuda_engines() {
  static const Engines<MatmulProblem> all{&matmul_wgmma(),      &matmul_wgmma_3xtf32(), &matmul_mma(),
                                          &matmul_mma_3xtf32(), &matmul_simt(),         &matmul_tiled(),
                                          &matmul_generic()};
  return all;
}

}  // namespace minidnn
