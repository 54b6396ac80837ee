// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of the gather family, which selects slices by index.
#include "cpp/engine/engine_list.h"
#include "cpp/gather/gather.h"

namespace minidnn {

namespace cpu::gather {
// clang-format off
using List = EngineList<GatherProblem,
    struct ContiguousRows,
    struct Reference>;
// clang-format on
}  // namespace cpu::gather

const Engines<GatherProblem>& Family<GatherProblem>::cpu_engines() { return cpu::gather::List::get(); }

}  // namespace minidnn
