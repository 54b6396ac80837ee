// SPDX-License-Identifier: Apache-2.0
// DLPack's C exchange (DLPack 1.3): a type of arrays has a table of C functions, in a capsule that is the attribute
// __dlpack_c_exchange_api__ of the type. This file takes arrays of other libraries through their tables, and defines
// the table of DeviceTensor.
//
// The functions of a table do not synchronise. The library that takes an array asks for the stream on which the other
// library works, and makes its own stream wait for that stream.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "cpp/bindings/exchange.h"
#include "cpp/bindings/operators.h"
#include "cpp/core/dlpack.h"
#include "cpp/core/recording.h"

namespace minidnn {
namespace {

constexpr const char* kCapsuleName = "dlpack_exchange_api";
constexpr const char* kAttribute = "__dlpack_c_exchange_api__";

struct CallDeleter {
  void operator()(DLManagedTensorVersioned* m) const {
    if (m->deleter) m->deleter(m);
  }
};
using Managed = std::unique_ptr<DLManagedTensorVersioned, CallDeleter>;

Tensor take(Managed managed) {
  Tensor t = dlpack::import(managed.get());
  managed.release();
  return t;
}

// ---- the table of DeviceTensor

// Prepares a tensor for a consumer that works on the stream which current_work_stream() returns.
void order_for_consumer(const Tensor& t) {
  if (!t.place().is_cuda) return;
  Stream current = handle_for(nullptr, t.place(), kAttribute, "the tensor").stream();
  t.storage->settle_before(current);
  t.storage->used_on(current);
}

int export_managed(void* object, DLManagedTensorVersioned** out) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(static_cast<PyObject*>(object));
    check_computed(t, kAttribute);
    order_for_consumer(t);
    *out = dlpack::export_versioned(t, false);
    return 0;
  });
}

int export_unmanaged(void* object, DLTensor* out) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(static_cast<PyObject*>(object));
    check_computed(t, kAttribute);
    if (t.storage->read_only)
      throw py::buffer_error(cat(kAttribute,
                                 ": a DLTensor cannot mark a read-only tensor; use "
                                 "managed_tensor_from_py_object_no_sync"));
    order_for_consumer(t);
    *out = dlpack::view(t);
    return 0;
  });
}

// The protocol says that this function takes ownership of the structure in any case.
int import_managed(DLManagedTensorVersioned* managed, void** out) {
  return with_python_errors([&] {
    *out = to_python(take(Managed(managed)));
    return 0;
  });
}

int allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
             void (*set_error)(void* context, const char* kind, const char* message)) {
  try {
    *out = dlpack::export_versioned(dlpack::allocate_like(*prototype, kAttribute), false);
    return 0;
  } catch (const OutOfMemory& error) {
    set_error(context, "MemoryError", error.what());
  } catch (const std::exception& error) {
    set_error(context, "BufferError", error.what());
  }
  return -1;
}

int current_stream(DLDeviceType type, int32_t index, void** out) {
  return with_python_errors([&] {
    const Place place = dlpack::place_of({type, index});
    *out = place.is_cuda ? handle_for(nullptr, place, kAttribute, "the device").stream() : nullptr;
    return 0;
  });
}

const DLPackExchangeAPI own_table{{{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, nullptr},
                                  &allocate,
                                  &export_managed,
                                  &import_managed,
                                  &export_unmanaged,
                                  &current_stream};

// ---- the tables of other libraries

// Whether a type inherits its table, but not how its arrays are exported. A masked tensor of torch is an example.
bool overrides_export(PyTypeObject* type) {
  const auto dictionary = [](py::handle kind) { return kind.attr("__dict__"); };
  for (py::handle base : py::reinterpret_borrow<py::tuple>(type->tp_mro)) {
    if (!dictionary(base).contains(kAttribute)) continue;
    const py::handle self(reinterpret_cast<PyObject*>(type));
    for (const char* name : {"__dlpack__", "__torch_dispatch__"})
      if (!py::getattr(self, name, py::none()).is(py::getattr(base, name, py::none()))) return true;
    return false;
  }
  return false;
}

// Returns the table of a type. The result is null if the type has none, if no version of it is supported, if it is the
// table of DeviceTensor, or if the type exports its arrays in another way.
const DLPackExchangeAPI* table_of(PyTypeObject* type) {
  py::object capsule = py::getattr(py::handle(reinterpret_cast<PyObject*>(type)), kAttribute, py::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsuleName) || overrides_export(type)) return nullptr;
  auto* header = static_cast<const DLPackExchangeAPIHeader*>(PyCapsule_GetPointer(capsule.ptr(), kCapsuleName));
  while (header && header->version.major != DLPACK_MAJOR_VERSION) header = header->prev_api;
  auto* table = reinterpret_cast<const DLPackExchangeAPI*>(header);
  const bool usable = table && table->managed_tensor_from_py_object_no_sync && table->current_work_stream;
  return usable && table != &own_table ? table : nullptr;
}

