// SPDX-License-Identifier: Apache-2.0
// A region: calls of a graph that one engine runs together. It is the problem of the family `graph`, so regions have
// engines, plans, reports and tuning records like all other problems. An engine of regions reads this file alone.
//
//   const Region& r = region_of(p);                          the nodes of a problem, in an order in which they can run
//   r.nodes[i].as<PointwiseProblem>()                        the problem of a node, or null if it has another type
//   r.nodes[i].args<PointwiseProblem>(a)                     at run time: the Args of a node, with its numbers and seeds
//   r.address(v, a)                                          at run time: the address of value number v
//   r.values[v].input, .output, .internal()                  whether the region reads, writes or keeps a value
//   PlanningHandle::current()                                in all functions of an engine: the handle, with its options
#pragma once
#include "cpp/engine/op.h"

namespace minidnn {

// The memory of a tensor that nodes of a region read or write. Ports with one address have one value. Different values
// do not overlap, unless both are only read.
struct RegionValue {
  std::string name;     // the name in the graph, for error texts: "x", "%3". Equal regions may have other names
  TensorDesc desc;      // the description of the port that reaches the most memory
  bool input = false;   // the region reads elements that were there before
  bool output = false;  // the region writes elements that others may read, or that nobody reads
  int writer = -1;      // the node that writes the value, or -1. At most one node writes it
  std::vector<int> readers{};
  int64_t alignment = 16;  // the bytes to which its address is aligned: at most 16, and always 16 on the CPU
  size_t slot = 0;         // where RegionArgs has the address
  // If the value is one element, a number that was known when the graph was recorded: the index of the word in
  // RegionArgs that has it as a double, rounded to the dtype of the value. Else -1.
  int64_t number = -1;
  // Whether only nodes of this region use the value. It then has no address, and an engine need not store it. Exactly
  // one node writes it, all its elements, and later nodes read it.
  bool internal() const { return !input && !output; }
};

struct RegionPort {
  std::string name;  // such as "bias"; Family<P>::ports has all of them
  int value;         // the index of the value
  int64_t word;      // the index of the 64-bit word in the Args of the node that has the address
  TensorDesc desc;   // as this node sees the value: the shape may differ from that of other ports
  bool reads, writes;
};

// The tensors and numbers of a run: the Args of all nodes, one after the other, then numbers of values. Addresses of
// internal values are null.
struct RegionArgs {
  const uint64_t* words = nullptr;
};

struct RegionNode {
  const NodeKind* kind = nullptr;
  std::vector<uint64_t> problem{};
  std::vector<RegionPort> ports{};
  size_t first_word = 0;  // the index in RegionArgs of the first word of its Args

  template <class P> const P* as() const {
    return kind == &node_kind<P>() ? static_cast<const P*>(static_cast<const void*>(problem.data())) : nullptr;
  }
  template <class P> const ArgsOf<P>& args(const RegionArgs& a) const {
    return *static_cast<const ArgsOf<P>*>(static_cast<const void*>(a.words + first_word));
  }
  // Returns the port of that name, or null if this call has none.
  const RegionPort* port(std::string_view name) const;
  std::string text() const { return kind->text(problem.data()); }
};

// Immutable. Nodes are in an order in which they can run.
struct Region {
  std::vector<RegionNode> nodes;
  std::vector<RegionValue> values;  // numbered by first use
  size_t words = 0;                 // the number of words of RegionArgs

  void* address(int value, const RegionArgs& a) const {
    return reinterpret_cast<void*>(a.words[values[size_t(value)].slot]);
  }
  // The region as one line: its problems, joined by " ; ", each with its values. Inputs are x0, x1, ..., or n0, n1, ...
  // if they are numbers, values that
  // are written and used outside are y0, ..., others are %0, ... Equal regions have equal texts, and tuning records are
  // found by it.
  std::string text() const;
  // Sums the bytes of values that are stored or loaded if each node runs alone, and if internal values are not stored.
  double bytes_apart() const;
  double bytes_together() const;
};

struct RegionProblem {
  int64_t id = 0;             // the number of the region; equal regions have equal numbers
  int64_t alignment = 16;     // the least alignment of all values, in bytes
  int64_t rounding_each = 0;  // 1: an engine rounds each value to its dtype, as separate calls do
};

// Returns the problem of a region, which is kept until the process ends. Equal regions are kept once. Returns nothing
// if kMostRegions are kept already.
constexpr size_t kMostRegions = 65536;
std::optional<RegionProblem> keep_region(const Region&, bool rounding_each);
const Region& region_of(const RegionProblem&);

// A region that is not kept, as a problem on this thread. Its plans must not be cached.
class RegionCandidate {
 public:
  RegionCandidate(const Region&, bool rounding_each);
  ~RegionCandidate();
  RegionCandidate(const RegionCandidate&) = delete;
  const RegionProblem& problem() const { return problem_; }

 private:
  RegionProblem problem_;
  const Region* const outer_;
};

template <> struct Family<RegionProblem> {
  using Args = RegionArgs;
  static constexpr const char* name = "graph";
  static std::string text(const RegionProblem&);
  static void ports(const RegionProblem&, Args&, Ports&);
  static const Engines<RegionProblem>& cpu_engines();
  static const Engines<RegionProblem>& cuda_engines();
};

}  // namespace minidnn
