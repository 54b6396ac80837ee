// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of batch norm.
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cuda::batch_norm {
// clang-format off
using List = EngineList<BatchNormProblem,
    struct Persistent,
    struct TwoPass,
    struct Generic>;
// clang-format on
}  // namespace cuda::batch_norm

const Engines<BatchNormProblem>& Family<BatchNormProblem>::cuda_engines() { return cuda::batch_norm::List::get(); }

}  // namespace minidnn
