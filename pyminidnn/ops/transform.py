# SPDX-License-Identifier: Apache-2.0
"""Copies that scale, accumulate, cast, change layout, put together, pad or gather; and views of parts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

from .. import _C
from .._C import DeviceTensor, Handle
from ..refusals import MOST_ELEMENTS, short
from ..tensor import ArrayLike, asarray, elements, operands, output

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
    return _C.transform(x, alpha, beta, dtype, layout, algo, output(out, handle), handle)


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
    tensors = elements(tensors)
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
    return _C.pad(x, widths, mode, value, algo, output(out, handle), handle)


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
    return _C.gather(x, index, axis, algo, output(out, handle), handle)


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
    return _C.gather_backward(dy, index, x_shape, axis, algo, output(out, handle), handle)


def slice(x: ArrayLike, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None) -> DeviceTensor:
    """A view of x[start[0]:stop[0]:step[0], ...]; shares x's memory.

    start, stop  0 <= start <= stop <= size, for each dimension
    step         positive, for each dimension; None: 1

    Raises ShapeError.
    """
    t: DeviceTensor = asarray(x)
    starts, stops, steps = _C.integers(start), _C.integers(stop), [1] * t.ndim if step is None else _C.integers(step)
    if not len(starts) == len(stops) == len(steps) == t.ndim:
        raise _C.ShapeError(
            f"slice: start, stop and step must have {t.ndim} numbers each for x {list(t.shape)}; "
            f"got {len(starts)}, {len(stops)} and {len(steps)}"
        )
    for size, first, last, by in zip(t.shape, starts, stops, steps, strict=True):
        if not 0 <= first <= last <= size or by < 1:
            raise _C.ShapeError(
                f"slice: start and stop must be 0 <= start <= stop <= {size}, the size of their dimension, and step "
                f"must be positive; got {first}:{last}:{by}"
            )
    shape = [-(-(last - first) // by) for first, last, by in zip(starts, stops, steps, strict=True)]
    if 0 in shape:
        return t.as_strided(shape, t.strides)
    strides = [s * by for s, by in zip(t.strides, steps, strict=True)]
    return t.as_strided(shape, strides, sum(f * s for f, s in zip(starts, t.strides, strict=True)))


def split(x: ArrayLike, sizes: int | Sequence[int], axis: int = 0) -> list[DeviceTensor]:
    """Views of x, one behind the other along a dimension; they share x's memory.

    sizes  of the parts; a number: so many equal parts
    axis   from -rank to rank - 1

    Raises ShapeError where the sizes do not add up to x's.
    """
    x = asarray(x)
    rank, axis = x.ndim, _C.integer(axis)
    if not -rank <= axis < rank:
        raise _C.ShapeError(f"split: axis must be a dimension of x {list(x.shape)}; got {axis}")
    axis %= rank
    whole = x.shape[axis]
    try:
        count = operator.index(sizes)  # type: ignore[arg-type]
    except TypeError:
        each = _C.integers(sizes)
    else:
        if not 1 <= count <= MOST_ELEMENTS or whole % count:
            raise _C.ShapeError(f"split: sizes must be a number of equal parts of {whole} elements; got {short(count)}")
        each = [whole // count] * count
    if sum(each) != whole or min(each, default=0) < 0:
        raise _C.ShapeError(
            f"split: sizes must add up to the {whole} elements of dimension {axis} of x; got {short(sizes)}"
        )
    parts, at = [], 0
    for size in each:
        start, stop = [0] * rank, list(x.shape)
        start[axis], stop[axis] = at, at + size
        parts.append(slice(x, start, stop))
        at += size
    return parts
