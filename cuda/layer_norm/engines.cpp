// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of layer norm.
#include "cpp/engine/engine_list.h"
#include "cpp/layer_norm/layer_norm.h"

namespace minidnn {

namespace cuda::layer_norm {
// clang-format off
using List = EngineList<LayerNormProblem,
    struct PersistentRows,
    struct TwoPass,
    struct TwoPassGroups,
    struct Generic>;
// clang-format on
}  // namespace cuda::layer_norm

const Engines<LayerNormProblem>& Family<LayerNormProblem>::cuda_engines() { return cuda::layer_norm::List::get(); }

}  // namespace minidnn
