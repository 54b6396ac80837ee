// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of attention.
#include "cpp/attention/attention.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cpu::attention {
// clang-format off
using List = EngineList<AttentionProblem,
    struct Flash,
    struct Reference>;
// clang-format on
}  // namespace cpu::attention

const Engines<AttentionProblem>& Family<AttentionProblem>::cpu_engines() { return cpu::attention::List::get(); }

}  // namespace minidnn
