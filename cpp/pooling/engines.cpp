// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of pooling.
#include "cpp/engine/engine_list.h"
#include "cpp/pooling/pooling.h"

namespace minidnn {

namespace cpu::pooling {
// clang-format off
using List = EngineList<PoolingProblem,
    struct Nchw,
    struct Nhwc,
    struct MaxWithIndices,
    struct Lines,
    struct Reference>;
// clang-format on
}  // namespace cpu::pooling

const Engines<PoolingProblem>& Family<PoolingProblem>::cpu_engines() { return cpu::pooling::List::get(); }

}  // namespace minidnn
