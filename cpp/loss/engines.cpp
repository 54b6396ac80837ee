// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of loss.
#include "cpp/engine/engine_list.h"
#include "cpp/loss/loss.h"

namespace minidnn {

namespace cpu::loss {
// clang-format off
using List = EngineList<LossProblem,
    struct Vectorized,
    struct Strips,
    struct DenseCopies,
    struct Reference>;
// clang-format on
}  // namespace cpu::loss

const Engines<LossProblem>& Family<LossProblem>::cpu_engines() { return cpu::loss::List::get(); }

}  // namespace minidnn