// The tables of types, which the protocol allows to remember. An entry of a type that can be destroyed owns a reference
// to the type, so that no other type can get the address of the type. The number of entries is limited, because types
// that programs make at run time then stay alive. The tables of further types are read at every call.
class KnownTypes {
 public:
  ForeignType find(PyTypeObject* type) {
    for (size_t i = 0, n = count_.load(std::memory_order_acquire); i < n; ++i)
      if (entries_[i].type == type) return entries_[i];
    ForeignType found{type, table_of(type)};
    found.is_of_torch = found.table && py::hasattr(reinterpret_cast<PyObject*>(type), "is_neg");
    // A type without a table is remembered only if it cannot get one later.
    if (found.table || !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) add(found);
    return found;
  }

 private:
  void add(const ForeignType& found) {
    std::lock_guard lock(mutex_);
    const size_t n = count_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < n; ++i)
      if (entries_[i].type == found.type) return;  // another thread has added the type
    if (n == entries_.size()) return;
    Py_INCREF(found.type);
    entries_[n] = found;
    count_.store(n + 1, std::memory_order_release);
  }

  std::mutex mutex_;
  std::atomic<size_t> count_ = 0;
  std::array<ForeignType, 64> entries_{};  // entries below count_ never change
};

// Whether a torch tensor requires grad or has the negative bit. pyminidnn/conversion.py refuses such a tensor, but the
// table of torch exports it.
bool is_refused_of_torch(PyObject* x) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  auto is_true = [](PyObject* answer) {
    if (!answer) throw py::error_already_set();
    Py_DECREF(answer);
    return answer != Py_False;
  };
  return is_true(PyObject_GetAttr(x, requires_grad)) || is_true(PyObject_CallMethodNoArgs(x, is_neg));
}

// Converts the operands of a function.
struct Operands {
  const HandlePtr& handle;
  std::optional<Place> first;  // the device of the first operand that is no host array of another library
  bool any_on_host = false;    // whether an operand is a host array of another library

  // Returns `x` itself if it is a DeviceTensor or None. Returns null if the C exchange cannot convert it.
  py::object operator()(PyObject* x) {
    const bool is_tensor = Py_IS_TYPE(x, tensor_type());
    if (is_tensor && !first) first = tensor_of(x).place();
    if (is_tensor || Py_IsNone(x)) return py::reinterpret_borrow<py::object>(x);
    std::optional<Tensor> t = try_exchange(x, handle);
    if (!t) return {};
    if (!t->place().is_cuda) any_on_host = true;
    else if (!first) first = t->place();
    return py::reinterpret_steal<py::object>(to_python(std::move(*t)));
  }

  // Returns the device to which host arrays must be copied. The result is empty if it depends on an object that the C
  // exchange cannot convert.
  std::optional<Place> target(PyObject* out) const {
    if (first) return first;
    if (Py_IS_TYPE(out, tensor_type())) return tensor_of(out).place();
    if (!Py_IsNone(out)) {
      std::optional<Tensor> t = try_exchange(out, handle);
      return t ? std::optional(t->place()) : std::nullopt;
    }
    return handle ? handle->place() : current_place();
  }

  static PyTypeObject* tensor_type() {
    static auto* type = reinterpret_cast<PyTypeObject*>(py::type::of<Tensor>().ptr());
    return type;
  }
};

// exchanged() and exchanged_operands() are not bound by pybind11, whose dispatcher takes as long as the exchange of an
// array. They return None for everything that they cannot convert. pyminidnn/conversion.py then converts it, or raises
// an error that names the argument.
template <class F> PyObject* result_or_none(F&& f) {
  return with_python_errors([&]() -> PyObject* {
    try {
      if (py::object result = f()) return result.release().ptr();
    } catch (const Error&) {}
    Py_RETURN_NONE;
  });
}

