# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions of the array API: pointwise() by other names, with promotion of dtypes and Python numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from .. import _C, methods
from .._C import DeviceTensor, DTypeError, NotSupported
from ..conversion import asarray
from ..ops.pointwise import pointwise
from ..options import IndexDType, Pointwise
from .data_types import FLOATING, result_type


class _Unary(Protocol):
    def __call__(self, x: DeviceTensor, /) -> DeviceTensor: ...


class _Binary(Protocol):
    def __call__(self, x1: Any, x2: Any, /) -> DeviceTensor: ...


def _named(name: str, value: str, dtypes: str, function: Any) -> Any:
    """`function` under a name of the standard, with its documentation. `value` says what it computes."""
    function.__name__ = function.__qualname__ = name
    # Error texts find the name of the public function in its code object.
    function.__code__ = function.__code__.replace(co_name=name)
    function.__doc__ = f"{value}. {dtypes}."
    return function


def _unary(name: str, value: str, *, op: Pointwise | None = None, dtypes: str = "Floating dtypes") -> _Unary:
    mode = op or cast(Pointwise, name)

    def function(x: DeviceTensor, /) -> DeviceTensor:
        return pointwise(mode, x)

    return cast(_Unary, _named(name, value, dtypes, function))


def _rounding(name: Pointwise, value: str) -> _Unary:
    def function(x: DeviceTensor, /) -> DeviceTensor:
        t = asarray(x)
        return pointwise(name, t) if t.dtype in FLOATING else +t

    return cast(_Unary, _named(name, value, "Floating dtypes and integers, which are copied", function))


def _test(name: Pointwise, value: str, of_integers: bool) -> _Unary:
    def function(x: DeviceTensor, /) -> DeviceTensor:
        t = asarray(x)
        if t.dtype in FLOATING:
            return pointwise(name, t)
        return _C.full(t.shape, of_integers, dtype="bool", device=t.device)

    return cast(_Unary, _named(name, value, f"Floating dtypes; {of_integers} for integers", function))


def _binary(
    name: str, value: str, *, op: Pointwise | None = None, symbol: Any = None, dtypes: str = "Numeric dtypes"
) -> _Binary:
    """A function of two operands. `symbol` is the operator that computes it, which is faster than pointwise()."""
    mode = op or cast(Pointwise, name)
    compute: Callable[[Any, Any], DeviceTensor] = symbol or partial(methods.binary, mode)

    def function(x1: Any, x2: Any, /) -> DeviceTensor:
        if type(x1) is not DeviceTensor or type(x2) is not DeviceTensor:
            x1, x2 = operands(x1, x2)
        elif symbol is None and x1.dtype is x2.dtype and x1.dtype in FLOATING:
            return pointwise(mode, x1, x2)
        return compute(x1, x2)

    return cast(_Binary, _named(name, value, f"{dtypes}, or a Python number for one operand", function))


def operands(x1: Any, x2: Any) -> tuple[Any, Any]:
    """The operands as tensors on one device; one of them may remain a Python number."""
    tensors = [x if type(x) in (bool, int, float, DeviceTensor) else asarray(x) for x in (x1, x2)]
    if not any(type(x) is DeviceTensor for x in tensors):
        tensors[0] = asarray(tensors[0])
    device = next(x for x in (x1, x2, *tensors) if type(x) is DeviceTensor).device
    a, b = (x if given is x or type(x) is not DeviceTensor else x.to(device=device)
            for x, given in zip(tensors, (x1, x2), strict=True))  # fmt: skip
    return a, b


_NUMERIC, _FLOATING, _INTEGERS, _ANY = "Numeric dtypes", "Floating dtypes", "Integers and bool", "Any dtype"

