// SPDX-License-Identifier: Apache-2.0
#include "cuda/reduce/engines.h"

namespace minidnn {

const Engines<ReduceProblem>& Family<ReduceProblem>::cuda_engines() {
  static const Engines<ReduceProblem> all{&reduce_rows(), &reduce_columns(), &reduce_generic()};
  return all;
}

}  // namespace minidnn
