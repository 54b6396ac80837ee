// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of reduce.
#include "cpp/engine/engine_list.h"
#include "cpp/reduce/reduce.h"

namespace minidnn {

namespace cpu::reduce {
// clang-format off
using List = EngineList<ReduceProblem,
    struct Vectorized,
    struct Reference>;
// clang-format on
}  // namespace cpu::reduce

const Engines<ReduceProblem>& Family<ReduceProblem>::cpu_engines() { return cpu::reduce::List::get(); }

}  // namespace minidnn
