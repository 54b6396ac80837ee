// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of activation functions.
#include "cpp/activation/activation.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cuda::activation {
// clang-format off
using List = EngineList<ActivationProblem,
    struct Vectorized,
    struct Generic>;
// clang-format on
}  // namespace cuda::activation

const Engines<ActivationProblem>& Family<ActivationProblem>::cuda_engines() { return cuda::activation::List::get(); }

}  // namespace minidnn
