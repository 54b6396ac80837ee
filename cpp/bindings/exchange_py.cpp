// SPDX-License-Identifier: Apache-2.0
// Exchanges DeviceTensors with other libraries by DLPack (1.x and the version before 1.0), __cuda_array_interface__,
// the buffer protocol and NumPy. c_exchange_py.cpp has DLPack's C exchange. The memory is shared. It is copied only if
// the device, the dtype or the caller requires a copy.
#include <pybind11/numpy.h>

#include "cpp/bindings/exchange.h"

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/dlpack.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

// Names of DLPack capsules, from the specification. A consumer renames the capsule whose tensor it takes. The capsule's
// destructor therefore frees the tensor only if the capsule still has its original name.
template <class M> constexpr const char* kName = "dltensor";
template <> constexpr const char* kName<DLManagedTensorVersioned> = "dltensor_versioned";
template <class M> constexpr const char* kUsedName = "used_dltensor";
template <> constexpr const char* kUsedName<DLManagedTensorVersioned> = "used_dltensor_versioned";

template <class M> py::capsule make_capsule(M* managed) {
  auto capsule = py::reinterpret_steal<py::capsule>(PyCapsule_New(managed, kName<M>, [](PyObject* self) {
    if (!PyCapsule_IsValid(self, kName<M>)) return;  // a consumer has taken the tensor from the capsule
    auto* m = static_cast<M*>(PyCapsule_GetPointer(self, kName<M>));
    m->deleter(m);
  }));
  if (capsule) return capsule;
  managed->deleter(managed);
  throw py::error_already_set();
}

template <class M> Tensor take_capsule(const py::object& capsule) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), kName<M>));
  Tensor t = dlpack::import(managed);
  PyCapsule_SetName(capsule.ptr(), kUsedName<M>);
  return t;
}

Tensor from_capsule(const py::object& capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kName<DLManagedTensorVersioned>))
    return take_capsule<DLManagedTensorVersioned>(capsule);
  if (PyCapsule_IsValid(capsule.ptr(), kName<DLManagedTensor>)) return take_capsule<DLManagedTensor>(capsule);
  bool used = PyCapsule_IsValid(capsule.ptr(), kUsedName<DLManagedTensorVersioned>) ||
              PyCapsule_IsValid(capsule.ptr(), kUsedName<DLManagedTensor>);
  throw ShapeError(
      used ? "from_dlpack: this capsule has been consumed already; call __dlpack__ again for a new one"
           : cat("from_dlpack: __dlpack__ returned ", repr_text(capsule), ", which is not a DLPack capsule"));
}

// Reads a pair of ints such as (1, 0). DLPack describes devices and versions by such pairs. Error messages begin with
// `what`.
std::pair<int32_t, int32_t> integer_pair(const py::object& pair, const char* what) {
  std::vector<int64_t> both;
  MINIDNN_CHECK(
      DTypeError,
      read_integers(pair, both) && both.size() == 2 && std::ranges::all_of(both, std::in_range<int32_t, int64_t>), what,
      " must be a pair of 32-bit integers; got ", repr_text(pair));
  return {int32_t(both[0]), int32_t(both[1])};
}

DLDevice device_pair(const py::object& pair, const char* what) {
  auto [type, id] = integer_pair(pair, what);
  return {DLDeviceType(type), id};
}

// Returns the stream on which the consumer of an exported CUDA tensor will use the tensor. The result is empty if the
// consumer requests no synchronisation.
std::optional<Stream> consumer_stream(const py::object& stream) {
  if (stream.is_none()) return Stream{};
  int64_t number;
  MINIDNN_CHECK(DTypeError, read_integer(stream, number), "__dlpack__: stream must be an int; got ", repr_text(stream));
  if (number == -1) return std::nullopt;
  MINIDNN_CHECK(DeviceError, number > 0, "__dlpack__: stream=", number,
                " is ambiguous; pass 1 for the legacy default stream, 2 for the per-thread default stream, or -1 for "
                "no synchronisation");
  return number == 1 ? Stream{} : reinterpret_cast<Stream>(number);
}

