// SPDX-License-Identifier: Apache-2.0
#include "cuda/transform/engines.h"

namespace minidnn {

const Engines<TransformProblem>& Family<TransformProblem>::cuda_engines() {
  static const Engines<TransformProblem> all{&transform_dense(), &transform_tiled(), &transform_runs(),
                                             &transform_generic()};
  return all;
}
const Engines<PadProblem>& Family<PadProblem>::cuda_engines() {
  static const Engines<PadProblem> all{&pad_lines(), &pad_generic()};
  return all;
}
const Engines<GatherProblem>& Family<GatherProblem>::cuda_engines() {
  static const Engines<GatherProblem> all{&gather_rows(), &gather_generic()};
  return all;
}

}  // namespace minidnn
