// SPDX-License-Identifier: Apache-2.0
// cpu.graph.library_op: a region that equals one call with options. cpp/graph/library_op.h describes it.
#include "cpp/graph/library_op.h"

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::graph {

struct LibraryOp final : minidnn::graph::LibraryOpEngine {
  std::string name() const override { return "cpu.graph.library_op"; }
};

}  // namespace cpu::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cpu::graph::LibraryOp>();

}  // namespace minidnn
