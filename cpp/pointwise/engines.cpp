// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of pointwise.
#include "cpp/engine/engine_list.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {

namespace cpu::pointwise {
// clang-format off
using List = EngineList<PointwiseProblem,
    struct Vectorized,
    struct Reference>;
// clang-format on
}  // namespace cpu::pointwise

const Engines<PointwiseProblem>& Family<PointwiseProblem>::cpu_engines() { return cpu::pointwise::List::get(); }

}  // namespace minidnn
