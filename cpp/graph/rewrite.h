// SPDX-License-Identifier: Apache-2.0
// Rewrites of a graph, which run when its recording ends: nodes with equal results become one, and some groups of nodes
// become one call that has their formula. A formula is only replaced by one that agrees for NaN, infinities and -0.
// With rounding="each", only rewrites that keep the bits of the results are made. Node::rewrites names them, for text()
// and why(). x / sqrt(mean(x^2) + eps) does not become rms_norm, some of whose engines give 0 for -0.
#pragma once
#include "cpp/graph/graph.h"

namespace minidnn::graph {

// Returns whether nodes changed. The lifetimes of buffers are then those of before.
bool rewrite(Graph&);

}  // namespace minidnn::graph
