// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of rnn.
#include "cpp/engine/engine_list.h"
#include "cpp/rnn/rnn.h"

namespace minidnn {

namespace cpu::rnn {
// clang-format off
using List = EngineList<RnnProblem,
    struct PackedGemm,
    struct Reference>;
// clang-format on
}  // namespace cpu::rnn

const Engines<RnnProblem>& Family<RnnProblem>::cpu_engines() { return cpu::rnn::List::get(); }

}  // namespace minidnn
