# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions of one, two or three tensors, with broadcasting."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np

from .. import _C
from .._C import DeviceTensor, DTypeError, Handle
from ..conversion import ArrayLike, current_device, entered, full, operands, output
from ..options import DTypeName, Pointwise
from ..refusals import refusal, short

_NUMBERS = {bool, int, float, *(np.dtype(c).type for c in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?")}
_RANGES = {"bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1),
           "int64": (-(2**63), 2**63 - 1)}  # fmt: skip


def pointwise(
    op: Pointwise,
    a: ArrayLike,
    b: ArrayLike | None = None,
    c: ArrayLike | None = None,
    *,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Applies the function `op` to each element of one to three tensors; add(a, b) is pointwise("add", a, b).

    op       the name of a function of this module; docs/ops/pointwise.md lists their formulas
    a, b, c  as many operands as the function takes, of the same dtype, any strides, broadcast as in NumPy; the first of
             where() is bool. A number or a NumPy scalar takes the dtype of the tensor operands, which must be able to
             hold it: an integer dtype holds only integers in its range
    algo     an engine by name; None: the fastest expected
    out      receives the result instead of a new tensor; may be an operand that is not broadcast
    handle   None: the current handle of a's device
    returns  a tensor of the operands' dtype (bool for tests), in the layout of the first operand that is not broadcast,
             on the operands' device and the handle's stream (does not synchronise)

    All functions take float32, float64, float16 and bfloat16. Those documented with integers also take int8, uint8,
    int32 and int64; those with any dtype also take bool. Floats are computed in float32 (float64 for float64) and
    rounded once; integers wrap around. NaN gives NaN, except in tests. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    return _apply(op, a, b, c, algo, out, handle)


def _apply(
    op: Pointwise,
    a: ArrayLike,
    b: ArrayLike | None,
    c: ArrayLike | None,
    algo: str | None,
    out: ArrayLike | None,
    handle: Handle | None,
) -> DeviceTensor:
    """pointwise() for the functions of this module. A call on small tensors takes as long as this Python code."""
    tensors = type(a) is DeviceTensor
    if not (tensors and (b is None or type(b) is DeviceTensor) and (c is None or type(c) is DeviceTensor)):
        a, b, c = _tensors(op, handle, out, a, b, c)
    return _C.pointwise(op, a, b, c, algo, None if out is None else output(out, handle), handle)


def _tensors(
    op: Pointwise, handle: Handle | None, out: ArrayLike | None, *given: ArrayLike | None
) -> list[DeviceTensor | None]:
    """The operands as tensors. A number becomes a tensor without dimensions, with dtype and device of the others."""
    numbers = [type(x) in _NUMBERS for x in given]
    if not any(numbers):
        return list(operands(handle, *given, out=out))
    tensors = list(operands(handle, *(None if n else x for x, n in zip(given, numbers, strict=True)), out=out))
    where = isinstance(op, str) and op == "where"  # the condition of where() has another dtype than the other operands
    like = next((t for t in (tensors[1:] if where else tensors) if t is not None), None)
    for i, number in enumerate(numbers):
        if number:
            condition = where and i == 0
            device = next((t.device for t in tensors if t is not None), None)
            dtype: DTypeName = "bool" if condition else "float32" if like is None else like.dtype
            value = bool(given[i]) if condition else _held(given[i], dtype)
            with entered(handle):  # with the handle entered, full() fills the tensor on the stream that reads it
                tensors[i] = _number(value, dtype, device)
    return tensors


def _number(value: float, dtype: DTypeName, device: str | None) -> DeviceTensor:
    """A tensor without dimensions. In a recording, it is a constant of the graph: nobody can change it."""
    if type(value) is float and _C.recording():
        return _C.recorded_number(value, dtype, current_device() if device is None else device)
    return full((), value, dtype=dtype, device=device)


def _held(value: Any, dtype: str) -> float:
    """The number as a value of the dtype. An integer dtype refuses a number that it would truncate or saturate."""
    number = value.item() if isinstance(value, np.generic) else value
    if dtype not in _RANGES:
        try:
            return float(number)
        except OverflowError:
            text = f"is an integer of {number.bit_length()} bits, which does not fit {dtype}"
            raise refusal(DTypeError, value, text) from None
    low, high = _RANGES[dtype]
    if not isinstance(number, int) or not low <= number <= high:
        raise refusal(
            DTypeError,
            value,
            f"is {short(number)}, and the other operand is {dtype}, which holds integers from {low} to {high}; "
            "cast the tensor with .to(dtype=...)",
        )
    return number


class _Unary(Protocol):
    def __call__(
        self, a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
    ) -> DeviceTensor: ...


class _Binary(Protocol):
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        algo: str | None = None,
        out: ArrayLike | None = None,
        handle: Handle | None = None,
    ) -> DeviceTensor: ...


class _Ternary(Protocol):
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike,
        *,
        algo: str | None = None,
        out: ArrayLike | None = None,
        handle: Handle | None = None,
    ) -> DeviceTensor: ...


def _named(name: str, dtypes: str, value: str, function: Any) -> Any:
    """`function` under the name of a pointwise function, with its documentation. `value` says what it computes."""
    function.__name__ = function.__qualname__ = name
    # Texts of errors take the name of the public function from its code object.
    function.__code__ = function.__code__.replace(co_name=name)
    function.__doc__ = f"{value}. {dtypes}; the rest as in pointwise()."
    return function


def _unary(name: Pointwise, dtypes: str, value: str) -> _Unary:
    def function(
        a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
    ) -> DeviceTensor:
        return _apply(name, a, None, None, algo, out, handle)

    return cast(_Unary, _named(name, dtypes, value, function))


def _binary(name: Pointwise, dtypes: str, value: str) -> _Binary:
    def function(
        a: ArrayLike,
        b: ArrayLike,
        *,
        algo: str | None = None,
        out: ArrayLike | None = None,
        handle: Handle | None = None,
    ) -> DeviceTensor:
        return _apply(name, a, b, None, algo, out, handle)

    return cast(_Binary, _named(name, dtypes, value, function))


def _ternary(name: Pointwise, dtypes: str, value: str) -> _Ternary:
    def function(
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike,
        *,
        algo: str | None = None,
        out: ArrayLike | None = None,
        handle: Handle | None = None,
    ) -> DeviceTensor:
        return _apply(name, a, b, c, algo, out, handle)

    return cast(_Ternary, _named(name, dtypes, value, function))


_FLOATING, _NUMERIC, _ANY = "Floating dtypes", "Floating dtypes and integers", "Any dtype"
_INTEGERS, _BITS = "Integers", "Integers and bool"

neg = _unary("neg", _NUMERIC, "-a")
abs = _unary("abs", _NUMERIC, "|a|")
sign = _unary("sign", _NUMERIC, "The sign of a: -1, 0 or 1; 0 for -0.0; NaN is kept")
bitwise_not = _unary("bitwise_not", _INTEGERS, "Every bit inverted: -1 - a")
square = _unary("square", _NUMERIC, "a^2")
reciprocal = _unary("reciprocal", _FLOATING, "1 / a")
sqrt = _unary("sqrt", _FLOATING, "The square root; NaN for a below 0")
rsqrt = _unary("rsqrt", _FLOATING, "1 / sqrt(a)")
floor = _unary("floor", _FLOATING, "The largest integer not above a")
ceil = _unary("ceil", _FLOATING, "The smallest integer not below a")
round = _unary("round", _FLOATING, "The nearest integer; halfway cases round to even")
trunc = _unary("trunc", _FLOATING, "a without its fraction: rounds towards zero")
exp = _unary("exp", _FLOATING, "e^a")
expm1 = _unary("expm1", _FLOATING, "e^a - 1, without cancellation near 0")
log = _unary("log", _FLOATING, "The natural logarithm")
log1p = _unary("log1p", _FLOATING, "log(1 + a), without cancellation near 0")
log2 = _unary("log2", _FLOATING, "The logarithm to base 2")
log10 = _unary("log10", _FLOATING, "The logarithm to base 10")
sin = _unary("sin", _FLOATING, "Sine of radians")
cos = _unary("cos", _FLOATING, "Cosine of radians")
tan = _unary("tan", _FLOATING, "Tangent of radians")
atan = _unary("atan", _FLOATING, "The angle in radians, between -pi/2 and pi/2, whose tangent is a")
asin = _unary("asin", _FLOATING, "The angle in radians, between -pi/2 and pi/2, whose sine is a; NaN beyond [-1, 1]")
acos = _unary("acos", _FLOATING, "The angle in radians, between 0 and pi, whose cosine is a; NaN beyond [-1, 1]")
sinh = _unary("sinh", _FLOATING, "The hyperbolic sine")
cosh = _unary("cosh", _FLOATING, "The hyperbolic cosine")
tanh = _unary("tanh", _FLOATING, "The hyperbolic tangent")
asinh = _unary("asinh", _FLOATING, "The inverse of the hyperbolic sine")
acosh = _unary("acosh", _FLOATING, "The inverse of the hyperbolic cosine; NaN below 1")
atanh = _unary("atanh", _FLOATING, "The inverse of the hyperbolic tangent; NaN beyond [-1, 1]")
erf = _unary("erf", _FLOATING, "2/sqrt(pi) times the integral of e^(-t^2) from 0 to a")
isnan = _unary("isnan", _FLOATING, "Whether a is NaN; bool")
isinf = _unary("isinf", _FLOATING, "Whether a is Inf or -Inf; bool")
isfinite = _unary("isfinite", _FLOATING, "Whether a is neither Inf nor NaN; bool")
signbit = _unary("signbit", _FLOATING, "Whether the sign bit of a is set, as in -0.0; bool")
logical_not = _unary("logical_not", _ANY, "Whether a is zero; bool")

add = _binary("add", _NUMERIC, "a + b")
sub = _binary("sub", _NUMERIC, "a - b")
mul = _binary("mul", _NUMERIC, "a b")
div = _binary("div", _FLOATING, "a / b")
minimum = _binary("minimum", _NUMERIC, "The smaller of a and b; NaN if a or b is NaN")
maximum = _binary("maximum", _NUMERIC, "The larger of a and b; NaN if a or b is NaN")
add_square = _binary("add_square", _NUMERIC, "a + b^2")
copysign = _binary("copysign", _FLOATING, "|a| with the sign of b")
bitwise_and = _binary("bitwise_and", _BITS, "The bits set in both a and b")
bitwise_or = _binary("bitwise_or", _BITS, "The bits set in a or b")
bitwise_xor = _binary("bitwise_xor", _BITS, "The bits set in exactly one of a and b")
left_shift = _binary(
    "left_shift", _INTEGERS, "a 2^b, by shifting bits; 0 if b is negative or at least the width of the dtype"
)
right_shift = _binary("right_shift", _INTEGERS, "floor(a / 2^b), by shifting bits; a negative b counts as a large one")
pow = _binary("pow", _NUMERIC, "a^b; for integers, a negative b gives 1 / a^-b without its fraction, and 0 if a is 0")
mod = _binary("mod", _NUMERIC, "a - b floor(a / b); 0 for integers if b is 0")
floor_div = _binary("floor_div", _NUMERIC, "floor(a / b) of the exact quotient; 0 for integers if b is 0")
hypot = _binary("hypot", _FLOATING, "sqrt(a^2 + b^2), without overflow")
logaddexp = _binary("logaddexp", _FLOATING, "log(e^a + e^b), without overflow")
atan2 = _binary("atan2", _FLOATING, "The angle of the point (b, a), in radians")
eq = _binary("eq", _ANY, "a == b; bool")
ne = _binary("ne", _ANY, "a != b; bool")
lt = _binary("lt", _ANY, "a < b; bool")
le = _binary("le", _ANY, "a <= b; bool")
gt = _binary("gt", _ANY, "a > b; bool")
ge = _binary("ge", _ANY, "a >= b; bool")
logical_and = _binary("logical_and", _ANY, "Whether a and b are both nonzero; bool")
logical_or = _binary("logical_or", _ANY, "Whether a or b is nonzero; bool")
logical_xor = _binary("logical_xor", _ANY, "Whether exactly one of a and b is nonzero; bool")

clamp = _ternary("clamp", _NUMERIC, "a limited to [b, c]: min(max(a, b), c)")
multiply_add = _ternary("multiply_add", _NUMERIC, "a b + c")
lerp = _ternary("lerp", _FLOATING, "a + c (b - a)")
where = _ternary("where", "a is bool, b and c any dtype", "b where a is true, else c")
