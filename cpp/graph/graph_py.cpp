// SPDX-License-Identifier: Apache-2.0
// Python bindings of recordings and graphs. pyminidnn/graph.py has the public classes and functions.
#include <bit>

#include "cpp/bindings/exchange.h"
#include "cpp/bindings/operators.h"
#include "cpp/engine/registry.h"
#include "cpp/graph/partition.h"
#include "cpp/graph/recorder.h"
#include "cpp/transform/transform.h"

namespace minidnn {

void bind_graph_files(py::module_&, py::class_<graph::Graph, std::shared_ptr<graph::Graph>>&,
                      py::class_<graph::Recorder, std::shared_ptr<graph::Recorder>>&);

namespace {

using graph::BoundCall;
using graph::Graph;
using graph::Named;
using graph::Recorder;

// Calls a Python function that returns the line of the user's source. An error in it gives an empty text.
Recorder::Where where_from(const py::function& find) {
  return [find]() -> std::string {
    py::gil_scoped_acquire gil;
    try {
      return find().cast<std::string>();
    } catch (const py::error_already_set&) {
      return "";
    }
  };
}

// For each input or output: its name, the index of its buffer, its shape, dtype and bytes.
py::list described(const std::vector<Named>& all) {
  py::list list;
  for (const Named& n : all)
    list.append(py::make_tuple(n.name, n.view.buffer, tuple_of(shape_of(n.view.desc)), name(n.view.desc.dtype),
                               n.view.bytes()));
  return list;
}

// Returns what a picture of the graph shows of each node: its family, its problem as text, and its ports. A port is the
// name of the value, the index of its buffer, its bytes, and whether the node reads and writes it.
py::list nodes_of(const Graph& g) {
  py::list nodes;
  for (const graph::Node& node : g.nodes) {
    py::list ports;
    for (const graph::Port& p : node.ports) {
      ports.append(py::make_tuple(g.name_of(p.view), p.view.buffer, p.view.bytes(), p.reads, p.writes));
    }
    nodes.append(py::make_tuple(node.kind->family, node.kind->text(node.problem.data()), ports));
  }
  return nodes;
}

Handle& handle_of(const Graph& g, const HandlePtr& handle) { return handle_for(handle, g.place, "graph", "the graph"); }

// Returns the nodes of each region, in the order in which they run.
std::vector<std::vector<int>> regions_of(const Graph& g, const HandlePtr& handle) {
  std::vector<std::vector<int>> all;
  for (const graph::PartitionStep& s : g.partition(handle_of(g, handle)).steps) all.push_back(s.nodes);
  return all;
}

std::string source_of(const Graph& g, std::optional<int64_t> region, const HandlePtr& handle) {
  return source_text(g, handle_of(g, handle), region);
}

// Chooses the plans of a graph as a run does: of all regions, and of the calls that run alone unless `only_regions`.
// explain() and find() report on them.
void choose_plans(const Graph& g, const HandlePtr& handle, bool only_regions) {
  Handle& h = handle_of(g, handle);
  const cpu::ThreadLimit limit(h.options().threads);
  for (const graph::PartitionStep& s : g.partition(h).steps)
    if (s.region || !only_regions) plan_of(g, h, s);
}

// Returns the bytes that two calls of a fused function have in common if one recording serves both: descriptions,
// devices, alignment and overlap of the tensors, and the options of the current handle.
py::bytes signature(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> words;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    const auto address = reinterpret_cast<intptr_t>(t.data);
    words.insert(words.end(), {int64_t(t.desc.dtype), t.desc.rank, t.place().is_cuda, t.place().index,
                               t.storage->read_only, t.place().is_cuda ? address % 16 : 0});
    words.insert(words.end(), t.desc.shape, t.desc.shape + t.desc.rank);
    words.insert(words.end(), t.desc.stride, t.desc.stride + t.desc.rank);
    for (size_t k = 0; k < i; ++k) {
      if (!share_memory(t, tensors[k])) continue;
      words.insert(words.end(), {-1, int64_t(k), address - reinterpret_cast<intptr_t>(tensors[k].data)});
    }
  }
  const Place place = tensors.empty() ? current_place() : tensors[0].place();
  const HandleOptions o = handle_for(nullptr, place, "fuse", "the arguments").options();
  words.insert(words.end(), {-2, int64_t(o.max_workspace), o.deterministic, int64_t(o.math), o.threads});
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]};
}

// Walks through the arguments of a fused function: arrays, other values, and tuples, lists and dicts of both.
class Arguments {
 public:
  explicit Arguments(const py::function& convert) : convert_(convert) {}

