// SPDX-License-Identifier: Apache-2.0
// Implements make_partition() of partition.h. groups.cpp chooses the nodes of each region.
#include "cpp/graph/partition.h"

#include <bit>

#include "cpp/graph/arena.h"
#include "cpp/graph/groups.h"

namespace minidnn::graph {
namespace {

// `internal` is the buffers that need no address.
PartitionStep step_of(const Graph& g, const std::vector<int>& nodes, const std::vector<bool>& internal) {
  PartitionStep s;
  s.nodes = nodes;
  for (int i : nodes) {
    const Node& n = g.nodes[size_t(i)];
    const size_t first = s.args.size();
    s.args.insert(s.args.end(), n.args.begin(), n.args.end());
    for (const Port& p : n.ports) {
      s.args[first + size_t(p.word)] = 0;
      if (!internal[size_t(p.view.buffer)])
        s.addresses.push_back({first + size_t(p.word), p.view.buffer, p.view.offset});
    }
    for (const DynamicWord& d : n.dynamic) s.dynamic.push_back({int64_t(first) + d.word, d.number, d.plus});
  }
  return s;
}

// Marks the buffers that are internal to a region.
void mark_internal(const Graph& g, const std::vector<int>& nodes, const Region& r, std::vector<bool>& internal) {
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const Port& p : g.nodes[size_t(nodes[i])].ports)
      for (const RegionPort& port : r.nodes[i].ports)
        if (port.word == p.word && r.values[size_t(port.value)].internal()) internal[size_t(p.view.buffer)] = true;
}

// The steps of a group: one region, or its nodes one by one if the process keeps too many regions.
void add_steps(const Graph& g, const std::vector<int>& nodes, Recomputed recomputed, Partition& to) {
  std::vector<bool> internal(g.buffers.size(), false);
  const MadeRegion made = nodes.size() > 1 ? make_region(g, nodes, recomputed) : MadeRegion{};
  const std::optional<RegionProblem> kept =
      nodes.size() > 1 ? keep_region(made.region, g.rounding_each) : std::optional<RegionProblem>{};
  if (!kept) {
    if (nodes.size() > 1)
      log_line(cat("graph: ", kMostRegions, " different regions were made; further ones run node by node"));
    for (int node : nodes) to.steps.push_back(step_of(g, {node}, internal));
    return;
  }
  mark_internal(g, nodes, made.region, internal);
  PartitionStep step = step_of(g, nodes, internal);
  step.region = kept;
  step.recomputed = std::move(recomputed);
  for (double v : made.numbers) step.args.push_back(std::bit_cast<uint64_t>(v));
  to.steps.push_back(std::move(step));
}

}  // namespace

Partition make_partition(const Graph& g, Handle& h) {
  const cpu::ThreadLimit limit(h.options().threads);
  const PlanningHandle planning(h);
  const DryRunPause pause;
  Partition result;
  Grouping grouping = group_nodes(g, h);
  result.not_fused = std::move(grouping.not_fused);
  for (Group& group : grouping.groups) add_steps(g, group.nodes, std::move(group.recomputed), result);
  std::vector<Lifetime> lifetimes(g.buffers.size());
  for (int i = 0; i < int(result.steps.size()); ++i)
    for (const PartitionStep::Slot& a : result.steps[size_t(i)].addresses) {
      const Buffer& b = g.buffers[size_t(a.buffer)];
      if (b.kind != Buffer::Kind::temporary || b.is_output) continue;
      Lifetime& l = lifetimes[size_t(a.buffer)];
      l = {b.bytes, l.last < 0 ? i : l.first, i};
    }
  result.arena_bytes = place_in_arena(lifetimes, result.arena_offset);
  for (size_t i = 0; i < lifetimes.size(); ++i)
    if (lifetimes[i].last < 0) result.arena_offset[i] = Partition::kNone;
  return result;
}

}  // namespace minidnn::graph