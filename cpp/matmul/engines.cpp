// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of the matmul family, which computes matrix products.
#include "cpp/engine/engine_list.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

namespace cpu::matmul {
// clang-format off
using List = EngineList<MatmulProblem,
    struct Packed,
    struct Reference>;
// clang-format on
}  // namespace cpu::matmul

const Engines<MatmulProblem>& Family<MatmulProblem>::cpu_engines() { return cpu::matmul::List::get(); }

}  // namespace minidnn