py::capsule export_tensor(const Tensor& self, const py::object& stream, const py::object& max_version,
                          const py::object& dl_device, std::optional<bool> copy) {
  bool versioned =
      !max_version.is_none() && integer_pair(max_version, "__dlpack__: max_version").first >= DLPACK_MAJOR_VERSION;
  Place target = self.place();
  if (!dl_device.is_none()) try {
      target = dlpack::place_of(device_pair(dl_device, "__dlpack__: dl_device"));
    } catch (const DeviceError& error) {  // the DLPack protocol requires a BufferError for a failed export
      throw py::buffer_error(cat("__dlpack__: dl_device=", repr_text(dl_device), ": ", error.what()));
    }
  check_computed(self, "__dlpack__");
  bool copies = copy.value_or(target != self.place());
  if (target != self.place() && !copies)
    throw py::buffer_error(
        cat("__dlpack__: from ", name(self.place()), " to ", name(target), " needs a copy, and copy=False forbids it"));
  if (!self.place().is_cuda && !target.is_cuda && !stream.is_none())
    throw py::buffer_error("__dlpack__: stream is for CUDA tensors; this one is on the CPU");
  if (!versioned && !copies && self.storage->read_only)
    throw py::buffer_error("__dlpack__: a read-only tensor needs DLPack 1.0; pass max_version=(1, 0), or copy it");
  std::optional<Stream> consumer = target.is_cuda ? consumer_stream(stream) : std::nullopt;

  Tensor t = self;
  if (copies) {
    ReleaseGil release;
    t = to(self, target, {}, {}, true);
  }
  if (consumer) {
    Stream current = handle_for(nullptr, target, "__dlpack__", "the tensor").stream();
    memory_of(target).order(current, target, *consumer);
    t.storage->settle_before(*consumer);
    t.storage->used_on(*consumer);
  }
  if (versioned) return make_capsule(dlpack::export_versioned(t, copies));
  return make_capsule(dlpack::export_legacy(t));
}

Tensor moved(const Tensor& t, std::optional<Place> target, bool copy) {
  ReleaseGil release;
  return to(t, target, {}, {}, copy);
}

// Throws unless x, an array on `place`, may be converted to a tensor on the device `target` with the option `copy`.
void check_target(Place place, std::optional<Place> target, std::optional<bool> copy) {
  MINIDNN_CHECK(DeviceError, target.value_or(place) == place || copy.value_or(true), "from_dlpack: from ", name(place),
                " to ", name(*target), " needs a copy, and copy=False forbids it");
}

// Calls __dlpack__() of x.
Tensor from_dunder_dlpack(const py::object& x, std::optional<Place> target, std::optional<bool> copy,
                          const HandlePtr& handle) {
  Place place = dlpack::place_of(device_pair(x.attr("__dlpack_device__")(), "from_dlpack: __dlpack_device__()"));
  check_target(place, target, copy);
  py::dict wanted;
  if (place.is_cuda) wanted["stream"] = stream_number(stream_for(handle, place, "from_dlpack"));
  py::object capsule;
  try {
    py::dict modern(**wanted, py::arg("max_version") = py::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION));
    capsule = x.attr("__dlpack__")(**modern);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_TypeError)) throw;
    // An exporter older than DLPack 1.0 has no parameter max_version and raises TypeError. It is called again without
    // max_version.
    capsule = x.attr("__dlpack__")(**wanted);
  }
  return moved(from_capsule(capsule), target, copy.value_or(false));
}

Tensor from_dlpack(const py::object& x, const std::optional<std::string>& device, std::optional<bool> copy,
                   const HandlePtr& handle) {
  std::optional<Place> target = optional_place(device);
  if (PyCapsule_CheckExact(x.ptr())) return moved(from_capsule(x), target, copy.value_or(false));
  const bool has_dunder = py::hasattr(x, "__dlpack__") && py::hasattr(x, "__dlpack_device__");
  py::object failure;  // the exception with which the C exchange has failed
  if (std::optional<ForeignType> type = foreign_type_of(x.ptr())) try {
      Tensor t = exchange(*type, x.ptr(), handle);
      check_target(t.place(), target, copy);
      return moved(t, target, copy.value_or(false));
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;  // for example KeyboardInterrupt
      if (!has_dunder) {
        const auto reason = py::str(error.value()).cast<std::string>();
        py::raise_from(error, py::module_::import("pyminidnn._C").attr("DTypeError").ptr(),
                       cat("from_dlpack: x cannot be exported by its library: ", reason).c_str());
        throw py::error_already_set();
      }
      failure = error.value();
    }
  if (!has_dunder)
    throw DTypeError(
        cat("from_dlpack: x must have __dlpack__ and __dlpack_device__, or be a DLPack capsule; got ", repr_text(x)));
  try {
    return from_dunder_dlpack(x, target, copy, handle);
  } catch (py::error_already_set& error) {
    if (failure) PyException_SetContext(error.value().ptr(), failure.release().ptr());
    throw;
  }
}

// The storage of a tensor whose memory belongs to a Python object. The storage keeps this object alive.
struct PythonStorage final : Storage {
  py::object owner;
  ~PythonStorage() override {
    if (!Py_IsInitialized()) {
      owner.release();
      return;
    }
    py::gil_scoped_acquire gil;
    owner = py::object();
  }
};