acos = _unary("acos", "The angle in radians whose cosine is x")
acosh = _unary("acosh", "The inverse of the hyperbolic cosine")
asin = _unary("asin", "The angle in radians whose sine is x")
asinh = _unary("asinh", "The inverse of the hyperbolic sine")
atan = _unary("atan", "The angle in radians whose tangent is x")
atanh = _unary("atanh", "The inverse of the hyperbolic tangent")
cos = _unary("cos", "Cosine of radians")
cosh = _unary("cosh", "The hyperbolic cosine")
exp = _unary("exp", "e^x")
expm1 = _unary("expm1", "e^x - 1, without cancellation near 0")
log = _unary("log", "The natural logarithm")
log1p = _unary("log1p", "log(1 + x), without cancellation near 0")
log2 = _unary("log2", "The logarithm to base 2")
log10 = _unary("log10", "The logarithm to base 10")
reciprocal = _unary("reciprocal", "1 / x")
signbit = _unary("signbit", "Whether the sign bit is set, as in -0.0; bool")
sin = _unary("sin", "Sine of radians")
sinh = _unary("sinh", "The hyperbolic sine")
sqrt = _unary("sqrt", "The square root")
tan = _unary("tan", "Tangent of radians")
tanh = _unary("tanh", "The hyperbolic tangent")

abs = _unary("abs", "|x|", dtypes=_NUMERIC)
negative = _unary("negative", "-x", op="neg", dtypes=_NUMERIC)
sign = _unary("sign", "The sign: -1, 0 or 1; NaN is kept", dtypes=_NUMERIC)
square = _unary("square", "x^2", dtypes=_NUMERIC)
logical_not = _unary("logical_not", "Whether x is zero; bool", dtypes=_ANY)

ceil = _rounding("ceil", "The smallest integer not below x")
floor = _rounding("floor", "The largest integer not above x")
round = _rounding("round", "The nearest integer; halfway cases round to even")
trunc = _rounding("trunc", "x without its fraction")

isfinite = _test("isfinite", "Whether x is neither an infinity nor NaN; bool", True)
isinf = _test("isinf", "Whether x is an infinity; bool", False)
isnan = _test("isnan", "Whether x is NaN; bool", False)

add = _binary("add", "x1 + x2", symbol=operator.add)
subtract = _binary("subtract", "x1 - x2", symbol=operator.sub)
multiply = _binary("multiply", "x1 x2", symbol=operator.mul)
divide = _binary("divide", "x1 / x2; integers give float64", symbol=operator.truediv)
floor_divide = _binary("floor_divide", "floor(x1 / x2)", symbol=operator.floordiv)
remainder = _binary("remainder", "x1 - x2 floor(x1 / x2)", symbol=operator.mod)
pow = _binary("pow", "x1 to the power x2", symbol=operator.pow)
equal = _binary("equal", "x1 == x2; bool", op="eq", dtypes=_ANY)
not_equal = _binary("not_equal", "x1 != x2; bool", op="ne", dtypes=_ANY)
less = _binary("less", "x1 < x2; bool", symbol=operator.lt)
less_equal = _binary("less_equal", "x1 <= x2; bool", symbol=operator.le)
greater = _binary("greater", "x1 > x2; bool", symbol=operator.gt)
greater_equal = _binary("greater_equal", "x1 >= x2; bool", symbol=operator.ge)
maximum = _binary("maximum", "The larger one; NaN if one is NaN")
minimum = _binary("minimum", "The smaller one; NaN if one is NaN")
atan2 = _binary("atan2", "The angle of the point (x2, x1), in radians", dtypes=_FLOATING)
copysign = _binary("copysign", "|x1| with the sign of x2", dtypes=_FLOATING)
hypot = _binary("hypot", "sqrt(x1^2 + x2^2), without overflow", dtypes=_FLOATING)
logaddexp = _binary("logaddexp", "log(e^x1 + e^x2), without overflow", dtypes=_FLOATING)
logical_and = _binary("logical_and", "Whether both are nonzero; bool", dtypes=_ANY)
logical_or = _binary("logical_or", "Whether one or both are nonzero; bool", dtypes=_ANY)
logical_xor = _binary("logical_xor", "Whether exactly one is nonzero; bool", dtypes=_ANY)
bitwise_and = _binary("bitwise_and", "The bits set in both", symbol=operator.and_, dtypes=_INTEGERS)
bitwise_or = _binary("bitwise_or", "The bits set in one or both", symbol=operator.or_, dtypes=_INTEGERS)
bitwise_xor = _binary("bitwise_xor", "The bits set in exactly one", symbol=operator.xor, dtypes=_INTEGERS)
bitwise_left_shift = _binary("bitwise_left_shift", "x1 2^x2", symbol=operator.lshift, dtypes="Integers")
bitwise_right_shift = _binary("bitwise_right_shift", "floor(x1 / 2^x2)", symbol=operator.rshift, dtypes="Integers")


