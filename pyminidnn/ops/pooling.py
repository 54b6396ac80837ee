# SPDX-License-Identifier: Apache-2.0
"""Max and average pooling, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output

Mode = Literal["max", "avg", "avg_exclude_padding"]


def pool_forward(
    x: ArrayLike,
    window: int | Sequence[int],
    *,
    mode: Mode = "max",
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The largest element, or the mean, of each window over the spatial dimensions.

    y[n, c, p] = max or mean over r of x[n, c, p stride - before + r dilation],  0 <= r < window
    size of y = floor((before + size + after - dilation (window - 1) - 1) / stride) + 1 in each spatial dimension

    x         [N, C, spatial...] of 1 to 3 spatial dimensions, any strides; float32, float64, float16 or bfloat16
    window    an int for all spatial dimensions, or one for each
    mode      "max"; "avg" counts padding as zeros; "avg_exclude_padding" divides by the number of elements of x
    stride    from window to window; None: the window, so that windows lie side by side
    padding   an int, or for each dimension an int or a pair (before, after); of any size
    dilation  from element to element of a window, in every mode
    ceil_mode  rounds the size of y up, unless the last window would start in the padding behind x. An average does not
              count what a window reaches beyond the padding
    algo      an engine by name, "cuda.pooling.generic" or "generic"; None: the fastest expected
    out       written instead of a new tensor; shape of y, dtype and device of x
    handle    None: the current one for x's device
    returns   y [N, C, ...], in x's layout, on its device and the handle's stream (does not synchronise)

    Padding is never a maximum; a NaN always is. A window that sees only padding gives -inf, or a mean of 0. Sums are
    float32, float64 for float64, and keep their rounding errors. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    """
    (x,) = operands(handle, x, out=out)
    return _C.pool_forward(x, window, mode, stride, padding, dilation, ceil_mode, algo or "", output(out), handle)


def pool_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    window: int | Sequence[int],
    *,
    mode: Mode = "max",
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of pool_forward: each dy goes to the elements that made its y; where windows overlap, they add up.

    max       the first maximum of the window in row-major order gets the whole of dy; a NaN is a maximum
    averages  each element of x in the window gets dy / (what the mean was divided by)

    dy, y     [N, C, ...] as pool_forward makes them of x; y is checked and not read: the maxima are found again in x
    x         as in pool_forward, not overwritten since
    window, mode, stride, padding, dilation, ceil_mode, algo, handle  as in pool_forward
    out       written instead of a new tensor; shape of x, no memory shared with dy, x or y
    returns   dx, in x's layout

    Every dx is summed by one thread in row-major order of dy: no atomics, deterministic. A window that saw only padding
    has no gradient. Raises as pool_forward.
    """
    dy, x, y = operands(handle, dy, x, y, out=out)
    return _C.pool_backward(
        dy, x, y, window, mode, stride, padding, dilation, ceil_mode, algo or "", output(out), handle
    )
