// SPDX-License-Identifier: Apache-2.0
// Implements LibraryOpEngine of library_op.h. library_call.cpp finds the call.
#include "cpp/graph/library_op.h"

#include <bit>

namespace minidnn::graph {
namespace {

std::vector<NodeChoice> choices_of(const LibraryCall& call, const std::string& algo, bool all) {
  return call.kind->choices(*PlanningHandle::current(), call.problem.data(), algo, all);
}
LibraryCall call_of(const RegionProblem& p) {
  LibraryCall call;
  const std::string why = library_call(p, call);
  MINIDNN_CHECK(Error, why.empty(), "graph: library_op: ", why);
  return call;
}

// A config has the words of `algo`. An engine without configs has no colon at its end.
Config config_of(const NodeChoice& c) { return c.algo.ends_with(':') ? c.algo.substr(0, c.algo.size() - 1) : c.algo; }

std::string algo_of(const Config& c) { return names_config(c) ? c : c + ":"; }

struct LibraryPlan final : Plan<RegionProblem> {
  const NodeKind* kind;
  NodePlan plan;
  std::vector<LibraryCall::Word> words;

  LibraryPlan(LibraryCall call, NodePlan p) : kind(call.kind), plan(std::move(p)), words(std::move(call.words)) {}
  void run(const RegionArgs& a, void* workspace, Stream stream) const override {
    uint64_t args[kMostWords];
    for (size_t i = 0; i < words.size(); ++i) {
      const LibraryCall::Word& w = words[i];
      args[i] = w.from < 0 ? w.constant : a.words[size_t(w.from)];
      if (w.factor >= 0)
        args[i] =
            std::bit_cast<uint64_t>(std::bit_cast<double>(args[i]) * std::bit_cast<double>(a.words[size_t(w.factor)]));
    }
    kind->run(plan.plan.get(), args, workspace, stream);
  }
};

}  // namespace

std::string LibraryOpEngine::why_not(const RegionProblem& p, const Device&) const {
  LibraryCall call;
  std::string why = library_call(p, call);
  if (why.empty() && choices_of(call, "", false).empty())
    why = cat("no engine can run ", call.kind->text(call.problem.data()));
  return why;
}

double LibraryOpEngine::estimate_us(const RegionProblem& p, const Device&) const {
  return choices_of(call_of(p), "", false).front().estimate_us;
}

std::vector<Config> LibraryOpEngine::configs(const RegionProblem& p, const Device&) const {
  std::vector<Config> all;
  for (const NodeChoice& c : choices_of(call_of(p), "", true)) all.push_back(config_of(c));
  return all;
}

size_t LibraryOpEngine::workspace_bytes(const RegionProblem& p, const Device&, const Config& config) const {
  return choices_of(call_of(p), algo_of(config), false).at(0).workspace_bytes;
}

std::unique_ptr<Plan<RegionProblem>> LibraryOpEngine::build(const RegionProblem& p, const Device&,
                                                            const Config& config) const {
  LibraryCall call = call_of(p);
  const DryRunPause pause;
  NodePlan plan = call.kind->plan(*PlanningHandle::current(), call.problem.data(), algo_of(config));
  return std::make_unique<LibraryPlan>(std::move(call), std::move(plan));
}

}  // namespace minidnn::graph
