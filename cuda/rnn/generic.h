// SPDX-License-Identifier: Apache-2.0
// The passes of rnn_math.h as launches of the kernels of generic.cu.
#pragma once
#include <array>

#include "cpp/rnn/rnn.h"
#include "cuda/runtime/launch.h"

namespace minidnn::cuda::rnn {

class GenericPasses {
 public:
  // Loads the kernels of the passes of a call for which wanted(pass) is true.
  GenericPasses(const RnnProblem&, const Device&, bool (*wanted)(RnnPass));
  void launch(RnnPass, const RnnLayer&, int64_t step, int64_t items, Stream) const;

 private:
  RnnProblem problem_;
  std::array<std::shared_ptr<const Kernel>, kRnnPasses> kernels_;
  int64_t most_blocks_;
};

}  // namespace minidnn::cuda::rnn
