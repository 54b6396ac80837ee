// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of lrn.
#include "cpp/engine/engine_list.h"
#include "cpp/lrn/lrn.h"

namespace minidnn {

namespace cpu::lrn {
// clang-format off
using List = EngineList<LrnProblem,
    struct CrossChannel,
    struct SpatialWindow,
    struct Reference>;
// clang-format on
}  // namespace cpu::lrn

const Engines<LrnProblem>& Family<LrnProblem>::cpu_engines() { return cpu::lrn::List::get(); }

}  // namespace minidnn
