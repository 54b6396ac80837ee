// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of the pad family, which pads tensors.
#include "cpp/engine/engine_list.h"
#include "cpp/pad/pad.h"

namespace minidnn {

namespace cpu::pad {
// clang-format off
using List = EngineList<PadProblem,
    struct ContiguousRows,
    struct Reference>;
// clang-format on
}  // namespace cpu::pad

const Engines<PadProblem>& Family<PadProblem>::cpu_engines() { return cpu::pad::List::get(); }

}  // namespace minidnn
