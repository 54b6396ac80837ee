// SPDX-License-Identifier: Apache-2.0
// Implements LibraryOpEngine of library_op.h. library_call.cpp finds the calls.
#include "cpp/graph/library_op.h"

#include <bit>

namespace minidnn::graph {
namespace {

std::vector<NodeChoice> choices_of(const LibraryCall& call, const std::string& algo, bool all) {
  return call.kind->choices(*PlanningHandle::current(), call.problem.data(), algo, all);
}
// The first choice for a call. Throws Error if no engine can run it.
NodeChoice choice_of(const LibraryCall& call, const std::string& algo) {
  std::vector<NodeChoice> choices = choices_of(call, algo, false);
  MINIDNN_CHECK(Error, !choices.empty(), "graph: no engine can run ", call.kind->text(call.problem.data()));
  return std::move(choices.front());
}
LibraryCalls calls_of(const LibraryOpEngine& e, const RegionProblem& p) {
  LibraryCalls all;
  const std::string why = e.find_calls(p, all);
  MINIDNN_CHECK(Error, why.empty(), "graph: ", e.name(), ": ", why);
  return all;
}

// A config has the words of `algo`. An engine without configs has no colon at its end.
Config config_of(const NodeChoice& c) { return c.algo.ends_with(':') ? c.algo.substr(0, c.algo.size() - 1) : c.algo; }

std::string algo_of(const Config& c) { return names_config(c) ? c : c + ":"; }

// A call and its plan.
struct Step {
  const NodeKind* kind;
  NodePlan plan;
  std::vector<LibraryCall::Word> words;

  // The call keeps tensors in `workspace`, and has workspace of its own behind them.
  void run(const RegionArgs& a, char* workspace, void* own, Stream stream) const {
    uint64_t args[kMostWords];
    for (size_t i = 0; i < words.size(); ++i) {
      const LibraryCall::Word& w = words[i];
      args[i] = w.from < 0 ? w.constant : a.words[size_t(w.from)];
      if (w.in_workspace) args[i] = reinterpret_cast<uintptr_t>(workspace + w.constant);
      if (w.factor >= 0)
        args[i] =
            std::bit_cast<uint64_t>(std::bit_cast<double>(args[i]) * std::bit_cast<double>(a.words[size_t(w.factor)]));
    }
    kind->run(plan.plan.get(), args, own, stream);
  }
};

struct LibraryPlan final : Plan<RegionProblem> {
  Place place;
  std::vector<Step> steps;
  size_t bytes = 0, zeros = 0;

  void run(const RegionArgs& a, void* workspace, Stream stream) const override {
    char* const base = static_cast<char*>(workspace);
    if (zeros) memory_of(place).fill(base, 0, zeros, stream);
    for (const Step& s : steps) s.run(a, base, base + bytes, stream);
  }
};

}  // namespace

std::string LibraryOpEngine::why_not(const RegionProblem& p, const Device&) const {
  LibraryCalls all;
  std::string why = find_calls(p, all);
  for (const LibraryCall& call : all.calls)
    if (why.empty() && choices_of(call, "", false).empty())
      why = cat("no engine can run ", call.kind->text(call.problem.data()));
  return why;
}

double LibraryOpEngine::estimate_us(const RegionProblem& p, const Device& d) const {
  const LibraryCalls all = calls_of(*this, p);
  double us = all.zeros ? roofline_us(0, double(all.zeros), d, 1) : 0;
  for (const LibraryCall& call : all.calls) us += choice_of(call, "").estimate_us;
  return us;
}

std::vector<Config> LibraryOpEngine::configs(const RegionProblem& p, const Device&) const {
  std::vector<Config> configs;
  for (const NodeChoice& c : choices_of(calls_of(*this, p).calls.back(), "", true)) configs.push_back(config_of(c));
  return configs;
}

size_t LibraryOpEngine::workspace_bytes(const RegionProblem& p, const Device&, const Config& config) const {
  const LibraryCalls all = calls_of(*this, p);
  size_t own = 0;
  for (const LibraryCall& call : all.calls)
    own = std::max(own, choice_of(call, &call == &all.calls.back() ? algo_of(config) : "").workspace_bytes);
  return all.bytes + own;
}

std::unique_ptr<Plan<RegionProblem>> LibraryOpEngine::build(const RegionProblem& p, const Device& d,
                                                            const Config& config) const {
  LibraryCalls all = calls_of(*this, p);
  auto plan = std::make_unique<LibraryPlan>();
  plan->place = d.place;
  plan->bytes = all.bytes;
  plan->zeros = all.zeros;
  const DryRunPause pause;
  for (LibraryCall& call : all.calls) {
    // Records of find() change neither the engine nor the workspace of the calls before the last one.
    const std::string algo = &call == &all.calls.back() ? algo_of(config) : choice_of(call, "").algo;
    NodePlan made = call.kind->plan(*PlanningHandle::current(), call.problem.data(), algo);
    plan->steps.push_back({call.kind, std::move(made), std::move(call.words)});
  }
  return plan;
}

}  // namespace minidnn::graph
