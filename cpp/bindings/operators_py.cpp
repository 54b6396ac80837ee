// SPDX-License-Identifier: Apache-2.0
// The operators of DeviceTensor: arithmetic, comparisons, and conversions to Python's numbers. They are written into
// the slots of the Python type, because a call through pybind11's dispatcher takes as long as the sum of two small
// tensors. The slots handle operands that need no conversion: tensors of one dtype, and Python numbers that the dtype
// can hold. Arrays of other libraries are tensors if DLPack's C exchange can take them. Other operands are passed to
// pyminidnn/methods.py.
#include "cpp/bindings/operators.h"

#include "cpp/bindings/exchange.h"
#include "cpp/core/recording.h"
#include "cpp/graph/graph.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

// Makes a 0-dimensional tensor with the dtype of t from a Python number. The result is empty if `value` is no int,
// float or bool, or if the dtype cannot represent it.
std::optional<Tensor> computed_scalar(const Tensor& t, PyObject* value) {
  const RecordingPause at_once;
  const DType dtype = t.desc.dtype;
  const bool is_bool = PyBool_Check(value), is_int = PyLong_CheckExact(value) || is_bool;
  if (!is_int && !PyFloat_CheckExact(value)) return std::nullopt;
  TensorDesc desc;
  desc.dtype = dtype;
  if (is_floating(dtype)) {
    const double number = PyFloat_AsDouble(value);
    if (number == -1 && PyErr_Occurred()) {  // `value` is an int that does not fit float64
      PyErr_Clear();
      return std::nullopt;
    }
    return full(desc, t.place(), scalar_of(number));
  }
  if (!is_int || (dtype == DType::boolean && !is_bool)) return std::nullopt;
  int64_t number;
  if (!read_integer(value, number) || !holds(dtype, number)) return std::nullopt;
  return full(desc, t.place(), scalar_of(number));
}

// The same. In a recording, the number is a constant of the graph. The caller never sees the tensor, so it cannot change.
std::optional<Tensor> scalar_like(const Tensor& t, PyObject* value) {
  std::optional<Tensor> made = computed_scalar(t, value);
  if (made && is_floating(made->desc.dtype)) graph::note_number(*made, PyFloat_AsDouble(value));
  return made;
}

struct Operands {
  // The operand that is no DeviceTensor: a 0-dimensional tensor of a Python number, or an array of another library.
  std::optional<Tensor> converted;
  const Tensor *a = nullptr, *b = nullptr;
};

// Takes an array of another library that has the dtype and the device of t. The result is empty for any other object.
std::optional<Tensor> foreign_like(const Tensor& t, PyObject* x) {
  std::optional<Tensor> taken = try_exchange(x);
  if (taken && (taken->desc.dtype != t.desc.dtype || taken->place() != t.place())) taken.reset();
  return taken;
}

// Reads the operands of a binary operator. They must be two tensors of one dtype, or a tensor and a Python number that
// fits the tensor's dtype, and the function `op` must support the dtype. An array of another library is a tensor if
// DLPack's C exchange can take it. The result is empty for any other operands.
std::optional<Operands> operands_of(Pointwise op, PyObject* left, PyObject* right) {
  Operands o{{}, tensor_or_null(left), tensor_or_null(right)};
  const Tensor* known = o.a ? o.a : o.b;
  if (!accepts(op, known->desc.dtype)) return std::nullopt;
  if (!o.a || !o.b) {
    PyObject* other = o.a ? right : left;
    o.converted = scalar_like(*known, other);
    if (!o.converted) o.converted = foreign_like(*known, other);
    if (!o.converted) return std::nullopt;
  } else if (o.a->desc.dtype != o.b->desc.dtype) return std::nullopt;
  return o;
}

Tensor apply(Pointwise op, const Operands& o, std::optional<Tensor> out) {
  const Tensor &a = o.a ? *o.a : *o.converted, &b = o.b ? *o.b : *o.converted;
  ReleaseGil release;
  return pointwise(op, a, b, {}, {"", std::move(out), nullptr});
}

template <Pointwise op> PyObject* binary(PyObject* left, PyObject* right) {
  return with_python_errors([&] {
    if (auto o = operands_of(op, left, right)) return to_python(apply(op, *o, {}));
    return methods_module().attr("binary")(info(op).name, py::handle(left), py::handle(right)).release().ptr();
  });
}

template <Pointwise op> PyObject* in_place(PyObject* left, PyObject* right) {
  return with_python_errors([&]() -> PyObject* {
    auto o = operands_of(op, left, right);
    if (!o)
      return methods_module().attr("in_place")(info(op).name, py::handle(left), py::handle(right)).release().ptr();
    const Tensor& b = o->b ? *o->b : *o->converted;
    MINIDNN_CHECK(ShapeError, broadcast(b.desc, shape_of(o->a->desc)), info(op).name, ": b ", shape_text(b.desc),
                  " does not broadcast to a ", shape_text(o->a->desc), ", which holds the result");
    apply(op, *o, *o->a);
    return Py_NewRef(left);
  });
}

template <Pointwise op> PyObject* unary(PyObject* self) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(self);
    if (!accepts(op, t.desc.dtype))
      return methods_module().attr("unary")(info(op).name, py::handle(self)).release().ptr();
    Tensor result = [&] {
      ReleaseGil release;
      return pointwise(op, t, {}, {}, {});
    }();
    return to_python(std::move(result));
  });
}

PyObject* positive(PyObject* self) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(self);
    MINIDNN_CHECK(DTypeError, t.desc.dtype != DType::boolean, "positive: a is bool, which has no sign");
    return to_python(to(t, {}, {}, {}, true));
  });
}