// Reads the argument `handle`. Returns false if it is neither a Handle nor None.
bool read_handle(PyObject* handle, HandlePtr& result) {
  py::detail::make_caster<HandlePtr> caster;
  if (!caster.load(handle, false)) return false;
  result = py::detail::cast_op<HandlePtr&>(caster);
  return true;
}

PyObject* wrong_arguments(const char* text) {
  PyErr_SetString(PyExc_TypeError, text);
  return nullptr;
}

PyObject* exchanged(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) return wrong_arguments("exchanged: the arguments are x and handle");
  return result_or_none([&]() -> py::object {
    HandlePtr handle;
    if (!read_handle(arguments[1], handle)) return {};
    std::optional<Tensor> t = try_exchange(arguments[0], handle);
    return t ? py::reinterpret_steal<py::object>(to_python(std::move(*t))) : py::object();
  });
}

PyObject* exchanged_operands(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 3 || !PyTuple_Check(arguments[0]))
    return wrong_arguments("exchanged_operands: the arguments are a tuple of arrays, out and handle");
  return result_or_none([&]() -> py::object {
    HandlePtr handle;
    if (!read_handle(arguments[2], handle)) return {};
    Operands convert{handle};
    py::tuple results(PyTuple_GET_SIZE(arguments[0]));
    for (size_t i = 0; i < results.size(); ++i) {
      py::object result = convert(PyTuple_GET_ITEM(arguments[0], i));
      if (!result) return {};
      PyTuple_SET_ITEM(results.ptr(), i, result.release().ptr());
    }
    if (convert.any_on_host) {
      std::optional<Place> target = convert.target(arguments[1]);
      if (!target || target->is_cuda) return {};
    }
    return std::move(results);
  });
}

PyMethodDef definitions[] = {
    {"exchanged", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&exchanged)), METH_FASTCALL,
     "exchanged($module, x, handle, /)\n--\n\n"
     "An array of another library as a tensor, by DLPack's C exchange; None if the exchange cannot take it."},
    {"exchanged_operands", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&exchanged_operands)),
     METH_FASTCALL,
     "exchanged_operands($module, arrays, out, handle, /)\n--\n\n"
     "The operands of a function as tensors, by DLPack's C exchange; None stays None. The result is None if the "
     "exchange cannot take an array, or if an array must be copied to another device."},
};

}  // namespace

std::optional<ForeignType> foreign_type_of(PyObject* x) {
  static auto& types = *new KnownTypes;
  const ForeignType found = types.find(Py_TYPE(x));
  return found.table ? std::optional(found) : std::nullopt;
}

Tensor exchange(const ForeignType& type, PyObject* x, const HandlePtr& handle) {
  DLManagedTensorVersioned* managed = nullptr;
  if (type.table->managed_tensor_from_py_object_no_sync(x, &managed) != 0 || !managed) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "the library of the array reports a failure without an error");
    throw py::error_already_set();
  }
  Tensor t = take(Managed(managed));
  if (const Place place = t.place(); place.is_cuda) {
    Stream theirs = nullptr;
    if (type.table->current_work_stream(kDLCUDA, place.index, &theirs) != 0) throw py::error_already_set();
    if (stream_number(theirs) == 1) theirs = nullptr;  // 1 is another name of the default stream
    MINIDNN_CHECK(DeviceError, memory_of(place).order(theirs, place, stream_for(handle, place, "from_dlpack")),
                  "from_dlpack: x is used on a stream for which the handle's stream cannot wait, because only one of "
                  "them is being captured; pass a handle with the stream of x");
  }
  return t;
}

std::optional<Tensor> try_exchange(PyObject* x, const HandlePtr& handle) {
  std::optional<ForeignType> type = foreign_type_of(x);
  if (type) try {
      if (!type->is_of_torch || !is_refused_of_torch(x)) return exchange(*type, x, handle);
    } catch (const Error&) {
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;
    }
  return std::nullopt;
}

void bind_c_exchange(py::module_& m, py::class_<Tensor>& tensor) {
  tensor.attr(kAttribute) = py::capsule(&own_table, kCapsuleName);
  const py::object name = m.attr("__name__");
  for (PyMethodDef& d : definitions)
    m.attr(d.ml_name) = py::reinterpret_steal<py::object>(PyCFunction_NewEx(&d, m.ptr(), name.ptr()));
}

}  // namespace minidnn
