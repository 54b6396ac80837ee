# SPDX-License-Identifier: Apache-2.0
"""Reductions, scans and searches by the array API."""

from __future__ import annotations

import math
from builtins import bool as _bool
from builtins import max as _max
from builtins import min as _min
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from .. import _C
from .._C import DeviceTensor, DTypeError, ShapeError
from ..conversion import asarray
from ..ops.gather import gather
from ..ops.pointwise import pointwise
from ..ops.reduce import reduce
from ..ops.transform import concat, transform
from ..options import DTypeLike, Pointwise, ReduceMode
from ..refusals import short
from .data_types import FLOATING, INTEGRAL, dtype_of, flag, result_type
from .elementwise import where
from .manipulation import along, axes_of, axis_of

_Axis: TypeAlias = "int | Sequence[int] | None"


def max(x: DeviceTensor, /, *, axis: _Axis = None, keepdims: _bool = False) -> DeviceTensor:
    """The largest element along `axis` (None: all dimensions); NaN if an element is NaN."""
    return reduce(x, "max", axis=axis, keepdims=keepdims)


def min(x: DeviceTensor, /, *, axis: _Axis = None, keepdims: _bool = False) -> DeviceTensor:
    """The smallest element along `axis` (None: all dimensions); NaN if an element is NaN."""
    return reduce(x, "min", axis=axis, keepdims=keepdims)


def sum(x: DeviceTensor, /, *, axis: _Axis = None, dtype: Any = None, keepdims: _bool = False) -> DeviceTensor:
    """The sum along `axis` (None: all dimensions).

    dtype  of the sum and of the additions; None: that of x, but int64 for integers
    """
    return _accumulated("sum", x, axis, dtype, keepdims)


def prod(x: DeviceTensor, /, *, axis: _Axis = None, dtype: Any = None, keepdims: _bool = False) -> DeviceTensor:
    """The product along `axis` (None: all dimensions); dtype as in sum()."""
    return _accumulated("prod", x, axis, dtype, keepdims)


def _accumulated(mode: ReduceMode, x: DeviceTensor, axis: _Axis, dtype: Any, keepdims: _bool) -> DeviceTensor:
    if dtype is None:
        return reduce(x, mode, axis=axis, keepdims=keepdims)
    dtype = dtype_of(dtype)
    t = asarray(x)
    # Integers are added in int64, whose low bits are the sum in a narrower dtype.
    t = t.to(dtype=dtype if dtype in FLOATING or t.dtype in FLOATING else "int64")
    return reduce(t, mode, axis=axis, keepdims=keepdims).to(dtype=dtype)


def mean(x: DeviceTensor, /, *, axis: _Axis = None, keepdims: _bool = False) -> DeviceTensor:
    """The mean along `axis` (None: all dimensions); of integers in float32; NaN of no elements."""
    return reduce(x, "mean", axis=axis, keepdims=keepdims)


def var(x: DeviceTensor, /, *, axis: _Axis = None, correction: float = 0.0, keepdims: _bool = False) -> DeviceTensor:
    """The variance along `axis` (None: all): the sum of squared differences from the mean, over n - correction.

    n is the number of elements. Computed in two passes, in float32 for 16-bit dtypes and float64 for integers, whose
    result is float32. n <= correction gives NaN or an infinity.
    """
    t = asarray(x)
    axes = axes_of("var", axis, t.ndim)
    count = math.prod(t.shape[a] for a in axes) - _C.number(correction)
    result: DTypeLike = "float32" if t.dtype not in FLOATING else t.dtype
    t = t.to(dtype="float64" if t.dtype not in FLOATING else "float32" if t.dtype.itemsize == 2 else t.dtype)
    deviation = t - reduce(t, "mean", axis=axes, keepdims=True)
    total = reduce(deviation, "sumsq", axis=axes, keepdims=keepdims)
    variance: DeviceTensor = total / _max(count, 0.0)
    return variance.to(dtype=result)


