// SPDX-License-Identifier: Apache-2.0
// The order that the memory of a graph imposes on its nodes: a node that reads or writes memory runs behind the earlier
// nodes that write it, and a node that writes memory runs behind those that read it.
#pragma once
#include "cpp/graph/graph.h"

namespace minidnn::graph {

// A value that node `from` writes and node `to` reads.
struct Edge {
  int from, to;
  const View* view;
  double bytes;  // that fusion saves
};

struct Order {
  std::vector<std::vector<int>> next, previous;  // for each node, the nodes that must run after and before it
  std::vector<Edge> edges;                       // in the order of `from`, then of `to`
};
Order order_of(const Graph&);

}  // namespace minidnn::graph
