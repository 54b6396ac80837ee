// SPDX-License-Identifier: Apache-2.0
// Implements source_text() of partition.h.
#include <numeric>

#include "cpp/core/text.h"
#include "cpp/graph/element_source.h"
#include "cpp/graph/partition.h"
#include "cpp/graph/row_source.h"

namespace minidnn::graph {

std::string source_text(const Graph& g, Handle& h, std::optional<int64_t> region) {
  std::vector<int> nodes(g.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  Recomputed recomputed;
  if (region) {
    const Partition& partition = g.partition(h);
    const int64_t count = int64_t(partition.steps.size());
    MINIDNN_CHECK(ShapeError, *region >= 1 && *region <= count, "source: region must be 1 to ", count, "; got ",
                  *region);
    nodes = partition.steps[size_t(*region - 1)].nodes;
    recomputed = partition.steps[size_t(*region - 1)].recomputed;
  }
  const MadeRegion made = make_region(g, nodes, recomputed);
  const Region& r = made.region;
  const auto text = [&](const char* kernel, const std::string& source) {
    return cat("// ", r.text(), "\n// The argument Region of minidnn::", kernel, ".\n", source);
  };
  ElementRegion elements;
  RowRegion rows;
  std::string why = made.why_not;
  if (why.empty() && (why = element_region(r, elements)).empty())
    return text("graph_elementwise in cuda/graph/elementwise.cu", element_source(r, elements, g.rounding_each).text);
  if (made.why_not.empty() && !g.rounding_each && (why = row_region(r, rows)).empty())
    return text("graph_rows in cuda/graph/row_reduction.cu", row_source(r, rows).text);
  throw NotSupported(cat("source: no code is generated for ",
                         region ? cat("region ", *region) : std::string("all nodes together"), ": ", why));
}

}  // namespace minidnn::graph
