// SPDX-License-Identifier: Apache-2.0
// cuda.graph.folded_conv: a convolution with the weights and the bias of the batch norm behind it.
// cpp/graph/library_op.h describes it.
#include "cpp/graph/library_op.h"

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cuda::graph {

struct FoldedConv final : minidnn::graph::FoldedConvEngine {
  std::string name() const override { return "cuda.graph.folded_conv"; }
};

}  // namespace cuda::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cuda::graph::FoldedConv>();

}  // namespace minidnn
