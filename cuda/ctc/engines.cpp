// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of ctc.
#include "cpp/ctc/ctc.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cuda::ctc {
// clang-format off
using List = EngineList<CtcProblem,
    struct Wavefront,
    struct Generic>;
// clang-format on
}  // namespace cuda::ctc

const Engines<CtcProblem>& Family<CtcProblem>::cuda_engines() { return cuda::ctc::List::get(); }

}  // namespace minidnn
