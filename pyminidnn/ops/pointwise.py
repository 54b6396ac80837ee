# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions of one, two or three tensors, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _C
from .._C import DeviceTensor, DTypeError, Handle
from ..refusals import refusal, short
from ..tensor import ArrayLike, entered, full, operands, output

_NUMBERS = {bool, int, float, *(np.dtype(c).type for c in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?")}
_RANGES = {"bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1),
           "int64": (-(2**63), 2**63 - 1)}  # fmt: skip


def pointwise(
    op: str,
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
    a, b, c = _tensors(op, handle, out, a, b, c)
    return _C.pointwise(op, a, b, c, algo, output(out, handle), handle)


def _tensors(
    op: str, handle: Handle | None, out: ArrayLike | None, *given: ArrayLike | None
) -> list[DeviceTensor | None]:
    """The operands as tensors. A number becomes a tensor without dimensions, with dtype and device of the others."""
    numbers = [type(x) in _NUMBERS for x in given]
    if not any(numbers):
        return list(operands(handle, *given, out=out))
    tensors = list(operands(handle, *(None if n else x for x, n in zip(given, numbers, strict=True)), out=out))
    where = isinstance(op, str) and op == "where"  # the dtype of its condition is not that of the other operands
    like = next((t for t in (tensors[1:] if where else tensors) if t is not None), None)
    for i, number in enumerate(numbers):
        if number:
            condition = where and i == 0
            device = next((t.device for t in tensors if t is not None), None)
            dtype = "bool" if condition else "float32" if like is None else like.dtype
            value = bool(given[i]) if condition else _held(given[i], dtype)
            with entered(handle):  # filled on the stream that reads it
                tensors[i] = full((), value, dtype=dtype, device=device)
    return tensors


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


def neg(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """-a. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("neg", a, algo=algo, out=out, handle=handle)


def abs(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """|a|. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("abs", a, algo=algo, out=out, handle=handle)


def sign(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The sign of a: -1, 0 or 1; NaN and zeros are kept. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("sign", a, algo=algo, out=out, handle=handle)


def square(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a^2. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("square", a, algo=algo, out=out, handle=handle)


def reciprocal(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """1 / a. Floating dtypes; the rest as in pointwise()."""
    return pointwise("reciprocal", a, algo=algo, out=out, handle=handle)


def sqrt(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The square root; NaN for a below 0. Floating dtypes; the rest as in pointwise()."""
    return pointwise("sqrt", a, algo=algo, out=out, handle=handle)


def rsqrt(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """1 / sqrt(a). Floating dtypes; the rest as in pointwise()."""
    return pointwise("rsqrt", a, algo=algo, out=out, handle=handle)


def floor(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The largest integer not above a. Floating dtypes; the rest as in pointwise()."""
    return pointwise("floor", a, algo=algo, out=out, handle=handle)


def ceil(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The smallest integer not below a. Floating dtypes; the rest as in pointwise()."""
    return pointwise("ceil", a, algo=algo, out=out, handle=handle)


def round(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The nearest integer; halfway cases round to even. Floating dtypes; the rest as in pointwise()."""
    return pointwise("round", a, algo=algo, out=out, handle=handle)


def trunc(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a without its fraction: rounds towards zero. Floating dtypes; the rest as in pointwise()."""
    return pointwise("trunc", a, algo=algo, out=out, handle=handle)


def exp(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """e^a. Floating dtypes; the rest as in pointwise()."""
    return pointwise("exp", a, algo=algo, out=out, handle=handle)


def expm1(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """e^a - 1, without cancellation near 0. Floating dtypes; the rest as in pointwise()."""
    return pointwise("expm1", a, algo=algo, out=out, handle=handle)


def log(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The natural logarithm. Floating dtypes; the rest as in pointwise()."""
    return pointwise("log", a, algo=algo, out=out, handle=handle)


def log1p(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """log(1 + a), without cancellation near 0. Floating dtypes; the rest as in pointwise()."""
    return pointwise("log1p", a, algo=algo, out=out, handle=handle)


def log2(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The logarithm to base 2. Floating dtypes; the rest as in pointwise()."""
    return pointwise("log2", a, algo=algo, out=out, handle=handle)


def sin(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Sine of radians. Floating dtypes; the rest as in pointwise()."""
    return pointwise("sin", a, algo=algo, out=out, handle=handle)


def cos(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Cosine of radians. Floating dtypes; the rest as in pointwise()."""
    return pointwise("cos", a, algo=algo, out=out, handle=handle)


def tan(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Tangent of radians. Floating dtypes; the rest as in pointwise()."""
    return pointwise("tan", a, algo=algo, out=out, handle=handle)


def atan(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The angle in radians, between -pi/2 and pi/2, whose tangent is a. Floating dtypes; the rest as in pointwise()."""
    return pointwise("atan", a, algo=algo, out=out, handle=handle)


def tanh(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The hyperbolic tangent. Floating dtypes; the rest as in pointwise()."""
    return pointwise("tanh", a, algo=algo, out=out, handle=handle)


def erf(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """2/sqrt(pi) times the integral of e^(-t^2) from 0 to a. Floating dtypes; the rest as in pointwise()."""
    return pointwise("erf", a, algo=algo, out=out, handle=handle)


def isnan(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether a is NaN; bool. Floating dtypes; the rest as in pointwise()."""
    return pointwise("isnan", a, algo=algo, out=out, handle=handle)


def isinf(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether a is Inf or -Inf; bool. Floating dtypes; the rest as in pointwise()."""
    return pointwise("isinf", a, algo=algo, out=out, handle=handle)


def isfinite(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether a is neither Inf nor NaN; bool. Floating dtypes; the rest as in pointwise()."""
    return pointwise("isfinite", a, algo=algo, out=out, handle=handle)


def logical_not(
    a: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether a is zero; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("logical_not", a, algo=algo, out=out, handle=handle)


def add(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a + b. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("add", a, b, algo=algo, out=out, handle=handle)


def sub(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a - b. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("sub", a, b, algo=algo, out=out, handle=handle)


def mul(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a b. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("mul", a, b, algo=algo, out=out, handle=handle)


def div(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a / b. Floating dtypes; the rest as in pointwise()."""
    return pointwise("div", a, b, algo=algo, out=out, handle=handle)


def minimum(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The smaller of a and b; NaN if a or b is NaN. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("minimum", a, b, algo=algo, out=out, handle=handle)


def maximum(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The larger of a and b; NaN if a or b is NaN. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("maximum", a, b, algo=algo, out=out, handle=handle)


def add_square(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a + b^2. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("add_square", a, b, algo=algo, out=out, handle=handle)


def pow(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a^b. Floating dtypes; the rest as in pointwise()."""
    return pointwise("pow", a, b, algo=algo, out=out, handle=handle)


def mod(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a - b floor(a / b); 0 for integers if b is 0. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("mod", a, b, algo=algo, out=out, handle=handle)


def atan2(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The angle of the point (b, a), in radians. Floating dtypes; the rest as in pointwise()."""
    return pointwise("atan2", a, b, algo=algo, out=out, handle=handle)


def eq(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a == b; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("eq", a, b, algo=algo, out=out, handle=handle)


def ne(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a != b; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("ne", a, b, algo=algo, out=out, handle=handle)


def lt(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a < b; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("lt", a, b, algo=algo, out=out, handle=handle)


def le(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a <= b; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("le", a, b, algo=algo, out=out, handle=handle)


def gt(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a > b; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("gt", a, b, algo=algo, out=out, handle=handle)


def ge(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """a >= b; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("ge", a, b, algo=algo, out=out, handle=handle)


def logical_and(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether a and b are both nonzero; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("logical_and", a, b, algo=algo, out=out, handle=handle)


def logical_or(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether a or b is nonzero; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("logical_or", a, b, algo=algo, out=out, handle=handle)


def logical_xor(
    a: ArrayLike, b: ArrayLike, *, algo: str | None = None, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Whether exactly one of a and b is nonzero; bool. Any dtype; the rest as in pointwise()."""
    return pointwise("logical_xor", a, b, algo=algo, out=out, handle=handle)


def clamp(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """a limited to [b, c]: min(max(a, b), c). Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("clamp", a, b, c, algo=algo, out=out, handle=handle)


def multiply_add(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """a b + c. Floating dtypes and integers; the rest as in pointwise()."""
    return pointwise("multiply_add", a, b, c, algo=algo, out=out, handle=handle)


def lerp(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """a + c (b - a). Floating dtypes; the rest as in pointwise()."""
    return pointwise("lerp", a, b, c, algo=algo, out=out, handle=handle)


def where(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """b where a is true, else c. a is bool, b and c any dtype; the rest as in pointwise()."""
    return pointwise("where", a, b, c, algo=algo, out=out, handle=handle)
