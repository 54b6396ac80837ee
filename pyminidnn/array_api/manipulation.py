# SPDX-License-Identifier: Apache-2.0
"""Shapes, joining, repeating and selecting of elements by the array API. Views are returned where strides allow."""

from __future__ import annotations

import math
from builtins import bool as _bool
from collections.abc import Sequence
from typing import Any

import numpy as np

import pyminidnn as dnn

from .. import _C
from .._C import DeviceTensor, IndexingError, ShapeError
from ..conversion import asarray, elements
from ..creation import made_on_host
from ..ops.gather import gather
from ..refusals import short
from .data_types import flag, result_type
from .elementwise import where


def axes_of(call: str, axis: Any, rank: int) -> tuple[int, ...]:
    """The dimensions that `axis`, a number, several or None for all, names: from 0, each once. Raises IndexingError."""
    if axis is None:
        return tuple(range(rank))
    given = _C.integers(axis)
    found = tuple(a + rank if a < 0 else a for a in given)
    if any(not 0 <= a < rank for a in found) or len(set(found)) < len(found):
        raise IndexingError(f"{call}: axis must name different dimensions of {rank}; got {short(axis)}")
    return found


def axis_of(call: str, axis: int, rank: int) -> int:
    """The dimension that `axis` names, from 0. Raises IndexingError."""
    return axes_of(call, _C.integer(axis), rank)[0]


def along(axis: int, part: int | slice) -> tuple[int | slice, ...]:
    """The key that indexes dimension `axis`, which counts from 0."""
    return (slice(None),) * axis + (part,)


def broadcast_to(x: DeviceTensor, /, shape: Sequence[int]) -> DeviceTensor:
    """A view of x with another shape, in which dimensions of one element are repeated and others put in front."""
    t = asarray(x)
    sizes = tuple(_C.integers(shape))
    lead = len(sizes) - t.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(t.shape, sizes[max(lead, 0) :], strict=False)):
        raise ShapeError(f"broadcast_to: x {list(t.shape)} does not broadcast to shape {list(sizes)}")
    strides = [0 if n != m else s for n, m, s in zip(t.shape, sizes[lead:], t.strides, strict=True)]
    return t.as_strided(sizes, (*(0,) * lead, *strides))


def broadcast_arrays(*arrays: DeviceTensor) -> list[DeviceTensor]:
    """Views of the tensors with the shape that they broadcast to."""
    tensors = [asarray(a) for a in arrays]
    try:
        shape = np.broadcast_shapes(*(t.shape for t in tensors))
    except ValueError:
        shapes = " and ".join(str(list(t.shape)) for t in tensors)
        raise ShapeError(f"broadcast_arrays: arrays must broadcast to one shape; got {shapes}") from None
    return [broadcast_to(t, shape) for t in tensors]


def concat(arrays: Sequence[DeviceTensor], /, *, axis: int | None = 0) -> DeviceTensor:
    """The tensors one after the other along `axis` (None: flattened), in the dtype that they promote to."""
    tensors = _of_one_dtype(arrays)
    return dnn.concat([t.ravel() for t in tensors], 0) if axis is None else dnn.concat(tensors, axis)


def stack(arrays: Sequence[DeviceTensor], /, *, axis: int = 0) -> DeviceTensor:
    """The tensors along a new dimension `axis`, in the dtype that they promote to."""
    return dnn.stack(_of_one_dtype(arrays), axis)


def unstack(x: DeviceTensor, /, *, axis: int = 0) -> tuple[DeviceTensor, ...]:
    """Views of the slices of x along `axis`."""
    t = asarray(x)
    at = axis_of("unstack", axis, t.ndim)
    return tuple(t[along(at, i)] for i in range(t.shape[at]))


def expand_dims(x: DeviceTensor, /, axis: int) -> DeviceTensor:
    """A view of x with a dimension of one element at `axis`, from -rank - 1 to rank."""
    t = asarray(x)
    at = axis_of("expand_dims", axis, t.ndim + 1)
    return t.unsqueeze(at)


