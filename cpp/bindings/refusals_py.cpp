// SPDX-License-Identifier: Apache-2.0
// Rewords the errors of all bound functions for Python users. pybind11's own errors only list signatures. Python calls
// explain_call() for every bound function, which calls pybind11's dispatcher. If the dispatcher fails,
// pyminidnn/refusals.py words the error. A successful call costs one additional jump.
//
// This file also gives the bound functions a __text_signature__, which inspect.signature() and help() read.
#include <cstdlib>
#include <cstring>

#include "cpp/bindings/casters.h"

namespace minidnn {
namespace {

using Function = PyObject* (*)(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
Function dispatcher;  // pybind11's dispatcher, which is the same for all bound functions

void explain(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  py::error_already_set error;  // takes the current error from the Python interpreter
  // An error with a traceback comes from Python code that the function called. It is not reworded.
  if (error.trace()) return error.restore();
  try {
    const auto* record = py::detail::function_record_ptr_from_PyObject(self);
    py::tuple positional(count);
    for (Py_ssize_t i = 0; i < count; ++i) positional[size_t(i)] = py::handle(arguments[i]);
    py::dict keywords;
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
      keywords[py::handle(PyTuple_GET_ITEM(names, i))] = py::handle(arguments[count + i]);
    py::object explained = py::module_::import("pyminidnn.refusals")
                               .attr("explained")(error.value(), record->name, record->signature, positional, keywords);
    if (explained.is(error.value())) error.restore();
    else PyErr_SetObject(py::type::handle_of(explained).ptr(), explained.ptr());
  } catch (const py::error_already_set&) {  // pyminidnn.refusals cannot be imported while the interpreter shuts down
    error.restore();
  }
}

PyObject* explain_call(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  PyObject* result = dispatcher(self, arguments, count, names);
  if (!result) [[unlikely]]
    explain(self, arguments, count, names);
  return result;
}

// Returns the parameters of a bound function in Python's notation, without types: "(self, shape, *, copy=False)".
std::string parameters_text(const py::detail::function_record& f) {
  std::string text;
  for (size_t i = 0; i < f.nargs; ++i) {
    const py::detail::argument_record* a = i < f.args.size() ? &f.args[i] : nullptr;
    const bool is_args = f.has_args && i == f.nargs_pos;
    if (i == f.nargs_pos && !f.has_args) text += text.empty() ? "*, " : ", *, ";
    else if (i > 0) text += ", ";
    if (is_args) text += "*args";
    else if (a && a->name) text += a->name;
    else if (i == 0 && f.is_method) text += "self";
    else text += cat("arg", i);
    if (a && a->value && !is_args) text += cat("=", py::repr(a->value).cast<std::string>());
  }
  return cat("(", text, ")");
}

// Writes the signature of a bound function in front of its documentation, where Python expects __text_signature__.
void add_text_signature(PyMethodDef* definition, const py::detail::function_record& f) {
  const char* doc = definition->ml_doc ? definition->ml_doc : "";
  const std::string text = cat(definition->ml_name, parameters_text(f), "\n--\n\n", doc);
  // pybind11 allocates ml_doc by strdup() and releases it by free().
  std::free(const_cast<char*>(definition->ml_doc));
  definition->ml_doc = strdup(text.c_str());
}

void explain_one(const std::string& name, PyObject* f) {
  if (PyInstanceMethod_Check(f)) f = PyInstanceMethod_GET_FUNCTION(f);
  auto* record =
      PyCFunction_Check(f) ? py::detail::function_record_ptr_from_PyObject(PyCFunction_GET_SELF(f)) : nullptr;
  if (!record) return;
  PyMethodDef* definition = reinterpret_cast<PyCFunctionObject*>(f)->m_ml;
  MINIDNN_CHECK(Error, definition->ml_flags == (METH_FASTCALL | METH_KEYWORDS),
                "this version of pybind11 calls functions differently from 3.1; build pyminidnn with pybind11 3.1");
  if (!dispatcher) dispatcher = reinterpret_cast<Function>(reinterpret_cast<void (*)()>(definition->ml_meth));
  definition->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&explain_call));
  // pybind11 gives the getter of a property an empty name. It gets the name of the property.
  if (!*record->name) {
    std::free(record->name);
    definition->ml_name = record->name = strdup(name.c_str());
  } else {
    add_text_signature(definition, *record);
  }
}

void explain_all(const py::dict& members) {
  for (auto [name, member] : members) {
    const bool is_property = PyObject_TypeCheck(member.ptr(), &PyProperty_Type);
    explain_one(name.cast<std::string>(), is_property ? member.attr("fget").ptr() : member.ptr());
  }
}

// Sets the name of a Python type that errors and repr() show, such as pyminidnn.Handle.
void name_publicly(const py::object& type, const char* name) {
  type.attr("__module__") = "pyminidnn";
  reinterpret_cast<PyTypeObject*>(type.ptr())->tp_name = name;
}

}  // namespace

void explain_refusals(py::module_& m) {
  explain_all(m.attr("__dict__"));
  for (const char* type :
       {"DeviceTensor", "Handle", "Report", "EngineReport", "KernelSpec", "Recorder", "Graph", "BoundCall"})
    explain_all(m.attr(type).attr("__dict__").attr("copy")());
  name_publicly(m.attr("DeviceTensor"), "pyminidnn.DeviceTensor");
  name_publicly(m.attr("Handle"), "pyminidnn.Handle");
}

}  // namespace minidnn
