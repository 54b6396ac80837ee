// SPDX-License-Identifier: Apache-2.0
// Bindings of the six error types, Handle, DeviceTensor and the allocator's statistics. The exchange of tensors with
// other libraries is in exchange_py.cpp.
#include "cpp/bindings/casters.h"
#include "cpp/bindings/operators.h"
#include "cpp/core/array_text.h"
#include "cpp/core/recording.h"
#include "cpp/transform/transform.h"

namespace minidnn {

std::string repr_text(py::handle value) {
  return py::module_::import("pyminidnn.refusals").attr("short")(value).cast<std::string>();
}

DType dtype_from_python(py::handle value, const char* name) {
  std::optional<DType> dtype;
  py::object native = py::none();
  try {
    if (PyUnicode_Check(value.ptr())) {
      const auto text = value.cast<std::string>();
      // NumPy's "i8" and "u8" are integers of 8 bytes, so find_dtype(), which reads them as integers of 8 bits, is not
      // asked.
      if (text != "i8" && text != "u8") dtype = find_dtype(text);
    } else {
      // The name of a dtype is its attribute `name` or `__name__` in NumPy and ml_dtypes, and str(dtype) in torch:
      // "torch.float32".
      py::object named =
          py::hasattr(value, "name") ? value.attr("name") : py::getattr(value, "__name__", py::str(value));
      const auto text = py::str(named).cast<std::string>();
      dtype = find_dtype(text.substr(text.rfind('.') + 1));
      native = py::getattr(value, "isnative", native);
    }
    if (!dtype) {  // only NumPy knows this spelling of a dtype, such as "f8" or float
      py::object numpy = py::module_::import("numpy").attr("dtype")(value);
      dtype = find_dtype(numpy.attr("name").cast<std::string>());
      native = numpy.attr("isnative");
    }
  } catch (const py::cast_error&) {         // the str contains a NUL or a lone surrogate
  } catch (const py::error_already_set&) {  // a method of the Python object raised an exception
  }
  MINIDNN_CHECK(DTypeError, dtype, name, " must be one of ", dtype_names(), "; got ", repr_text(value));
  MINIDNN_CHECK(DTypeError, native.ptr() != Py_False, name, "=", repr_text(value),
                " has its bytes swapped; tensors use the byte order of the machine; pass dtype.newbyteorder('=')");
  return *dtype;
}

std::optional<DType> optional_dtype(py::handle value) {
  if (value.is_none()) return std::nullopt;
  return dtype_from_python(value);
}

std::optional<Layout> optional_layout(const std::optional<std::string>& text, int64_t rank) {
  if (!text) return std::nullopt;
  return layout_from(*text, rank);
}

std::optional<Place> optional_place(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  return place_from_python(*text);
}

Place place_from_python(const std::string& device) {
  Place place = place_from(device);
  try {
    device_at(place);
  } catch (const DeviceError& error) {
    // The new message names the argument `device`, which the driver's message does not.
    throw DeviceError(cat("device='", device, "': ", error.what()));
  }
  return place;
}

Stream stream_from_python(py::handle value, Place place, const char* call) {
  if (value.is_none()) return nullptr;
  MINIDNN_CHECK(DeviceError, place.is_cuda, call, ": stream is not supported on device 'cpu'; omit it");
  py::object address = py::reinterpret_borrow<py::object>(value);
  // __cuda_stream__() returns the pair (0, address of the stream). In the first draft of the protocol, __cuda_stream__
  // was an attribute. Both forms are accepted.
  if (py::hasattr(value, "__cuda_stream__")) {
    py::object answer = value.attr("__cuda_stream__");
    if (PyCallable_Check(answer.ptr())) answer = answer();
    MINIDNN_CHECK(DTypeError, py::isinstance<py::tuple>(answer) && py::len(answer) == 2, call,
                  ": __cuda_stream__ must return a pair (version, address); got ", repr_text(answer));
    address = answer[py::int_(1)];
  } else if (py::hasattr(value, "cuda_stream")) address = value.attr("cuda_stream");  // the address of a torch stream
  else if (py::hasattr(value, "ptr")) address = value.attr("ptr");                    // the address of a CuPy stream
  MINIDNN_CHECK(DTypeError, PyLong_Check(address.ptr()), call,
                ": stream must be an int, a torch or CuPy stream, or have __cuda_stream__; got ",
                repr_text(py::type::of(value)));
  size_t number = PyLong_AsSize_t(address.ptr());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    throw DeviceError(cat(call, ": stream must be the address of a stream; got ", repr_text(address)));
  }
  // DLPack and __cuda_array_interface__ write the default stream as 1. This library represents it by a null pointer.
  return number == 1 ? nullptr : reinterpret_cast<Stream>(number);
}