def squeeze(x: DeviceTensor, /, axis: int | Sequence[int]) -> DeviceTensor:
    """A view of x without the dimensions of one element that `axis` names. Other dimensions raise ShapeError."""
    return asarray(x).squeeze(axis)


def permute_dims(x: DeviceTensor, /, axes: Sequence[int]) -> DeviceTensor:
    """A view of x whose dimension i is dimension axes[i] of x."""
    return asarray(x).permute(axes)


def moveaxis(x: DeviceTensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> DeviceTensor:
    """A view of x in which the dimensions `source` are at the places `destination`; others keep their order."""
    t = asarray(x)
    origins, places = axes_of("moveaxis", source, t.ndim), axes_of("moveaxis", destination, t.ndim)
    if len(origins) != len(places):
        raise ShapeError(f"moveaxis: source and destination must be equally many; got {len(origins)} and {len(places)}")
    order = [a for a in range(t.ndim) if a not in origins]
    for place, origin in sorted(zip(places, origins, strict=True)):
        order.insert(place, origin)
    return t.permute(order)


def flip(x: DeviceTensor, /, *, axis: int | Sequence[int] | None = None) -> DeviceTensor:
    """A view of x in which the dimensions of `axis` (None: all) are reversed."""
    t = asarray(x)
    flipped = axes_of("flip", axis, t.ndim)
    return t[tuple(slice(None, None, -1 if a in flipped else 1) for a in range(t.ndim))]


def reshape(x: DeviceTensor, /, shape: Sequence[int], *, copy: _bool | None = None) -> DeviceTensor:
    """The elements of x in row-major order under another shape; one size may be -1.

    copy  None: a view if strides allow; True: a copy; False: a view, ShapeError (a ValueError) if strides forbid it
    """
    t = asarray(x)
    wanted = None if copy is None else flag("copy", copy)
    result = t.reshape(_C.integers(shape))
    if result.size == 0 or result.data_ptr == t.data_ptr:
        return result.to(copy=True) if wanted else result
    if wanted is False:
        raise ShapeError(f"reshape: x {list(t.shape)} with strides {list(t.strides)} needs a copy, which copy forbids")
    return result


def roll(x: DeviceTensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> DeviceTensor:
    """A copy of x whose elements are moved by `shift` along `axis`; those beyond the end return to the front.

    axis  None: as if x had one dimension. Several axes have as many shifts, or one for all
    """
    t = asarray(x)
    if axis is None:
        return roll(t.ravel(), shift, axis=0).reshape(t.shape)
    axes, shifts = _C.integers(axis), _C.integers(shift)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) != len(shifts):
        raise ShapeError(f"roll: shift and axis must be equally many; got {len(shifts)} and {len(axes)}")
    result = t
    for number, one in zip(shifts, axes, strict=True):
        at = axis_of("roll", one, t.ndim)
        size = t.shape[at]
        if size and number % size:
            first = size - number % size
            result = dnn.concat([result[along(at, slice(first, None))], result[along(at, slice(first))]], at)
    return result.to(copy=True) if result is t else result


def repeat(x: DeviceTensor, repeats: int | DeviceTensor, /, *, axis: int | None = None) -> DeviceTensor:
    """A tensor in which each element along `axis` (None: of x in one dimension) is repeated.

    repeats  a number, or an integer tensor with a number for each element along `axis`, which is read on the host
    """
    t = asarray(x)
    if axis is None:
        t, axis = t.ravel(), 0
    at = axis_of("repeat", axis, t.ndim)
    counts = _C.integers(repeats.tolist() if isinstance(repeats, DeviceTensor) else repeats)
    if len(counts) not in (1, t.shape[at]) or any(n < 0 for n in counts):
        raise ShapeError(
            f"repeat: repeats must be 1 or {t.shape[at]} ints from 0, as x has along axis; got {short(repeats)}"
        )
    if len(counts) == 1:
        shape = [*t.shape[:at], t.shape[at] * counts[0], *t.shape[at + 1 :]]
        return _repeated(t, math.prod(t.shape[: at + 1]), counts[0]).reshape(shape)
    index = made_on_host("repeat: repeats", sum(counts), lambda: np.repeat(np.arange(t.shape[at]), counts))
    return gather(t, index, axis=at)


def tile(x: DeviceTensor, repetitions: Sequence[int], /) -> DeviceTensor:
    """x as often along each dimension as `repetitions` says; the shorter of both is filled up with ones in front."""
    t = asarray(x)
    times = tuple(_C.integers(repetitions))
    if any(n < 0 for n in times):
        raise ShapeError(f"tile: repetitions must be 0 or more; got {short(list(times))}")
    rank = max(t.ndim, len(times))
    times = (1,) * (rank - len(times)) + times
    shape = [1] * (rank - t.ndim) + list(t.shape)
    result = t
    for at, number in enumerate(times):
        if number != 1:
            result = _repeated(result, math.prod(shape[:at]), number)
            shape[at] *= number
    return result.to(copy=result is t).reshape(shape)


def _repeated(t: DeviceTensor, outer: int, times: int) -> DeviceTensor:
    """A copy of t, seen as `outer` rows, in which each row is repeated."""
    inner = t.size // outer if outer else 0
    return broadcast_to(t.reshape((outer, 1, inner)), (outer, times, inner)).to(copy=True)


def take(x: DeviceTensor, indices: DeviceTensor, /, *, axis: int | None = None) -> DeviceTensor:
    """The slices of x along `axis` that `indices`, int32 or int64, name. axis=None is for one dimension only.

    A bad index raises ShapeError on the CPU, and gives zeros on a GPU, as in gather().
    """
    t = asarray(x)
    if axis is None and t.ndim != 1:
        raise ShapeError(f"take: axis must be given for x of {t.ndim} dimensions")
    return gather(t, _indices("take", indices), axis=0 if axis is None else axis)


def take_along_axis(x: DeviceTensor, indices: DeviceTensor, /, *, axis: int = -1) -> DeviceTensor:
    """x[..., indices[..., j, ...], ...]: for each place of the other dimensions, the elements along `axis`.

    indices  int32 or int64, of the rank of x; sizes of the other dimensions broadcast. Negative ones count from the end

    A bad index raises IndexingError on the CPU, and gives zeros on a GPU, as in gather().
    """
    t, index = asarray(x), _indices("take_along_axis", indices).to(dtype="int64")
    at = axis_of("take_along_axis", axis, t.ndim)
    if index.ndim != t.ndim:
        raise ShapeError(f"take_along_axis: indices must have {t.ndim} dimensions, as x; it has {index.ndim}")
    t, index = moveaxis(t, at, -1), moveaxis(index, at, -1)
    size, count = t.shape[-1], index.shape[-1]
    try:
        lead = np.broadcast_shapes(t.shape[:-1], index.shape[:-1])
    except ValueError:
        raise ShapeError(
            f"take_along_axis: x {list(t.shape[:-1])} and indices {list(index.shape[:-1])} do not broadcast along the "
            "dimensions other than axis"
        ) from None
    index = broadcast_to(index, (*lead, count))
    rows = math.prod(t.shape[:-1])
    offset = broadcast_to(dnn.arange(rows, device=t.device).reshape(t.shape[:-1]), lead).unsqueeze(len(lead)) * size
    good = (index >= -size) & (index < size)
    if t.device == "cpu" and not good.all():
        raise IndexingError(f"take_along_axis: indices must be from {-size} to {size - 1}")
    linear = where(good, where(index < 0, index + size, index) + offset, rows * size)
    return moveaxis(gather(t.reshape((-1,)), linear), -1, at)


def _indices(call: str, indices: Any) -> DeviceTensor:
    index = asarray(indices)
    if index.dtype in ("int8", "uint8"):
        return index.to(dtype="int32")
    return index


def _of_one_dtype(arrays: Sequence[DeviceTensor]) -> list[DeviceTensor]:
    tensors = [asarray(a) for a in elements(arrays)]
    if len({t.dtype for t in tensors}) > 1:
        dtype = result_type(*tensors)
        tensors = [t.to(dtype=dtype) for t in tensors]
    return tensors
