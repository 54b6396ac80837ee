# SPDX-License-Identifier: Apache-2.0
"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import PadMode


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
    """Adds elements before and after x in each dimension.

    x        any shape, strides and dtype
    widths   0 or more: one number for all dimensions, or for each a number or a pair (before, after)
    mode     "constant": the new elements are `value`. "replicate": they are the nearest element of x. "reflect": they
             mirror x at its first and last element, which are not repeated; a width must be less than the size
    value    cast to x's dtype as in transform
    out      receives the result instead of a new tensor; shares no memory with x
    algo, handle  as in transform
    returns  a tensor in the layout of x, on x's device and the handle's stream (does not synchronise)

    Exact. The result, also at corners, is that of padding the dimensions one after the other, in any order.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    (x,) = operands(handle, x, out=out)
    return _C.pad(x, widths, mode, value, algo, output(out, handle), handle)
