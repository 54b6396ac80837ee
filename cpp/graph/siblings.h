// SPDX-License-Identifier: Apache-2.0
// Siblings: nodes that read the same tensor. A region of several siblings loads it once.
#pragma once
#include "cpp/graph/graph.h"

namespace minidnn::graph {

// Nodes that read the same elements of a tensor.
struct Siblings {
  const TensorDesc* desc;
  std::vector<int> readers{};  // ascending
  double bytes() const { return double(desc->numel()) * double(itemsize(desc->dtype)); }
};

// Whether a node is a function of single elements.
bool is_elementwise(const Node&);
// Whether a node may share a region with its siblings. Only functions of single elements or single rows have an engine
// with several results.
bool may_join_siblings(const Node&);

// Returns the nodes that may share a region because they read the same tensor, those with the largest tensor first.
// Single elements and broadcast tensors do not count: to load them again costs little.
std::vector<Siblings> siblings_of(const Graph&);

}  // namespace minidnn::graph
