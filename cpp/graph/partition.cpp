// SPDX-License-Identifier: Apache-2.0
// Implements make_partition() of partition.h.
#include "cpp/graph/partition.h"

#include <algorithm>
#include <bit>
#include <map>
#include <queue>

#include "cpp/graph/arena.h"
#include "cpp/transform/transform.h"

namespace minidnn::graph {
namespace {

// A fused region must save this fraction of the time of its parts, or half the time of its shortest part: a few numbers
// between two long regions take little time, but keep them apart.
constexpr double kGain = 0.02, kGainOfShortest = 0.5;

// A value that node `from` writes and node `to` reads.
struct Edge {
  int from, to;
  const View* view;
  double bytes;  // that fusion saves
};

// The order that the memory of a graph imposes on its nodes.
struct Order {
  std::vector<std::vector<int>> next, previous;  // for each node, the nodes that must run after and before it
  std::vector<Edge> edges;                       // in the order of `from`, then of `to`
};

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

// Returns why a node runs alone, or "".
std::string why_alone(const Node& n) {
  if (!n.algo.empty()) return cat("algo='", n.algo, "' selects the engine of ", n.kind->family);
  if (n.handle) return cat("the call of ", n.kind->family, " names a handle of its own");
  if (n.kind->has_check) return cat(n.kind->family, " checks the elements of an input before it runs");
  if (!n.kind->choices) return cat(n.kind->family, " has no estimates");
  return "";
}

// Groups of nodes, which grow into regions.
class Groups {
 public:
  Groups(const Graph& g, Handle& h) : graph_(g), handle_(h), order_(order_of(g)), group_(g.nodes.size()) {
    const auto n = int(g.nodes.size());
    members_.resize(g.nodes.size());
    us_.resize(g.nodes.size(), -1);
    for (int i = 0; i < n; ++i) {
      group_[size_t(i)] = i;
      members_[size_t(i)] = {i};
    }
  }

  void grow() {
    std::vector<Edge> edges = order_.edges;
    std::ranges::stable_sort(edges, std::ranges::greater{}, &Edge::bytes);
    // For each pair of nodes, the sizes of their groups when the pair was tried last.
    std::map<std::pair<int, int>, std::pair<size_t, size_t>> tried;
    for (bool grown = true; grown;) {
      grown = false;
      for (const Edge& e : edges) {
        const int a = group_[size_t(e.from)], b = group_[size_t(e.to)];
        if (a == b) continue;
        const std::pair sizes{members_[size_t(a)].size(), members_[size_t(b)].size()};
        auto [last, is_new] = tried.try_emplace({e.from, e.to}, sizes);
        if (!is_new && last->second == sizes) continue;
        last->second = sizes;
        std::string why = try_to_join(a, b);
        grown = grown || why.empty();
        why_not_[{e.from, e.to}] = std::move(why);
      }
    }
  }

  // Returns the groups in an order in which they can run. Of those that can run next, the one whose last node was
  // recorded first comes first.
  std::vector<std::vector<int>> sequence() const {
    std::vector<int> waits(group_.size(), 0);  // for each group, the number of its edges from groups that have not run
    each_edge([&](int, int to) { ++waits[size_t(to)]; });
    using Ready = std::pair<int, int>;  // the last node of a group, and the group
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto add_if_ready = [&](int group) {
      if (!waits[size_t(group)]) ready.push({members_[size_t(group)].back(), group});
    };
    for (size_t i = 0; i < group_.size(); ++i)
      if (group_[i] == int(i)) add_if_ready(int(i));
    std::vector<std::vector<int>> sorted;
    while (!ready.empty()) {
      const int group = ready.top().second;
      ready.pop();
      sorted.push_back(members_[size_t(group)]);
      for (int node : members_[size_t(group)])
        for (int j : order_.next[size_t(node)])
          if (const int to = group_[size_t(j)]; to != group && --waits[size_t(to)] == 0) add_if_ready(to);
    }
    return sorted;
  }

  std::vector<NotFused> not_fused() const {
    std::vector<NotFused> all;
    for (const Edge& e : order_.edges)
      if (group_[size_t(e.from)] != group_[size_t(e.to)])
        all.push_back({e.from, e.to, graph_.name_of(*e.view), why_not_.at({e.from, e.to})});
    return all;
  }

