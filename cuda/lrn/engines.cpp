// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of local response norm and local contrast norm.
#include "cpp/engine/engine_list.h"
#include "cpp/lrn/lrn.h"

namespace minidnn {

namespace cuda::lrn {
// clang-format off
using List = EngineList<LrnProblem,
    struct CrossChannel,
    struct SpatialWindow,
    struct Generic>;
// clang-format on
}  // namespace cuda::lrn

const Engines<LrnProblem>& Family<LrnProblem>::cuda_engines() { return cuda::lrn::List::get(); }

}  // namespace minidnn
