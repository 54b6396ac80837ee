// SPDX-License-Identifier: Apache-2.0
// cuda.graph.library_op: a region that equals one call with options. cpp/graph/library_op.h describes it.
#include "cpp/graph/library_op.h"

#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cuda::graph {

struct LibraryOp final : minidnn::graph::LibraryOpEngine {
  std::string name() const override { return "cuda.graph.library_op"; }
};

}  // namespace cuda::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cuda::graph::LibraryOp>();

}  // namespace minidnn