def bitwise_invert(x: DeviceTensor, /) -> DeviceTensor:
    """Every bit inverted. Integers and bool."""
    return ~asarray(x)


def positive(x: DeviceTensor, /) -> DeviceTensor:
    """A copy of x. Numeric dtypes."""
    return +asarray(x)


def conj(x: DeviceTensor, /) -> DeviceTensor:
    """The complex conjugate, a copy of x, since tensors are real. Numeric dtypes."""
    return +asarray(x)


def real(x: DeviceTensor, /) -> DeviceTensor:
    """The real component, a copy of x, since tensors are real. Numeric dtypes."""
    return +asarray(x)


def imag(x: DeviceTensor, /) -> DeviceTensor:
    """The imaginary component: zeros, since tensors are real. Numeric dtypes."""
    t = asarray(x)
    return _C.full(t.shape, 0, dtype=t.dtype, device=t.device)


def clip(x: DeviceTensor, /, min: Any = None, max: Any = None) -> DeviceTensor:
    """x limited to [min, max]; None is no limit. NaN in any of them gives NaN. Numeric dtypes.

    min, max  tensors that broadcast, or Python numbers
    returns   the dtype that x, min and max promote to
    """
    t = asarray(x)
    if min is None and max is None:
        return +t
    low, high = (v if v is None or type(v) in (bool, int, float) else asarray(v).to(device=t.device)
                 for v in (min, max))  # fmt: skip
    dtype = result_type(t, *(v for v in (low, high) if v is not None))
    t, low, high = (v.to(dtype=dtype) if type(v) is DeviceTensor else v for v in (t, low, high))
    if low is None:
        return pointwise("minimum", t, high)
    return pointwise("maximum", t, low) if high is None else pointwise("clamp", t, low, high)


def where(condition: DeviceTensor, x1: Any, x2: Any, /) -> DeviceTensor:
    """x1 where `condition`, a bool tensor, is true, else x2; the dtype that x1 and x2 promote to.

    All three broadcast. x1 and x2 may be Python numbers. DTypeError if `condition` is not bool.
    """
    chosen = asarray(condition)
    if type(x1) is not DeviceTensor or type(x2) is not DeviceTensor:
        x1, x2 = operands(x1, x2)
        x1, x2 = (x.to(device=chosen.device) if type(x) is DeviceTensor else x for x in (x1, x2))
    if not type(x1) is type(x2) is DeviceTensor or x1.dtype != x2.dtype:
        dtype = result_type(x1, x2)
        x1, x2 = (x.to(dtype=dtype) if type(x) is DeviceTensor else x for x in (x1, x2))
    return pointwise("where", chosen, x1, x2)


def nextafter(x1: Any, x2: Any, /) -> DeviceTensor:
    """The next representable number after x1 in the direction of x2; x2 if they are equal. float32 and float64.

    float16 and bfloat16 raise NotSupported, because tensors have no integers of 16 bits.
    """
    if type(x1) is not DeviceTensor or type(x2) is not DeviceTensor:
        x1, x2 = operands(x1, x2)
    dtype = result_type(x1, x2)
    if dtype not in FLOATING:
        raise DTypeError(f"nextafter: x1 and x2 must have a floating dtype; got {dtype}")
    if dtype.itemsize < 4:
        raise NotSupported(f"nextafter: x1 and x2 must be float32 or float64; got {dtype}, whose bits no integer has")
    device = (x1 if type(x1) is DeviceTensor else x2).device
    a, b = (x.to(dtype=dtype) if type(x) is DeviceTensor else _C.full((), x, dtype=dtype, device=device)
            for x in (x1, x2))  # fmt: skip
    # If the bits are read as an integer, this integer increases with the magnitude of the number.
    integer: IndexDType = "int32" if dtype.itemsize == 4 else "int64"
    step = where((a < b) == (a > 0), 1, -1).to(dtype=integer)
    moved = _C.reinterpret(_C.reinterpret(+a, integer) + step, dtype)
    smallest = pointwise("copysign", _C.reinterpret(_C.full((), 1, dtype=integer, device=device), dtype), b)
    result = where(a == 0, smallest, moved)
    return where(a == b, b, where((a == a) & (b == b), result, a + b))
