// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of attention.
#include "cpp/attention/attention.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cuda::attention {
// clang-format off
using List = EngineList<AttentionProblem,
    struct Wgmma,
    struct WgmmaBackward,
    struct WgmmaOrdered,
    struct Mma,
    struct Generic>;
// clang-format on
}  // namespace cuda::attention

const Engines<AttentionProblem>& Family<AttentionProblem>::cuda_engines() { return cuda::attention::List::get(); }

}  // namespace minidnn
