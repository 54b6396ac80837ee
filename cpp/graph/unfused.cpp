// SPDX-License-Identifier: Apache-2.0
// Implements unfused.h. The choice of each node's engine depends on the handle and its options, and not on records of
// find(), so the bytes of workspace cannot change between workspace_bytes() and build().
#include "cpp/graph/unfused.h"

#include "cpp/graph/arena.h"

namespace minidnn::graph {
namespace {

// The engine of each node, and where internal values are in the workspace.
struct Layout {
  std::vector<NodeChoice> choices;  // empty if no engine can run a node
  std::vector<size_t> at;           // for each value
  size_t arena_bytes = 0, workspace_bytes = 0;
};

size_t bytes_of(const TensorDesc& d) {
  const Extent e = extent(d);
  return size_t(e.end - e.begin) * itemsize(d.dtype);
}

Layout layout_of(const Region& r, const Handle& h) {
  Layout l;
  for (const RegionNode& n : r.nodes) {
    std::vector<NodeChoice> best = n.kind->choices(h, n.problem.data(), "", false);
    if (best.empty()) return {};
    l.workspace_bytes = std::max(l.workspace_bytes, best[0].workspace_bytes);
    l.choices.push_back(std::move(best[0]));
  }
  std::vector<Lifetime> lifetimes(r.values.size());
  for (size_t i = 0; i < r.values.size(); ++i) {
    const RegionValue& v = r.values[i];
    if (v.internal()) lifetimes[i] = {bytes_of(v.desc), v.writer, v.readers.empty() ? v.writer : v.readers.back()};
  }
  l.arena_bytes = in_arena_units(place_in_arena(lifetimes, l.at));
  return l;
}

struct UnfusedPlan final : Plan<RegionProblem> {
  struct Step {
    const NodeKind* kind;
    NodePlan plan;
    size_t first_word;
    std::vector<std::pair<size_t, int64_t>> internal;  // words of Args, and the offset of their value in the workspace
  };
  std::vector<Step> steps;
  size_t arena_bytes = 0;

  void run(const RegionArgs& a, void* workspace, Stream stream) const override {
    char* const base = static_cast<char*>(workspace);
    std::vector<uint64_t> args;
    for (const Step& s : steps) {
      args.assign(a.words + s.first_word, a.words + s.first_word + s.kind->args_bytes / 8);
      for (const auto& [word, at] : s.internal) args[word] = reinterpret_cast<uintptr_t>(base + at);
      s.kind->run(s.plan.plan.get(), args.data(), base + arena_bytes, stream);
    }
  }
};

}  // namespace

std::string UnfusedEngine::why_not(const RegionProblem& p, const Device&) const {
  const Handle& h = *PlanningHandle::current();
  for (const RegionNode& n : region_of(p).nodes)
    if (n.kind->choices(h, n.problem.data(), "", false).empty()) return cat("no engine can run ", n.text());
  return "";
}

double UnfusedEngine::estimate_us(const RegionProblem& p, const Device&) const {
  double us = 0;
  for (const NodeChoice& c : layout_of(region_of(p), *PlanningHandle::current()).choices) us += c.estimate_us;
  return us;
}

size_t UnfusedEngine::workspace_bytes(const RegionProblem& p, const Device&, const Config&) const {
  const Layout l = layout_of(region_of(p), *PlanningHandle::current());
  return l.arena_bytes + l.workspace_bytes;
}

std::unique_ptr<Plan<RegionProblem>> UnfusedEngine::build(const RegionProblem& p, const Device&, const Config&) const {
  Handle& h = *PlanningHandle::current();
  const Region& r = region_of(p);
  const Layout l = layout_of(r, h);
  auto plan = std::make_unique<UnfusedPlan>();
  plan->arena_bytes = l.arena_bytes;
  const DryRunPause pause;
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    const RegionNode& n = r.nodes[i];
    UnfusedPlan::Step step{n.kind, n.kind->plan(h, n.problem.data(), l.choices[i].algo), n.first_word, {}};
    for (const RegionPort& port : n.ports) {
      const RegionValue& v = r.values[size_t(port.value)];
      if (!v.internal()) continue;
      const int64_t before = extent(v.desc).begin * int64_t(itemsize(v.desc.dtype));
      step.internal.emplace_back(size_t(port.word), int64_t(l.at[size_t(port.value)]) - before);
    }
    plan->steps.push_back(std::move(step));
  }
  return plan;
}

}  // namespace minidnn::graph
