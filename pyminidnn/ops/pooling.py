# SPDX-License-Identifier: Apache-2.0
"""Max, average and Lp pooling, forward and backward: over windows, to a given size, or over whole planes."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import IndexDType, PoolMode


def pool_forward(
    x: ArrayLike,
    window: int | Sequence[int],
    *,
    mode: PoolMode = "max",
    norm: int = 2,
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The maximum, mean or Lp norm of each window over the spatial dimensions.

    y[n, c, p] = max, mean or norm over r of x[n, c, p stride - before + r dilation],  0 <= r < window
    size of y = floor((before + size + after - dilation (window - 1) - 1) / stride) + 1 in each spatial dimension

    x         [N, C, spatial...] of 1 to 3 spatial dimensions, any strides; float32, float64, float16 or bfloat16
    window    an int for all spatial dimensions, or one for each
    mode      "max"; "avg" is a mean that counts padding as zeros; "avg_exclude_padding" is the mean of x's elements;
              "lp" is (sum |x|^norm)^(1 / norm), without a division by the count
    norm      the exponent of "lp", 1 to 64; other modes ignore it
    stride    distance of windows; None: the window, so windows are adjacent
    padding   0 or more: an int, or for each dimension an int or a pair (before, after)
    dilation  distance of the elements of a window
    ceil_mode  True: the size of y is rounded up, unless the last window would start in the padding behind x. "avg" does
              not count the elements of a window beyond the padding
    algo      an engine by name, "cuda.pooling.generic" or "generic"; None: the fastest expected
    out       receives y instead of a new tensor; shape of y, dtype and device of x
    handle    None: the current handle of x's device
    returns   y [N, C, ...], in x's layout, on x's device and the handle's stream (does not synchronise)

    Padding is never a maximum. A NaN is larger than any number. A window that contains only padding gives -inf for
    "max" and 0 for the other modes. Sums are float32 (float64 for float64) and compensated. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    """
    (x,) = operands(handle, x, out=out)
    return _C.pool_forward(x, window, mode, norm, stride, padding, dilation, ceil_mode, algo, output(out), handle)


def pool_forward_with_indices(
    x: ArrayLike,
    window: int | Sequence[int],
    *,
    index_dtype: IndexDType = "int64",
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """pool_forward(mode="max"), and the index in x of each maximum.

    index_dtype  "int64", as in torch, or "int32", which takes half the memory
    x, window, stride, padding, dilation, ceil_mode, algo, out, handle  as in pool_forward
    returns      y and indices. indices has y's shape and layout. An index is that of the window's first maximum, in
                 row-major order of the plane x[n, c], whatever the layout; -1 for a window that contains only padding

    Numerics and errors as in pool_forward.
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
    mode: PoolMode = "max",
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
    """The gradient of pool_forward. A window adds its dy to the dx of its elements; overlapping windows add up.

    max       the first maximum of the window in row-major order receives dy; a NaN is a maximum
    averages  each element of x in the window receives dy / (the divisor of the mean)
    lp        each element receives dy sign(x) (|x| / y)^(norm - 1), or 0 if y is 0

    dy, y     [N, C, ...], the gradient and the result of pool_forward; only "lp" reads y
    x         as in pool_forward, not overwritten since; for averages, and with indices, only its shape is used
    indices   only for "max": the indices of pool_forward_with_indices, which spare the search for maxima in x. An index
              that is not an element of its window receives no gradient
    window, mode, norm, stride, padding, dilation, ceil_mode, algo, handle  as in pool_forward
    out       receives dx instead of a new tensor; shape of x; shares no memory with dy, x or y
    returns   dx, in x's layout

    One thread sums each dx, in row-major order of dy, without atomics. Deterministic. A window that contains only
    padding has no gradient. Raises the errors of pool_forward.
    """
    dy, x, y, where = operands(handle, dy, x, y, indices, out=out)
    return _C.pool_backward(
        dy, x, y, window, mode, norm, stride, padding, dilation, ceil_mode, where, algo, output(out), handle
    )


def adaptive_pool_forward(
    x: ArrayLike,
    size: int | Sequence[int],
    *,
    mode: PoolMode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Pooling to a given size of y. The windows have nearly equal sizes; neighbours are adjacent or overlap.

    Along a dimension of `length` elements, window p of `size` windows has the elements
    floor(p length / size) <= i < ceil((p + 1) length / size).

    x         as in pool_forward, with at least one element in every spatial dimension
    size      of y's spatial dimensions: an int for all, or one for each. It may exceed the size of x, which repeats
              elements
    mode, norm, algo, out, handle  as in pool_forward; the two averages are the same, since there is no padding
    returns   y [N, C, *size], in x's layout

    If `size` divides the size of x, this is pool_forward with window length / size, by the same engines.
    Numerics and errors as in pool_forward.
    """
    (x,) = operands(handle, x, out=out)
    return _C.adaptive_pool_forward(x, size, mode, norm, algo, output(out), handle)


def adaptive_pool_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    mode: PoolMode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of adaptive_pool_forward, with the formulas of pool_backward. The size is that of dy.

    dy, x, y, mode, norm, algo, out, handle  as in pool_backward
    returns   dx, in x's layout
    """
    dy, x, y = operands(handle, dy, x, y, out=out)
    return _C.adaptive_pool_backward(dy, x, y, None, mode, norm, algo, output(out), handle)


def global_pool_forward(
    x: ArrayLike,
    *,
    mode: PoolMode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The maximum, mean or norm of each plane: y [N, C, 1, ...]. This is adaptive_pool_forward with size 1."""
    (x,) = operands(handle, x, out=out)
    return _C.adaptive_pool_forward(x, 1, mode, norm, algo, output(out), handle)


def global_pool_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    mode: PoolMode = "max",
    norm: int = 2,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of global_pool_forward. dy and y are [N, C, 1, ...]; the rest is as in adaptive_pool_backward."""
    dy, x, y = operands(handle, dy, x, y, out=out)
    return _C.adaptive_pool_backward(dy, x, y, 1, mode, norm, algo, output(out), handle)
