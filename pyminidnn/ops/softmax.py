# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output


def softmax_forward(
    x: ArrayLike,
    *,
    axis: int = 1,
    log: bool = False,
    scale: float = 1.0,
    mask: ArrayLike | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Exponentials along `axis`, scaled to sum to one.

    y_i = exp(x_i - m) / sum_j exp(x_j - m),  m = max_j x_j;   log=True: y_i = x_i - m - log(sum_j exp(x_j - m))

    x       one dimension or more, any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or DeviceTensor
    axis    the dimension that sums to one; negative counts from the end
    log     the logarithm of the result instead, without computing the result
    scale   multiplies x first
    mask    broadcast to x's shape: bool, and where it is false x counts as -inf; or of x's dtype, and added to scale x
    algo    an engine by name, "cuda.softmax.thread_per_row" or "thread_per_row"; None: the fastest expected
    out     written instead of a new tensor; shape, dtype and device of x; may be x itself
    handle  None: the current one for x's device
    returns a tensor like x, on its device and the handle's stream (does not synchronise)

    Computed in float32, float64 for float64; sums keep their rounding errors, so rows of a million elements are as
    exact as short ones. A row that holds NaN or +inf, or nothing but -inf, gives NaN all along. An empty x gives an
    empty y. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    """
    x, mask = operands(handle, x, mask, out=out)
    return _C.softmax_forward(x, axis, log, scale, mask, algo, output(out), handle)


def softmax_backward(
    dy: ArrayLike,
    y: ArrayLike,
    *,
    axis: int = 1,
    log: bool = False,
    scale: float = 1.0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of softmax_forward, out of its result.

    dx_i = y_i (dy_i - sum_j dy_j y_j);   log=True: dx_i = dy_i - exp(y_i) sum_j dy_j;   both times scale

    A mask shows in y, as 0 or, log=True, -inf: there dx is 0.

    dy, y      one shape, dtype and device, any strides; y is what softmax_forward returned for the same axis and log
    axis, log, scale, algo, handle  as in softmax_forward
    out        written instead of a new tensor; may be dy or y itself
    returns    dx, in y's layout

    Numerics and errors as in softmax_forward.
    """
    dy, y = operands(handle, dy, y, out=out)
    return _C.softmax_backward(dy, y, axis, log, scale, algo, output(out), handle)
