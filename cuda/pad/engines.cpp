// SPDX-License-Identifier: Apache-2.0
// Lists the CUDA engines of pad.
#include "cpp/engine/engine_list.h"
#include "cpp/pad/pad.h"

namespace minidnn {

namespace cuda::pad {
// clang-format off
using List = EngineList<PadProblem,
    struct Vectorized,
    struct Generic>;
// clang-format on
}  // namespace cuda::pad

const Engines<PadProblem>& Family<PadProblem>::cuda_engines() { return cuda::pad::List::get(); }

}  // namespace minidnn
