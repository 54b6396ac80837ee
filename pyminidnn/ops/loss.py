# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with logits, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output


def cross_entropy_forward(
    x: ArrayLike,
    target: ArrayLike,
    *,
    axis: int = 1,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """How unlikely the targets are under the softmax of x: its logarithm, negated.

    loss_r = lse_r - (1 - s) x_r,t - s/C sum_i x_r,i;  lse_r = log sum_i exp(x_r,i), t the row's target, s the smoothing

    x       logits, one dimension or more, any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or
            DeviceTensor
    target  classes, of x's shape without `axis`; int64 or int32
    axis    the dimension of the C classes; negative counts from the end
    label_smoothing  the share s of each target that is spread evenly over all classes, from 0 to 1
    ignore_index     a target that makes a row count for nothing; it need not be a class
    reduction        "mean" over the rows that count, "sum", or "none"
    algo    an engine by name, "cuda.loss.persistent_rows" or "persistent_rows"; None: the fastest expected
    handle  None: the current one for x's device
    returns (loss, lse): loss a scalar, or for "none" of target's shape; lse of target's shape, for the backward call.
            Both are float32, float64 for float64

    Computed in float32, float64 for float64. The mean of no rows is NaN, as is the loss of a target that is no class:
    finding it would wait for the device. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    """
    x, target = operands(handle, x, target)
    return _C.cross_entropy_forward(x, target, axis, ignore_index, label_smoothing, reduction, algo, handle)


def cross_entropy_backward(
    dy: ArrayLike,
    x: ArrayLike,
    target: ArrayLike,
    lse: ArrayLike,
    *,
    axis: int = 1,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of cross_entropy_forward's loss, in one pass over x.

    dx_r,i = g_r (exp(x_r,i - lse_r) - (1 - s) [i = t] - s/C);  g_r = dy_r, dy, or dy / rows that count; 0 where ignored

    dy          the gradient of the loss: its shape and dtype
    x, target   as they were in cross_entropy_forward
    lse         what it returned
    axis, label_smoothing, ignore_index, reduction, algo, handle  as in cross_entropy_forward
    out         written instead of a new tensor; may be x itself
    returns     dx, in x's layout

    Numerics and errors as in cross_entropy_forward.
    """
    dy, x, target, lse = operands(handle, dy, x, target, lse, out=out)
    return _C.cross_entropy_backward(
        dy, x, target, lse, axis, ignore_index, label_smoothing, reduction, algo, output(out), handle
    )
