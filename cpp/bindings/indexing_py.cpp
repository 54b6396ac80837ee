// SPDX-License-Identifier: Apache-2.0
// Indexing of tensors: t[key] and t[key] = value. A key of integers, slices, `...` and None selects a view, and this
// file computes the view. A key with an array of integers or of bool is passed to pyminidnn/indexing.py.
#include "cpp/bindings/operators.h"

namespace minidnn {
namespace {

// Whether one element of an index key is an array: a list, a tensor, an array of another library, or a bool.
bool is_array(PyObject* part) {
  if (PyLong_CheckExact(part) || PySlice_Check(part) || part == Py_None || part == Py_Ellipsis) return false;
  return PyBool_Check(part) || !PyIndex_Check(part) || tensor_or_null(part) || py::hasattr(part, "ndim");
}

struct Key {
  PyObject* const* parts;
  Py_ssize_t count;
  explicit Key(PyObject*& key)
      : parts(PyTuple_Check(key) ? &PyTuple_GET_ITEM(key, 0) : &key),
        count(PyTuple_Check(key) ? PyTuple_GET_SIZE(key) : 1) {}
  bool has_array() const { return std::any_of(parts, parts + count, is_array); }
};

// Builds the view that an index key selects, dimension by dimension from left to right.
struct ViewBuilder {
  const Tensor& t;
  int64_t from = 0;  // the dimension of the tensor that the next element of the key indexes
  int64_t offset = 0;
  int64_t rank = 0;
  int64_t shape[kMaxRank], stride[kMaxRank];

  void add(int64_t size, int64_t step) {
    MINIDNN_CHECK(ShapeError, rank < kMaxRank, "index: the result has more than ", kMaxRank, " dimensions");
    shape[rank] = size;
    stride[rank++] = step;
  }
  void keep(int64_t dimensions) {
    for (; dimensions > 0; --dimensions, ++from) add(t.desc.shape[from], t.desc.stride[from]);
  }
  void select(PyObject* number) {
    // An int that does not fit Py_ssize_t becomes the nearest value that fits.
    const Py_ssize_t given = PyNumber_AsSsize_t(number, nullptr);
    if (given == -1 && PyErr_Occurred()) throw py::error_already_set();
    const int64_t size = t.desc.shape[from], index = given < 0 ? given + size : given;
    MINIDNN_CHECK(IndexingError, index >= 0 && index < size, "index ", given, " is out of range for dimension ", from,
                  ", which has ", size, " elements");
    offset += index * t.desc.stride[from++];
  }
  void slice(PyObject* slice) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) throw py::error_already_set();
    const Py_ssize_t size = PySlice_AdjustIndices(t.desc.shape[from], &start, &stop, step);
    if (size > 0) offset += start * t.desc.stride[from];
    add(size, size > 1 ? step * t.desc.stride[from] : t.desc.stride[from]);
    ++from;
  }
  Tensor view() const {
    Tensor v = t;
    v.desc = strided(t.desc.dtype, {shape, size_t(rank)}, {stride, size_t(rank)}, "index");
    v.data = static_cast<char*>(t.data) + offset * int64_t(itemsize(t.desc.dtype));
    return v;
  }
};

Tensor view_of(const Tensor& t, const Key& key) {
  int64_t used = 0, ellipses = 0;
  for (Py_ssize_t i = 0; i < key.count; ++i) {
    ellipses += key.parts[i] == Py_Ellipsis;
    used += key.parts[i] != Py_Ellipsis && key.parts[i] != Py_None;
  }
  MINIDNN_CHECK(IndexingError, used <= t.desc.rank, "too many indices: ", used, " for a tensor of ", t.desc.rank,
                " dimensions");
  MINIDNN_CHECK(IndexingError, ellipses <= 1, "an index has one ellipsis ('...') at most; got ", ellipses);
  ViewBuilder builder{t};
  for (Py_ssize_t i = 0; i < key.count; ++i) {
    PyObject* part = key.parts[i];
    if (part == Py_None) builder.add(1, 0);
    else if (part == Py_Ellipsis) builder.keep(t.desc.rank - used);
    else if (PySlice_Check(part)) builder.slice(part);
    else builder.select(part);
  }
  builder.keep(t.desc.rank - builder.from);
  return builder.view();
}

py::object indexing_module() { return py::module_::import("pyminidnn.indexing"); }

PyObject* get(PyObject* self, PyObject* key) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(self);
    const Key parts(key);
    if (!parts.has_array()) return to_python(view_of(t, parts));
    return indexing_module().attr("select")(py::handle(self), py::handle(key)).release().ptr();
  });
}

int set(PyObject* self, PyObject* key, PyObject* value) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(self);
    MINIDNN_CHECK(DTypeError, value, "__delitem__: elements of a tensor cannot be deleted");
    const Key parts(key);
    if (parts.has_array()) indexing_module().attr("assign")(py::handle(self), py::handle(key), py::handle(value));
    else indexing_module().attr("fill")(view_of(t, parts), py::handle(value));
    return 0;
  });
}

}  // namespace

void set_indexing(PyHeapTypeObject* type) {
  type->as_mapping.mp_subscript = get;
  type->as_mapping.mp_ass_subscript = set;
}

}  // namespace minidnn
