// SPDX-License-Identifier: Apache-2.0
// Window attributes by the spellings Python users have: stride=2, stride=(2, 1), padding=1, padding=((0, 1), 2).
#include "cpp/bindings/casters.h"

namespace minidnn {
namespace {

// NumPy's arrays have __index__ too, so a sequence is never an integer.
bool is_integer(py::handle v) { return PyIndex_Check(v.ptr()) && !PySequence_Check(v.ptr()); }
bool is_list(py::handle v) { return PySequence_Check(v.ptr()) && !PyUnicode_Check(v.ptr()) && !PyBytes_Check(v.ptr()); }

int64_t integer(py::handle v) {  // what an int64 cannot hold is clipped: no attribute may be that large
  Py_ssize_t n = PyNumber_AsSsize_t(v.ptr(), nullptr);
  if (n == -1 && PyErr_Occurred()) throw py::error_already_set();
  return n;
}

}  // namespace

std::vector<int64_t> integers_from_python(py::handle value, const char* call, const char* name) {
  auto fail = [&] {
    return ShapeError(
        cat(call, ": ", name, " must be an int, or an int per spatial dimension; got ", std::string(py::repr(value))));
  };
  if (is_integer(value)) return {integer(value)};
  if (!is_list(value)) throw fail();
  std::vector<int64_t> integers;
  for (py::handle v : value) {
    if (!is_integer(v)) throw fail();
    integers.push_back(integer(v));
  }
  return integers;
}

std::vector<Sides> sides_from_python(py::handle value, const char* call, const char* name) {
  auto fail = [&] {
    return ShapeError(cat(call, ": ", name,
                          " must be an int, or per spatial dimension an int or a pair (before, after); got ",
                          std::string(py::repr(value))));
  };
  auto both = [](py::handle v) { return Sides{integer(v), integer(v)}; };
  if (is_integer(value)) return {both(value)};
  if (!is_list(value)) throw fail();
  std::vector<Sides> sides;
  for (py::handle v : value) {
    if (is_integer(v)) {
      sides.push_back(both(v));
      continue;
    }
    if (!is_list(v) || py::len(v) != 2 || !is_integer(v[py::int_(0)]) || !is_integer(v[py::int_(1)])) throw fail();
    sides.push_back({integer(v[py::int_(0)]), integer(v[py::int_(1)])});
  }
  return sides;
}

}  // namespace minidnn