PyObject* power(PyObject* left, PyObject* right, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<Pointwise::pow>(left, right);
}
PyObject* power_in_place(PyObject* left, PyObject* right, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return in_place<Pointwise::pow>(left, right);
}

PyObject* matrix_multiply(PyObject* left, PyObject* right) {
  return with_python_errors(
      [&] { return methods_module().attr("matrix_multiply")(py::handle(left), py::handle(right)).release().ptr(); });
}

PyObject* compare(PyObject* left, PyObject* right, int relation) {
  switch (relation) {
    case Py_LT:
      return binary<Pointwise::lt>(left, right);
    case Py_LE:
      return binary<Pointwise::le>(left, right);
    case Py_EQ:
      return binary<Pointwise::eq>(left, right);
    case Py_NE:
      return binary<Pointwise::ne>(left, right);
    case Py_GT:
      return binary<Pointwise::gt>(left, right);
    default:
      return binary<Pointwise::ge>(left, right);
  }
}

// Returns the only element of a tensor as a Python bool, int or float. Error messages begin with `call`.
py::object item(const Tensor& t, const char* call) {
  MINIDNN_CHECK(ShapeError, t.desc.numel() == 1, call, ": the tensor must have one element; it has ", t.desc.numel());
  check_computed(t, call);
  Tensor host = [&] {
    ReleaseGil release;
    return to(t, Place{}, {}, {}, false);
  }();
  return with_any(host.desc.dtype, [&](auto type) -> py::object {
    using T = typename decltype(type)::type;
    const T value = *static_cast<const T*>(host.data);
    if constexpr (std::is_same_v<T, bool>) return py::bool_(*static_cast<const uint8_t*>(host.data) != 0);
    else if constexpr (std::is_integral_v<T>) return py::int_(value);
    else return py::float_(double(value));
  });
}

int truth(PyObject* self) {
  return with_python_errors([&] { return PyObject_IsTrue(item(tensor_of(self), "__bool__").ptr()); });
}
PyObject* as_int(PyObject* self) {
  return with_python_errors([&] { return PyNumber_Long(item(tensor_of(self), "__int__").ptr()); });
}
PyObject* as_float(PyObject* self) {
  return with_python_errors([&] { return PyNumber_Float(item(tensor_of(self), "__float__").ptr()); });
}
PyObject* as_index(PyObject* self) {
  return with_python_errors([&] {
    const Tensor& t = tensor_of(self);
    MINIDNN_CHECK(DTypeError, t.desc.rank == 0 && !is_floating(t.desc.dtype) && t.desc.dtype != DType::boolean,
                  "__index__: only an integer tensor without dimensions is an index; got ", t.text());
    return PyNumber_Index(item(t, "__index__").ptr());
  });
}

}  // namespace

const Tensor& tensor_of(PyObject* object) {
  py::detail::make_caster<Tensor> caster;
  if (!caster.load(object, false)) throw py::reference_cast_error();
  return py::detail::cast_op<const Tensor&>(caster);
}

const Tensor* tensor_or_null(PyObject* object) {
  static const auto* type = reinterpret_cast<PyTypeObject*>(py::type::of<Tensor>().ptr());
  return PyObject_TypeCheck(object, const_cast<PyTypeObject*>(type)) ? &tensor_of(object) : nullptr;
}

void set_operators(PyHeapTypeObject* type) {
  PyNumberMethods& number = type->as_number;
  number.nb_add = binary<Pointwise::add>;
  number.nb_subtract = binary<Pointwise::sub>;
  number.nb_multiply = binary<Pointwise::mul>;
  number.nb_true_divide = binary<Pointwise::div>;
  number.nb_floor_divide = binary<Pointwise::floor_div>;
  number.nb_remainder = binary<Pointwise::mod>;
  number.nb_power = power;
  number.nb_and = binary<Pointwise::bitwise_and>;
  number.nb_or = binary<Pointwise::bitwise_or>;
  number.nb_xor = binary<Pointwise::bitwise_xor>;
  number.nb_lshift = binary<Pointwise::left_shift>;
  number.nb_rshift = binary<Pointwise::right_shift>;
  number.nb_matrix_multiply = matrix_multiply;
  number.nb_inplace_add = in_place<Pointwise::add>;
  number.nb_inplace_subtract = in_place<Pointwise::sub>;
  number.nb_inplace_multiply = in_place<Pointwise::mul>;
  number.nb_inplace_true_divide = in_place<Pointwise::div>;
  number.nb_inplace_floor_divide = in_place<Pointwise::floor_div>;
  number.nb_inplace_remainder = in_place<Pointwise::mod>;
  number.nb_inplace_power = power_in_place;
  number.nb_inplace_and = in_place<Pointwise::bitwise_and>;
  number.nb_inplace_or = in_place<Pointwise::bitwise_or>;
  number.nb_inplace_xor = in_place<Pointwise::bitwise_xor>;
  number.nb_inplace_lshift = in_place<Pointwise::left_shift>;
  number.nb_inplace_rshift = in_place<Pointwise::right_shift>;
  number.nb_negative = unary<Pointwise::neg>;
  number.nb_positive = positive;
  number.nb_absolute = unary<Pointwise::abs>;
  number.nb_invert = unary<Pointwise::bitwise_not>;
  number.nb_bool = truth;
  number.nb_int = as_int;
  number.nb_float = as_float;
  number.nb_index = as_index;
  type->ht_type.tp_richcompare = compare;
  // Tensors are hashed by identity, since == compares their elements.
  type->ht_type.tp_hash = PyBaseObject_Type.tp_hash;
}

void bind_operators(py::class_<Tensor>& tensor) {
  tensor.def(
      "item", [](const Tensor& t) { return item(t, "item"); },
      "The one element as a Python bool, int or float. Waits for the GPU. ShapeError if there is not one element.");
}

}  // namespace minidnn
