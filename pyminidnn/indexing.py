# SPDX-License-Identifier: Apache-2.0
"""t[key] and t[key] = value where the key holds arrays of integers or of bool, as in NumPy.

cpp/bindings/indexing_py.cpp computes all other keys, which select views.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from . import _C
from ._C import DeviceTensor, Error, IndexingError, ShapeError
from .conversion import asarray, bits, operand
from .ops.gather import gather
from .ops.pointwise import pointwise
from .ops.transform import transform
from .refusals import refusal, short

_INTEGERS = ("int32", "int64")


def fill(view: DeviceTensor, value: Any) -> None:
    """Writes `value`, a number or an array that broadcasts to the view, cast to its dtype."""
    source = _on(view.device, value, view)
    while source.ndim > view.ndim and source.shape[0] == 1:
        source = source[0]
    if _C.share_memory(source, view):
        source = source.to(copy=True)
    try:
        transform(source, out=view)
    except Error as error:  # it names the arguments of transform()
        text = re.sub(r"\bout\b", "the tensor", re.sub(r"\bx\b", "value", str(error)))
        raise type(error)(text.replace("transform:", "assignment:")) from None


def select(t: DeviceTensor, key: Any) -> DeviceTensor:
    """A copy of the elements that a key with arrays selects, arranged as in NumPy."""
    if _is_truth(key):
        return _whole_or_nothing(t, key).to(copy=True)
    s = _Selection(t, key)
    return gather(s.flat, s.linear(), axis=s.axis)


def assign(t: DeviceTensor, key: Any, value: Any) -> None:
    """Writes `value`, which broadcasts to the shape of t[key]. Of several for one element, the last counts."""
    if _is_truth(key):
        fill(_whole_or_nothing(t, key), value)
    elif t.device == "cpu":
        host_key = tuple(map(_host, _parts(key)))
        source = _on("cpu", value, t).to(dtype=t.dtype)
        bits(t)[host_key] = bits(source)
    else:
        _assign_by_map(t, key, value)


def _is_truth(key: Any) -> bool:
    """Whether the key is one bool: a Python bool, or an array of bool without dimensions."""
    return isinstance(key, (bool, np.bool_)) or (getattr(key, "ndim", -1) == 0 and key.dtype == "bool")


def _whole_or_nothing(t: DeviceTensor, key: Any) -> DeviceTensor:
    """A view with one more dimension, which has one element, the tensor, if the key is true, else none."""
    return t[None][: int(bool(key))]


def _assign_by_map(t: DeviceTensor, key: Any, value: Any) -> None:
    """assign() with the operations of a GPU: every slice along the selected axis takes its new value, if it has one."""
    s = _Selection(t, key)
    linear = s.linear().numpy()
    if linear.size == 0:
        return
    lead, size, rest = s.flat.shape[: s.axis], s.flat.shape[s.axis], s.flat.shape[s.axis + 1 :]
    source = _on(t.device, value, t).to(dtype=t.dtype)
    values = DeviceTensor((*lead, *linear.shape, *rest), dtype=t.dtype, device=t.device)
    fill(values, source)
    origin = np.full(size, -1)
    # If an element is selected several times, it gets the last of its values, as in NumPy.
    origin[linear.ravel()] = np.arange(linear.size)
    new = gather(
        values.reshape((*lead, linear.size, *rest)), asarray(np.maximum(origin, 0), device=t.device), axis=s.axis
    )
    chosen = asarray(origin >= 0, device=t.device).reshape((size, *(1 for _ in rest)))
    result = pointwise("where", chosen, new, s.flat)
    transform(result.reshape(s.moved.shape), out=s.moved)


class _Selection:
    """A key with arrays, divided into a view and one index.

    moved   a view of the tensor, in which the dimensions that arrays select are next to each other
    flat    the same elements, with these dimensions merged into dimension `axis`
    """

    def __init__(self, t: DeviceTensor, key: Any) -> None:
        parts = _expanded(t, key)
        basic: list[Any] = []
        indices: list[Any] = []
        # The dimensions of the view to which index arrays apply.
        positions: list[int] = []
        together, last = True, -1
        dimension = 0  # the current dimension of the view
        for i, part in enumerate(parts):
            if isinstance(part, (slice, type(None))):
                basic.append(part)
                dimension += 1
            elif part is not Ellipsis:
                together = together and (last < 0 or last == i - 1)
                last = i
                basic.append(slice(None))
                indices.append(part)
                positions.append(dimension)
                dimension += 1
        view = t[tuple(basic)]
        self.indices = indices
        self.sizes = [view.shape[p] for p in positions]
        if together:
            self.axis, self.moved = positions[0], view
        else:
            self.axis = 0
            self.moved = view.permute((*positions, *(i for i in range(view.ndim) if i not in positions)))
        shape = self.moved.shape
        behind = self.axis + len(positions)
        self.flat = self.moved.reshape((*shape[: self.axis], math.prod(self.sizes), *shape[behind:]))

    def linear(self) -> DeviceTensor:
        """The index of each selected slice along the axis of `flat`."""
        device = self.flat.device
        if len(self.indices) == 1 and isinstance(self.indices[0], DeviceTensor) and device != "cpu":
            # Indices on the GPU remain there. gather() checks their range.
            return self.indices[0].to(device=device)
        arrays = np.broadcast_arrays(*self._checked())
        return asarray(np.ravel_multi_index(tuple(arrays), tuple(self.sizes)), device=device)

    def _checked(self) -> list[np.ndarray[Any, Any]]:
        found = []
        for index, size in zip(self.indices, self.sizes, strict=True):
            host = np.asarray(_host(index)).astype("int64")
            wrong = host[(host < -size) | (host >= size)]
            if wrong.size:
                raise IndexingError(f"index {wrong.flat[0]} is out of range for a dimension of {size} elements")
            found.append(np.where(host < 0, host + size, host))
        try:
            np.broadcast_shapes(*(a.shape for a in found))
        except ValueError:
            shapes = " and ".join(str(list(a.shape)) for a in found)
            raise IndexingError(f"index arrays must broadcast to one shape; got {shapes}") from None
        return found


def _expanded(t: DeviceTensor, key: Any) -> list[Any]:
    """The parts of the key, one for each dimension: masks become indices, and an ellipsis becomes slices."""
    given = [p if p is None or p is Ellipsis or isinstance(p, slice) else _index_array(p) for p in _parts(key)]
    used = sum(_dimensions(p) for p in given)
    if used > t.ndim:
        raise IndexingError(f"too many indices: {used} for a tensor of {t.ndim} dimensions")
    if not any(p is Ellipsis for p in given):
        given.append(Ellipsis)
    parts: list[Any] = []
    dimension = 0
    for part in given:
        if part is Ellipsis:
            # An Ellipsis between index arrays separates them, even if it stands for no dimension.
            parts += [Ellipsis, *(slice(None),) * (t.ndim - used)]
            dimension += t.ndim - used
            continue
        n = _dimensions(part)
        if part is None or isinstance(part, slice) or part.dtype != "bool":
            parts.append(part)
        else:
            mask = _host(part)
            # The array API standard allows a mask of no elements for a dimension of any size.
            if any(m not in (size, 0) for m, size in zip(mask.shape, t.shape[dimension:], strict=False)):
                raise IndexingError(
                    f"a mask {list(mask.shape)} does not match dimensions {dimension} and later of {list(t.shape)}"
                )
            parts += np.nonzero(mask)
        dimension += n
    return parts


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _dimensions(part: Any) -> int:
    """How many dimensions of the tensor a part of a key selects from."""
    if part is None or part is Ellipsis:
        return 0
    return 1 if isinstance(part, slice) or part.dtype != "bool" else part.ndim


def _index_array(part: Any) -> Any:
    """A tensor, or an array of NumPy, of integers or bool."""
    array = part if isinstance(part, DeviceTensor) else np.asarray(part)
    if isinstance(array, np.ndarray) and array.size == 0 and isinstance(part, list):
        array = array.astype("int64")
    kind = (
        array.dtype.kind
        if isinstance(array, np.ndarray)
        else "b"
        if array.dtype == "bool"
        else "i"
        if array.dtype in _INTEGERS
        else "f"
    )
    if kind not in "biu":
        raise IndexingError(
            f"an index must be an integer, a slice, None, '...', or an array of integers or bool; got {short(part)}"
        )
    return array


def _host(part: Any) -> Any:
    return part.numpy() if isinstance(part, DeviceTensor) else part


def _on(device: str, value: Any, like: DeviceTensor) -> DeviceTensor:
    """A value to assign, as a tensor on the device."""
    if isinstance(value, DeviceTensor):
        return value.to(device=device)
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        whole = isinstance(value, int) and like.dtype in ("int8", "uint8", "int32", "int64")
        if whole and not _C.holds(like.dtype, value):
            raise refusal(ShapeError, value, f"is {short(value)}, which does not fit {like.dtype}")
        return _C.full((), value, dtype=like.dtype, device=device)
    return operand(value, "assignment: value", device)
