// SPDX-License-Identifier: Apache-2.0
// The engines cpu.graph.unfused and cuda.graph.unfused run the nodes of a region one by one, each by the engine with
// the lowest estimate. They support every region. Internal values and the workspaces of the nodes are in the workspace
// of the region.
#pragma once
#include "cpp/graph/region.h"

namespace minidnn::graph {

struct UnfusedEngine : Engine<RegionProblem> {
  std::string why_not(const RegionProblem&, const Device&) const override;
  double estimate_us(const RegionProblem&, const Device&) const override;
  size_t workspace_bytes(const RegionProblem&, const Device&, const Config&) const override;
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem&, const Device&, const Config&) const override;
};

}  // namespace minidnn::graph
