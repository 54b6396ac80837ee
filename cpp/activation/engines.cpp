// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines that compute activations.
#include "cpp/activation/activation.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cpu::activation {
// clang-format off
using List = EngineList<ActivationProblem,
    struct Vectorized,
    struct Reference>;
// clang-format on
}  // namespace cpu::activation

const Engines<ActivationProblem>& Family<ActivationProblem>::cpu_engines() { return cpu::activation::List::get(); }

}  // namespace minidnn