uintptr_t stream_number(Stream s) { return s ? reinterpret_cast<uintptr_t>(s) : 1; }

py::tuple tuple_of(std::span<const int64_t> values) {
  py::tuple t(values.size());
  for (size_t i = 0; i < values.size(); ++i) t[i] = values[i];
  return t;
}

namespace {

// Keeps a Python object alive for C++ code. The deleter takes the GIL, but leaks the reference after the interpreter
// has shut down.
std::shared_ptr<void> shared_object(const py::object& object) {
  return {object.inc_ref().ptr(), [](void* p) {
            if (!Py_IsInitialized()) return;
            py::gil_scoped_acquire gil;
            py::handle(static_cast<PyObject*>(p)).dec_ref();
          }};
}

void bind_errors(py::module_& m) {
  auto base = py::register_exception<Error>(m, "Error", PyExc_Exception);
  base.attr("__module__") = "pyminidnn";
  base.attr("__doc__") = "The base class of the errors of this package.";
  auto kind = [&]<class E>(std::type_identity<E>, const char* name, PyObject* python_kind, const char* doc) {
    auto error = py::register_exception<E>(m, name, py::make_tuple(base, py::handle(python_kind)));
    error.attr("__module__") = "pyminidnn";
    error.attr("__doc__") = doc;
  };
  kind(std::type_identity<ShapeError>{}, "ShapeError", PyExc_ValueError,
       "A shape, size or value does not fit; also a ValueError.");
  kind(std::type_identity<DTypeError>{}, "DTypeError", PyExc_TypeError,
       "An argument has a wrong dtype or type; also a TypeError.");
  kind(std::type_identity<IndexingError>{}, "IndexingError", PyExc_IndexError,
       "An index is beyond its dimension, or there are too many; also an IndexError.");
  kind(std::type_identity<NotSupported>{}, "NotSupported", PyExc_NotImplementedError,
       "No engine supports the call. The text has the reason of each engine; also a NotImplementedError.");
  kind(std::type_identity<DeviceError>{}, "DeviceError", PyExc_RuntimeError,
       "A device is absent, is not the one of another argument, or failed; also a RuntimeError.");
  kind(std::type_identity<OutOfMemory>{}, "OutOfMemory", PyExc_MemoryError,
       "A device does not have the memory that a call needs; also a MemoryError.");
}

void bind_handle(py::module_& m) {
  py::class_<Handle, HandlePtr>(
      m, "Handle",
      "Where and how calls run. `with handle:` makes the handle the current one of this thread for the device.")
      .def(py::init([](const std::string& device, py::object stream, std::optional<int64_t> max_workspace,
                       bool deterministic, const std::string& math, std::optional<int64_t> threads, int64_t max_plans) {
             HandleOptions options;
             MINIDNN_CHECK(ShapeError, max_workspace.value_or(0) >= 0,
                           "Handle: max_workspace must be 0 or more bytes; got ", *max_workspace);
             if (max_workspace) options.max_workspace = size_t(*max_workspace);
             options.deterministic = deterministic;
             MINIDNN_CHECK(ShapeError, math == "tf32" || math == "ieee", "Handle: math must be 'tf32' or 'ieee'; got '",
                           math, "'");
             options.math = math == "ieee" ? Math::ieee : Math::tf32;
             Place place = place_from(device);
             MINIDNN_CHECK(ShapeError, threads.value_or(1) >= 1, "Handle: threads must be 1 or more; got ", *threads);
             MINIDNN_CHECK(DeviceError, !threads || !place.is_cuda,
                           "Handle: threads is supported on device 'cpu' only; got device '", name(place),
                           "'; omit threads");
             options.threads = int(std::min<int64_t>(threads.value_or(0), std::numeric_limits<int>::max()));
             MINIDNN_CHECK(ShapeError, max_plans >= 1, "Handle: max_plans must be 1 or more; got ", max_plans);
             options.max_plans = size_t(max_plans);
             Stream address = stream_from_python(stream, place, "Handle");
             std::shared_ptr<void> owner;
             if (!py::isinstance<py::int_>(stream) && !stream.is_none())
               own_stream(address, owner = shared_object(stream));
             return std::make_shared<Handle>(place_from_python(device), address, options, std::move(owner));
           }),
           py::arg("device") = "cpu", py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_workspace") = py::none(), py::arg("deterministic") = false, py::arg("math") = "tf32",
           py::arg("threads") = py::none(), py::arg("max_plans") = HandleOptions{}.max_plans,
           R"(device         "cpu", "cuda" or "cuda:<index>"
stream         CUDA only: an int, a torch or CuPy stream, anything with __cuda_stream__; None is the default stream
max_workspace  bytes a call may use in addition to its tensors; None: no limit
deterministic  forbid engines whose results vary from run to run
math           float32 products: "tf32" may use TF32 tensor cores, "ieee" never does
threads        CPU only: the most in a call; None: as OMP_NUM_THREADS says, else all cores. Results are the same
max_plans      plans kept for each kind of problem; beyond it the least recently used are dropped

Raises DeviceError when there is no such device, ShapeError for an unknown math mode.)")
      .def_property_readonly(
          "device", [](const Handle& h) { return name(h.place()); }, "\"cpu\" or \"cuda:<index>\".")
      .def_property_readonly(
          "stream", [](const Handle& h) { return reinterpret_cast<uintptr_t>(h.stream()); },
          "The stream's address; 0 for the default stream and on the CPU.")
      .def_property_readonly(
          "max_workspace",
          [](const Handle& h) -> std::optional<size_t> {
            if (h.options().max_workspace == HandleOptions{}.max_workspace) return std::nullopt;
            return h.options().max_workspace;
          },
          "The most bytes that a call may use in addition to its tensors; None: no limit.")
      .def_property_readonly(
          "deterministic", [](const Handle& h) { return h.options().deterministic; },
          "Whether engines are excluded whose results vary from run to run.")
      .def_property_readonly(
          "math", [](const Handle& h) { return h.options().math == Math::ieee ? "ieee" : "tf32"; },
          "\"tf32\" if float32 products may use TF32 tensor cores, else \"ieee\".")
      .def_property_readonly(
          "threads",
          [](const Handle& h) -> std::optional<int> {
            if (h.options().threads == 0) return std::nullopt;
            return h.options().threads;
          },
          "The most CPU threads of a call; None: as OMP_NUM_THREADS says, else all cores.")
      .def_property_readonly(
          "max_plans", [](const Handle& h) { return h.options().max_plans; },
          "The most plans that are kept for each kind of problem.")
      // With a reference, pybind11 refuses None. A pointer to a member function would accept it.
      .def_property_readonly(
          "closed", [](const Handle& h) { return h.closed(); }, "Whether close() was called.")
      .def(
          "close", [](Handle& h) { h.close(); },
          "Drops the plans of the handle; using the handle again raises DeviceError.")
      .def(
          "synchronize", [](const Handle& h) { h.synchronize(); }, py::call_guard<ReleaseGil>(),
          "Waits until all work given to the handle's stream is done.")
      .def("__enter__",
           [](HandlePtr h) {
             MINIDNN_CHECK(DTypeError, h, "__enter__: self must be a Handle; got None");
             return enter(h), h;
           })
      .def("__exit__", [](const Handle& h, const py::args&) { leave(h); })
      .def("__repr__",
           [](const Handle& h) { return cat("Handle('", name(h.place()), "'", h.closed() ? ", closed" : "", ")"); });
  m.def("entered_handle", &entered_handle, "The innermost handle entered on this thread, or None.");
}

// The pyminidnn.dtypes.DType objects as a Python tuple, indexed by the enum DType.
PyObject*& dtype_objects() {
  static PyObject* objects = nullptr;
  return objects;
}

Tensor permute(const Tensor& t, const std::vector<int64_t>& axes) {
  Tensor v = t;
  std::vector<bool> seen(size_t(t.desc.rank), false);
  bool valid = int64_t(axes.size()) == t.desc.rank;
  for (size_t i = 0; valid && i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + t.desc.rank : axes[i];
    valid = axis >= 0 && axis < t.desc.rank && !seen[size_t(axis)];
    if (!valid) break;
    seen[size_t(axis)] = true;
    v.desc.shape[i] = t.desc.shape[axis];
    v.desc.stride[i] = t.desc.stride[axis];
  }
  MINIDNN_CHECK(ShapeError, valid, "permute: axes must name each of ", t.desc.rank, " dimensions once; got ",
                shape_text(axes));
  return v;
}

bool is_device_name(const std::string& text) { return text == "cpu" || text.starts_with("cuda"); }

// Implements DeviceTensor.to(). `target` is a device or a dtype, as in t.to("cuda:0") and t.to("float64").
Tensor converted(const Tensor& t, py::handle target, std::optional<std::string> device, const py::object& dtype,
                 std::optional<std::string> layout, bool copy) {
  auto place = optional_place(device);
  auto type = optional_dtype(dtype);
  if (!target.is_none()) {
    py::detail::make_caster<std::string> text;
    if (text.load(target, true) && is_device_name(text)) place = place_from_python(text);
    else type = dtype_from_python(target, "target");
  }
  auto order = optional_layout(layout, t.desc.rank);
  ReleaseGil release;
  return to(t, place, type, order, copy);
}

void bind_tensor(py::class_<Tensor>& tensor) {
  tensor
      .def(py::init([](const Shape& shape, py::handle dtype, std::optional<std::string> layout,
                       const std::string& device) {
             Place place = place_from_python(device);
             TensorDesc d = dense(dtype_from_python(dtype), shape,
                                  optional_layout(layout, int64_t(shape.size())).value_or(Layout::channels_first),
                                  "DeviceTensor: shape");
             return empty(d, place, handle_for(nullptr, place, "DeviceTensor", "it").stream(), "DeviceTensor", "shape");
           }),
           py::arg("shape"), py::kw_only(), py::arg("dtype") = "float32", py::arg("layout") = py::none(),
           py::arg("device") = "cpu")
      .def_property_readonly(
          "shape", [](const Tensor& t) { return tuple_of(shape_of(t.desc)); }, "The sizes of the dimensions, a tuple.")
      .def_property_readonly(
          "strides", [](const Tensor& t) { return tuple_of(strides_of(t.desc)); },
          "Strides in elements, as in torch; the strides of NumPy are in bytes.")
      .def_property_readonly(
          "ndim", [](const Tensor& t) { return t.desc.rank; }, "The number of dimensions.")
      .def_property_readonly(
          "size", [](const Tensor& t) { return t.desc.numel(); }, "The number of elements.")
      .def_property_readonly(
          "dtype",
          [](const Tensor& t) {
            return py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(dtype_objects(), Py_ssize_t(t.desc.dtype)));
          },
          "The type of the elements, such as pyminidnn.float32, which equals 'float32'.")
      .def_property_readonly(
          "layout", [](const Tensor& t) { return layout_name(t.desc); },
          "'NCHW', 'NHWC' and their 1-D and 3-D forms, 'contiguous' for other ranks, else 'strided'.")
      .def_property_readonly(
          "device", [](const Tensor& t) { return name(t.place()); }, "'cpu' or 'cuda:<index>'.")
      .def_property_readonly(
          "nbytes", [](const Tensor& t) { return t.nbytes(); }, "The number of elements times their size in bytes.")
      .def_property_readonly(
          "data_ptr",
          [](const Tensor& t) {
            check_computed(t, "data_ptr");
            return reinterpret_cast<uintptr_t>(t.data);
          },
          "The address of the first element, an int.")
      .def_property_readonly("_recorded", [](const Tensor& t) { return is_stand_in(t); })
      .def_property_readonly(
          "read_only", [](const Tensor& t) { return t.storage->read_only; },
          "Whether the tensor is a view of memory that must not be written. It cannot be `out`.")
      .def("to", &converted, py::arg("target") = py::none(), py::kw_only(), py::arg("device") = py::none(),
           py::arg("dtype") = py::none(), py::arg("layout") = py::none(), py::arg("copy") = false,
           R"(The tensor on another device, of another dtype or in another layout; itself if it is that already.

target  a device or a dtype: to("cuda:0") is to(device="cuda:0")
copy  a new tensor in any case
Casts to a floating dtype round to nearest even. From a float to an integer they truncate and saturate, and NaN gives 0.
From an integer to a narrower one they keep the low bits. To bool: "not zero".
A copy to or from a GPU has ended when this method returns.)")
      .def("_reshape", &reshape, py::arg("shape"), py::call_guard<ReleaseGil>())
      .def("_permute", &permute, py::arg("axes"))
      .def(
          "as_strided",
          [](const Tensor& t, const Shape& shape, const Shape& strides, int64_t offset) {
            return as_strided(t, shape, strides, offset);
          },
          py::arg("shape"), py::arg("strides"), py::arg("offset") = 0,
          "A view of the tensor's memory with any strides, in elements, that stays inside it.")
      .def("__len__",
           [](const Tensor& t) {
             if (t.desc.rank == 0) throw DTypeError("__len__: a tensor without dimensions has no length");
             return t.desc.shape[0];
           })
      .def(
          "_description",
          [](const Tensor& t) {
            return cat("DeviceTensor(shape=(", join(shape_of(t.desc)), t.desc.rank == 1 ? ",)" : ")", ", dtype='",
                       name(t.desc.dtype), "', layout='", layout_name(t.desc), "', device='", name(t.place()), "')");
          },
          "The tensor without its values, for error texts.");
}

