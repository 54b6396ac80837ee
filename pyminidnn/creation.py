# SPDX-License-Identifier: Apache-2.0
"""New tensors: of one value, of a range, like another tensor, or stacked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _C
from ._C import DeviceTensor
from .ops.transform import concat
from .tensor import ArrayLike, Size, asarray, elements, empty, full


def ones(shape: Size, *, dtype: Any = "float32", layout: str | None = None, device: str | None = None) -> DeviceTensor:
    """A tensor of ones. Arguments and errors as in empty()."""
    return full(shape, 1.0, dtype=dtype, layout=layout, device=device)


def empty_like(x: ArrayLike, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """An uninitialised tensor with the shape and the layout of x, and its dtype and device unless given."""
    t = asarray(x)
    layout = t.layout if t.layout != "strided" else None
    return empty(t.shape, dtype=t.dtype if dtype is None else dtype, layout=layout, device=device or t.device)


def full_like(x: ArrayLike, value: float, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor whose elements are all `value`; the rest as in empty_like()."""
    t = asarray(x)
    layout = t.layout if t.layout != "strided" else None
    return full(t.shape, value, dtype=t.dtype if dtype is None else dtype, layout=layout, device=device or t.device)


def zeros_like(x: ArrayLike, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor of zeros; the rest as in empty_like()."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: ArrayLike, *, dtype: Any = None, device: str | None = None) -> DeviceTensor:
    """A tensor of ones; the rest as in empty_like()."""
    return full_like(x, 1, dtype=dtype, device=device)


def array(obj: ArrayLike, *, dtype: Any = None, layout: str | None = None, device: str | None = None) -> DeviceTensor:
    """A new tensor with the elements of `obj`: asarray() with copy=True."""
    return asarray(obj, dtype=dtype, layout=layout, device=device, copy=True)


def arange(
    start: float, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: str | None = None
) -> DeviceTensor:
    """The numbers start, start + step, ... before `stop`; arange(stop) begins with 0.

    dtype  None: int64 if all numbers are ints, else float32

    The numbers are computed in float64 (ints in int64) on the host. Raises ShapeError if step is 0.
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise _C.ShapeError("arange: step must not be 0")
    whole = all(isinstance(x, (int, np.integer)) for x in (start, stop, step))
    if dtype is None:
        dtype = "int64" if whole else "float32"
    count = max(0, math.ceil((stop - start) / step)) if not whole else len(range(int(start), int(stop), int(step)))
    values = start + np.arange(count) * step
    return asarray(np.asarray(values, "int64" if whole else "float64"), dtype=dtype, device=_device(device))


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: Any = "float32",
    device: str | None = None,
) -> DeviceTensor:
    """`num` numbers at equal distances from `start` to `stop`, which is the last one unless endpoint=False.

    The numbers are computed in float64 on the host, then cast.
    """
    return asarray(np.linspace(start, stop, _C.integer(num), endpoint=endpoint), dtype=dtype, device=_device(device))


def eye(n: int, m: int | None = None, *, k: int = 0, dtype: Any = "float32", device: str | None = None) -> DeviceTensor:
    """A matrix of n rows and m columns (None: n), with ones on diagonal k (above the main one if positive), else 0."""
    return asarray(
        np.eye(_C.integer(n), None if m is None else _C.integer(m), _C.integer(k)), dtype=dtype, device=_device(device)
    )


def stack(tensors: Sequence[ArrayLike], axis: int = 0) -> DeviceTensor:
    """Tensors of one shape, dtype and device along a new dimension.

    axis  from -rank - 1 to rank

    Errors as in concat().
    """
    return concat([asarray(t).unsqueeze(axis) for t in elements(tensors)], axis)


def device_count() -> int:
    """The number of CUDA GPUs; 0 without a driver."""
    return _C.cuda_device_count()


def _device(device: str | None) -> str | None:
    if device is not None:
        return device
    handle = _C.entered_handle()
    return handle.device if handle else None