Shape byte_strides(const TensorDesc& d) {
  Shape strides;
  strides.reserve(kMaxRank);
  for (int64_t s : strides_of(d)) strides.push_back(s * int64_t(itemsize(d.dtype)));
  return strides;
}

DType dtype_of_typestr(const std::string& typestr) {
  static const std::pair<const char*, DType> known[] = {
      {"f4", DType::float32}, {"f8", DType::float64}, {"f2", DType::float16}, {"i1", DType::int8},
      {"u1", DType::uint8},   {"i4", DType::int32},   {"i8", DType::int64},   {"b1", DType::boolean}};
  for (auto& [code, dtype] : known)
    if (typestr.size() == 3 && typestr.substr(1) == code && typestr[0] != '>') return dtype;
  throw DTypeError(
      cat("from_cuda_array_interface: x has elements of typestr '", typestr, "'; supported are ", dtype_names()));
}

struct CudaArray {
  Shape shape;
  std::optional<Shape> byte_strides;
  std::string typestr;
  std::pair<uintptr_t, bool> pointer_and_read_only;
  py::object stream, mask;
};

CudaArray parse(const py::object& interface) {
  auto optional = [&](const char* key) -> py::object { return interface.attr("get")(key); };
  try {
    return {interface["shape"].cast<Shape>(),
            optional("strides").cast<std::optional<Shape>>(),
            interface["typestr"].cast<std::string>(),
            interface["data"].cast<std::pair<uintptr_t, bool>>(),
            optional("stream"),
            optional("mask")};
  } catch (const py::cast_error&) {
  } catch (const py::error_already_set&) {  // `interface` is not a dict, or it lacks a key
  }
  throw DTypeError(cat("from_cuda_array_interface: ", repr_text(interface), " does not follow the protocol"));
}

// __cuda_array_interface__ does not name the device of its pointer, so the driver is asked.
Place place_of_pointer(const void* p) {
  for (int i = 0; i < cuda::device_count(); ++i)
    if (memory_of({true, i}).reaches(p)) return {true, i};
  return {true, 0};
}

Tensor from_cuda_array_interface(const py::object& source, const HandlePtr& handle) {
  const char* me = "from_cuda_array_interface";
  CudaArray array = parse(source.attr("__cuda_array_interface__"));
  MINIDNN_CHECK(DTypeError, array.mask.is_none(), me,
                ": x has a mask, which tensors do not support; fill the mask first");
  DType dtype = dtype_of_typestr(array.typestr);
  TensorDesc desc = dense(dtype, array.shape, Layout::channels_first, "from_cuda_array_interface: x");
  if (array.byte_strides) {
    auto size = int64_t(itemsize(dtype));
    Shape strides = *array.byte_strides;
    for (int64_t& s : strides) {
      MINIDNN_CHECK(ShapeError, s % size == 0, me, ": x has the stride ", s,
                    ", which is not a multiple of the element size ", size);
      s /= size;
    }
    desc = strided(dtype, array.shape, strides, "from_cuda_array_interface: x");
  }
  auto [pointer, read_only] = array.pointer_and_read_only;
  auto* data = reinterpret_cast<void*>(pointer);
  Place place = place_of_pointer(data);
  Stream ours = stream_for(handle, place, me);
  auto storage = std::make_shared<PythonStorage>();
  storage->read_only = read_only;
  Tensor t = adopt(desc, data, place, storage, me);
  Stream theirs = stream_from_python(array.stream, place, me);
  if (!array.stream.is_none()) memory_of(place).order(theirs, place, ours);
  storage->owner = source;
  return t;
}

py::dict cuda_array_interface(const Tensor& t) {
  check_computed(t, "__cuda_array_interface__");
  if (!t.place().is_cuda) throw py::attribute_error("__cuda_array_interface__: this tensor is on the CPU");
  static const char* const codes[] = {"<f4", "<f8", "<f2", "", "|i1", "|u1", "<i4", "<i8", "|b1"};
  const char* typestr = codes[int64_t(t.desc.dtype)];
  if (!*typestr)
    throw py::attribute_error("__cuda_array_interface__: bfloat16 is not supported by the protocol; use DLPack");
  // The consumer waits for the stream of the current handle, and settle_before() makes that stream wait for all others
  // that used the tensor.
  Stream current = handle_for(nullptr, t.place(), "__cuda_array_interface__", "the tensor").stream();
  t.storage->settle_before(current);
  py::dict d;
  d["shape"] = tuple_of(shape_of(t.desc));
  d["strides"] = tuple_of(byte_strides(t.desc));
  d["typestr"] = typestr;
  d["data"] = py::make_tuple(reinterpret_cast<uintptr_t>(t.data), t.storage->read_only);
  d["version"] = 3;
  d["stream"] = stream_number(current);
  return d;
}

