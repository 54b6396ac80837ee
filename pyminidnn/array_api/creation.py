# SPDX-License-Identifier: Apache-2.0
"""New tensors by the array API. dtype=None is float32 for floats and int64 for integers."""

from __future__ import annotations

import operator
from builtins import bool as _bool
from collections.abc import Callable
from typing import Any, Literal

import pyminidnn as dnn

from .. import _C
from .._C import DeviceTensor, DTypeError, ShapeError
from ..conversion import Size, current_device
from ..refusals import short
from .data_types import DEFAULT_FLOAT, DEFAULT_INTEGER
from .elementwise import where
from .manipulation import broadcast_to


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: _bool | None = None) -> DeviceTensor:
    """A tensor with the elements of `obj`; it shares the memory of `obj` unless a copy is needed.

    obj     a tensor, an array with DLPack or a buffer, a Python number, or nested sequences of numbers
    dtype   None: that of an array. Of Python numbers: bool, int64 or float32
    device  None: that of an array, else that of the current handle
    copy    None: copy only if needed; True: always; False: never, ShapeError (a ValueError) if a copy is needed

    Raises DTypeError, ShapeError, DeviceError.
    """
    if not isinstance(obj, (bool, int, float, list, tuple)):
        if copy is False:
            return _uncopied(obj, dtype, device)
        return dnn.asarray(obj, dtype=dtype, device=device, copy=copy)
    if copy is False:
        raise ShapeError(f"asarray: obj {short(obj)} is no array, so it needs a copy, which copy=False forbids")
    device = current_device() if device is None else device
    t = dnn.asarray(obj, dtype=dtype, device=device)
    return t.to(dtype=DEFAULT_FLOAT) if dtype is None and t.dtype == "float64" else t


def _uncopied(obj: Any, dtype: Any, device: str | None) -> DeviceTensor:
    try:
        return dnn.asarray(obj, dtype=dtype, device=device, copy=False)
    except dnn.DeviceError as error:
        raise ShapeError(str(error)) from None


def from_dlpack(x: Any, /, *, device: str | None = None, copy: _bool | None = None) -> DeviceTensor:
    """A tensor made from x by DLPack. Arguments and errors as in pyminidnn.from_dlpack()."""
    return dnn.from_dlpack(x, device=device, copy=copy)


def empty(shape: Size, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """An uninitialised tensor."""
    return dnn.empty(shape, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def zeros(shape: Size, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor of zeros."""
    return dnn.zeros(shape, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def ones(shape: Size, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor of ones."""
    return dnn.ones(shape, dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device)


def full(shape: Size, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor whose elements are all `fill_value`; dtype=None: bool, int64 or float32, as the value is."""
    if dtype is None:
        kind = type(fill_value)
        dtype = "bool" if kind is bool else DEFAULT_INTEGER if isinstance(fill_value, int) else DEFAULT_FLOAT
    return dnn.full(shape, fill_value, dtype=dtype, device=device)


def empty_like(x: DeviceTensor, /, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """An uninitialised tensor with the shape of x, and its dtype and device unless given."""
    return dnn.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: DeviceTensor, /, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor of zeros with the shape of x, and its dtype and device unless given."""
    return dnn.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: DeviceTensor, /, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor of ones with the shape of x, and its dtype and device unless given."""
    return dnn.ones_like(x, dtype=dtype, device=device)


def full_like(x: DeviceTensor, /, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor with the shape of x whose elements are `fill_value`, with the dtype and device of x unless given."""
    return dnn.full_like(x, fill_value, dtype=dtype, device=device)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: str | None = None
) -> DeviceTensor:
    """The numbers start, start + step, ... before `stop`; arange(stop) begins with 0. Computed on the host."""
    return dnn.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: str | None = None, endpoint: _bool = True
) -> DeviceTensor:
    """`num` numbers at equal distances from `start` to `stop`, without the last if not endpoint. On the host."""
    dtype = DEFAULT_FLOAT if dtype is None else dtype
    return dnn.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> DeviceTensor:
    """A matrix with ones on diagonal k (above the main one if positive), else zeros. Computed on the host."""
    rows = _C.integer(n_rows)
    columns = rows if n_cols is None else _C.integer(n_cols)
    return dnn.eye(
        rows, columns, k=_diagonal(k, rows, columns), dtype=DEFAULT_FLOAT if dtype is None else dtype, device=device
    )


def _diagonal(k: int, rows: int, columns: int) -> int:
    """The diagonal k, or the nearest one outside a matrix, since k may be any int."""
    try:
        return max(-rows, min(operator.index(k), columns))
    except TypeError:
        raise DTypeError(f"k must be an int; got {short(k)}") from None


def meshgrid(*arrays: DeviceTensor, indexing: Literal["xy", "ij"] = "xy") -> list[DeviceTensor]:
    """The coordinates of a grid: for each one-dimensional tensor, a tensor of the shape of the grid.

    indexing  "ij": dimension i of the grid belongs to tensor i; "xy": the first two are swapped
    """
    if not isinstance(indexing, str) or indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: indexing must be 'xy' or 'ij'; got {short(indexing)}")
    tensors = [dnn.asarray(a) for a in arrays]
    if any(t.ndim != 1 for t in tensors):
        raise ShapeError(f"meshgrid: arrays must have one dimension; got {[list(t.shape) for t in tensors]}")
    rank = len(tensors)
    swapped = indexing == "xy" and rank > 1
    places = [1, 0, *range(2, rank)] if swapped else list(range(rank))
    shape = [0] * rank
    for t, place in zip(tensors, places, strict=True):
        shape[place] = t.shape[0]
    views = [
        t.reshape([t.shape[0] if i == place else 1 for i in range(rank)])
        for t, place in zip(tensors, places, strict=True)
    ]
    return [broadcast_to(v, tuple(shape)).to(copy=True) for v in views]


def tril(x: DeviceTensor, /, *, k: int = 0) -> DeviceTensor:
    """The matrices of x with zeros above diagonal k. Errors: ShapeError if x has less than two dimensions."""
    return _triangle("tril", x, k, operator.le)


def triu(x: DeviceTensor, /, *, k: int = 0) -> DeviceTensor:
    """The matrices of x with zeros below diagonal k. Errors: ShapeError if x has less than two dimensions."""
    return _triangle("triu", x, k, operator.ge)


def _triangle(name: str, x: DeviceTensor, k: int, kept: Callable[[Any, Any], Any]) -> DeviceTensor:
    t = dnn.asarray(x)
    if t.ndim < 2:
        raise ShapeError(f"{name}: x must have two dimensions or more; it has {t.ndim}")
    rows, columns = (dnn.arange(n, device=t.device) for n in t.shape[-2:])
    chosen = kept(columns, rows[:, None] + _diagonal(k, *t.shape[-2:]))
    return where(chosen, t, dnn.zeros((), dtype=t.dtype, device=t.device))
