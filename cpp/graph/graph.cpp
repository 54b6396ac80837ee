// SPDX-License-Identifier: Apache-2.0
// Implements Graph of graph.h: its partitions, the arena of temporaries, and its text.
#include "cpp/graph/graph.h"

#include <mutex>

#include "cpp/core/text.h"
#include "cpp/graph/arena.h"
#include "cpp/graph/partition.h"
#include "cpp/graph/rewrite.h"

namespace minidnn::graph {

// The partitions of a graph, by the options that they depend on.
struct Graph::Partitions {
  struct Entry {
    HandleOptions options;
    std::unique_ptr<const Partition> partition;
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};

void Graph::finish(bool rewrites) {
  remove_unused_nodes();
  if (rewrites && rewrite(*this)) {
    remove_unused_nodes();
    find_lifetimes();
  }
  count_uses();
  place_temporaries();
  partitions_ = std::make_shared<Partitions>();
}

const Partition& Graph::partition(Handle& h) const {
  const HandleOptions& o = h.options();
  const std::lock_guard lock(partitions_->mutex);
  for (const Partitions::Entry& e : partitions_->entries) {
    const HandleOptions& known = e.options;
    if (known.max_workspace == o.max_workspace && known.deterministic == o.deterministic && known.threads == o.threads)
      return *e.partition;
  }
  auto made = std::make_unique<const Partition>(make_partition(*this, h));
  return *partitions_->entries.emplace_back(o, std::move(made)).partition;
}

void Graph::count_uses() {
  std::vector<int> writes(buffers.size(), 0);
  std::vector<int64_t> first(buffers.size(), -1);  // the offset of the first port
  for (const Node& node : nodes)
    for (const Port& p : node.ports) {
      const auto i = size_t(p.view.buffer);
      ++buffers[i].uses;
      writes[i] += p.writes;
      if (first[i] < 0) first[i] = p.view.offset;
      if (writes[i] > 1 || first[i] != p.view.offset) buffers[i].one_view = false;
    }
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
  find_lifetimes();
}

void Graph::find_lifetimes() {
  for (Buffer& b : buffers) b.first_write = b.last_use = -1;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const Port& p : nodes[i].ports) buffers[size_t(p.view.buffer)].used_by(int(i), p.writes);
}

void Graph::place_temporaries() {
  std::vector<Lifetime> lifetimes(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& b = buffers[i];
    if (b.kind == Buffer::Kind::temporary && !b.is_output) lifetimes[i] = {b.bytes, b.first_write, b.last_use};
  }
  arena_bytes_ = place_in_arena(lifetimes, at_);
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
                node.algo.empty() ? "" : cat(" algo=", node.algo),
                node.rewrites.empty() ? "" : cat("; rewritten: ", node.rewrites), "\n");
  }
  for (const Named& n : outputs)
    text += cat("  out ", n.name, n.name == name_of(n.view) ? "" : cat(" = ", name_of(n.view)), " ",
                short_name(n.view.desc.dtype), " ", problem_text(n.view.desc), "\n");
  text.pop_back();  // the last newline
  return text;
}

}  // namespace minidnn::graph
