// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of softmax.
#include "cpp/engine/engine_list.h"
#include "cpp/softmax/softmax.h"

namespace minidnn {

namespace cpu::softmax {
// clang-format off
using List = EngineList<SoftmaxProblem,
    struct Vectorized,
    struct Reference>;
// clang-format on
}  // namespace cpu::softmax

const Engines<SoftmaxProblem>& Family<SoftmaxProblem>::cpu_engines() { return cpu::softmax::List::get(); }

}  // namespace minidnn
