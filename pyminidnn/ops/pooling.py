# SPDX-License-Identifier: Apache-2.0
"""Max, average and Lp pooling over windows, whole images or adaptive parts of them, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output

Mode = Literal["max", "avg", "avg_exclude_padding", "lp"]


def pool_forward(
    x: ArrayLike,
    window: int | Sequence[int],
    *,
    mode: Mode = "max",
    norm: int = 2,
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
    mode      "max"; "avg" counts padding as zeros; "avg_exclude_padding" divides by the number of elements of x; "lp"
              is the root of degree `norm` of the sum of |x|^norm, not divided by anything
    norm      of "lp" only: 1 to 64
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
    return _C.pool_forward(x, window, mode, norm, stride, padding, dilation, ceil_mode, algo, output(out), handle)


def pool_forward_with_indices(
    x: ArrayLike,
    window: int | Sequence[int],
    *,
    index_dtype: Literal["int32", "int64"] = "int64",
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """pool_forward(mode="max"), and where in x the maxima are.

    index_dtype  "int64", as torch's, or "int32", which takes half the memory
    x, window, stride, padding, dilation, ceil_mode, algo, out, handle  as in pool_forward
    returns      y, indices: of each window's first maximum in row-major order, counted in that order from the first
                 element of its plane x[n, c], in any layout; -1 where a window sees only padding. y's shape and layout
    """
    (x,) = operands(handle, x, out=out)
    return _C.pool_forward_with_indices(
        x, window, index_dtype, stride, padding, dilation, ceil_mode, algo, output(out), handle
    )


def pool_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    window: int | Sequence[int],
    *,
    mode: Mode = "max",
    norm: int = 2,
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    indices: ArrayLike | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of pool_forward: each dy goes to the elements that made its y; where windows overlap, they add up.

    max       the first maximum of the window in row-major order gets the whole of dy; a NaN is a maximum
    averages  each element of x in the window gets dy / (what the mean was divided by)
    lp        dy sign(x) (|x| / y)^(norm - 1), and nothing where y is 0

    dy, y     [N, C, ...] as pool_forward makes them of x; y is read by "lp" only
    x         as in pool_forward, not overwritten since; with indices, and for averages, only its shape matters
    indices   of "max", from pool_forward_with_indices: the maxima are not looked for in x again. What is not an index
              of an element of the window takes no gradient
    window, mode, norm, stride, padding, dilation, ceil_mode, algo, handle  as in pool_forward
    out       written instead of a new tensor; shape of x, no memory shared with dy, x or y
    returns   dx, in x's layout

    Every dx is summed by one thread in row-major order of dy: no atomics, deterministic. A window that saw only padding
    has no gradient. Raises as pool_forward.
    """
    dy, x, y, where = operands(handle, dy, x, y, indices, out=out)
    return _C.pool_backward(
        dy, x, y, window, mode, norm, stride, padding, dilation, ceil_mode, where, algo, output(out), handle
    )


def adaptive_pool_forward(
    x: ArrayLike,
    size: int | Sequence[int],
    *,
    mode: Mode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Pooling to a given size: windows as even as they can be, side by side or an element over each other.

    Window p of `size` along a dimension of `length` elements has those from floor(p length / size) to below
    ceil((p + 1) length / size).

    x         as in pool_forward, with elements in every spatial dimension
    size      of y's spatial dimensions: an int for all, or one for each; beyond x's, elements are repeated
    mode, norm, algo, out, handle  as in pool_forward; both averages are one, since there is no padding
    returns   y [N, C, *size], in x's layout

    Where `size` divides x's, it is pool_forward with window length / size, by the same engines. Raises as pool_forward.
    """
    (x,) = operands(handle, x, out=out)
    return _C.adaptive_pool_forward(x, size, mode, norm, algo, output(out), handle)


def adaptive_pool_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    mode: Mode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of adaptive_pool_forward, whose size is dy's; each dy goes where pool_backward says.

    dy, x, y, mode, norm, algo, out, handle  as in pool_backward
    returns   dx, in x's layout
    """
    dy, x, y = operands(handle, dy, x, y, out=out)
    return _C.adaptive_pool_backward(dy, x, y, None, mode, norm, algo, output(out), handle)


def global_pool_forward(
    x: ArrayLike,
    *,
    mode: Mode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The largest element, mean or norm of each plane: y [N, C, 1, ...]; else as adaptive_pool_forward."""
    (x,) = operands(handle, x, out=out)
    return _C.adaptive_pool_forward(x, 1, mode, norm, algo, output(out), handle)


def global_pool_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    mode: Mode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of global_pool_forward, from dy and y [N, C, 1, ...]; else as adaptive_pool_backward."""
    dy, x, y = operands(handle, dy, x, y, out=out)
    return _C.adaptive_pool_backward(dy, x, y, 1, mode, norm, algo, output(out), handle)
