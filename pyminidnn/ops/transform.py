# SPDX-License-Identifier: Apache-2.0
"""Copies that scale, accumulate, cast, change layout or concatenate; and views of slices."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, asarray, elements, operands, output
from ..options import DTypeLike, Layout
from ..refusals import MOST_ELEMENTS, short


def transform(
    x: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """alpha x + beta out: a copy that may scale, accumulate, cast, broadcast or change the layout.

    x        any shape, strides and dtype; broadcast to out's shape as in NumPy
    alpha    factor of x; a value other than 1 needs floating dtypes
    beta     factor of out's old value; a value other than 0 needs `out` and floating dtypes; with 0, `out` is not read
    dtype, layout  of a new result; None: those of x. With `out`, they are those of `out`
    out      receives the result instead of a new tensor; may be x itself if shape, strides and dtype are equal
    algo, handle  as in activation_forward
    returns  the result, on x's device and the handle's stream (does not synchronise)

    A cast between floating dtypes rounds to nearest even. A cast to an integer truncates and saturates a float, with
    NaN giving 0, and keeps the low bits of a wider integer. A cast to bool tests for nonzero. Scaling is computed in
    float32 (float64 for a float64 result). Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    (x,) = operands(handle, x, out=out)
    return _C.transform(x, alpha, beta, dtype, layout, algo, output(out, handle), handle)


def concat(
    tensors: Sequence[ArrayLike], axis: int = 0, *, out: ArrayLike | None = None, handle: Handle | None = None
) -> DeviceTensor:
    """Concatenates tensors along a dimension, with one copy per tensor.

    tensors  at least one; equal dtype, device and shape except along `axis`; any strides
    axis     from -rank to rank - 1
    out      receives the result instead of a new tensor; shares no memory with the tensors
    handle   as in transform
    returns  a tensor in the layout of the first one, on its device and the handle's stream (does not synchronise)

    Exact, any dtype. To avoid the copies, pass views made by split() as `out` to the functions that make the tensors.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    tensors = elements(tensors)
    return _C.concat(list(operands(handle, *tensors, out=out)), axis, output(out, handle), handle)


def slice(x: ArrayLike, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None) -> DeviceTensor:
    """A view of x[start[0]:stop[0]:step[0], ...], which shares x's memory.

    start, stop  a number for each dimension, 0 <= start <= stop <= size
    step         a positive number for each dimension; None: 1

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
    """Divides x along a dimension into views, which share x's memory.

    sizes  the sizes of the views along `axis`; a number n: n views of equal size
    axis   from -rank to rank - 1

    Raises ShapeError if the sizes do not add up to the size of x.
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
