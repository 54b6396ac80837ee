// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/groups.h"

#include <algorithm>
#include <queue>

#include "cpp/graph/order.h"
#include "cpp/graph/recompute.h"
#include "cpp/graph/siblings.h"
#include "cpp/transform/transform.h"

namespace minidnn::graph {
namespace {

// A fused region must save 2 % of the time of its parts, or half the time of its shortest part. Without the second
// rule, a short part between two long ones would save too little to be joined, and would keep the long ones apart.
constexpr double kGain = 0.02, kGainOfShortest = 0.5;

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
  Groups(const Graph& g, Handle& h)
      : graph_(g),
        handle_(h),
        order_(order_of(g)),
        group_(g.nodes.size()),
        siblings_(siblings_of(g)),
        cheap_(cheap_values(g)) {
    const auto n = int(g.nodes.size());
    members_.resize(g.nodes.size());
    copies_.resize(g.nodes.size());
    dropped_.resize(g.nodes.size(), false);
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
        if (a == b || dropped_[size_t(e.from)] || dropped_[size_t(e.to)] || has_copy(b, e.from)) continue;
        const std::pair sizes{size_of(a), size_of(b)};
        auto [last, is_new] = tried.try_emplace({e.from, e.to}, sizes);
        if (!is_new && last->second == sizes) continue;
        last->second = sizes;
        std::string why = try_to_join(a, b);
        grown = grown || why.empty();
        why_not_[{e.from, e.to}] = std::move(why);
      }
      if (!grown) grown = join_siblings();
      if (!grown)
        for (const CheapValue& c : cheap_) grown = recompute(c) || grown;
    }
  }

  // Returns the groups in an order in which they can run. Of those that can run next, the one whose last node was
  // recorded first comes first.
  std::vector<int> sequence() const {
    std::vector<int> waits(group_.size(), 0);  // for each group, the number of its edges from groups that have not run
    each_edge([&](int, int to) { ++waits[size_t(to)]; });
    using Ready = std::pair<int, int>;  // the last node of a group, and the group
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto add_if_ready = [&](int group) {
      if (!waits[size_t(group)]) ready.push({members_[size_t(group)].back(), group});
    };
    for (size_t i = 0; i < group_.size(); ++i)
      if (group_[i] == int(i)) add_if_ready(int(i));
    std::vector<int> sorted;
    while (!ready.empty()) {
      const int group = ready.top().second;
      ready.pop();
      sorted.push_back(group);
      for (int node : members_[size_t(group)])
        for (int j : order_.next[size_t(node)])
          if (const int to = group_[size_t(j)]; to != group && --waits[size_t(to)] == 0) add_if_ready(to);
    }
    return sorted;
  }

  // The nodes that a group computes, ascending, and those of them that other groups compute, too.
  std::vector<int> nodes_of(int group) const { return nodes_of(members_[size_t(group)], copies_[size_t(group)]); }
  Recomputed recomputed_in(int group) const {
    return {own_copies(members_[size_t(group)], copies_[size_t(group)]), served_outside(nodes_of(group))};
  }

  std::vector<NotFused> not_fused() const {
    std::vector<NotFused> all;
    for (const Edge& e : order_.edges)
      if (const int to = group_[size_t(e.to)];
          group_[size_t(e.from)] != to && !dropped_[size_t(e.from)] && !dropped_[size_t(e.to)] && !has_copy(to, e.from))
        all.push_back({e.from, e.to, graph_.name_of(*e.view), why_not_.at({e.from, e.to})});
    return all;
  }

 private:
  template <class F> void each_edge(F f) const {
    for (size_t i = 0; i < group_.size(); ++i)
      for (int j : order_.next[i])
        if (group_[i] != group_[size_t(j)]) f(group_[i], group_[size_t(j)]);
  }

  // Returns all groups that lie on a path from one of the groups a to one of the groups b, both included.
  std::vector<int> between(const std::vector<int>& a, const std::vector<int>& b) const {
    const std::vector<bool> behind = reached(a, order_.next), before = reached(b, order_.previous);
    std::vector<int> all;
    for (size_t i = 0; i < group_.size(); ++i)
      if (behind[i] && before[i]) all.push_back(int(i));
    return all;
  }
  std::vector<bool> reached(std::vector<int> open, const std::vector<std::vector<int>>& neighbours) const {
    std::vector<bool> seen(group_.size(), false);
    for (int group : open) seen[size_t(group)] = true;
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
    if (us < 0) us = us_of_node(group);
    return us;
  }
  double us_of_node(int node) const {
    const Node& n = graph_.nodes[size_t(node)];
    if (!n.kind->choices) return 0;
    const std::vector<NodeChoice> best = n.kind->choices(handle_, n.problem.data(), "", false);
    return best.empty() ? 0 : best[0].estimate_us;
  }

  // Joins group a, group b and all that must run between them. If no engine supports them because of a cast, tries
  // with the casts of their operands and with the groups behind them: a cast of an operand and that of the result may
  // only be supported together. Returns "", or why the groups are not joined.
  std::string try_to_join(int a, int b) {
    std::vector<int> groups = between({a}, {b});
    const std::string why = join(groups);
    const size_t count = groups.size();
    // Library calls take over a few nodes, so casts between many groups are not what is missing.
    constexpr size_t kMostGroups = 8;
    if (why.empty() || count > kMostGroups) return why;
    add_casts(groups);
    if (!has_cast(groups)) return why;
    if (groups.size() > count && join(groups).empty()) return "";
    constexpr int kMostBehind = 3;
    for (int i = 0; i < kMostBehind; ++i) {
      const int next = only_reader(groups);
      if (next < 0) break;
      std::vector<int> more = groups;
      const std::vector<int> path = between(groups, {next});
      more.insert(more.end(), path.begin(), path.end());
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
            const std::vector<int> path = between({from}, {group});
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

  // Joins groups that read the same tensor, with no other group on a path between them. Each group is tried with the
  // last groups alone, so the work grows with the number of readers, not with its square. Returns whether any were
  // joined.
  bool join_siblings() {
    constexpr size_t kMostOpen = 3;
    bool grown = false;
    for (const Siblings& s : siblings_) {
      std::vector<int> open;
      for (int node : s.readers) {
        const int b = group_[size_t(node)];
        if (!may_join_siblings(b) || std::ranges::find(open, b) != open.end()) continue;
        const auto joins = std::ranges::find_if(open, [&](int a) { return try_siblings(a, b); });
        grown = grown || joins != open.end();
        if (joins != open.end()) open.erase(joins);
        else if (open.size() == kMostOpen) open.pop_back();
        open.insert(open.begin(), group_[size_t(node)]);
      }
    }
    return grown;
  }
  bool may_join_siblings(int group) const {
    return std::ranges::all_of(members_[size_t(group)],
                               [&](int node) { return graph::may_join_siblings(graph_.nodes[size_t(node)]); });
  }
  bool try_siblings(int a, int b) {
    const std::pair sizes{size_of(a), size_of(b)};
    auto [last, is_new] = tried_siblings_.try_emplace(std::minmax(a, b), sizes);
    if (!is_new && last->second == sizes) return false;
    last->second = sizes;
    // One of them may write the tensor, and then runs behind the other one.
    return between({a}, {b}).size() <= 2 && between({b}, {a}).size() <= 2 && join({a, b}).empty();
  }

  size_t size_of(int group) const { return members_[size_t(group)].size() + copies_[size_t(group)].size(); }
  bool has_copy(int group, int node) const { return std::ranges::binary_search(copies_[size_t(group)], node); }
  // The copies that are no members.
  std::vector<int> own_copies(const std::vector<int>& members, const std::vector<int>& copies) const {
    std::vector<int> all;
    for (int node : copies)
      if (dropped_[size_t(node)] || !std::ranges::binary_search(members, node)) all.push_back(node);
    return all;
  }
  std::vector<int> nodes_of(const std::vector<int>& members, const std::vector<int>& copies) const {
    std::vector<int> nodes = own_copies(members, copies);
    for (int node : members)
      if (!dropped_[size_t(node)]) nodes.push_back(node);
    std::ranges::sort(nodes);
    return nodes;
  }
  // For each buffer, the number of ports of other groups that read a copy of their own.
  std::map<int, int> served_outside(const std::vector<int>& nodes) const {
    std::map<int, int> served;
    for (const CheapValue* c : copied_)
      for (int reader : c->readers)
        if (has_copy(group_[size_t(reader)], c->node) && !std::ranges::binary_search(nodes, reader))
          for (const Port& p : graph_.nodes[size_t(reader)].ports)
            if (p.view.buffer == c->buffer) ++served[c->buffer];
    return served;
  }

  // Gives each group that reads a cheap value a copy of the node that computes it, if the value then needs no memory
  // and the estimates are lower. Returns whether this was done.
  bool recompute(const CheapValue& c) {
    const int home = group_[size_t(c.node)];
    if (dropped_[size_t(c.node)] || graph_.buffers[size_t(c.buffer)].is_output) return false;
    std::vector<int> others;  // the groups that read the value from memory
    bool at_home = false;     // whether its own group reads the value
    for (int reader : c.readers) {
      const int group = group_[size_t(reader)];
      at_home = at_home || group == home;
      if (group != home && !has_copy(group, c.node) && std::ranges::find(others, group) == others.end())
        others.push_back(group);
    }
    if (others.size() + (members_[size_t(home)].size() > 1) < 2) return false;
    for (int operand : c.operands)
      if (group_[size_t(operand)] == home) return false;  // it is not in memory
    std::vector<size_t> sizes{size_of(home)};
    for (int group : others) sizes.push_back(size_of(group));
    if (auto [last, is_new] = tried_values_.try_emplace(c.node, sizes);
        !is_new && std::exchange(last->second, sizes) == sizes)
      return false;

    double before = us_of(home), after = 0;
    std::vector<double> us(others.size());
    bool supported = true;
    for (size_t i = 0; i < others.size(); ++i) {
      std::vector<int>& copies = copies_[size_t(others[i])];
      copies.insert(std::ranges::lower_bound(copies, c.node), c.node);
      before += us_of(others[i]);
      supported = supported && estimate(members_[size_t(others[i])], copies, us[i]).empty();
      after += us[i];
    }
    dropped_[size_t(c.node)] = !at_home;
    const bool first = std::ranges::find(copied_, &c) == copied_.end();
    if (first) copied_.push_back(&c);
    double home_us = 0;
    supported = supported && estimate(members_[size_t(home)], copies_[size_t(home)], home_us).empty();
    if (supported && after + home_us < (1 - kGain) * before) {
      us_[size_t(home)] = home_us;
      for (size_t i = 0; i < others.size(); ++i) us_[size_t(others[i])] = us[i];
      return true;
    }
    dropped_[size_t(c.node)] = false;
    if (first) copied_.pop_back();
    for (int group : others) std::erase(copies_[size_t(group)], c.node);
    return false;
  }

  // Joins groups if an engine supports them together, and is faster. Returns "", or why not.
  std::string join(const std::vector<int>& groups) {
    std::vector<int> members, copies;
    double apart = 0, us = 0, shortest = us_of(groups[0]);
    for (int group : groups) {
      shortest = std::min(shortest, us_of(group));
      members.insert(members.end(), members_[size_t(group)].begin(), members_[size_t(group)].end());
      copies.insert(copies.end(), copies_[size_t(group)].begin(), copies_[size_t(group)].end());
      apart += us_of(group);
    }
    std::ranges::sort(members);
    std::ranges::sort(copies);
    copies.erase(std::unique(copies.begin(), copies.end()), copies.end());
    copies = own_copies(members, copies);
    if (std::string why = estimate(members, copies, us); !why.empty()) return why;
    if (us >= apart - std::min(kGain * apart, kGainOfShortest * shortest))
      return cat("together they take an estimated ", us, " us, apart ", apart, " us");
    const int joined = group_[size_t(members[0])];
    for (int group : groups)
      if (group != joined) {
        members_[size_t(group)].clear();
        copies_[size_t(group)].clear();
      }
    for (int node : members) group_[size_t(node)] = joined;
    members_[size_t(joined)] = std::move(members);
    copies_[size_t(joined)] = std::move(copies);
    us_[size_t(joined)] = us;
    return "";
  }
  // Sets `us` to the estimated time of a group. Returns "", or why it cannot be one.
  std::string estimate(const std::vector<int>& members, const std::vector<int>& copies, double& us) const {
    const std::vector<int> nodes = nodes_of(members, copies);
    us = 0;
    if (nodes.empty()) return "";
    if (nodes.size() > kMostNodes)
      return cat("a region has at most ", kMostNodes, " nodes; here it would have ", nodes.size());
    for (int node : nodes)
      if (std::string why = why_alone(graph_.nodes[size_t(node)]); !why.empty()) return why;
    if (nodes.size() == 1) {
      us = us_of_node(nodes[0]);
      return "";
    }
    const MadeRegion made = make_region(graph_, nodes, {own_copies(members, copies), served_outside(nodes)});
    return made.why_not.empty() ? cheapest(made.region, us) : made.why_not;
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
      const double estimate = expected_us(*e, p, handle_.device());
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
  // For each group, the nodes of other groups that it computes, too, ascending.
  std::vector<std::vector<int>> copies_;
  std::vector<bool> dropped_;  // for each node, whether all groups that read its result have copies of it
  const std::vector<Siblings> siblings_;
  const std::vector<CheapValue> cheap_;
  std::vector<const CheapValue*> copied_;            // the cheap values of which a group has a copy
  std::map<int, std::vector<size_t>> tried_values_;  // for each cheap node, the sizes of groups when it was tried last
  // For each pair of groups, their sizes when they were tried as siblings.
  std::map<std::pair<int, int>, std::pair<size_t, size_t>> tried_siblings_;
  std::map<std::pair<int, int>, std::string> why_not_;  // for each edge, why its nodes are not in one group
};

}  // namespace

Grouping group_nodes(const Graph& g, Handle& h) {
  Groups groups(g, h);
  groups.grow();
  Grouping result{{}, groups.not_fused()};
  for (int group : groups.sequence())
    if (std::vector<int> nodes = groups.nodes_of(group); !nodes.empty())
      result.groups.push_back({std::move(nodes), groups.recomputed_in(group)});
  return result;
}

}  // namespace minidnn::graph