void bind_full(py::module_& m) {
  m.def(
      "full",
      [](const Shape& shape, const py::object& value, py::handle dtype, std::optional<std::string> layout,
         const std::string& device) {
        Place place = place_from_python(device);
        TensorDesc d =
            dense(dtype_from_python(dtype), shape,
                  optional_layout(layout, int64_t(shape.size())).value_or(Layout::channels_first), "full: shape");
        int64_t integer;
        const bool exact = d.dtype == DType::int64 && PyIndex_Check(value.ptr());
        MINIDNN_CHECK(ShapeError, !exact || read_integer(value, integer),
                      "full: value must be a number that fits int64; got ", repr_text(value));
        py::detail::make_caster<double> number;
        MINIDNN_CHECK(DTypeError, exact || number.load(value, true),
                      "full: value must be a number that fits float64; got ", repr_text(value));
        Tensor scalar = exact ? scalar_of(integer) : scalar_of(double(number));
        ReleaseGil release;
        return full(d, place, scalar);
      },
      py::arg("shape"), py::arg("value"), py::kw_only(), py::arg("dtype"), py::arg("layout") = py::none(),
      py::arg("device"));
}

void bind_array_text(py::module_& m) {
  m.def(
      "array_text",
      [](const Tensor& t, const py::object& options, double scientific_from, bool summarize, int64_t prefix_width) {
        ArrayTextOptions o;
        o.summarize = summarize;
        o.edge_items = options["edgeitems"].cast<int64_t>();
        o.line_width = options["linewidth"].cast<int64_t>();
        o.prefix_width = prefix_width;
        o.precision = options["precision"].cast<int64_t>();
        o.suppress = options["suppress"].cast<bool>();
        o.sign = options["sign"].cast<std::string>()[0];
        o.float_mode = options["floatmode"].cast<std::string>();
        o.nan = options["nanstr"].cast<std::string>();
        o.inf = options["infstr"].cast<std::string>();
        o.scientific_from = scientific_from;
        check_computed(t, "repr");
        return array_text(t, o);
      },
      py::arg("tensor"), py::kw_only(), py::arg("options"), py::arg("scientific_from"), py::arg("summarize"),
      py::arg("prefix_width"), "The elements of a CPU tensor as numpy.array2string() writes them with these options.");
  m.attr("max_text_precision") = kMaxPrecision;
}

