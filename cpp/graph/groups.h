// SPDX-License-Identifier: Apache-2.0
// Chooses the nodes of each region, as partition.h describes.
#pragma once
#include "cpp/graph/partition.h"

namespace minidnn::graph {

// The nodes of a region, or a node that runs alone.
struct Group {
  std::vector<int> nodes;  // indices in Graph::nodes, ascending
  Recomputed recomputed;
};
struct Grouping {
  std::vector<Group> groups;  // in an order in which they can run
  std::vector<NotFused> not_fused;
};
Grouping group_nodes(const Graph&, Handle&);

}  // namespace minidnn::graph
