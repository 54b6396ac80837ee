// SPDX-License-Identifier: Apache-2.0
// How a call is recorded as the node of a graph. run() hands the call to the recorder of the thread, if there is one.
#pragma once
#include <string>
#include <vector>

#include "cpp/core/handle.h"
#include "cpp/core/recording.h"
#include "cpp/engine/ports.h"

namespace minidnn {

// A plan, as a graph sees it: the type of its problem is not known.
struct NodePlan {
  std::shared_ptr<const void> plan;  // a SelectedPlan<P>
  size_t workspace_bytes = 0;
};

// An engine and a config that can run a problem, by their estimated time.
struct NodeChoice {
  // Such as "cuda.matmul.wgmma:tile=128x64". Without configs, nothing follows the colon.
  std::string algo;
  double estimate_us = 0;
  size_t workspace_bytes = 0;
};

// The functions of Family<P> that a graph needs, for a problem type P that the graph does not know. A problem and its
// Args are arrays of 64-bit words here.
struct NodeKind {
  const char* family;
  size_t problem_bytes, args_bytes;
  std::string (*text)(const void* problem);
  void (*ports)(const void* problem, void* args, Ports&);
  // Checks elements of CPU inputs that a call would check, such as indices.
  void (*check)(const void* problem, const void* args);
  // Finds a plan as a call does: in the plan cache of the handle, by records of find(), or by estimates.
  NodePlan (*plan)(Handle&, const void* problem, const std::string& algo);
  void (*run)(const void* plan, const void* args, void* workspace, Stream);
  // Returns the engines and configs that `algo` selects and that can run a problem, the engine with the lowest estimate
  // first. If `all` is false, returns only the first of them. Builds nothing, and ignores records of find().
  std::vector<NodeChoice> (*choices)(const Handle&, const void* problem, const std::string& algo, bool all) = nullptr;
  bool has_check = false;  // whether check() reads elements
};

class CallRecorder : public TensorRecorder {
 public:
  // Writes down a call, after all its checks. The problem and its Args are copied.
  virtual void add(Handle&, const NodeKind&, const void* problem, const void* args, const std::string& algo) = 0;
  static CallRecorder* current() { return static_cast<CallRecorder*>(active); }  // all recorders are CallRecorders
};

}  // namespace minidnn
