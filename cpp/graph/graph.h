// SPDX-License-Identifier: Apache-2.0
// A graph: calls that were recorded once, and can run many times. Its nodes are the calls in recorded order. They read
// and write views of buffers. A buffer is an input, a constant (a tensor that existed before the recording), or a
// temporary. A graph is immutable, so any thread may run it.
//
// cpp/graph/recorder.h records a graph, cpp/graph/partition.h cuts it into regions that one engine runs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cpp/engine/call_recorder.h"

namespace minidnn::graph {

// A view of a buffer: the description of a tensor, and the address of its first element relative to the buffer.
struct View {
  int buffer = -1;
  int64_t offset = 0;  // in bytes
  TensorDesc desc{};
  size_t bytes() const { return size_t(desc.numel()) * itemsize(desc.dtype); }  // the size of its elements
  // The bytes of the buffer from the first to the last that the view reaches.
  int64_t begin() const { return offset + extent(desc).begin * int64_t(itemsize(desc.dtype)); }
  int64_t end() const { return offset + extent(desc).end * int64_t(itemsize(desc.dtype)); }
  bool covers(size_t bytes) const { return begin() == 0 && end() == int64_t(bytes); }
};

struct Buffer {
  enum class Kind { input, constant, temporary };
  Kind kind = Kind::temporary;
  std::string name;     // the name of an input; for others a text such as "%3"
  std::string made_by;  // what made the buffer, for error messages, such as "matmul y, line 12 of model.py"
  size_t bytes = 0;
  uintptr_t base = 0;                   // the address while the graph was recorded: reserved, or that of a constant
  std::shared_ptr<Storage> constant{};  // the memory of a constant
  View tensor{};                        // the tensor by which the recording first met a constant
  std::optional<double> number{};       // the value of a constant that is one number and never changes
  int first_write = -1, last_use = -1;  // indices of nodes; -1 if there is none
  bool read_only = false;
  bool is_output = false;  // true for a temporary that an output is a view of
  int uses = 0;            // the number of ports of nodes that are views of the buffer
  bool one_view = true;    // whether one port writes the buffer, and all ports begin at the same byte
  bool written() const { return first_write >= 0; }
  void used_by(int node, bool writes) {
    if (writes && first_write < 0) first_write = node;
    last_use = node;
  }
};

struct Port {
  std::string name;
  View view;
  int64_t word;  // the index of the 64-bit word in Args that holds the address
  bool reads, writes;
};

// A seed or an offset of random numbers that is given anew at each run.
struct DynamicWord {
  int64_t word;  // the index of the 64-bit word in Args
  int number;    // the index of the dynamic number
  int64_t plus;  // what the recorded call adds to the dynamic number
};

struct Node {
  const NodeKind* kind = nullptr;
  std::vector<uint64_t> problem{}, args{};
  std::vector<Port> ports{};
  std::vector<DynamicWord> dynamic{};
  std::string algo{};
  HandlePtr handle{};      // the handle that the call named, whose options choose the engine; null for that of the run
  std::string where{};     // the line of the user's source, such as "line 12 of model.py"
  std::string rewrites{};  // the names of the rewrites that made the node, such as "silu" (rewrite.h)
};

struct Named {
  std::string name;
  View view;
};

struct Partition;
struct PartitionStep;

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<Named> inputs, outputs;
  std::vector<std::string> dynamic;  // the names of the dynamic numbers
  Place place;
  // Whether each call rounds its results to their dtype, as separate calls do. If not, results that are used by one
  // region alone may stay in a wider type.
  bool rounding_each = false;

  // Rewrites nodes, and removes those that no output, input or constant depends on. Called once, after the recording.
  void finish(bool rewrites);
  // Returns how the graph runs with the options of a handle (partition.h). It is computed once for equal options, and
  // lives as long as the graph.
  const Partition& partition(Handle&) const;
  // Returns the graph as text, one line for each input and node.
  std::string text() const;
  // Returns how the text names a view, such as "%3", or "%3[64]" for a view that begins at byte 64.
  std::string name_of(const View&) const;
  // The bytes of temporaries if each node runs alone.
  size_t arena_bytes() const { return arena_bytes_; }
  // The offset of a temporary in the arena. No other buffer has one.
  size_t arena_offset(int buffer) const { return at_[size_t(buffer)]; }

 private:
  struct Partitions;
  void remove_unused_nodes();
  void find_lifetimes();
  void count_uses();
  void place_temporaries();
  size_t arena_bytes_ = 0;
  std::vector<size_t> at_;
  std::shared_ptr<Partitions> partitions_;
};

// If this thread records a graph, notes that a tensor was made from a number, and never changes.
void note_number(const Tensor&, double);

// The tensors and numbers of one run of a graph.
struct RunArguments {
  std::vector<Tensor> inputs;                  // for each input of the graph, in order
  std::vector<std::optional<Tensor>> outputs;  // for each output; an empty one is allocated
  std::vector<int64_t> numbers;                // for each dynamic number
};

// A graph with the addresses of its tensors, its workspace and its plans. run() allocates nothing, looks nothing up and
// does not synchronise, so a CUDA graph can capture it. The object keeps all tensors alive. One thread at a time may
// run it.
class BoundCall {
 public:
  // Checks the arguments, allocates what is not given, and finds a plan for each region.
  BoundCall(std::shared_ptr<const Graph>, HandlePtr, RunArguments);
  void run() const;
  const std::vector<Tensor>& results() const { return results_; }

 private:
  struct Step {
    const PartitionStep* of;
    NodePlan plan;
    std::vector<uint64_t> args;
  };
  void place_buffers();
  void check_given() const;
  void bind_given(const std::string& name, const View&, const Tensor&);
  void make_results();
  void make_steps();

  void run_node(const Node&, const Step&, void* workspace) const;

  const std::shared_ptr<const Graph> graph_;
  const HandlePtr handle_;
  const Partition& partition_;
  RunArguments arguments_;
  std::vector<std::shared_ptr<Storage>> storage_;  // the memory of each buffer
  std::vector<uintptr_t> base_;                    // the address of each buffer
  std::vector<Step> steps_;
  std::vector<Tensor> results_;
  std::shared_ptr<Storage> workspace_;
};

}  // namespace minidnn::graph
