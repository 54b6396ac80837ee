// SPDX-License-Identifier: Apache-2.0
// cuda.graph.unfused: the nodes of a region, one by one. cpp/graph/unfused.h describes it.
#include "cpp/graph/unfused.h"

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cuda::graph {

struct Unfused final : minidnn::graph::UnfusedEngine {
  std::string name() const override { return "cuda.graph.unfused"; }
};

}  // namespace cuda::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cuda::graph::Unfused>();

}  // namespace minidnn
