// SPDX-License-Identifier: Apache-2.0
// Converts Python arguments to C++ values, for the bindings of all functions: dtypes, layouts, devices and streams.
// Each is accepted in every spelling that is common in Python.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>

#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"

namespace py = pybind11;

namespace minidnn {

// Releases the GIL for a scope. While the interpreter shuts down, Python ends a daemon thread that reacquires the GIL,
// and pybind11's gil_scoped_release would then call std::terminate. This class lets the thread sleep, as Python 3.14
// does.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  ReleaseGil(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

// Accepts a dtype as "float32", numpy.float32, dtype('float32') or torch.float32. `name` is the name of the argument,
// for error messages.
DType dtype_from_python(py::handle, const char* name = "dtype");
// As dtype_from_python(), but returns an empty optional for None.
std::optional<DType> optional_dtype(py::handle);
std::optional<Layout> optional_layout(const std::optional<std::string>&, int64_t rank);
// Throws DeviceError if the machine does not have the named device.
Place place_from_python(const std::string& device);
std::optional<Place> optional_place(const std::optional<std::string>&);
// Accepts a stream as an int (its address), as an object with __cuda_stream__, or as a torch or CuPy stream. None is
// the default stream. Error messages begin with `call`, the name of the called function.
Stream stream_from_python(py::handle, Place, const char* call);
// The number that stands for a stream in DLPack and __cuda_array_interface__: 1 for the default stream, else the
// stream's address.
uintptr_t stream_number(Stream);
py::tuple tuple_of(std::span<const int64_t>);

// Returns repr(value), cut off after about 80 characters.
std::string repr_text(py::handle value);

// The argument `algo` of the Python functions. None becomes an empty string, which lets the library choose the engine.
struct Algo : std::string {};

// read_integer() accepts an int. read_integers() accepts an int or a sequence of ints. Both functions return false for
// any other value, and for ints that do not fit 64 bits.
bool read_integer(py::handle, int64_t&);
bool read_integers(py::handle, std::vector<int64_t>&);
// These functions read a stride, padding or dilation: one int for all spatial dimensions, or one int for each
// dimension. Padding may also be a pair (before, after) for each dimension. For any other value they throw ShapeError.
// The text of the error contains `call`, `name` and `several`, which says what a sequence must contain.
std::vector<int64_t> integers_from_python(py::handle, const char* call, const char* name,
                                          const char* several = "one for each spatial dimension");
std::vector<Sides> sides_from_python(py::handle, const char* call, const char* name,
                                     const char* several = "one or a pair (before, after) for each spatial dimension");

void bind_core(py::module_&);                           // binds the error types, Handle, DeviceTensor and the allocator
void bind_exchange(py::module_&, py::class_<Tensor>&);  // binds DLPack, __cuda_array_interface__ and NumPy
// Binds the C++ functions that the Python package needs for find(), explain(), engines() and its log.
void bind_engine(py::module_&);
void bind_runtime(py::module_&);  // binds functions that report on this machine: GPUs, NVRTC, kernel caches
// Rewords the error messages of all functions that are bound so far, so that they name the public function and
// argument.
void explain_refusals(py::module_&);

}  // namespace minidnn

namespace pybind11::detail {

// DeviceTensor.__new__(DeviceTensor) makes an object without a C++ value. For it, this type caster throws an error,
// where pybind11's would allocate an uninitialised value.
template <class Base> struct initialized_caster : Base {
  bool load(handle source, bool convert) { return Base::template load_impl<initialized_caster>(source, convert); }
  void load_value(value_and_holder&& found) {
    MINIDNN_CHECK(minidnn::DTypeError, found.value_ptr(), "a ", Py_TYPE(found.inst)->tp_name,
                  " whose __init__ was not called has no value");
    Base::load_value(std::move(found));
  }
};
template <class T>
  requires(std::same_as<T, minidnn::Tensor> || std::same_as<T, minidnn::Handle> || std::same_as<T, minidnn::Report> ||
           std::same_as<T, minidnn::EngineReport> || std::same_as<T, minidnn::KernelSpec>)
struct type_caster<T> : initialized_caster<type_caster_base<T>> {};

// Nearly every call passes None as its handle, so this type caster accepts None first. pybind11's type caster would
// search for a conversion. That search takes a third of the time of a call on small tensors.
template <>
struct type_caster<minidnn::HandlePtr>
    : initialized_caster<copyable_holder_caster<minidnn::Handle, minidnn::HandlePtr>> {
  bool load(handle source, bool convert) { return source.is_none() || initialized_caster::load(source, convert); }
};

// This type caster accepts only integers. pybind11's type caster would also convert other values by int(), such as
// numpy.float32(1.7).
template <> struct type_caster<int64_t> {
  PYBIND11_TYPE_CASTER(int64_t, const_name("int"));
  bool load(handle source, bool) { return minidnn::read_integer(source, value); }
  static handle cast(int64_t v, return_value_policy, handle) { return PyLong_FromLongLong(v); }
};

template <> struct type_caster<minidnn::Shape> {
  PYBIND11_TYPE_CASTER(minidnn::Shape, io_name("int | collections.abc.Sequence[int]", "list[int]"));
  bool load(handle source, bool) { return minidnn::read_integers(source, value); }
  static handle cast(const minidnn::Shape& v, return_value_policy policy, handle parent) {
    return list_caster<minidnn::Shape, int64_t>::cast(v, policy, parent);
  }
};

// This type caster accepts only str without NUL characters, because an error message would end at a NUL. pybind11's
// type caster would also accept bytes.
template <> struct type_caster<std::string> : string_caster<std::string> {
  bool load(handle source, bool convert) {
    return PyUnicode_Check(source.ptr()) && string_caster::load(source, convert) && value.find('\0') == value.npos;
  }
};

template <> struct type_caster<minidnn::Algo> {
  PYBIND11_TYPE_CASTER(minidnn::Algo, const_name("str | None"));
  bool load(handle source, bool convert) {
    if (source.is_none()) return true;
    type_caster<std::string> name;
    if (!name.load(source, convert)) return false;
    value = {cast_op<std::string&&>(std::move(name))};
    return true;
  }
};

}  // namespace pybind11::detail
