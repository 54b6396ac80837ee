// SPDX-License-Identifier: Apache-2.0
// DeviceTensor to and from other libraries, without a copy wherever memory and device allow: DLPack 1.x (and the
// capsules before it), __cuda_array_interface__, the buffer protocol and NumPy.
#include <pybind11/numpy.h>

#include "cpp/bindings/casters.h"
#include "cpp/core/dlpack.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

// Capsule names by the specification: a consumer renames what it has taken, so a destructor sees what is still ours.
template <class M> constexpr const char* kName = "dltensor";
template <> constexpr const char* kName<dlpack::ManagedVersioned> = "dltensor_versioned";
template <class M> constexpr const char* kUsedName = "used_dltensor";
template <> constexpr const char* kUsedName<dlpack::ManagedVersioned> = "used_dltensor_versioned";

template <class M> py::capsule make_capsule(M* managed) {
  return py::reinterpret_steal<py::capsule>(PyCapsule_New(managed, kName<M>, [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, kName<M>)) return;  // consumed
    auto* m = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
    m->deleter(m);
  }));
}

template <class M> Tensor take_capsule(const py::object& capsule) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), kName<M>));
  Tensor t = dlpack::import(managed);
  PyCapsule_SetName(capsule.ptr(), kUsedName<M>);
  return t;
}

Tensor from_capsule(const py::object& capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kName<dlpack::ManagedVersioned>)) return take_capsule<dlpack::ManagedVersioned>(capsule);
  if (PyCapsule_IsValid(capsule.ptr(), kName<dlpack::Managed>)) return take_capsule<dlpack::Managed>(capsule);
  bool used = PyCapsule_IsValid(capsule.ptr(), kUsedName<dlpack::ManagedVersioned>) ||
              PyCapsule_IsValid(capsule.ptr(), kUsedName<dlpack::Managed>);
  throw ShapeError(used ? "from_dlpack: this capsule has been consumed already; ask its tensor for another"
                        : cat("from_dlpack: __dlpack__ returned ", std::string(py::repr(capsule)), ", which is no DLPack capsule"));
}

dlpack::DLDevice device_pair(const py::object& pair) {
  auto t = pair.cast<std::pair<int32_t, int32_t>>();
  return {t.first, t.second};
}

py::capsule export_tensor(const Tensor& self, py::object stream, py::object max_version, py::object dl_device, py::object copy) {
  Tensor t = self;
  Place target = dl_device.is_none() ? self.place() : dlpack::place_of(device_pair(dl_device));
  bool must_copy = !copy.is_none() && copy.cast<bool>();
  if (target != self.place()) {
    if (!copy.is_none() && !must_copy)
      throw py::buffer_error(cat("__dlpack__: from ", name(self.place()), " to ", name(target), " needs a copy, and copy=False forbids it"));
    must_copy = true;
  }
  if (must_copy) t = to(self, target, {}, {}, true);
  if (!t.place().is_cuda) {
    if (!stream.is_none() && self.place() == t.place())
      throw py::buffer_error("__dlpack__: stream is for CUDA tensors; this one is on the CPU");
  } else if (intptr_t number = stream.is_none() ? 1 : stream.cast<intptr_t>(); number != -1) {
    if (number == 0) throw py::value_error("__dlpack__: stream=0 is ambiguous; 1 is the legacy default stream, 2 the per-thread one");
    Stream consumer = number == 1 ? nullptr : reinterpret_cast<Stream>(number);
    Stream producer = handle_for(nullptr, t.place(), "__dlpack__", "the tensor").stream();
    if (consumer != producer) {
      memory_of(t.place()).order(producer, consumer);
      t.storage->used_on(consumer);
    }
  }
  bool versioned = !max_version.is_none() && max_version.cast<py::tuple>()[0].cast<uint32_t>() >= dlpack::kVersion.major;
  if (versioned) return make_capsule(dlpack::export_versioned(t, must_copy));
  if (t.storage->read_only)
    throw py::buffer_error("__dlpack__: a read-only tensor needs DLPack 1.0; pass max_version=(1, 0), or copy it");
  return make_capsule(dlpack::export_legacy(t));
}

