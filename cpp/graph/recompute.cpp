// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/recompute.h"

#include <algorithm>

#include "cpp/activation/activation.h"
#include "cpp/graph/siblings.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn::graph {
namespace {

// Whether an element takes about 12 instructions at most.
bool is_cheap(const Node& n) {
  if (!is_elementwise(n)) return false;
  if (n.kind == &node_kind<PointwiseProblem>()) {
    const auto* p = static_cast<const PointwiseProblem*>(static_cast<const void*>(n.problem.data()));
    const PointwiseGroup group = info(p->op).group;
    return group != PointwiseGroup::maths1 && group != PointwiseGroup::maths2;
  }
  if (n.kind == &node_kind<ActivationProblem>()) {
    const auto* p = static_cast<const ActivationProblem*>(static_cast<const void*>(n.problem.data()));
    return p->mode <= Activation::leaky_relu;
  }
  return true;
}

}  // namespace

std::vector<CheapValue> cheap_values(const Graph& g) {
  const size_t buffers = g.buffers.size();
  std::vector<std::vector<int>> readers(buffers);
  std::vector<int> writer(buffers, -1);
  bool writes_constants = false;  // constants may share memory
  for (int j = 0; j < int(g.nodes.size()); ++j)
    for (const Port& p : g.nodes[size_t(j)].ports) {
      const auto b = size_t(p.view.buffer);
      if (p.writes) writer[b] = j;
      if (p.writes && g.buffers[b].kind == Buffer::Kind::constant) writes_constants = true;
      if (p.reads && (readers[b].empty() || readers[b].back() != j)) readers[b].push_back(j);
    }
  const auto stays = [&](const Buffer& b) {
    if (b.kind == Buffer::Kind::temporary) return b.one_view;
    return !b.written() && (b.kind == Buffer::Kind::input || !writes_constants);
  };
  std::vector<CheapValue> all;
  for (int j = 0; j < int(g.nodes.size()); ++j) {
    const Node& n = g.nodes[size_t(j)];
    if (!is_cheap(n)) continue;
    CheapValue c{j, -1};
    bool possible = true;
    for (const Port& p : n.ports) {
      const Buffer& b = g.buffers[size_t(p.view.buffer)];
      possible = possible && stays(b) && !(p.reads && p.writes);
      if (p.reads && writer[size_t(p.view.buffer)] >= 0) c.operands.push_back(writer[size_t(p.view.buffer)]);
      if (!p.writes) continue;
      c.buffer = p.view.buffer;
      possible = possible && b.kind == Buffer::Kind::temporary && b.bytes == p.view.bytes();
    }
    if (!possible) continue;
    c.readers = readers[size_t(c.buffer)];
    if (c.readers.size() > 1) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace minidnn::graph
