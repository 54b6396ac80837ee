// SPDX-License-Identifier: Apache-2.0
// Lists the CUDA engines of matmul.
#include "cpp/engine/engine_list.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

namespace cuda::matmul {
// clang-format off
using List = EngineList<MatmulProblem,
    struct Wgmma,
    struct Wgmma3xtf32,
    struct Mma,
    struct Mma3xtf32,
    struct Simt,
    struct Tiled,
    struct Generic>;
// clang-format on
}  // namespace cuda::matmul

const Engines<MatmulProblem>& Family<MatmulProblem>::cuda_engines() { return cuda::matmul::List::get(); }

}  // namespace minidnn
