// SPDX-License-Identifier: Apache-2.0
// Implements BoundCall of graph.h: checks the tensors of a run, and gives each node its addresses and its plan.
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>

#include "cpp/graph/partition.h"

namespace minidnn::graph {
namespace {

bool equal_descriptions(const TensorDesc& a, const TensorDesc& b) {
  return a.dtype == b.dtype && same_shape(a, b) && same_strides(a, b);
}
std::string description(const TensorDesc& d) {
  return cat(name(d.dtype), " ", shape_text(d), " with strides [", join(strides_of(d)), "]");
}

// Builds the plans of all steps on several threads, so that their kernels are compiled side by side. The plans stay in
// the caches of the handles. An error is not reported here: it occurs again where the plan is used.
void build_plans(const Graph& g, Handle& of_graph, const Partition& partition) {
  const std::vector<PartitionStep>& steps = partition.steps;
  std::atomic<size_t> next = 0;
  const auto build = [&] {
    for (size_t i = next++; i < steps.size(); i = next++) try {
        plan_of(g, of_graph, steps[i]);
      } catch (const std::exception&) {}
  };
  std::vector<std::thread> threads;
  const size_t count = std::min(steps.size(), size_t(std::max(1u, std::thread::hardware_concurrency())));
  try {
    while (threads.size() + 1 < count) threads.emplace_back(build);
  } catch (const std::system_error&) {  // the system has no more threads; those that run build all plans
  }
  build();
  for (std::thread& t : threads) t.join();
}

}  // namespace

NodePlan plan_of(const Graph& g, Handle& of_graph, const PartitionStep& step) {
  if (step.region) return node_kind<RegionProblem>().plan(of_graph, &*step.region, "");
  const Node& node = g.nodes[size_t(step.nodes[0])];
  return node.kind->plan(node.handle ? *node.handle : of_graph, node.problem.data(), node.algo);
}

BoundCall::BoundCall(std::shared_ptr<const Graph> graph, HandlePtr handle, RunArguments arguments)
    : graph_(std::move(graph)),
      handle_(handle_for(handle, graph_->place, "graph", "the graph").shared_from_this()),
      partition_(graph_->partition(*handle_)),
      arguments_(std::move(arguments)),
      storage_(graph_->buffers.size()),
      base_(graph_->buffers.size(), 0) {
  MINIDNN_CHECK(DeviceError, !TensorRecorder::current(), "graph: a graph cannot run while calls are recorded");
  place_buffers();
  check_given();
  make_results();
  make_steps();
}

void BoundCall::bind_given(const std::string& label, const View& v, const Tensor& t) {
  const Buffer& b = graph_->buffers[size_t(v.buffer)];
  MINIDNN_CHECK(DeviceError, t.place() == graph_->place, "graph: it was recorded for ", name(graph_->place), ", '",
                label, "' is on ", name(t.place()));
  MINIDNN_CHECK(ShapeError, equal_descriptions(t.desc, v.desc), "graph: '", label, "' must be ", description(v.desc),
                ", as recorded; got ", description(t.desc));
  check_computed(t, "graph");
  MINIDNN_CHECK(ShapeError, !b.written() || !t.storage->read_only, "graph: '", label,
                "' is read-only, and the graph writes it");
  if (t.desc.numel() == 0) return;
  const uintptr_t base = reinterpret_cast<uintptr_t>(t.data) - uintptr_t(v.offset);
  MINIDNN_CHECK(ShapeError, !graph_->place.is_cuda || base % 16 == b.base % 16, "graph: '", label,
                "' has an address of ", base % 16, " modulo 16; it was recorded with ", b.base % 16);
  MINIDNN_CHECK(ShapeError, !base_[size_t(v.buffer)] || base_[size_t(v.buffer)] == base, "graph: '", label,
                "' must overlap '", b.name, "' as it did when the graph was recorded");
  base_[size_t(v.buffer)] = base;
  storage_[size_t(v.buffer)] = t.storage;
}

void BoundCall::place_buffers() {
  const Graph& g = *graph_;
  const Stream stream = handle_->stream();
  for (size_t i = 0; i < g.inputs.size(); ++i) bind_given(g.inputs[i].name, g.inputs[i].view, arguments_.inputs[i]);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const std::optional<Tensor>& out = arguments_.outputs[i];
    if (!out) continue;
    const Named& n = g.outputs[i];
    const Buffer& b = g.buffers[size_t(n.view.buffer)];
    MINIDNN_CHECK(ShapeError, b.is_output && n.view.covers(b.bytes), "graph: '", n.name, "' is ",
                  b.is_output ? "a part of a larger tensor" : "an input or a constant",
                  ", so its memory cannot be given; omit it");
    bind_given(n.name, n.view, *out);
  }
  const std::shared_ptr<Storage> arena =
      partition_.arena_bytes
          ? allocator_of(g.place).allocate(partition_.arena_bytes, stream, [] { return "graph: temporaries"; })
          : nullptr;
  for (size_t i = 0; i < g.buffers.size(); ++i) {
    const Buffer& b = g.buffers[i];
    if (storage_[i] || b.kind == Buffer::Kind::input) continue;
    if (b.kind == Buffer::Kind::constant) {
      // A number of the recorded function was written on the stream of the recording, which may be another one.
      b.constant->settle_before(stream);
      storage_[i] = b.constant;
      base_[i] = b.base;
    } else if (b.is_output) {
      storage_[i] = allocator_of(g.place).allocate(b.bytes, stream, [&] { return cat("graph: ", b.name); });
      base_[i] = reinterpret_cast<uintptr_t>(storage_[i]->data);
    } else if (partition_.arena_offset[i] != Partition::kNone && arena) {
      storage_[i] = arena;
      base_[i] = reinterpret_cast<uintptr_t>(arena->data) + partition_.arena_offset[i];
    }
  }
  for (const std::shared_ptr<Storage>& s : storage_)
    if (s) s->used_on(stream);
}