// Binds functions that convert arguments, for public functions that are written in Python.
void bind_readers(py::module_& m) {
  m.def(
      "promoted",
      [](const std::string& a, const std::string& b) { return name(promoted(*find_dtype(a), *find_dtype(b))); },
      py::arg("a"), py::arg("b"), "The dtype of a result of two dtypes, as in NumPy; int32 stands for NumPy's int16.");
  m.def(
      "holds",
      [](const std::string& dtype, py::handle value) {
        int64_t number;
        return read_integer(value, number) && holds(*find_dtype(dtype), number);
      },
      py::arg("dtype"), py::arg("value"), "Whether an int is a value of an integer dtype.");
  m.def("share_memory", py::overload_cast<const Tensor&, const Tensor&>(&share_memory), py::arg("a"), py::arg("b"));
  m.def("integer", [](int64_t value) { return value; }, py::arg("value"));
  m.def("integers", [](const Shape& values) { return values; }, py::arg("values"));
  m.def("number", [](double value) { return value; }, py::arg("value"));
}

void bind_allocator(py::module_& m) {
  m.def(
      "memory_stats",
      [](const std::string& device) {
        AllocatorStats s = allocator_of(place_from_python(device)).stats();
        py::dict d;
        d["allocated_bytes"] = s.allocated_bytes;
        d["peak_allocated_bytes"] = s.peak_allocated_bytes;
        d["cached_bytes"] = s.cached_bytes;
        d["allocations"] = s.allocations;
        d["device_allocations"] = s.device_allocations;
        return d;
      },
      py::arg("device"));
  m.def(
      "set_allocator_checks", [](bool exact, int poison) { set_allocator_checks({exact, poison}); }, py::kw_only(),
      py::arg("exact") = false, py::arg("poison") = -1,
      "For tests: blocks have exact sizes and are not cached; a byte fills each block when it is allocated and freed.");
  m.def(
      "reset_peak_memory", [](const std::string& device) { allocator_of(place_from_python(device)).reset_peak(); },
      py::arg("device"));
  m.def(
      "empty_cache",
      [](const std::string& device) {
        const Place place = place_from_python(device);
        drop_plans_of_default_handles(place);
        allocator_of(place).release_cached();
      },
      py::arg("device"), py::call_guard<ReleaseGil>(),
      "Returns the device's free blocks to the system, and drops the plans that calls without a handle have made "
      "there.");
}

}  // namespace

