// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of the random family, which computes random numbers and dropout.
#include "cpp/engine/engine_list.h"
#include "cpp/random/random.h"

namespace minidnn {

namespace cpu::random {
// clang-format off
using List = EngineList<RandomProblem,
    struct Vectorized,
    struct Reference>;
// clang-format on
}  // namespace cpu::random

const Engines<RandomProblem>& Family<RandomProblem>::cpu_engines() { return cpu::random::List::get(); }

}  // namespace minidnn
