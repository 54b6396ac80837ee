// SPDX-License-Identifier: Apache-2.0
// Cuts a graph into regions. Nodes of a region run together by one engine of the family `graph` (region.h). Two regions
// become one if the second reads what the first writes, an engine other than `unfused` supports both together, and its
// estimate is below the sum of theirs. The pair that saves the most bytes comes first. Then regions that read the same
// tensor become one (siblings.h), and cheap values are computed in each region that reads them (recompute.h). All other
// nodes run alone, by the engine that a plain call would use.
//
// A partition depends on the graph, the device and the options of the handle, and on nothing else.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "cpp/graph/graph.h"
#include "cpp/graph/region.h"

namespace minidnn::graph {

constexpr size_t kMostNodes = 64;  // the most nodes of a region

// Nodes of a region whose results other regions compute, too, or store for their own readers. This region has a copy of
// its own on chip.
struct Recomputed {
  std::vector<int> nodes{};  // indices in Graph::nodes, ascending
  // For each buffer, the number of ports that read a copy in another region, and so need no memory.
  std::map<int, int> served{};
};

// A region, or a node that runs alone.
struct PartitionStep {
  // Where a run stores the address of a view of a buffer.
  struct Slot {
    size_t word;
    int buffer;
    int64_t offset;
  };
  std::vector<int> nodes{};  // indices in Graph::nodes, ascending
  Recomputed recomputed{};
  std::optional<RegionProblem> region{};  // absent if a node runs alone
  std::vector<uint64_t> args{};           // the Args of all nodes; a run sets addresses and dynamic numbers
  std::vector<Slot> addresses{};
  std::vector<DynamicWord> dynamic{};
};

// Two nodes of different regions, of which the second reads a value of the first.
struct NotFused {
  int from = 0, to = 0;  // indices in Graph::nodes
  std::string value;
  std::string why;  // one sentence
};

struct Partition {
  std::vector<PartitionStep> steps;  // in an order in which they can run
  std::vector<NotFused> not_fused;
  // The arena of the buffers that are temporaries and internal to no region. A buffer without memory has the offset
  // kNone.
  static constexpr size_t kNone = SIZE_MAX;
  size_t arena_bytes = 0;
  std::vector<size_t> arena_offset;
  // Set by the first run on a GPU, which builds the plans of all steps.
  std::unique_ptr<std::once_flag> plans_built = std::make_unique<std::once_flag>();
};

Partition make_partition(const Graph&, Handle&);

// Finds the plan of a step as a call does: in the plan cache of the handle, by records of find(), or by estimates.
NodePlan plan_of(const Graph&, Handle&, const PartitionStep&);

// Some nodes of a graph as a region.
struct MadeRegion {
  Region region;
  std::vector<double> numbers;  // the last words of its RegionArgs
  std::string why_not;          // if no engine may run the nodes together, the reason
};
MadeRegion make_region(const Graph&, const std::vector<int>& nodes, const Recomputed& = {});

// Returns a text that says how the graph runs: for each region, its nodes, its engine, its estimate and the reasons of
// the other engines; then one sentence for each pair of nodes that is not fused.
std::string why_text(const Graph&, Handle&);

// Returns the source that cuda.graph.elementwise generates for a region, or for all nodes together. Regions are counted
// from 1, as in why_text(). Throws NotSupported if their results do not depend on single elements.
std::string source_text(const Graph&, Handle&, std::optional<int64_t> region);

}  // namespace minidnn::graph
