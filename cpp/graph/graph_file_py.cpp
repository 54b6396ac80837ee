// SPDX-License-Identifier: Apache-2.0
// Python bindings for pyminidnn/graph_files.py: the contents of a graph as plain numbers and texts, and what a recorder
// needs to make a graph of them again.
#include "cpp/graph/graph_file.h"

#include <bit>
#include <charconv>

#include "cpp/bindings/operators.h"
#include "cpp/graph/recorder.h"

namespace minidnn {
namespace {

using graph::Buffer;
using graph::DynamicWord;
using graph::Graph;
using graph::Node;
using graph::Recorder;
using graph::View;

// Words as hexadecimal text, such as "0 2 1f".
std::string hexadecimal(const std::vector<uint64_t>& words) {
  std::string text;
  for (uint64_t word : words) {
    char digits[16];
    const auto end = std::to_chars(digits, digits + sizeof digits, word, 16).ptr;
    text += (text.empty() ? "" : " ") + std::string(digits, end);
  }
  return text;
}

template <class... Values> py::list row(const View& v, const Values&... before) {
  const auto shape = shape_of(v.desc), strides = strides_of(v.desc);
  return py::list(py::make_tuple(before..., v.buffer, v.offset, name(v.desc.dtype), Shape(shape.begin(), shape.end()),
                                 Shape(strides.begin(), strides.end())));
}

py::list saved(const std::vector<graph::Named>& all) {
  py::list list;
  for (const graph::Named& n : all) list.append(row(n.view, n.name));
  return list;
}

// Returns the first `bytes` bytes of a constant as a tensor. This is the tensor that the user has, or a row of elements
// if that tensor has other memory.
View whole(const Buffer& b, size_t bytes) {
  if (is_dense(b.tensor.desc) && b.tensor.covers(bytes)) return b.tensor;
  const size_t size = itemsize(b.tensor.desc.dtype);
  const bool fits = bytes % size == 0 && b.base % size == 0;
  const int64_t elements[] = {int64_t(fits ? bytes / size : bytes)};
  const DType dtype = fits ? b.tensor.desc.dtype : DType::uint8;
  return {b.tensor.buffer, 0, dense(dtype, elements, Layout::channels_first, "save")};
}

// `reached` is the number of bytes of the buffer that nodes and outputs reach, or 0 if they do not use it.
py::dict saved(const Buffer& b, int64_t reached) {
  static constexpr const char* kKinds[] = {"input", "constant", "temporary"};
  const bool is_constant = b.kind == Buffer::Kind::constant;
  const bool is_used = reached > 0;
  const size_t bytes = is_constant ? size_t(std::max(reached, b.tensor.end())) : b.bytes;
  py::dict d;
  d["kind"] = kKinds[int(is_constant && !is_used ? Buffer::Kind::temporary : b.kind)];
  d["name"] = b.name;
  d["bytes"] = bytes;
  d["residue"] = b.base % 16;
  d["read_only"] = b.read_only;
  if (is_constant && is_used) d["tensor"] = row(whole(b, bytes));
  if (is_constant && is_used && b.number) d["number"] = hexadecimal({std::bit_cast<uint64_t>(*b.number)});
  return d;
}

py::dict saved(const Node& node) {
  py::list ports, dynamic;
  for (const graph::Port& p : node.ports) {
    const char* access = p.reads && p.writes ? "update" : p.writes ? "write" : "read";
    ports.append(row(p.view, p.name, p.word, access));
  }
  for (const DynamicWord& w : node.dynamic) dynamic.append(py::list(py::make_tuple(w.word, w.number, w.plus)));
  py::dict d;
  d["family"] = node.kind->family;
  d["text"] = node.kind->text(node.problem.data());
  d["problem"] = hexadecimal(node.problem);
  d["args"] = hexadecimal(plain_args(node));
  d["ports"] = ports;
  d["dynamic"] = dynamic;
  d["algo"] = node.algo;
  d["handle"] = node.handle;
  d["where"] = node.where;
  if (!node.rewrites.empty()) d["rewrites"] = node.rewrites;
  return d;
}

py::dict contents(const Graph& g) {
  std::vector<int64_t> reached(g.buffers.size(), 0);
  auto reach = [&](const View& v) {
    if (v.desc.numel()) reached[size_t(v.buffer)] = std::max(reached[size_t(v.buffer)], v.end());
  };
  for (const Node& node : g.nodes)
    for (const graph::Port& p : node.ports) reach(p.view);
  for (const graph::Named& n : g.outputs) reach(n.view);
  py::list buffers, nodes;
  for (size_t i = 0; i < g.buffers.size(); ++i) buffers.append(saved(g.buffers[i], reached[i]));
  for (const Node& node : g.nodes) nodes.append(saved(node));
  py::dict d;
  d["device"] = g.place.is_cuda ? "cuda" : "cpu";
  d["rounding_each"] = g.rounding_each;
  d["dynamic"] = g.dynamic;
  d["buffers"] = buffers;
  d["inputs"] = saved(g.inputs);
  d["nodes"] = nodes;
  d["outputs"] = saved(g.outputs);
  return d;
}

// Returns the memory of a constant as a tensor of bytes. It may be longer than the constant.
Tensor constant(const Graph& g, size_t index) {
  const Buffer& b = g.buffers.at(index);
  MINIDNN_CHECK(ShapeError, b.constant, "graph: buffer ", index, " is no constant");
  return graph::storage_of({{}, nullptr, b.constant});
}

}  // namespace

void bind_graph_files(py::module_& m, py::class_<Graph, std::shared_ptr<Graph>>& graph,
                      py::class_<Recorder, std::shared_ptr<Recorder>>& recorder) {
  graph.def("contents", &contents, "What a file of the graph has, as plain numbers and texts.")
      .def("constant", &constant, py::arg("buffer"), "The memory of a constant, as bytes.");
  recorder
      .def(
          "buffer",
          [](Recorder& r, const std::string& name, bool is_input, int64_t bytes, int64_t residue, bool read_only) {
            MINIDNN_CHECK(ShapeError, bytes >= 0 && 0 <= residue && residue < 16, "a buffer of ", bytes, " bytes at ",
                          residue, " modulo 16 is not possible");
            return r.buffer(is_input ? Buffer::Kind::input : Buffer::Kind::temporary, name, size_t(bytes),
                            size_t(residue), read_only);
          },
          py::arg("name"), py::arg("is_input"), py::arg("bytes"), py::arg("residue"), py::arg("read_only"),
          "Adds a buffer. Returns all of it, as bytes.")
      .def("input_view", py::overload_cast<const std::string&, const Tensor&>(&Recorder::input), py::arg("name"),
           py::arg("view"))
      .def("rename", &Recorder::rename, py::arg("tensor"), py::arg("name"), "Names the buffer of a tensor.")
      .def(
          "set_numbers",
          [](Recorder& r, const std::vector<uint64_t>& args, const std::vector<std::array<int64_t, 3>>& dynamic) {
            std::vector<DynamicWord> words;
            for (const auto& [word, number, plus] : dynamic) {
              MINIDNN_CHECK(ShapeError, int64_t(int(number)) == number, "dynamic number ", number, " does not exist");
              words.push_back({word, int(number), plus});
            }
            r.set_numbers(args, words);
          },
          py::arg("args"), py::arg("dynamic"), "Sets the numbers among the Args of the last call.")
      .def("rewritten", &Recorder::rewritten, py::arg("rewrites"), "Says which rewrites made the last node.")
      .def("node_count", [](const Recorder& r) { return r.graph().nodes.size(); })
      .def("last_node", [](const Recorder& r) { return saved(r.graph().nodes.back()); })
      .def("buffer_number", &Recorder::buffer_number, py::arg("tensor"), "The number of the buffer of a tensor.");
  m.def("storage", &graph::storage_of, py::arg("tensor"), "All memory of a tensor, as bytes.");
  m.def(
      "elements_at",
      [](const Tensor& t, int64_t offset, const std::string& dtype, const Shape& shape, const Shape& strides) {
        const std::optional<DType> type = find_dtype(dtype);
        MINIDNN_CHECK(DTypeError, type, "a dtype must be one of ", dtype_names(), "; got '", dtype, "'");
        return graph::elements_at(t, offset, strided(*type, shape, strides, "a tensor"));
      },
      py::arg("tensor"), py::arg("offset"), py::arg("dtype"), py::arg("shape"), py::arg("strides"),
      "Elements in a tensor of bytes, from byte `offset`.");
}

}  // namespace minidnn