// Checks that a tensor that the graph writes shares no memory with another one, unless it did so when the graph was
// recorded.
void BoundCall::check_given() const {
  struct Given {
    const Named* named;
    const Tensor* tensor;
  };
  std::vector<Given> all;
  for (size_t i = 0; i < graph_->inputs.size(); ++i) all.push_back({&graph_->inputs[i], &arguments_.inputs[i]});
  for (size_t i = 0; i < graph_->outputs.size(); ++i)
    if (arguments_.outputs[i]) all.push_back({&graph_->outputs[i], &*arguments_.outputs[i]});
  for (const Given& a : all) {
    const int buffer = a.named->view.buffer;
    if (!graph_->buffers[size_t(buffer)].written()) continue;
    for (const Given& b : all)
      MINIDNN_CHECK(ShapeError, b.named->view.buffer == buffer || !share_memory(*a.tensor, *b.tensor), "graph: '",
                    a.named->name, "', which the graph writes, shares memory with '", b.named->name,
                    "'; it did not when the graph was recorded");
  }
  for (const Buffer& c : graph_->buffers) {
    if (c.kind != Buffer::Kind::constant) continue;
    for (const Given& a : all) {
      const Storage& s = *a.tensor->storage;
      const auto begin = reinterpret_cast<uintptr_t>(s.data);
      const bool apart = begin + s.bytes <= c.base || c.base + c.bytes <= begin || a.tensor->desc.numel() == 0;
      MINIDNN_CHECK(ShapeError, apart || (!c.written() && !graph_->buffers[size_t(a.named->view.buffer)].written()),
                    "graph: '", a.named->name, "' shares memory with ", c.name, " (", c.made_by,
                    "), and the graph writes one of both");
    }
  }
}

void BoundCall::make_results() {
  for (const Named& n : graph_->outputs) {
    const auto i = size_t(n.view.buffer);
    Tensor t{n.view.desc, reinterpret_cast<void*>(base_[i] + uintptr_t(n.view.offset)), storage_[i]};
    if (!t.storage) t = empty(n.view.desc, graph_->place, handle_->stream(), "graph", n.name.c_str());
    results_.push_back(std::move(t));
  }
}

void BoundCall::make_steps() {
  const cpu::ThreadLimit limit(handle_->options().threads);
  size_t workspace = 0;
  if (graph_->place.is_cuda && !DryRun::current())
    std::call_once(*partition_.plans_built, [&] { build_plans(*graph_, *handle_, partition_); });
  for (const PartitionStep& step : partition_.steps) {
    Step s{&step, plan_of(*graph_, *handle_, step), step.args};
    for (const PartitionStep::Slot& a : step.addresses) s.args[a.word] = base_[size_t(a.buffer)] + uintptr_t(a.offset);
    for (const DynamicWord& d : step.dynamic)
      s.args[size_t(d.word)] = uint64_t(arguments_.numbers[size_t(d.number)]) + uint64_t(d.plus);
    workspace = std::max(workspace, s.plan.workspace_bytes);
    steps_.push_back(std::move(s));
  }
  if (workspace)
    workspace_ = allocator_of(graph_->place).allocate(workspace, handle_->stream(), [] { return "graph: workspace"; });
}

void BoundCall::run() const {
  MINIDNN_CHECK(DeviceError, !handle_->closed(), "graph: the handle for ", name(handle_->place()), " is closed");
  if (DryRun::current()) return;  // explain() and find() only choose plans
  const cpu::ThreadLimit limit(handle_->options().threads);
  void* const workspace = workspace_ ? workspace_->data : nullptr;
  for (const Step& s : steps_) {
    const RegionArgs args{s.args.data()};
    if (s.of->region) node_kind<RegionProblem>().run(s.plan.plan.get(), &args, workspace, handle_->stream());
    else run_node(graph_->nodes[size_t(s.of->nodes[0])], s, workspace);
  }
}

void BoundCall::run_node(const Node& node, const Step& s, void* workspace) const {
  if (!graph_->place.is_cuda) try {
      node.kind->check(node.problem.data(), s.args.data());
    } catch (const ShapeError& error) {
      throw ShapeError(cat(error.what(), node.where.empty() ? "" : "; recorded in ", node.where));
    }
  node.kind->run(s.plan.plan.get(), s.args.data(), workspace, handle_->stream());
}

}  // namespace minidnn::graph
