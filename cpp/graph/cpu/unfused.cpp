// SPDX-License-Identifier: Apache-2.0
// cpu.graph.unfused: the nodes of a region, one by one. cpp/graph/unfused.h describes it.
#include "cpp/graph/unfused.h"

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::graph {

struct Unfused final : minidnn::graph::UnfusedEngine {
  std::string name() const override { return "cpu.graph.unfused"; }
};

}  // namespace cpu::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cpu::graph::Unfused>();

}  // namespace minidnn
