# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output


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
    """The softmax along `axis`: exponentials, scaled to sum to one.

    y_i = exp(x_i - m) / sum_j exp(x_j - m),  m = max_j x_j;   log=True: y_i = x_i - m - log(sum_j exp(x_j - m))

    x       one dimension or more, any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or DeviceTensor
    axis    the dimension that sums to one; negative counts from the end
    log     True: log-softmax, computed directly and not from the softmax
    scale   factor of x; the softmax is that of scale x + mask
    mask    broadcasts to x's shape. A bool mask replaces x by -inf where it is false; a mask of x's dtype is added
    algo    an engine by name, "cuda.softmax.thread_per_row" or "thread_per_row"; None: the fastest expected
    out     receives the result instead of a new tensor; shape, dtype and device of x; may be x itself
    handle  None: the current handle of x's device
    returns a tensor like x, on x's device and the handle's stream (does not synchronise)

    Computed in float32 (float64 for float64), then rounded once. Sums are compensated: rows of a million elements are
    as exact as short ones. A row that contains NaN or +inf, or only -inf, gives a row of NaN. An empty x gives an
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
    """The gradient of softmax_forward, computed from its result.

    dx_i = scale y_i (dy_i - sum_j dy_j y_j);   log=True: dx_i = scale (dy_i - exp(y_i) sum_j dy_j)

    The mask is not needed: masked elements of y are 0 (with log=True, -inf), and their dx is 0.

    dy, y      one shape, dtype and device, any strides; y is what softmax_forward returned for the same axis and log
    axis, log, scale, algo, handle  as in softmax_forward
    out        receives dx instead of a new tensor; may be dy or y itself
    returns    dx, in y's layout

    Numerics and errors as in softmax_forward.
    """
    dy, y = operands(handle, dy, y, out=out)
    return _C.softmax_backward(dy, y, axis, log, scale, algo, output(out), handle)
