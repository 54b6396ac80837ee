# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with logits, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import LossReduction


def cross_entropy_forward(
    x: ArrayLike,
    target: ArrayLike,
    *,
    axis: int = 1,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: LossReduction = "mean",
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """The cross-entropy of softmax(x) with the targets: the negative log-likelihood of the target of each row.

    loss_r = lse_r - (1 - s) x_r,t - s/C sum_i x_r,i;  lse_r = log sum_i exp(x_r,i), t the row's target, s the smoothing

    x       logits, one dimension or more, any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or
            DeviceTensor
    target  a class for each row: the shape of x without `axis`; int64 or int32
    axis    the dimension of the C classes; negative counts from the end
    label_smoothing  the fraction s of each target that is spread evenly over all classes, from 0 to 1
    ignore_index     rows with this target are ignored: their loss and gradient are 0; it need not be a class
    reduction        "mean" over the rows that are not ignored, "sum", or "none"
    algo    an engine by name, "cuda.loss.persistent_rows" or "persistent_rows"; None: the fastest expected
    handle  None: the current handle of x's device
    returns (loss, lse), float32 (float64 for float64), on x's device and the handle's stream (does not synchronise).
            loss is a scalar, or has target's shape for "none". lse has target's shape; the backward call takes it

    Computed in float32 (float64 for float64). The mean is NaN if all rows are ignored. A target that is not a class
    gives NaN, and no error, because a check would have to wait for the device. Deterministic.
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
    reduction: LossReduction = "mean",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of cross_entropy_forward's loss, in one pass over x.

    dx_r,i = g_r (exp(x_r,i - lse_r) - (1 - s) [i = t] - s/C)
    g_r = dy_r for reduction "none", dy for "sum", dy / (number of rows not ignored) for "mean"; 0 for an ignored row

    dy          the gradient of the loss; shape and dtype of the loss
    x, target   as in cross_entropy_forward
    lse         what cross_entropy_forward returned
    axis, label_smoothing, ignore_index, reduction, algo, handle  as in cross_entropy_forward
    out         receives dx instead of a new tensor; may be x itself
    returns     dx, in x's layout

    Computed in float32 (float64 for float64), then rounded once. Deterministic. Raises the errors of
    cross_entropy_forward.
    """
    dy, x, target, lse = operands(handle, dy, x, target, lse, out=out)
    return _C.cross_entropy_backward(
        dy, x, target, lse, axis, ignore_index, label_smoothing, reduction, algo, output(out), handle
    )
