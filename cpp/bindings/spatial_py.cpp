// SPDX-License-Identifier: Apache-2.0
// Reads integers, sequences of integers, and window attributes as Python users write them: stride=2, stride=(2, 1),
// padding=1, padding=((0, 1), 2).
#include "cpp/bindings/casters.h"

namespace minidnn {
namespace {

// The longest sequence that is accepted. The limit refuses an infinite sequence before it fills the memory.
constexpr size_t kMostElements = 1 << 20;

// Must be called after a Python method raised an exception. Clears it and returns false, but throws exceptions such as
// KeyboardInterrupt, which are not derived from Exception, to the caller.
bool refused() {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw py::error_already_set();
  PyErr_Clear();
  return false;
}

// Calls read(element) for each element of a sequence. Stops and returns false when read() returns false.
template <class Read> bool read_sequence(py::handle v, Read read) {
  if (!PySequence_Check(v.ptr()) || PyUnicode_Check(v.ptr()) || PyBytes_Check(v.ptr())) return false;
  auto iterator = py::reinterpret_steal<py::object>(PyObject_GetIter(v.ptr()));
  if (!iterator) return refused();
  for (size_t n = 0; auto element = py::reinterpret_steal<py::object>(PyIter_Next(iterator.ptr())); ++n)
    if (n == kMostElements || !read(element)) return false;
  return !PyErr_Occurred() || refused();
}

bool read_sides(py::handle v, Sides& sides) {
  std::vector<int64_t> pair;
  if (!read_integers(v, pair) || pair.empty() || pair.size() > 2) return false;
  sides = {pair.front(), pair.back()};
  return true;
}

}  // namespace

bool read_integer(py::handle v, int64_t& n) {
  if (!PyIndex_Check(v.ptr())) return false;
  // All NumPy arrays have __index__, but calling it succeeds only for 0-dimensional arrays of integers.
  auto index = py::reinterpret_steal<py::object>(PyNumber_Index(v.ptr()));
  if (!index) return refused();
  int overflow = 0;
  n = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

bool read_integers(py::handle v, std::vector<int64_t>& integers) {
  int64_t n;
  if (read_integer(v, n)) {
    integers = {n};
    return true;
  }
  integers.clear();
  return read_sequence(v, [&](py::handle element) {
    if (!read_integer(element, n)) return false;
    integers.push_back(n);
    return true;
  });
}

std::vector<int64_t> integers_from_python(py::handle value, const char* call, const char* name, const char* several) {
  std::vector<int64_t> integers;
  MINIDNN_CHECK(ShapeError, read_integers(value, integers), call, ": ", name, " must be an int of at most 64 bits, or ",
                several, "; got ", repr_text(value));
  return integers;
}

std::vector<Sides> sides_from_python(py::handle value, const char* call, const char* name, const char* several) {
  int64_t n;
  if (read_integer(value, n)) return {{n, n}};
  std::vector<Sides> sides;
  Sides pair;
  bool valid = read_sequence(value, [&](py::handle element) {
    if (!read_sides(element, pair)) return false;
    sides.push_back(pair);
    return true;
  });
  MINIDNN_CHECK(ShapeError, valid, call, ": ", name, " must be an int of at most 64 bits, or ", several, "; got ",
                repr_text(value));
  return sides;
}

}  // namespace minidnn