  void walk(py::handle value) {
    PyObject* v = value.ptr();
    if (PyTuple_CheckExact(v) || PyList_CheckExact(v)) {
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(v);
      add(py::type::handle_of(value), py::int_(n));
      for (Py_ssize_t i = 0; i < n; ++i) walk(PySequence_Fast_GET_ITEM(v, i));
    } else if (PyDict_CheckExact(v)) {
      const auto dict = py::reinterpret_borrow<py::dict>(value);
      add(py::type::handle_of(value), py::tuple(py::list(dict)));
      for (auto item : dict) walk(item.second);
    } else if (!take_array(value)) add_constant(value);
  }
  py::tuple tensors_and_key() {
    move_host_arrays();
    std::vector<Tensor> tensors;
    for (py::handle t : tensors_) tensors.push_back(tensor_of(t.ptr()));
    key_.append(signature(tensors));
    return py::make_tuple(tensors_, py::tuple(key_));
  }

 private:
  void add(py::handle kind, py::handle value) {
    key_.append(kind);
    key_.append(value);
  }
  bool take_array(py::handle value) {
    PyObject* v = value.ptr();
    if (PyUnicode_CheckExact(v) || PyLong_CheckExact(v) || PyFloat_CheckExact(v) || PyBool_Check(v) || Py_IsNone(v))
      return false;
    if (tensor_or_null(v)) {
      tensors_.append(value);
      if (!target_) target_ = tensor_of(v).place();
      return true;
    }
    py::object converted;
    if (std::optional<Tensor> t = try_exchange(v)) converted = py::cast(std::move(*t));
    else converted = convert_(value);
    if (converted.is_none()) return false;
    const Place place = tensor_of(converted.ptr()).place();
    if (!place.is_cuda) host_arrays_.push_back(tensors_.size());
    else if (!target_) target_ = place;
    tensors_.append(converted);
    return true;
  }
  // Copies host arrays of other libraries to the device of the other arrays, or of the current handle, as calls do.
  void move_host_arrays() {
    if (host_arrays_.empty()) return;
    const Place target = target_.value_or(current_place());
    if (!target.is_cuda) return;
    for (size_t i : host_arrays_) tensors_[i] = py::cast(to(tensor_of(tensors_[i].ptr()), target, {}, {}, false));
  }
  void add_constant(py::handle value) {
    // 0.0 equals -0.0, so the bits of a float are part of the key. 1 equals True, so the type is, too.
    if (PyFloat_CheckExact(value.ptr()))
      return add(py::type::handle_of(value), py::int_(std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(value.ptr()))));
    if (PyObject_Hash(value.ptr()) == -1) {
      PyErr_Clear();
      throw DTypeError(cat("an argument of a fused function must be an array or hashable; got ", repr_text(value)));
    }
    add(py::type::handle_of(value), value);
  }

  const py::function& convert_;
  py::list tensors_, key_;
  std::vector<size_t> host_arrays_;  // indices of tensors that are host arrays of other libraries
  std::optional<Place> target_;      // the device of the first other array
};

// Binds the classes that record.
py::class_<Recorder, std::shared_ptr<Recorder>> bind_recorder(py::module_& m) {
  // Python's `with` makes and ends a RecordingPause.
  struct Pause {
    std::optional<RecordingPause> pause;
  };
  py::class_<Pause>(m, "RecordingPause", "In a `with` block, calls of this thread run at once, also in a recording.")
      .def(py::init())
      .def("__enter__", [](Pause& p) { p.pause.emplace(); })
      .def("__exit__", [](Pause& p, const py::args&) { p.pause.reset(); });
  py::class_<Recorder, std::shared_ptr<Recorder>> recorder(m, "Recorder",
                                                           "Writes calls of one thread down as a graph.");
  recorder
      .def(py::init([](const std::optional<std::string>& device, HandlePtr handle, const py::function& where,
                       bool rounding_each) {
             const Place place = device ? place_from_python(*device) : handle ? handle->place() : current_place();
             return std::make_shared<Recorder>(handle, place, where_from(where), rounding_each);
           }),
           py::arg("device"), py::arg("handle"), py::arg("where"), py::arg("rounding_each"))
      .def("enter", &Recorder::enter)
      .def("leave", &Recorder::leave)
      .def(
          "input",
          [](Recorder& r, const std::string& name, const Shape& shape, py::handle dtype,
             std::optional<std::string> layout, const std::optional<Shape>& strides) {
            const DType t = dtype_from_python(dtype);
            MINIDNN_CHECK(ShapeError, !layout || !strides,
                          "input: layout and strides are both given; pass one of them");
            if (strides) return r.input(name, strided(t, shape, *strides, "input: shape"));
            auto order = optional_layout(layout, int64_t(shape.size())).value_or(Layout::channels_first);
            return r.input(name, dense(t, shape, order, "input: shape"));
          },
          py::arg("name"), py::arg("shape"), py::arg("dtype"), py::arg("layout"), py::arg("strides"))
      .def("inputs_like", &Recorder::inputs_like, py::arg("names"), py::arg("samples"))
      .def("output", &Recorder::output, py::arg("name"), py::arg("tensor"))
      .def("dynamic", &Recorder::dynamic, py::arg("name"))
      .def(
          "finish", [](Recorder& r, bool rewrites) { return std::const_pointer_cast<Graph>(r.finish(rewrites)); },
          py::arg("rewrites") = true);
  return recorder;
}

}  // namespace

