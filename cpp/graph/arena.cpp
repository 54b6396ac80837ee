// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/arena.h"

#include <algorithm>
#include <functional>

namespace minidnn::graph {

size_t place_in_arena(const std::vector<Lifetime>& tensors, std::vector<size_t>& at) {
  at.assign(tensors.size(), 0);
  std::vector<size_t> order;  // the largest first
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].last >= 0) order.push_back(i);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return tensors[i].bytes; });
  size_t total = 0;
  std::vector<size_t> placed;
  for (size_t i : order) {
    const Lifetime& t = tensors[i];
    // The tensors that are in use at the same time as `t`, in the order of their offsets.
    std::vector<size_t> near;
    for (size_t k : placed)
      if (tensors[k].first <= t.last && t.first <= tensors[k].last) near.push_back(k);
    std::ranges::sort(near, {}, [&](size_t k) { return at[k]; });
    size_t offset = 0;  // the first gap that is large enough
    for (size_t k : near) {
      if (offset + t.bytes <= at[k]) break;
      offset = std::max(offset, in_arena_units(at[k] + tensors[k].bytes));
    }
    at[i] = offset;
    total = std::max(total, offset + t.bytes);
    placed.push_back(i);
  }
  return total;
}

}  // namespace minidnn::graph
