// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of the transform family, which copies, casts and scales tensors.
#include "cpp/engine/engine_list.h"
#include "cpp/transform/transform.h"

namespace minidnn {

namespace cpu::transform {
// clang-format off
using List = EngineList<TransformProblem,
    struct Tiled,
    struct Reference>;
// clang-format on
}  // namespace cpu::transform

const Engines<TransformProblem>& Family<TransformProblem>::cpu_engines() { return cpu::transform::List::get(); }

}  // namespace minidnn