Tensor from_dlpack(const py::object& source, const std::optional<std::string>& device, std::optional<bool> copy) {
  if (PyCapsule_CheckExact(source.ptr())) return to(from_capsule(source), optional_place(device), {}, {}, copy.value_or(false));
  if (!py::hasattr(source, "__dlpack__") || !py::hasattr(source, "__dlpack_device__"))
    throw DTypeError(cat("from_dlpack: ", std::string(py::str(py::type::of(source))), " has no __dlpack__ and __dlpack_device__"));
  Place place = dlpack::place_of(device_pair(source.attr("__dlpack_device__")()));
  Place target = optional_place(device).value_or(place);
  MINIDNN_CHECK(DeviceError, target == place || copy.value_or(true), "from_dlpack: from ", name(place), " to ", name(target),
                " needs a copy, and copy=False forbids it");
  py::dict wanted;
  if (place.is_cuda) wanted["stream"] = stream_number(handle_for(nullptr, place, "from_dlpack", "the array").stream());
  py::object capsule;
  try {
    py::dict modern(**wanted, py::arg("max_version") = py::make_tuple(dlpack::kVersion.major, dlpack::kVersion.minor));
    capsule = source.attr("__dlpack__")(**modern);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_TypeError)) throw;  // an exporter of before 1.0 does not know max_version
    capsule = source.attr("__dlpack__")(**wanted);
  }
  return to(from_capsule(capsule), target, {}, {}, copy.value_or(false));
}

// Holds a Python object for as long as a tensor uses its memory.
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

DType dtype_of_typestr(const std::string& typestr) {
  static const std::pair<const char*, DType> known[] = {
      {"f4", DType::float32}, {"f8", DType::float64}, {"f2", DType::float16}, {"i1", DType::int8}, {"u1", DType::uint8},
      {"i4", DType::int32},   {"i8", DType::int64},   {"b1", DType::boolean}};
  for (auto& [code, dtype] : known)
    if (typestr.size() == 3 && typestr.substr(1) == code && typestr[0] != '>') return dtype;
  throw DTypeError(cat("from_cuda_array_interface: typestr '", typestr, "' is not one this library has"));
}

Tensor from_cuda_array_interface(const py::object& source) {
  auto facts = source.attr("__cuda_array_interface__").cast<py::dict>();
  Tensor t;
  Shape shape = facts["shape"].cast<Shape>();
  t.desc = dense(dtype_of_typestr(facts["typestr"].cast<std::string>()), shape, Layout::channels_first, "from_cuda_array_interface:");
  auto size = int64_t(itemsize(t.desc.dtype));
  if (facts.contains("strides") && !facts["strides"].is_none()) {
    Shape strides = facts["strides"].cast<Shape>();
    MINIDNN_CHECK(ShapeError, strides.size() == shape.size(), "from_cuda_array_interface: shape has ", shape.size(),
                  " dimensions, strides ", strides.size());
    for (size_t i = 0; i < strides.size(); ++i) {
      MINIDNN_CHECK(ShapeError, strides[i] % size == 0, "from_cuda_array_interface: stride ", strides[i],
                    " is no multiple of the element size ", size);
      t.desc.stride[i] = strides[i] / size;
    }
  }
  auto [pointer, read_only] = facts["data"].cast<std::pair<uintptr_t, bool>>();
  t.data = reinterpret_cast<void*>(pointer);
  Handle& h = handle_for(nullptr, {true, 0}, "from_cuda_array_interface", "the array");
  MINIDNN_CHECK(DeviceError, t.desc.numel() == 0 || memory_of(h.place()).reaches(t.data),
                "from_cuda_array_interface: the pointer ", t.data, " is not memory of ", name(h.place()));
  if (facts.contains("stream") && !facts["stream"].is_none()) {
    Stream theirs = stream_from_python(facts["stream"], h.place());
    if (theirs != h.stream()) memory_of(h.place()).order(theirs, h.stream());
  }
  auto storage = std::make_shared<PythonStorage>();
  storage->owner = source;
  storage->place = h.place();
  storage->read_only = read_only;
  t.storage = storage;
  return t;
}

py::dict cuda_array_interface(const Tensor& t) {
  if (!t.place().is_cuda) throw py::attribute_error("__cuda_array_interface__: this tensor is on the CPU");
  static const char* const codes[] = {"<f4", "<f8", "<f2", "", "|i1", "|u1", "<i4", "<i8", "|b1"};
  const char* typestr = codes[int64_t(t.desc.dtype)];
  if (!*typestr) throw py::attribute_error("__cuda_array_interface__: it has no name for bfloat16; use DLPack");
  Shape shape(t.desc.shape, t.desc.shape + t.desc.rank), strides(t.desc.stride, t.desc.stride + t.desc.rank);
  for (int64_t& s : strides) s *= int64_t(itemsize(t.desc.dtype));
  py::dict d;
  d["shape"] = py::tuple(py::cast(shape));
  d["strides"] = py::tuple(py::cast(strides));
  d["typestr"] = typestr;
  d["data"] = py::make_tuple(reinterpret_cast<uintptr_t>(t.data), t.storage->read_only);
  d["version"] = 3;
  d["stream"] = stream_number(handle_for(nullptr, t.place(), "__cuda_array_interface__", "the tensor").stream());
  return d;
}

