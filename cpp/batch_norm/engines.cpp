// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of batch_norm.
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cpu::batch_norm {
// clang-format off
using List = EngineList<BatchNormProblem,
    struct Vectorized,
    struct DenseCopies,
    struct Reference>;
// clang-format on
}  // namespace cpu::batch_norm

const Engines<BatchNormProblem>& Family<BatchNormProblem>::cpu_engines() { return cpu::batch_norm::List::get(); }

}  // namespace minidnn
