// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of ctc.
#include "cpp/ctc/ctc.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cpu::ctc {
// clang-format off
using List = EngineList<CtcProblem,
    struct Vectorized,
    struct DenseCopies,
    struct Reference>;
// clang-format on
}  // namespace cpu::ctc

const Engines<CtcProblem>& Family<CtcProblem>::cpu_engines() { return cpu::ctc::List::get(); }

}  // namespace minidnn
