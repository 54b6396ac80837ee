// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/siblings.h"

#include <algorithm>
#include <map>

#include "cpp/activation/activation.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/random/random.h"
#include "cpp/reduce/reduce.h"
#include "cpp/softmax/softmax.h"
#include "cpp/transform/transform.h"

namespace minidnn::graph {

bool is_elementwise(const Node& n) {
  const NodeKind* const kinds[] = {&node_kind<PointwiseProblem>(), &node_kind<ActivationProblem>(),
                                   &node_kind<TransformProblem>(), &node_kind<RandomProblem>()};
  return std::ranges::find(kinds, n.kind) != std::end(kinds);
}

bool may_join_siblings(const Node& n) {
  const NodeKind* const rows[] = {&node_kind<LayerNormProblem>(), &node_kind<SoftmaxProblem>(),
                                  &node_kind<ReduceProblem>()};
  return is_elementwise(n) || std::ranges::find(rows, n.kind) != std::end(rows);
}

std::vector<Siblings> siblings_of(const Graph& g) {
  std::vector<Siblings> all;                         // in the order of their first readers
  std::map<uintptr_t, std::vector<size_t>> indices;  // in `all`, by the address of the tensor
  for (int j = 0; j < int(g.nodes.size()); ++j) {
    const Node& node = g.nodes[size_t(j)];
    if (!may_join_siblings(node)) continue;
    for (const Port& p : node.ports) {
      const TensorDesc& d = p.view.desc;
      if (!p.reads || d.numel() < 2 || is_broadcast(d)) continue;
      std::vector<size_t>& known = indices[g.buffers[size_t(p.view.buffer)].base + uintptr_t(p.view.offset)];
      const auto same = [&](size_t i) {
        const TensorDesc& other = *all[i].desc;
        return other.dtype == d.dtype && same_shape(other, d) && same_strides(other, d);
      };
      const auto found = std::ranges::find_if(known, same);
      const size_t i = found == known.end() ? known.emplace_back(all.size()) : *found;
      if (i == all.size()) all.push_back({&d});
      if (all[i].readers.empty() || all[i].readers.back() != j) all[i].readers.push_back(j);
    }
  }
  std::erase_if(all, [](const Siblings& s) { return s.readers.size() < 2; });
  std::ranges::stable_sort(all, std::ranges::greater{}, &Siblings::bytes);
  return all;
}

}  // namespace minidnn::graph
