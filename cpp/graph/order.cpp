// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/order.h"

#include <algorithm>

namespace minidnn::graph {
namespace {

// Returns for each buffer a number that is equal for buffers that may share memory. Only constants do, if they are
// views of one array of the user.
std::vector<int> memory_of_buffers(const Graph& g) {
  std::vector<int> memory(g.buffers.size());
  std::vector<size_t> constants;
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = int(i);
    if (g.buffers[i].kind == Buffer::Kind::constant) constants.push_back(i);
  }
  std::ranges::sort(constants, {}, [&](size_t i) { return g.buffers[i].base; });
  uintptr_t end = 0;
  for (size_t k = 0; k < constants.size(); ++k) {
    const Buffer& b = g.buffers[constants[k]];
    if (k && b.base < end) memory[constants[k]] = memory[constants[k - 1]];
    end = std::max(end, b.base + b.bytes);
  }
  return memory;
}

}  // namespace

Order order_of(const Graph& g) {
  struct Use {
    int node;
    const Port* port;
    uintptr_t address;
  };
  const std::vector<int> memory = memory_of_buffers(g);
  std::vector<std::vector<Use>> uses(g.buffers.size()), writes(g.buffers.size());
  Order o;
  o.next.resize(g.nodes.size());
  o.previous.resize(g.nodes.size());
  for (int j = 0; j < int(g.nodes.size()); ++j) {
    const Node& node = g.nodes[size_t(j)];
    std::vector<int>& before = o.previous[size_t(j)];
    for (const Port& p : node.ports) {
      const auto m = size_t(memory[size_t(p.view.buffer)]);
      const uintptr_t address = g.buffers[size_t(p.view.buffer)].base + uintptr_t(p.view.offset);
      const Use* writer = nullptr;  // the last node that writes an element which `p` reads
      for (const Use& u : p.writes ? uses[m] : writes[m]) {
        if (!share_memory(u.port->view.desc, u.address, p.view.desc, address)) continue;
        before.push_back(u.node);
        if (u.port->writes) writer = &u;
      }
      if (!p.reads || !writer || writer->address != address) continue;
      const Buffer& b = g.buffers[size_t(p.view.buffer)];
      const bool stays = b.kind != Buffer::Kind::temporary || b.is_output || !b.one_view;
      o.edges.push_back({writer->node, j, &p.view, double(p.view.bytes()) + (stays ? 0 : double(b.bytes))});
    }
    for (const Port& p : node.ports) {
      const auto m = size_t(memory[size_t(p.view.buffer)]);
      const Use u{j, &p, g.buffers[size_t(p.view.buffer)].base + uintptr_t(p.view.offset)};
      uses[m].push_back(u);
      if (p.writes) writes[m].push_back(u);
    }
    std::ranges::sort(before);
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (int i : before) o.next[size_t(i)].push_back(j);
  }
  std::ranges::stable_sort(o.edges, {}, &Edge::from);
  return o;
}

}  // namespace minidnn::graph
