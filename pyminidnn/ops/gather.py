# SPDX-License-Identifier: Apache-2.0
"""Slices by index, and their gradient."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output


def gather(
    x: ArrayLike,
    index: ArrayLike,
    *,
    axis: int = 0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Selects slices of x along `axis` by index, as NumPy's take and ONNX's Gather; with axis 0, an embedding.

    y[i..., j..., k...] = x[i..., index[j...], k...]

    x        at least one dimension, any strides and dtype
    index    int32 or int64, any shape and strides, on x's device; negative counts from the end
    axis     from -rank to rank - 1
    out      receives the result instead of a new tensor; shares no memory with x or index
    algo, handle  as in transform
    returns  [i..., j..., k...], row-major, on x's device and the handle's stream (does not synchronise)

    Exact. On the CPU, an index out of range raises ShapeError before anything is written. On a GPU it gives a slice of
    zeros, because an error would require a synchronisation. Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
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
    """The gradient of gather(x, index, axis=axis): each slice of dx is the sum of the slices of dy with its index.

    dy       floating dtype, shape of gather's result, any strides
    index, axis   as in gather; on a GPU, the dy of an index out of range is ignored
    x_shape  the shape of gather's x
    out      receives dx instead of a new tensor; shares no memory with dy or index
    algo, handle  as in transform
    returns  [*x_shape] of dy's dtype, row-major, on dy's device and the handle's stream (does not synchronise)

    Sums are float32 (float64 for float64), in the order of the indices, and rounded once. Slices without an index are
    zero. Deterministic: no atomics on floats. Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    dy, index = operands(handle, dy, index, out=out)
    return _C.gather_backward(dy, index, x_shape, axis, algo, output(out, handle), handle)