// NumPy's dtype for ours. bfloat16 is ml_dtypes', if it is installed.
py::dtype numpy_dtype(DType t) {
  if (t != DType::bfloat16) return py::dtype(name(t));
  try {
    return py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16"));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    throw DTypeError("numpy: NumPy has no bfloat16 of its own; pip install ml_dtypes, or call .to(dtype='float32') first");
  }
}

py::array to_numpy(const Tensor& self) {
  Tensor t = to(self, Place{}, {}, {}, false);
  Shape strides(t.desc.stride, t.desc.stride + t.desc.rank);
  for (int64_t& s : strides) s *= int64_t(itemsize(t.desc.dtype));
  py::array a(numpy_dtype(t.desc.dtype), shape_of(t.desc), strides, t.data, py::cast(t));
  if (t.storage->read_only) a.attr("setflags")(py::arg("write") = false);
  return a;
}

py::object to_array(const Tensor& t, py::object dtype, py::object copy) {
  if (t.place().is_cuda)
    throw py::type_error(cat("this tensor is on ", name(t.place()), ", and NumPy reads host memory only; call .numpy() or "
                             ".to(device='cpu') to copy it"));
  py::object a = to_numpy(t);
  bool casts = !dtype.is_none() && !py::object(a.attr("dtype")).equal(py::module_::import("numpy").attr("dtype")(dtype));
  if (casts) {
    if (!copy.is_none() && !copy.cast<bool>()) throw py::value_error("__array__: another dtype needs a copy, and copy=False forbids it");
    return a.attr("astype")(dtype);
  }
  return !copy.is_none() && copy.cast<bool>() ? a.attr("copy")() : a;
}

py::buffer_info to_buffer(const Tensor& t) {
  if (t.place().is_cuda) throw py::type_error(cat("this tensor is on ", name(t.place()), "; call .numpy() to copy it to the host"));
  static const char* const formats[] = {"f", "d", "e", "", "b", "B", "i", "q", "?"};
  const char* format = formats[int64_t(t.desc.dtype)];
  if (!*format) throw py::type_error("the buffer protocol has no bfloat16; call .numpy(), with ml_dtypes installed");
  Shape strides(t.desc.stride, t.desc.stride + t.desc.rank);
  for (int64_t& s : strides) s *= int64_t(itemsize(t.desc.dtype));
  return py::buffer_info(t.data, ssize_t(itemsize(t.desc.dtype)), format, ssize_t(t.desc.rank),
                         Shape(t.desc.shape, t.desc.shape + t.desc.rank), strides, t.storage->read_only);
}

}  // namespace

void bind_exchange(py::module_& m, py::class_<Tensor>& tensor) {
  tensor
      .def("__dlpack__", &export_tensor, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const Tensor& t) {
        dlpack::DLDevice d = dlpack::device_of(t.place());
        return py::make_tuple(d.type, d.id);
      })
      .def_property_readonly("__cuda_array_interface__", &cuda_array_interface)
      .def("numpy", &to_numpy, "A NumPy array: a view of a CPU tensor, a copy of a GPU tensor (waits for its stream).")
      .def("__array__", &to_array, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def_buffer(&to_buffer);
  m.def("from_dlpack", &from_dlpack, py::arg("x"), py::kw_only(), py::arg("device") = py::none(), py::arg("copy") = py::none());
  m.def("from_cuda_array_interface", &from_cuda_array_interface, py::arg("x"));
  m.def("reinterpret", [](const Tensor& t, py::handle dtype) {
    Tensor r = t;
    r.desc.dtype = dtype_from_python(dtype);
    MINIDNN_CHECK(DTypeError, itemsize(r.desc.dtype) == itemsize(t.desc.dtype), "reinterpret: ", name(t.desc.dtype), " and ",
                  name(r.desc.dtype), " differ in size");
    return r;
  }, py::arg("x"), py::arg("dtype"), "The same bytes under another dtype of the same size.");
}

}  // namespace minidnn
