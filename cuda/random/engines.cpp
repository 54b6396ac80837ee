// SPDX-License-Identifier: Apache-2.0
#include "cuda/random/engines.h"

namespace minidnn {

const Engines<RandomProblem>& Family<RandomProblem>::cuda_engines() {
  static const Engines<RandomProblem> all{&random_fours()};
  return all;
}

}  // namespace minidnn