// The NumPy dtype for a DType. For bfloat16 it is the dtype of the package ml_dtypes, if that is installed.
py::dtype numpy_dtype(DType t) {
  if (t != DType::bfloat16) return py::dtype(name(t));
  try {
    return py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16"));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    throw DTypeError("numpy: NumPy has no bfloat16; pip install ml_dtypes, or call .to(dtype='float32') first");
  }
}

py::array to_numpy(const Tensor& self) {
  check_computed(self, "numpy");
  Tensor t = moved(self, Place{}, false);
  py::array a(numpy_dtype(t.desc.dtype), shape_of(t.desc), byte_strides(t.desc), t.data, py::cast(t));
  if (t.storage->read_only) a.attr("setflags")(py::arg("write") = false);
  return a;
}

py::object to_array(const Tensor& t, const py::object& dtype, std::optional<bool> copy) {
  check_computed(t, "__array__");
  if (t.place().is_cuda)
    throw DTypeError(cat("__array__: this tensor is on ", name(t.place()),
                         ", and NumPy reads host memory only; call .numpy() or .to(device='cpu') to copy it"));
  py::object a = to_numpy(t);
  if (!dtype.is_none()) try {
      py::object wanted = py::module_::import("numpy").attr("dtype")(dtype);
      if (!py::object(a.attr("dtype")).equal(wanted)) {
        if (!copy.value_or(true)) throw ShapeError("__array__: another dtype needs a copy, and copy=False forbids it");
        return a.attr("astype")(wanted);
      }
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
      throw DTypeError(
          cat("__array__: dtype must be one that NumPy casts ", name(t.desc.dtype), " to; got ", repr_text(dtype)));
    }
  return copy.value_or(false) ? a.attr("copy")() : a;
}

py::buffer_info to_buffer(const Tensor& t) {
  check_computed(t, "memoryview");
  if (t.place().is_cuda)
    throw py::type_error(cat("this tensor is on ", name(t.place()), "; call .numpy() to copy it to the host"));
  static const char* const int64 = sizeof(long) == 8 ? "l" : "q";
  static const char* const formats[] = {"f", "d", "e", "", "b", "B", "i", int64, "?"};
  const char* format = formats[int64_t(t.desc.dtype)];
  if (!*format)
    throw py::type_error("bfloat16 is not supported by the buffer protocol; call .numpy(), with ml_dtypes installed");
  return py::buffer_info(t.data, py::ssize_t(itemsize(t.desc.dtype)), format, py::ssize_t(t.desc.rank),
                         Shape(t.desc.shape, t.desc.shape + t.desc.rank), byte_strides(t.desc), t.storage->read_only);
}

}  // namespace

Stream stream_for(const HandlePtr& handle, Place place, const char* call) {
  return handle_for(handle && handle->place() == place ? handle : nullptr, place, call, "x").stream();
}

void bind_exchange(py::module_& m, py::class_<Tensor>& tensor) {
  bind_c_exchange(m, tensor);
  tensor
      .def("__dlpack__", &export_tensor, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__",
           [](const Tensor& t) {
             DLDevice d = dlpack::device_of(t.place());
             return py::make_tuple(int32_t(d.device_type), d.device_id);
           })
      .def_property_readonly("__cuda_array_interface__", &cuda_array_interface)
      .def("numpy", &to_numpy, "A NumPy array: a view of a CPU tensor, a copy of a GPU tensor (waits for its stream).")
      .def("__array__", &to_array, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def_buffer(&to_buffer);
  m.def("from_dlpack", &from_dlpack, py::arg("x"), py::kw_only(), py::arg("device") = py::none(),
        py::arg("copy") = py::none(), py::arg("handle") = py::none());
  m.def("from_cuda_array_interface", &from_cuda_array_interface, py::arg("x"), py::arg("handle"));
  m.def(
      "reinterpret",
      [](const Tensor& t, py::handle dtype) {
        Tensor r = t;
        r.desc.dtype = dtype_from_python(dtype);
        MINIDNN_CHECK(DTypeError, itemsize(r.desc.dtype) == itemsize(t.desc.dtype), "reinterpret: ", name(t.desc.dtype),
                      " and ", name(r.desc.dtype), " differ in size");
        return r;
      },
      py::arg("x"), py::arg("dtype"), "The same bytes under another dtype of the same size.");
}

}  // namespace minidnn
