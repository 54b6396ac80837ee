# SPDX-License-Identifier: Apache-2.0
"""New tensors: of one value, of a range, like another tensor, or stacked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _C
from ._C import DeviceTensor
from .conversion import ArrayLike, Size, asarray, current_device, elements, empty, full, joined
from .ops.transform import concat
from .options import DTypeLike, Layout
from .refusals import short


def zeros(
    shape: Size, *sizes: int, dtype: DTypeLike = "float32", layout: Layout | None = None, device: str | None = None
) -> DeviceTensor:
    """A tensor of zeros. Arguments and errors as in empty(): zeros(2, 3) is zeros((2, 3))."""
    return full(joined(shape, sizes), 0.0, dtype=dtype, layout=layout, device=device)


def ones(
    shape: Size, *sizes: int, dtype: DTypeLike = "float32", layout: Layout | None = None, device: str | None = None
) -> DeviceTensor:
    """A tensor of ones. Arguments and errors as in empty(): ones(2, 3) is ones((2, 3))."""
    return full(joined(shape, sizes), 1.0, dtype=dtype, layout=layout, device=device)


def empty_like(x: ArrayLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> DeviceTensor:
    """An uninitialised tensor with the shape and the layout of x, and its dtype and device unless given."""
    t = asarray(x)
    layout = t.layout if t.layout != "strided" else None
    return empty(
        t.shape, dtype=t.dtype if dtype is None else dtype, layout=layout, device=t.device if device is None else device
    )


def full_like(x: ArrayLike, value: float, *, dtype: DTypeLike | None = None, device: str | None = None) -> DeviceTensor:
    """A tensor whose elements are all `value`; the rest as in empty_like()."""
    t = asarray(x)
    layout = t.layout if t.layout != "strided" else None
    return full(
        t.shape,
        value,
        dtype=t.dtype if dtype is None else dtype,
        layout=layout,
        device=t.device if device is None else device,
    )


def zeros_like(x: ArrayLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> DeviceTensor:
    """A tensor of zeros; the rest as in empty_like()."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: ArrayLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> DeviceTensor:
    """A tensor of ones; the rest as in empty_like()."""
    return full_like(x, 1, dtype=dtype, device=device)


def array(
    obj: ArrayLike, *, dtype: DTypeLike | None = None, layout: Layout | None = None, device: str | None = None
) -> DeviceTensor:
    """A new tensor with the elements of `obj`: asarray() with copy=True."""
    return asarray(obj, dtype=dtype, layout=layout, device=device, copy=True)


def tensor(data: ArrayLike, *, dtype: DTypeLike | None = None, device: str | None = None) -> DeviceTensor:
    """array() by torch's name. Lists of floats are float64, as NumPy has them, where torch makes float32."""
    return array(data, dtype=dtype, device=device)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> DeviceTensor:
    """The numbers start, start + step, ... before `stop`; arange(stop) begins with 0.

    dtype  None: int64 if all numbers are ints, else float32

    The numbers are computed in float64 (ints in int64) on the host. Raises ShapeError if step is 0.
    """
    start, stop, step = _number(start), None if stop is None else _number(stop), _number(step)
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise _C.ShapeError("arange: step must not be 0")
    whole = all(isinstance(x, int) for x in (start, stop, step))
    if not all(map(math.isfinite, (start, stop, step))):
        raise _C.ShapeError(f"arange: start, stop and step must be finite; got {start}, {stop} and {step}")
    # The number of elements is (stop - start) / step, rounded up.
    count = max(0, -int(-(stop - start) // step))
    values = made_on_host(
        "arange: stop", count, lambda: start + np.arange(count, dtype="int64" if whole else "float64") * step
    )
    return _placed(values, ("int64" if whole else "float32") if dtype is None else dtype, device)


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: DTypeLike = "float32",
    device: str | None = None,
) -> DeviceTensor:
    """`num` numbers at equal distances from `start` to `stop`, which is the last one unless endpoint=False.

    The numbers are computed in float64 on the host, then cast.
    """
    first, last, count = _C.number(start), _C.number(stop), _C.integer(num)
    if count < 0:
        raise _C.ShapeError(f"linspace: num must be 0 or more; got {count}")
    if not isinstance(endpoint, (bool, np.bool_)):
        raise _C.DTypeError(f"linspace: endpoint must be True or False; got {short(endpoint)}")
    with np.errstate(all="ignore"):
        values = made_on_host("linspace: num", count, lambda: np.linspace(first, last, count, endpoint=bool(endpoint)))
    return _placed(values, dtype, device)


def eye(
    n: int, m: int | None = None, *, k: int = 0, dtype: DTypeLike = "float32", device: str | None = None
) -> DeviceTensor:
    """A matrix of n rows and m columns (None: n), with ones on diagonal k (above the main one if positive), else 0."""
    rows, diagonal = _C.integer(n), _C.integer(k)
    columns = rows if m is None else _C.integer(m)
    if rows < 0 or columns < 0:
        raise _C.ShapeError(f"eye: n and m must be 0 or more; got {rows} and {columns}")
    values = made_on_host("eye: n", rows * columns, lambda: np.eye(rows, columns, diagonal))
    return _placed(values, dtype, device)


def stack(tensors: Sequence[ArrayLike], axis: int = 0) -> DeviceTensor:
    """Tensors of one shape, dtype and device along a new dimension.

    axis  from -rank - 1 to rank

    Errors as in concat().
    """
    tensors = elements(tensors)
    arrays = [asarray(t) for t in tensors]
    shapes = [t.shape for t in arrays]
    if any(shape != shapes[0] for shape in shapes):
        raise _C.ShapeError(
            f"stack: tensors must have one shape; got {' and '.join(map(str, sorted(set(shapes))[:4]))}"
        )
    rank = len(shapes[0]) if shapes else 0
    if not -rank - 1 <= _C.integer(axis) <= rank:
        raise _C.ShapeError(f"stack: axis must be from {-rank - 1} to {rank}; got {axis}")
    return concat([t.unsqueeze(axis) for t in arrays], axis)


def device_count() -> int:
    """The number of CUDA GPUs; 0 without a driver."""
    return _C.cuda_device_count()


def _number(value: Any) -> int | float:
    """An int stays exact, and everything else becomes a float."""
    return _C.integer(int(value)) if isinstance(value, (int, np.integer)) else _C.number(value)


def made_on_host(argument: str, count: int, make: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The array of `count` elements that `make` returns."""
    try:
        return make()
    except (MemoryError, ValueError, OverflowError, IndexError) as error:
        raise _C.OutOfMemory(f"{argument} gives {count} elements, which do not fit the memory of the host") from error


def _placed(values: np.ndarray[Any, Any], dtype: DTypeLike, device: str | None) -> DeviceTensor:
    """The values on `device`, or on the device of the current handle."""
    return asarray(values, dtype=dtype, device=current_device() if device is None else device)
