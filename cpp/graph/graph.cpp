// SPDX-License-Identifier: Apache-2.0
// Implements graph.h: the arena of temporaries, and the text of a graph.
#include "cpp/graph/graph.h"

#include <algorithm>
#include <numeric>

#include "cpp/core/text.h"

namespace minidnn::graph {

void Graph::finish() {
  remove_unused_nodes();
  place_temporaries();
}

void Graph::remove_unused_nodes() {
  std::vector<bool> used(buffers.size(), false);  // whether a later node or an output needs the buffer
  for (size_t i = 0; i < buffers.size(); ++i)
    used[i] = buffers[i].is_output || buffers[i].kind != Buffer::Kind::temporary;
  std::vector<bool> needed(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    for (const Port& p : nodes[i].ports) needed[i] = needed[i] || (p.writes && used[size_t(p.view.buffer)]);
    if (!needed[i]) continue;
    for (const Port& p : nodes[i].ports) used[size_t(p.view.buffer)] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (needed[i]) {
      if (kept != i) nodes[kept] = std::move(nodes[i]);
      ++kept;
    }
  if (kept == nodes.size()) return;
  nodes.resize(kept);
  for (Buffer& b : buffers) b.first_write = b.last_use = -1;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const Port& p : nodes[i].ports) buffers[size_t(p.view.buffer)].used_by(int(i), p.writes);
}

void Graph::place_temporaries() {
  constexpr size_t kUnit = 512;  // temporaries begin at multiples of this number of bytes
  at_.assign(buffers.size(), 0);
  std::vector<size_t> order;  // the temporaries that are no outputs, the largest first
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].kind == Buffer::Kind::temporary && !buffers[i].is_output && buffers[i].last_use >= 0)
      order.push_back(i);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return buffers[i].bytes; });
  std::vector<size_t> placed;
  for (size_t i : order) {
    const Buffer& b = buffers[i];
    // The buffers that are in use at the same time as `b`, in the order of their offsets.
    std::vector<size_t> near;
    for (size_t k : placed)
      if (buffers[k].first_write <= b.last_use && b.first_write <= buffers[k].last_use) near.push_back(k);
    std::ranges::sort(near, {}, [&](size_t k) { return at_[k]; });
    size_t at = 0;  // the first gap that is large enough
    for (size_t k : near) {
      if (at + b.bytes <= at_[k]) break;
      at = std::max(at, (at_[k] + buffers[k].bytes + kUnit - 1) / kUnit * kUnit);
    }
    at_[i] = at;
    arena_bytes_ = std::max(arena_bytes_, at + b.bytes);
    placed.push_back(i);
  }
}

std::string Graph::name_of(const View& v) const {
  const Buffer& b = buffers[size_t(v.buffer)];
  if (v.offset == 0 && v.bytes() == b.bytes) return b.name;
  // An input that shares memory with another one has a name of its own.
  for (const Named& n : inputs)
    if (n.view.buffer == v.buffer && n.view.offset == v.offset && n.view.desc.numel() == v.desc.numel()) return n.name;
  return v.offset ? cat(b.name, "[", v.offset, "]") : b.name;
}

std::string Graph::text() const {
  std::string text = cat("graph ", name(place), ": ", nodes.size(), nodes.size() == 1 ? " node, " : " nodes, ",
                         arena_bytes_, " bytes of temporaries\n");
  for (const Named& n : inputs)
    text += cat("  ", n.name, " in ", short_name(n.view.desc.dtype), " ", problem_text(n.view.desc), "\n");
  for (const Node& node : nodes) {
    std::string reads, writes;
    for (const Port& p : node.ports) {
      if (p.writes) writes += cat(writes.empty() ? "" : ", ", name_of(p.view));
      if (p.reads) reads += cat(reads.empty() ? "" : " ", p.name, "=", name_of(p.view));
    }
    text += cat("  ", writes, " = ", node.kind->family, "(", reads, ")  # ", node.kind->text(node.problem.data()),
                node.algo.empty() ? "" : cat(" algo=", node.algo), "\n");
  }
  for (const Named& n : outputs)
    text += cat("  out ", n.name, n.name == name_of(n.view) ? "" : cat(" = ", name_of(n.view)), " ",
                short_name(n.view.desc.dtype), " ", problem_text(n.view.desc), "\n");
  text.pop_back();  // the last newline
  return text;
}

}  // namespace minidnn::graph
