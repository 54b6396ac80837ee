// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of rnn.
#include "cpp/engine/engine_list.h"
#include "cpp/rnn/rnn.h"

namespace minidnn {

namespace cuda::rnn {
// clang-format off
using List = EngineList<RnnProblem,
    struct Cluster,
    struct Persistent,
    struct StepwiseGemm,
    struct WeightProducts,
    struct Generic>;
// clang-format on
}  // namespace cuda::rnn

const Engines<RnnProblem>& Family<RnnProblem>::cuda_engines() { return cuda::rnn::List::get(); }

}  // namespace minidnn
