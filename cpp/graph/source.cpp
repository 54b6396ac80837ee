// SPDX-License-Identifier: Apache-2.0
// Implements source_text() of partition.h.
#include <numeric>

#include "cpp/core/text.h"
#include "cpp/graph/element_source.h"
#include "cpp/graph/partition.h"

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
  ElementRegion elements;
  const std::string why = made.why_not.empty() ? element_region(made.region, elements) : made.why_not;
  MINIDNN_CHECK(NotSupported, why.empty(), "source: no code is generated for ",
                region ? cat("region ", *region) : std::string("all nodes together"), ": ", why);
  return cat("// ", made.region.text(),
             "\n// The argument Region of minidnn::graph_elementwise in cuda/graph/elementwise.cu.\n",
             element_source(made.region, elements, g.rounding_each).text);
}

}  // namespace minidnn::graph
