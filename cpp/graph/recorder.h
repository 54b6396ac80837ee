// SPDX-License-Identifier: Apache-2.0
// Records calls as a graph. While a Recorder is active on a thread, each public function checks its arguments as usual,
// returns stand-ins, and is written down as a node instead of being computed.
#pragma once
#include <functional>
#include <map>

#include "cpp/graph/graph.h"

namespace minidnn::graph {

class Recorder final : public CallRecorder {
 public:
  // Returns the line of the user's source that is running, such as "line 12 of model.py".
  using Where = std::function<std::string()>;
  // `handle` is the handle of all recorded calls. If it is null, this is the current handle of the device.
  // `rounding_each` is Graph::rounding_each.
  Recorder(const HandlePtr& handle, Place, Where, bool rounding_each = false);
  ~Recorder() override;
  Recorder(const Recorder&) = delete;

  // Activates the recorder on this thread, or deactivates it. Throws DeviceError if another recording is active on the
  // thread, or if the recorder is active on another thread.
  void enter();
  void leave();

  // Adds inputs to the graph, and returns their stand-ins. inputs_like() takes descriptions, alignment and read-only
  // flags from `samples`. Samples that share memory share a buffer of the graph.
  Tensor input(const std::string& name, const TensorDesc&);
  std::vector<Tensor> inputs_like(const std::vector<std::string>& names, const std::vector<Tensor>& samples);
  void output(const std::string& name, const Tensor&);
  // Adds a dynamic number, and returns the reserved integer that stands for it.
  int64_t dynamic(const std::string& name);
  // Notes a tensor without dimensions that was made from a number and never changes.
  void number(const Tensor&, double);

  // For a graph that is read from a file (graph_file.h). buffer() adds a buffer, and returns all of it as a tensor of
  // bytes; its address is `residue` modulo 16. input() names a view of an input's buffer. rename() names the buffer of
  // a tensor, and buffer_number() returns its index. set_numbers() sets the numbers among the Args of the last node to
  // those of `args`.
  Tensor buffer(Buffer::Kind, const std::string& name, size_t bytes, size_t residue, bool read_only);
  void input(const std::string& name, const Tensor& view);
  void rename(const Tensor&, const std::string& name);
  int buffer_number(const Tensor& t) { return int(&buffer_of(t) - graph_->buffers.data()); }
  void set_numbers(const std::vector<uint64_t>& args, const std::vector<DynamicWord>&);
  void rewritten(const std::string& rewrites);  // sets Node::rewrites of the last node
  const Graph& graph() const { return *graph_; }

  // Ends the recording, and returns the graph. `rewrites`: whether calls are replaced by simpler ones (rewrite.h).
  std::shared_ptr<const Graph> finish(bool rewrites = true);

  Tensor stand_in(const TensorDesc&, Place, const char* call, const char* label) override;
  void note(const Tensor&) override;
  void add(Handle&, const NodeKind&, const void* problem, const void* args, const std::string& algo) override;

 private:
  struct Standing;  // the storage of a stand-in of this recorder
  class PortReader;
  Tensor stand(const TensorDesc&, int buffer, int64_t offset);
  int add_buffer(Buffer, size_t residue = 0);
  int add_input_buffer(const std::string& name, const Tensor* sample, size_t bytes, size_t residue);
  // Returns the buffer at an address that a node has in its Args. Throws Error if there is none.
  int buffer_at(uintptr_t, const NodeKind&) const;
  Buffer& buffer_of(const Tensor&);  // throws ShapeError if there is none
  void check_open() const;
  void check_inputs() const;

  const HandlePtr handle_;
  const Where where_;
  const uint64_t id_;  // stand-ins know their recorder by this number
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::map<uintptr_t, int> stand_ins_, constants_;  // the buffers by address
  std::map<int, std::shared_ptr<Storage>> standing_;
  uintptr_t next_;
  bool entered_ = false;
  const void* thread_ = nullptr;
};

}  // namespace minidnn::graph
