// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of random numbers and dropout.
#include "cpp/engine/engine_list.h"
#include "cpp/random/random.h"

namespace minidnn {

namespace cuda::random {
// clang-format off
using List = EngineList<RandomProblem,
    struct Philox4>;
// clang-format on
}  // namespace cuda::random

const Engines<RandomProblem>& Family<RandomProblem>::cuda_engines() { return cuda::random::List::get(); }

}  // namespace minidnn
