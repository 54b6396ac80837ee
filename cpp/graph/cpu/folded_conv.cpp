// SPDX-License-Identifier: Apache-2.0
// cpu.graph.folded_conv: a convolution with the weights and the bias of the batch norm behind it.
// cpp/graph/library_op.h describes it.
#include "cpp/graph/library_op.h"

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::graph {

struct FoldedConv final : minidnn::graph::FoldedConvEngine {
  std::string name() const override { return "cpu.graph.folded_conv"; }
};

}  // namespace cpu::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cpu::graph::FoldedConv>();

}  // namespace minidnn
