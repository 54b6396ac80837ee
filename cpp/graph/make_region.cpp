// SPDX-License-Identifier: Apache-2.0
// Implements make_region() of partition.h.
#include <algorithm>
#include <unordered_map>

#include "cpp/graph/partition.h"

namespace minidnn::graph {
namespace {

uintptr_t address_of(const Graph& g, const View& v) { return g.buffers[size_t(v.buffer)].base + uintptr_t(v.offset); }

// The nodes of a region as values and ports.
class RegionMaker {
 public:
  RegionMaker(const Graph& g, const std::vector<int>& nodes, const Recomputed& recomputed)
      : graph_(g), nodes_(nodes), recomputed_(recomputed) {}

  MadeRegion make() {
    region_.nodes.reserve(nodes_.size());
    for (int index : nodes_) add_node(graph_.nodes[size_t(index)]);
    for (size_t i = 0; i < region_.values.size(); ++i)
      if (RegionValue& v = region_.values[i]; v.writer >= 0)
        v.output = v.readers.empty() || !(is_recomputed(v.writer) || is_internal(views_[i]));
    std::vector<double> numbers;
    for (size_t i = 0; i < region_.values.size(); ++i)
      if (const Buffer& b = graph_.buffers[size_t(views_[i].buffer)]; b.number && !b.written()) {
        region_.values[i].number = int64_t(region_.words++);
        numbers.push_back(*b.number);
      }
    std::string why_not = reason();
    return {std::move(region_), std::move(numbers), std::move(why_not)};
  }

 private:
  void add_node(const Node& node) {
    const int index = int(region_.nodes.size());
    RegionNode n{node.kind, node.problem, {}, region_.words};
    region_.words += node.args.size();
    n.ports.reserve(node.ports.size());
    // A node reads before it writes, so inputs come first.
    for (const bool writes : {false, true})
      for (const Port& p : node.ports)
        if (p.writes == writes) {
          const int v = value_of(p.view, n.first_word + size_t(p.word));
          n.ports.push_back({p.name, v, p.word, p.view.desc, p.reads, p.writes});
          use(region_.values[size_t(v)], index, p);
          ++uses_[p.view.buffer];
        }
    region_.nodes.push_back(std::move(n));
  }
  int value_of(const View& view, size_t slot) {
    const uintptr_t address = address_of(graph_, view);
    const auto [it, is_new] = by_address_.try_emplace(address, int(region_.values.size()));
    if (is_new) {
      RegionValue v{graph_.name_of(view), view.desc};
      v.slot = slot;
      if (graph_.place.is_cuda) v.alignment = int64_t((address | 16) & -(address | 16));
      region_.values.push_back(std::move(v));
      views_.push_back(view);
      return it->second;
    }
    TensorDesc& desc = region_.values[size_t(it->second)].desc;
    if (const Extent a = extent(desc), b = extent(view.desc);
        b.end * int64_t(itemsize(view.desc.dtype)) > a.end * int64_t(itemsize(desc.dtype))) {
      desc = view.desc;
      views_[size_t(it->second)] = view;
    }
    return it->second;
  }
  void use(RegionValue& v, int node, const Port& p) {
    if (p.reads && v.writer < 0) v.input = true;
    if (p.reads) v.readers.push_back(node);
    if (!p.writes) return;
    if (v.writer >= 0 && twice_.empty()) twice_ = v.name;
    v.writer = node;
  }
  // Whether only nodes of the region use the buffer of a view, which is written once and whole.
  bool is_internal(const View& v) const {
    const Buffer& b = graph_.buffers[size_t(v.buffer)];
    if (b.kind != Buffer::Kind::temporary || b.is_output || !b.one_view || b.bytes != v.bytes()) return false;
    const auto served = recomputed_.served.find(v.buffer);
    return uses_.at(v.buffer) == b.uses - (served == recomputed_.served.end() ? 0 : served->second);
  }
  bool is_recomputed(int writer) const { return std::ranges::binary_search(recomputed_.nodes, nodes_[size_t(writer)]); }
  std::string reason() const {
    if (!twice_.empty()) return cat(twice_, " is written twice");
    for (size_t i = 0; i < views_.size(); ++i) {
      if (region_.values[i].desc.numel() == 0) return cat(region_.values[i].name, " has no elements");
      if (region_.values[i].writer < 0) continue;
      for (size_t k = 0; k < views_.size(); ++k)
        if (i != k && views_[i].buffer == views_[k].buffer &&
            share_memory(views_[i].desc, address_of(graph_, views_[i]), views_[k].desc, address_of(graph_, views_[k])))
          return cat(region_.values[k].name, " is another part of the memory of ", region_.values[i].name,
                     ", which is written");
    }
    for (const RegionNode& n : region_.nodes)
      for (const RegionPort& p : n.ports)
        if (const RegionValue& v = region_.values[size_t(p.value)]; !reaches(v.desc, p.desc))
          return cat(v.name, " is used with different strides");
    return "";
  }
  static bool reaches(const TensorDesc& a, const TensorDesc& b) {
    const Extent x = extent(a), y = extent(b);
    const auto x_size = int64_t(itemsize(a.dtype)), y_size = int64_t(itemsize(b.dtype));
    return x.begin * x_size <= y.begin * y_size && y.end * y_size <= x.end * x_size;
  }

  const Graph& graph_;
  const std::vector<int>& nodes_;
  const Recomputed& recomputed_;
  Region region_;
  std::vector<View> views_;            // for each value
  std::unordered_map<int, int> uses_;  // for each buffer, the number of ports of these nodes that are views of it
  std::unordered_map<uintptr_t, int> by_address_;
  std::string twice_;  // a value that two nodes write
};

}  // namespace

MadeRegion make_region(const Graph& g, const std::vector<int>& nodes, const Recomputed& recomputed) {
  return RegionMaker(g, nodes, recomputed).make();
}

}  // namespace minidnn::graph
