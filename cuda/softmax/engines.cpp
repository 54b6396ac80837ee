// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of softmax.
#include "cpp/engine/engine_list.h"
#include "cpp/softmax/softmax.h"

namespace minidnn {

namespace cuda::softmax {
// clang-format off
using List = EngineList<SoftmaxProblem,
    struct PersistentRows,
    struct StridedAxis,
    struct BlockPerRow,
    struct ThreadPerRow>;
// clang-format on
}  // namespace cuda::softmax

const Engines<SoftmaxProblem>& Family<SoftmaxProblem>::cuda_engines() { return cuda::softmax::List::get(); }

}  // namespace minidnn
