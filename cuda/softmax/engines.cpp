// SPDX-License-Identifier: Apache-2.0
#include "cuda/softmax/engines.h"

namespace minidnn {

const Engines<SoftmaxProblem>& Family<SoftmaxProblem>::cuda_engines() {
  static const Engines<SoftmaxProblem> all{&softmax_rows(), &softmax_columns(), &softmax_generic(), &softmax_thread()};
  return all;
}

}  // namespace minidnn
