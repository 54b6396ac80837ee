// SPDX-License-Identifier: Apache-2.0
// Implements source_text() of partition.h.
#include "cpp/core/text.h"
#include "cpp/graph/element_source.h"
#include "cpp/graph/partition.h"

namespace minidnn::graph {

std::string source_text(const Graph& g, Handle& h, int64_t region) {
  const Partition partition = make_partition(g, h);
  const int64_t count = int64_t(partition.steps.size());
  MINIDNN_CHECK(ShapeError, region >= 1 && region <= count, "source: region must be 1 to ", count, "; got ", region);
  const PartitionStep& step = partition.steps[size_t(region - 1)];
  // A node that runs alone is a region of one node here.
  const MadeRegion made = make_region(g, step.nodes);
  const Region& r = step.region ? region_of(*step.region) : made.region;
  ElementRegion elements;
  const std::string why = element_region(r, elements);
  MINIDNN_CHECK(NotSupported, why.empty(), "source: no code is generated for region ", region, ": ", why);
  return cat("// The argument Region of minidnn::graph_elementwise in cuda/graph/elementwise.cu.\n",
             element_source(r, elements, step.region && step.region->rounding_each).text);
}

}  // namespace minidnn::graph