 private:
  template <class F> void each_edge(F f) const {
    for (size_t i = 0; i < group_.size(); ++i)
      for (int j : order_.next[i])
        if (group_[i] != group_[size_t(j)]) f(group_[i], group_[size_t(j)]);
  }

  // Returns all groups that lie on a path from group a to group b, both included.
  std::vector<int> between(int a, int b) const {
    const std::vector<bool> behind = reached(a, order_.next), before = reached(b, order_.previous);
    std::vector<int> all;
    for (size_t i = 0; i < group_.size(); ++i)
      if (behind[i] && before[i]) all.push_back(int(i));
    return all;
  }
  std::vector<bool> reached(int from, const std::vector<std::vector<int>>& neighbours) const {
    std::vector<bool> seen(group_.size(), false);
    std::vector<int> open{from};
    seen[size_t(from)] = true;
    while (!open.empty()) {
      const int group = open.back();
      open.pop_back();
      for (int node : members_[size_t(group)])
        for (int j : neighbours[size_t(node)])
          if (const int to = group_[size_t(j)]; !seen[size_t(to)]) {
            seen[size_t(to)] = true;
            open.push_back(to);
          }
    }
    return seen;
  }

  // The estimated time of a group.
  double us_of(int group) {
    double& us = us_[size_t(group)];
    if (us < 0) {
      const Node& n = graph_.nodes[size_t(group)];
      const std::vector<NodeChoice> best = n.kind->choices(handle_, n.problem.data(), "", false);
      us = best.empty() ? 0 : best[0].estimate_us;
    }
    return us;
  }

  // Joins group a, group b and all that must run between them. If no engine supports them because of a cast, tries
  // with the casts of their operands and with the groups behind them: a cast of an operand and that of the result may
  // only be supported together. Returns "", or why the groups are not joined.
  std::string try_to_join(int a, int b) {
    std::vector<int> groups = between(a, b);
    const std::string why = join(groups);
    if (why.empty()) return why;
    const size_t count = groups.size();
    add_casts(groups);
    if (!has_cast(groups)) return why;
    if (groups.size() > count && join(groups).empty()) return "";
    constexpr int kMostBehind = 3;
    for (int i = 0; i < kMostBehind; ++i) {
      const int next = only_reader(groups);
      if (next < 0) break;
      std::vector<int> more = groups;
      for (int group : groups) {
        const std::vector<int> path = between(group, next);
        more.insert(more.end(), path.begin(), path.end());
      }
      add_casts(more);
      if (join(more).empty()) return "";
      groups = std::move(more);
    }
    return why;
  }
  bool is_cast(int group) const {
    const std::vector<int>& nodes = members_[size_t(group)];
    return nodes.size() == 1 && graph_.nodes[size_t(nodes[0])].kind == &node_kind<TransformProblem>();
  }
  bool has_cast(const std::vector<int>& groups) const {
    return std::ranges::any_of(groups, [&](int group) { return is_cast(group); });
  }
  // Adds the casts whose results the groups read, with all that must run between, and removes duplicates.
  void add_casts(std::vector<int>& groups) const {
    std::vector<int> added;
    for (int group : groups)
      for (int node : members_[size_t(group)])
        for (int i : order_.previous[size_t(node)])
          if (const int from = group_[size_t(i)]; is_cast(from)) {
            const std::vector<int> path = between(from, group);
            added.insert(added.end(), path.begin(), path.end());
          }
    groups.insert(groups.end(), added.begin(), added.end());
    std::ranges::sort(groups);
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  }
  // Returns the only group that must run behind some groups and directly follows one of them, or -1.
  int only_reader(const std::vector<int>& groups) const {
    int found = -1;
    for (int group : groups)
      for (int node : members_[size_t(group)])
        for (int j : order_.next[size_t(node)]) {
          const int to = group_[size_t(j)];
          if (std::ranges::find(groups, to) != groups.end() || to == found) continue;
          if (found >= 0) return -1;
          found = to;
        }
    return found;
  }

