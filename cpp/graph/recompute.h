// SPDX-License-Identifier: Apache-2.0
// Values that several regions may each compute for themselves, so that none has to store them. Such a value costs a few
// instructions for each element, and its operands are in memory for the whole run of a graph.
#pragma once
#include "cpp/graph/graph.h"

namespace minidnn::graph {

struct CheapValue {
  int node;                     // the node that computes the value
  int buffer;                   // the buffer that has the value, and nothing else
  std::vector<int> readers{};   // the nodes that read it, ascending: at least two
  std::vector<int> operands{};  // the nodes that write its operands
};

// Returns the values of a graph that may be recomputed: results of casts, scalings, dropout, simple activations and
// functions of a few instructions whose operands no later node overwrites.
std::vector<CheapValue> cheap_values(const Graph&);

}  // namespace minidnn::graph
