# SPDX-License-Identifier: Apache-2.0
"""Copies that scale, accumulate, cast, change layout, put together, pad or gather; and views of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, asarray, operands, output

PadMode = Literal["constant", "replicate", "reflect"]


def transform(
    x: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: Any = None,
    layout: str | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """alpha x + beta out: a copy that may scale, add to what is there, cast, broadcast or change layout.

    x        any shape, strides and dtype; broadcast to out's shape as NumPy does
    alpha    factor of x; other than 1 it needs floating dtypes
    beta     factor of out's old value, which is not read when beta is 0; needs `out` and floating dtypes
    dtype, layout  of the result when `out` is not given; None: x's own
    out      written instead of a new tensor; may be x itself when shape, strides and dtype agree
    algo, handle  as in activation_forward
    returns  the result, on x's device and the handle's stream (does not synchronise)

    Casts round to nearest even; real to integer truncates and saturates, NaN gives 0; anything to bool is "not zero".
    Scaling is computed in float32, float64 for a float64 result. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    (x,) = operands(handle, x, out=out)
    return _C.transform(x, alpha, beta, dtype, layout, algo or "", output(out, handle), handle)


def concat(
    tensors: Sequence[ArrayLike], axis: int = 0, *, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """The tensors one behind the other along a dimension, a copy each.

    tensors  at least one; of one dtype, device and shape but for `axis`, any strides
    axis     from -rank to rank - 1
    out      written instead of a new tensor; shares memory with none of them
    handle   as in transform
    returns  a new tensor in the layout of the first, on its device and the handle's stream (does not synchronise)

    Exact, any dtype. To spare the copies, let what makes the tensors write into parts of one, out of split().
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    return _C.concat(list(operands(handle, *tensors, out=out)), axis, output(out, handle), handle)


def pad(
    x: ArrayLike,
    widths: int | Sequence[int | tuple[int, int]],
    *,
    mode: PadMode = "constant",
    value: float = 0.0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """x with elements before and after it in each dimension.

    x        any shape, strides and dtype
    widths   at least 0: one for all, or for each dimension of x a number or a pair (before, after)
    mode     "constant": `value`. "replicate": the nearest element of x. "reflect": as if mirrors stood at the first
             and at the last element, which are not repeated; a width is less than the size
    value    cast to x's dtype as transform casts
    out      written instead of a new tensor; shares no memory with x
    algo, handle  as in transform
    returns  a new tensor in the layout of x, on its device and the handle's stream (does not synchronise)

    Exact. Corners are what padding one dimension after the other makes of them, in any order. Raises ShapeError,
    DTypeError, DeviceError, OutOfMemory.
    """
    (x,) = operands(handle, x, out=out)
    sides = [widths] * len(x.shape) if isinstance(widths, int) else widths
    pairs = [(w, w) if isinstance(w, int) else w for w in sides]
    return _C.pad(x, pairs, mode, value, algo or "", output(out, handle), handle)


def gather(
    x: ArrayLike,
    index: ArrayLike,
    *,
    axis: int = 0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The slices of x along `axis` that index names: NumPy's take, ONNX's Gather; for axis 0 an embedding.

    y[i..., j..., k...] = x[i..., index[j...], k...]

    x        at least one dimension, any strides and dtype
    index    int32 or int64, any shape and strides, on x's device; negative counts from the end
    axis     from -rank to rank - 1
    out      written instead of a new tensor; shares no memory with x or index
    algo, handle  as in transform
    returns  [i..., j..., k...], row-major, on x's device and the handle's stream (does not synchronise)

    Exact. An index beyond the axis is a ShapeError on the CPU, before anything is written; on a GPU, which would have
    to be waited for, its slice of the result is zero. Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    x, index = operands(handle, x, index, out=out)
    return _C.gather(x, index, axis, algo or "", output(out, handle), handle)


def gather_backward(
    dy: ArrayLike,
    index: ArrayLike,
    x_shape: Sequence[int],
    *,
    axis: int = 0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of gather(x, index, axis=axis): for each slice of x, the sum of dy's slices that came from it.

    dy       floating, of the shape of gather's result, any strides
    index, axis   as given to gather; on a GPU, what an index beyond the axis has in dy is dropped
    x_shape  the shape of gather's x
    out      written instead of a new tensor; shares no memory with dy or index
    algo, handle  as in transform
    returns  [*x_shape] of dy's dtype, row-major, on dy's device and the handle's stream (does not synchronise)

    Sums in float32, float64 for float64, in the order of the indices, rounded once. Deterministic: no atomics on
    floats. Slices that no index names are zero. Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    dy, index = operands(handle, dy, index, out=out)
    return _C.gather_backward(dy, index, list(x_shape), axis, algo or "", output(out, handle), handle)


def slice(x: ArrayLike, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None) -> DeviceTensor:
    """A view of x[start[0]:stop[0]:step[0], ...]; shares x's memory.

    start, stop  0 <= start <= stop <= size, for each dimension
    step         positive, for each dimension; None: 1

    Raises ShapeError.
    """
    t: DeviceTensor = asarray(x)
    steps = [1] * len(t.shape) if step is None else step
    if not len(start) == len(stop) == len(steps) == len(t.shape):
        raise _C.ShapeError(f"slice: x {list(t.shape)} needs start, stop and step of {len(t.shape)} numbers")
    for size, first, last, by in zip(t.shape, start, stop, steps, strict=True):
        if not 0 <= first <= last <= size or by < 1:
            raise _C.ShapeError(f"slice: {first}:{last}:{by} is no part of a dimension of {size}")
    shape = [-(-(last - first) // by) for first, last, by in zip(start, stop, steps, strict=True)]
    if 0 in shape:
        return t.as_strided(shape, t.strides)
    strides = [s * by for s, by in zip(t.strides, steps, strict=True)]
    return t.as_strided(shape, strides, sum(f * s for f, s in zip(start, t.strides, strict=True)))


def split(x: ArrayLike, sizes: int | Sequence[int], axis: int = 0) -> list[DeviceTensor]:
    """Views of x, one behind the other along a dimension; they share x's memory.

    sizes  of the parts; a number: so many equal parts
    axis   from -rank to rank - 1

    Raises ShapeError where the sizes do not add up to x's.
    """
    x = asarray(x)
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise _C.ShapeError(f"split: axis={axis} is no dimension of {list(x.shape)}")
    axis %= rank
    if isinstance(sizes, int):
        if sizes < 1 or x.shape[axis] % sizes:
            raise _C.ShapeError(f"split: {x.shape[axis]} elements do not make {sizes} equal parts")
        sizes = [x.shape[axis] // sizes] * sizes
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise _C.ShapeError(
            f"split: sizes {list(sizes)} do not add up to the {x.shape[axis]} elements of dimension {axis}"
        )
    parts, at = [], 0
    for size in sizes:
        start, stop = [0] * rank, list(x.shape)
        start[axis], stop[axis] = at, at + size
        parts.append(slice(x, start, stop))
        at += size
    return parts
