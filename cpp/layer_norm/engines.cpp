// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of layer_norm.
#include "cpp/engine/engine_list.h"
#include "cpp/layer_norm/layer_norm.h"

namespace minidnn {

namespace cpu::layer_norm {
// clang-format off
using List = EngineList<LayerNormProblem,
    struct ContiguousRows,
    struct StridedAxis,
    struct DenseCopies,
    struct Reference>;
// clang-format on
}  // namespace cpu::layer_norm

const Engines<LayerNormProblem>& Family<LayerNormProblem>::cpu_engines() { return cpu::layer_norm::List::get(); }

}  // namespace minidnn