def std(x: DeviceTensor, /, *, axis: _Axis = None, correction: float = 0.0, keepdims: _bool = False) -> DeviceTensor:
    """The standard deviation along `axis` (None: all dimensions): the square root of var()."""
    return pointwise("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x: DeviceTensor, /, *, axis: _Axis = None, keepdims: _bool = False) -> DeviceTensor:
    """Whether all elements along `axis` (None: all dimensions) are nonzero; NaN is."""
    return reduce(x, "all", axis=axis, keepdims=keepdims)


def any(x: DeviceTensor, /, *, axis: _Axis = None, keepdims: _bool = False) -> DeviceTensor:
    """Whether an element along `axis` (None: all dimensions) is nonzero; NaN is."""
    return reduce(x, "any", axis=axis, keepdims=keepdims)


def argmax(x: DeviceTensor, /, *, axis: int | None = None, keepdims: _bool = False) -> DeviceTensor:
    """The int64 index of the first largest element, or NaN, along `axis` (None: in row-major order)."""
    return reduce(x, "argmax", axis=axis, keepdims=keepdims)


def argmin(x: DeviceTensor, /, *, axis: int | None = None, keepdims: _bool = False) -> DeviceTensor:
    """The int64 index of the first smallest element, or NaN, along `axis` (None: in row-major order)."""
    return reduce(x, "argmin", axis=axis, keepdims=keepdims)


def count_nonzero(x: DeviceTensor, /, *, axis: _Axis = None, keepdims: _bool = False) -> DeviceTensor:
    """How many elements along `axis` (None: all dimensions) are nonzero; int64."""
    return reduce(asarray(x).to(dtype="bool"), "sum", axis=axis, keepdims=keepdims)


def nonzero(x: DeviceTensor, /) -> tuple[DeviceTensor, ...]:
    """The int64 indices of the nonzero elements, in row-major order: a tensor for each dimension.

    Computed by NumPy on the host, because their number depends on the values: waits for a GPU.
    """
    t = asarray(x)
    if t.ndim == 0:
        raise ShapeError("nonzero: x must have a dimension")
    return tuple(asarray(i, device=t.device) for i in np.nonzero(t.to(dtype="bool").numpy()))


def cumulative_sum(
    x: DeviceTensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: _bool = False
) -> DeviceTensor:
    """The sums of the elements up to each one along `axis`. None is for one dimension only.

    dtype            as in sum()
    include_initial  puts a zero in front

    There is no kernel for it: log2(n) additions of whole tensors compute it on any device. So n numbers are added in a
    tree, with a small error; 16-bit numbers in float32. Deterministic.
    """
    return _scan("cumulative_sum", "add", x, axis, dtype, include_initial)


def cumulative_prod(
    x: DeviceTensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: _bool = False
) -> DeviceTensor:
    """The products of the elements up to each one along `axis`, as in cumulative_sum(). The initial one is 1."""
    return _scan("cumulative_prod", "mul", x, axis, dtype, include_initial)


def _scan(
    call: str, op: Pointwise, x: DeviceTensor, axis: int | None, dtype: Any, include_initial: _bool
) -> DeviceTensor:
    t = asarray(x)
    if t.ndim == 0 or (axis is None and t.ndim != 1):
        raise ShapeError(f"{call}: x must have one dimension, or axis must be given; x has {t.ndim}")
    at = axis_of(call, 0 if axis is None else axis, t.ndim)
    dtype = dtype_of(dtype) if dtype is not None else t.dtype if t.dtype in FLOATING else "int64"
    narrow = dtype in FLOATING and dtype_of(dtype).itemsize == 2
    t = t.to(dtype="float32" if narrow else "int64" if dtype in INTEGRAL and t.dtype not in FLOATING else dtype)
    shift = 1
    while shift < t.shape[at]:
        # Each element is the total of the last `shift` elements. Each iteration doubles `shift`.
        longer = _C.DeviceTensor(t.shape, dtype=t.dtype, device=t.device)
        transform(t[along(at, slice(shift))], out=longer[along(at, slice(shift))])
        late, early = t[along(at, slice(shift, None))], t[along(at, slice(-shift))]
        pointwise(op, late, early, out=longer[along(at, slice(shift, None))])
        t = longer
        shift *= 2
    if flag("include_initial", include_initial):
        initial = _C.full(
            (*t.shape[:at], 1, *t.shape[at + 1 :]), 0 if op == "add" else 1, dtype=t.dtype, device=t.device
        )
        t = concat([initial, t], at)
    return t.to(dtype=dtype, copy=t.data_ptr == asarray(x).data_ptr)


def diff(
    x: DeviceTensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: DeviceTensor | None = None,
    append: DeviceTensor | None = None,
) -> DeviceTensor:
    """The differences of neighbours along `axis`, n times. `prepend` and `append` are put before and behind x first."""
    t = asarray(x)
    at = axis_of("diff", axis, t.ndim)
    if _C.integer(n) < 0:
        raise ShapeError(f"diff: n must be 0 or more; got {n}")
    parts = [asarray(p) for p in (prepend, t, append) if p is not None]
    if len(parts) > 1:
        dtype = result_type(*parts)
        t = concat([p.to(dtype=dtype) for p in parts], at)
    for _ in range(_min(n, t.shape[at])):  # more differences of nothing are nothing
        t = t[along(at, slice(1, None))] - t[along(at, slice(-1))]
    return +t if n == 0 else t


def searchsorted(
    x1: DeviceTensor,
    x2: DeviceTensor,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: DeviceTensor | None = None,
) -> DeviceTensor:
    """For each element of x2, the int64 index before which it can be put into x1 so that x1 stays in ascending order.

    side    "left": before equal elements of x1, "right": behind them
    sorter  integers that sort x1, which has one dimension; None: x1 is sorted

    There is no kernel for it: a binary search by gather() and comparisons computes it on any device.
    """
    if not isinstance(side, str) or side not in ("left", "right"):
        raise ShapeError(f"searchsorted: side must be 'left' or 'right'; got {short(side)}")
    ordered, values = asarray(x1), asarray(x2)
    if ordered.ndim != 1:
        raise ShapeError(f"searchsorted: x1 must have one dimension; it has {ordered.ndim}")
    dtype = result_type(ordered, values)
    if dtype == "bool":
        raise DTypeError("searchsorted: x1 and x2 must have a numeric dtype; got bool")
    if sorter is not None:
        order = asarray(sorter)
        if order.shape != ordered.shape:
            raise ShapeError(
                f"searchsorted: sorter must have the shape of x1, {list(ordered.shape)}; got {list(order.shape)}"
            )
        ordered = gather(ordered, order)
    ordered, values = ordered.to(dtype=dtype), values.to(dtype=dtype)
    size = ordered.shape[0]
    found = _C.full(values.shape, 0, dtype="int64", device=values.device)
    step = 1 << size.bit_length() >> 1
    while step:
        # A binary search: `found` is increased by `step` if the element at found + step - 1 is before the place of the
        # value.
        last = pointwise("minimum", found + (step - 1), size - 1)
        element = gather(ordered, last)
        before = element < values if side == "left" else element <= values
        found = where(before & (found + step <= size), found + step, found)
        step //= 2
    return found