void bind_graph(py::module_& m) {
  register_family<RegionProblem>();
  m.def("recording", [] { return TensorRecorder::current() != nullptr; }, "Whether this thread records a graph.");
  m.def(
      "recorded_number",
      [](double value, py::handle dtype, const std::string& device) {
        TensorDesc d;
        d.dtype = dtype_from_python(dtype);
        std::optional<Tensor> made;
        {
          const RecordingPause at_once;
          made = full(d, place_from_python(device), scalar_of(value));
        }
        graph::note_number(*made, value);
        return *made;
      },
      py::arg("value"), py::arg("dtype"), py::arg("device"),
      "A floating tensor without dimensions that is a constant number of the recording.");
  m.def(
      "flattened",
      [](const py::object& arguments, const py::function& convert) {
        Arguments all(convert);
        all.walk(arguments);
        return all.tensors_and_key();
      },
      py::arg("arguments"), py::arg("convert"),
      "The tensors of nested arguments, and a key: calls with equal keys can share a recording. convert(x) returns x "
      "as "
      "a tensor, or None if x is no array.");
  py::class_<Graph, std::shared_ptr<Graph>> graph(m, "Graph", "Recorded calls, which can run many times.");
  graph.def_property_readonly("inputs", [](const Graph& g) { return described(g.inputs); })
      .def_property_readonly("outputs", [](const Graph& g) { return described(g.outputs); })
      .def_property_readonly("device", [](const Graph& g) { return name(g.place); })
      .def_property_readonly("nodes", &nodes_of)
      .def_property_readonly("dynamic", [](const Graph& g) { return g.dynamic; })
      .def_property_readonly("arena_bytes", [](const Graph& g) { return g.arena_bytes(); })
      .def(
          "bytes_of_temporaries",
          [](const Graph& g, const HandlePtr& handle) { return g.partition(handle_of(g, handle)).arena_bytes; },
          py::arg("handle"), "The bytes of the temporaries that a run stores.")
      .def("regions", &regions_of, py::arg("handle"), py::call_guard<ReleaseGil>(),
           "The indices of the nodes of each region, in the order in which they run.")
      .def(
          "why", [](const Graph& g, const HandlePtr& handle) { return why_text(g, handle_of(g, handle)); },
          py::arg("handle"), py::call_guard<ReleaseGil>())
      .def("source", &source_of, py::arg("region"), py::arg("handle"), py::call_guard<ReleaseGil>())
      .def("choose_plans", &choose_plans, py::arg("handle"), py::arg("only_regions") = false,
           py::call_guard<ReleaseGil>())
      .def("text", &Graph::text);
  auto recorder = bind_recorder(m);
  bind_graph_files(m, graph, recorder);
  m.def(
      "run_graph",
      [](std::shared_ptr<Graph> g, std::vector<Tensor> inputs, std::vector<int64_t> numbers) {
        ReleaseGil release;
        const size_t outputs = g->outputs.size();
        const BoundCall call(std::move(g), nullptr,
                             {std::move(inputs), std::vector<std::optional<Tensor>>(outputs), std::move(numbers)});
        call.run();
        return call.results();
      },
      py::arg("graph"), py::arg("inputs"), py::arg("numbers"), "Runs a graph once. Returns its outputs.");
  py::class_<BoundCall>(m, "BoundCall", "A graph with all its tensors, its workspace and its plans.")
      .def(py::init([](std::shared_ptr<Graph> g, HandlePtr handle, std::vector<Tensor> inputs,
                       std::vector<std::optional<Tensor>> outputs, std::vector<int64_t> numbers) {
             MINIDNN_CHECK(ShapeError,
                           inputs.size() == g->inputs.size() && outputs.size() == g->outputs.size() &&
                               numbers.size() == g->dynamic.size(),
                           "graph: a tensor is needed for each input and output, a number for each dynamic argument");
             ReleaseGil release;
             return std::make_unique<BoundCall>(
                 std::move(g), std::move(handle),
                 graph::RunArguments{std::move(inputs), std::move(outputs), std::move(numbers)});
           }),
           py::arg("graph"), py::arg("handle"), py::arg("inputs"), py::arg("outputs"), py::arg("numbers"))
      .def("run", &BoundCall::run, py::call_guard<ReleaseGil>())
      .def_property_readonly("results", &BoundCall::results);
}

}  // namespace minidnn
