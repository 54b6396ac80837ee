// SPDX-License-Identifier: Apache-2.0
// Implements why_text() of partition.h.
#include <algorithm>
#include <iomanip>
#include <sstream>

#include "cpp/graph/partition.h"

namespace minidnn::graph {
namespace {

std::string us_text(double us) {
  std::ostringstream text;
  text << std::setprecision(3) << us << " us";
  return text.str();
}

// The families of nodes: "matmul + activation".
std::string families(const Graph& g, const std::vector<int>& nodes) {
  std::string text;
  for (int i : nodes) text += cat(text.empty() ? "" : " + ", g.nodes[size_t(i)].kind->family);
  return text;
}

std::string node_line(const Graph& g, int i, const Recomputed& recomputed) {
  const Node& n = g.nodes[size_t(i)];
  const bool again = std::ranges::binary_search(recomputed.nodes, i);
  return cat("\n  node ", i, ": ", n.kind->text(n.problem.data()), n.where.empty() ? "" : ", ", n.where,
             n.rewrites.empty() ? "" : "; rewritten: ", n.rewrites, again ? "; recomputed" : "");
}

std::string region_text(const Graph& g, Handle& h, const PartitionStep& step) {
  const std::vector<int>& nodes = step.nodes;
  const Region region = make_region(g, nodes, step.recomputed).region;
  const RegionCandidate candidate(region, g.rounding_each);
  const RegionProblem& p = candidate.problem();
  Report report = evaluate_engines(p, h, "");
  const EngineReport* best = &report.fastest();
  if (const auto line = recall(p, h, ""))
    if (const EngineReport* recorded = report.recorded(*line)) best = recorded;
  std::string text = cat(families(g, nodes), " -> ", best->name, best->config.empty() ? "" : " ", best->config);
  text += best->measured_us > 0 ? cat(", measured ", us_text(best->measured_us))
                                : cat(", estimated ", us_text(best->estimate_us));
  for (const EngineReport& e : report.engines)
    if (e.name.ends_with(".unfused") && e.name != best->name) text += cat(" (one by one ", us_text(e.estimate_us), ")");
  if (!best->name.ends_with(".unfused"))
    text += cat("; saves ", bytes_text(region.bytes_apart() - region.bytes_together()), " of traffic");
  for (int i : nodes) text += node_line(g, i, step.recomputed);
  for (const EngineReport& e : report.engines)
    if (!e.why_not.empty()) text += cat("\n  ", e.name, ": ", e.why_not);
  return text;
}

}  // namespace

std::string why_text(const Graph& g, Handle& h) {
  const cpu::ThreadLimit limit(h.options().threads);
  const PlanningHandle planning(h);
  const Partition& partition = g.partition(h);
  std::string text;
  for (size_t i = 0; i < partition.steps.size(); ++i) {
    const PartitionStep& s = partition.steps[i];
    text +=
        cat("region ", i + 1, ": ",
            s.region ? region_text(g, h, s)
                     : cat(g.nodes[size_t(s.nodes[0])].kind->family, " -> a plain call", node_line(g, s.nodes[0], {})),
            "\n");
  }
  for (const NotFused& n : partition.not_fused)
    text += cat("not fused: ", n.value, " from node ", n.from, " (", g.nodes[size_t(n.from)].kind->family, ") to node ",
                n.to, " (", g.nodes[size_t(n.to)].kind->family, "): ", n.why, "\n");
  if (!text.empty()) text.pop_back();  // the last newline
  return text;
}

}  // namespace minidnn::graph