void bind_core(py::module_& m) {
  py::list dtypes;
  for (DType t : kDTypes) dtypes.append(name(t));
  m.attr("dtypes") = py::tuple(dtypes);
  py::list sizes;
  for (DType t : kDTypes) sizes.append(itemsize(t));
  m.attr("itemsizes") = py::tuple(sizes);
  m.def(
      "set_dtype_objects", [](const py::tuple& objects) { dtype_objects() = objects.inc_ref().ptr(); },
      py::arg("objects"), "What DeviceTensor.dtype returns, in the order of `dtypes`.");
  bind_errors(m);
  bind_handle(m);
  py::class_<Tensor> tensor(
      m, "DeviceTensor", py::buffer_protocol(), py::custom_type_setup([](PyHeapTypeObject* type) {
        set_operators(type);
        set_indexing(type);
      }),
      R"(An n-dimensional array on the CPU or a GPU, uninitialised when made: DeviceTensor((8, 3, 32, 32), layout="NHWC").

Logical dimensions are N, C, spatial... in every layout; a layout is a stride order. Copies of the object share memory.)");
  bind_tensor(tensor);
  bind_operators(tensor);
  bind_full(m);
  bind_array_text(m);
  bind_exchange(m, tensor);
  bind_readers(m);
  bind_allocator(m);
}

}  // namespace minidnn
