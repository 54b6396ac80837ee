// SPDX-License-Identifier: Apache-2.0
#include "cuda/norm/engines.h"

namespace minidnn {

const Engines<NormProblem>& Family<NormProblem>::cuda_engines() {
  static const Engines<NormProblem> all{&norm_resident(), &norm_split(), &norm_generic()};
  return all;
}
const Engines<RowNormProblem>& Family<RowNormProblem>::cuda_engines() {
  static const Engines<RowNormProblem> all{&norm_rows(), &norm_long_rows(), &norm_groups(), &norm_rows_generic()};
  return all;
}
const Engines<LocalNormProblem>& Family<LocalNormProblem>::cuda_engines() {
  static const Engines<LocalNormProblem> all{&norm_across(), &norm_around(), &norm_local_generic()};
  return all;
}

}  // namespace minidnn
