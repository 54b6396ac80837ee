// SPDX-License-Identifier: Apache-2.0
// cuda.attention.wgmma_ordered: gradients on Hopper that repeat their bits. Tiles of dq are added in a fixed order.
#include "cpp/engine/engine_object.h"
#include "cuda/attention/wgmma_backward.h"

namespace minidnn {

namespace cuda::attention {

struct WgmmaOrdered final : WgmmaGradients {
  WgmmaOrdered() : WgmmaGradients(true) {}
  std::string name() const override { return "cuda.attention.wgmma_ordered"; }
};

}  // namespace cuda::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cuda::attention::WgmmaOrdered>();

}  // namespace minidnn