  // Joins groups if an engine supports them together, and is faster. Returns "", or why not.
  std::string join(const std::vector<int>& groups) {
    std::vector<int> nodes;
    for (int group : groups) nodes.insert(nodes.end(), members_[size_t(group)].begin(), members_[size_t(group)].end());
    std::ranges::sort(nodes);
    if (nodes.size() > kMostNodes)
      return cat("a region has at most ", kMostNodes, " nodes; here it would have ", nodes.size());
    for (int node : nodes)
      if (std::string why = why_alone(graph_.nodes[size_t(node)]); !why.empty()) return why;
    const MadeRegion made = make_region(graph_, nodes);
    if (!made.why_not.empty()) return made.why_not;
    double apart = 0, shortest = us_of(groups[0]);
    for (int group : groups) {
      apart += us_of(group);
      shortest = std::min(shortest, us_of(group));
    }
    double us = 0;
    if (std::string why = cheapest(made.region, us); !why.empty()) return why;
    if (us >= apart - std::min(kGain * apart, kGainOfShortest * shortest))
      return cat("together they take an estimated ", us, " us, apart ", apart, " us");
    const int joined = group_[size_t(nodes[0])];
    for (int group : groups)
      if (group != joined) members_[size_t(group)].clear();
    for (int node : nodes) group_[size_t(node)] = joined;
    members_[size_t(joined)] = std::move(nodes);
    us_[size_t(joined)] = us;
    return "";
  }

  // Sets `us` to the lowest estimate of an engine other than `unfused`. Returns "", or the reasons of all engines if
  // there is no such engine.
  std::string cheapest(const Region& region, double& us) const {
    const RegionCandidate candidate(region, graph_.rounding_each);
    const RegionProblem& p = candidate.problem();
    std::string reasons;
    bool any = false;
    for (const Engine<RegionProblem>* e : engines<RegionProblem>(graph_.place)) {
      if (e->name().ends_with(".unfused")) continue;
      std::string why = e->why_not(p, handle_.device());
      if (why.empty() && handle_.options().max_workspace != HandleOptions{}.max_workspace) {
        EngineReport line;
        find_configs(*e, p, handle_, "", line);
        why = line.why_not;
      }
      if (!why.empty()) {
        reasons += cat(reasons.empty() ? "" : "; ", e->name().substr(e->name().rfind('.') + 1), ": ", why);
        continue;
      }
      const double estimate = e->estimate_us(p, handle_.device());
      us = any ? std::min(us, estimate) : estimate;
      any = true;
    }
    return any ? "" : reasons;
  }

  const Graph& graph_;
  Handle& handle_;
  const Order order_;
  std::vector<int> group_;                 // for each node, the number of its group: the first node of one of its parts
  std::vector<std::vector<int>> members_;  // for each group, its nodes in ascending order
  std::vector<double> us_;                 // for each group, its estimate; negative if it is not computed yet
  std::map<std::pair<int, int>, std::string> why_not_;  // for each edge, why its nodes are not in one group
};

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

}  // namespace

Partition make_partition(const Graph& g, Handle& h) {
  const cpu::ThreadLimit limit(h.options().threads);
  const PlanningHandle planning(h);
  const DryRunPause pause;
  Groups groups(g, h);
  groups.grow();
  Partition result;
  result.not_fused = groups.not_fused();
  std::vector<bool> internal(g.buffers.size(), false);
  for (const std::vector<int>& nodes : groups.sequence()) {
    std::optional<RegionProblem> kept;
    std::vector<double> numbers;
    if (nodes.size() > 1) {
      const MadeRegion made = make_region(g, nodes);
      kept = keep_region(made.region, g.rounding_each);
      numbers = made.numbers;
      if (kept) mark_internal(g, nodes, made.region, internal);
      else log_line(cat("graph: ", kMostRegions, " different regions were made; further ones run node by node"));
    }
    if (kept) {
      result.steps.push_back(step_of(g, nodes, internal));
      result.steps.back().region = kept;
      for (double v : numbers) result.steps.back().args.push_back(std::bit_cast<uint64_t>(v));
    } else
      for (int node : nodes) result.steps.push_back(step_of(g, {node}, internal));
  }
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
