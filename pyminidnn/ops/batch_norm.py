# SPDX-License-Identifier: Apache-2.0
"""Batch normalization, forward and backward."""

from __future__ import annotations

from typing import Literal

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output


def batch_norm_forward_training(
    x: ArrayLike,
    scale: ArrayLike,
    bias: ArrayLike,
    *,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
    per_activation: bool = False,
    activation: Literal["relu"] | None = None,
    residual: ArrayLike | None = None,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """Normalizes each channel to mean 0 and variance 1 over the batch, then scales and shifts it.

    y = scale x_hat + bias,  x_hat = (x - mean) inv_std,  inv_std = 1 / sqrt(var + eps)
    mean = sum(x) / n,  var = sum((x - mean)^2) / n,  over the n elements of a channel
    running = (1 - momentum) running + momentum batch,  with batch = mean, and var n / (n - 1) (var if n is 1)

    x               [N, C, spatial...], 2 to 5 dimensions, any strides; float32, float64, float16 or bfloat16; NumPy,
                    DLPack or DeviceTensor
    scale, bias     [C]; float32 (float64 if x is float64)
    running_mean, running_var  both or neither; like scale, contiguous, on x's device. Updated IN PLACE, also in a
                    NumPy array; an array that could only be copied is refused
    momentum        the weight of this batch, in [0, 1], as in torch
    eps             0 or more; with 0 a constant channel gives NaN
    per_activation  True: statistics over N alone, one per element of a sample; every shape [C] is then x.shape[1:]
    activation      "relu": y = max(0, y), applied last; NaN stays NaN
    residual        added before the activation: y = scale x_hat + bias + residual; shape and dtype of x, any strides
    algo            an engine by name, "cuda.batch_norm.generic" or "generic"; None: the fastest expected
    handle          None: the current handle of x's device
    returns         y, like x; mean and inv_std, [C], for batch_norm_backward; on x's device and the handle's stream
                    (does not synchronise)

    Sums are float32 (float64 for float64). They are sums of deviations, not of squares of x, so a mean far from 0 costs
    only its own rounding, which moves y by at most eps(float32) |mean| inv_std |scale|. NaN or Inf makes its channel
    NaN and no other. An empty batch gives NaN for mean and inv_std, and does not change the running values.
    explain() and find() do not change them either. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167.
    """
    x, scale, bias, residual = operands(handle, x, scale, bias, residual)
    return _C.batch_norm_forward_training(
        x, scale, bias, output(running_mean), output(running_var), momentum, eps, per_activation, activation, residual,
        algo, handle,
    )  # fmt: skip


def batch_norm_forward_inference(
    x: ArrayLike,
    scale: ArrayLike,
    bias: ArrayLike,
    mean: ArrayLike,
    var: ArrayLike,
    *,
    eps: float = 1e-5,
    per_activation: bool = False,
    activation: Literal["relu"] | None = None,
    residual: ArrayLike | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Batch normalization with given statistics, usually the running values of training.

    y = scale (x - mean) / sqrt(var + eps) + bias

    x                       as in batch_norm_forward_training
    scale, bias, mean, var  [C] (with per_activation x.shape[1:]); float32 (float64 if x is float64)
    eps, per_activation, activation, residual, algo, handle  as in batch_norm_forward_training
    out                     receives y instead of a new tensor; shape, dtype and device of x; may be x or the residual
    returns                 y, like x

    Computed in float32 (float64 for float64), then rounded once. Deterministic.
    Raises the errors of batch_norm_forward_training.
    """
    x, scale, bias, mean, var, residual = operands(handle, x, scale, bias, mean, var, residual, out=out)
    return _C.batch_norm_forward_inference(
        x, scale, bias, mean, var, eps, per_activation, activation, residual, algo, output(out), handle
    )


def batch_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    scale: ArrayLike,
    saved_mean: ArrayLike,
    saved_inv_std: ArrayLike,
    *,
    per_activation: bool = False,
    y: ArrayLike | None = None,
    activation: Literal["relu"] | None = None,
    dresidual: bool = False,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, ...]:
    """The gradients of batch_norm_forward_training, including those through its mean and variance.

    dbias = sum(dy),  dscale = sum(dy x_hat),  dx = scale inv_std (dy - dbias / n - x_hat dscale / n)

    dy, x           one shape [N, C, spatial...], dtype and device; any strides
    scale           [C] (with per_activation x.shape[1:]); float32 (float64 if x is float64)
    saved_mean, saved_inv_std  what the forward call returned, like scale
    y, activation   the result and the activation of the forward call: with "relu", dy is replaced by 0 where y <= 0
    dresidual       True: also return the gradient of the residual, which is dy after that replacement
    per_activation, algo, handle  as in the forward call
    returns         dx, like x; dscale and dbias, like scale; with dresidual also dresidual, like x

    Sums are float32 (float64 for float64). NaN or Inf in a channel of x or dy makes that channel's results NaN. An
    empty batch gives zeros for dscale and dbias. Deterministic. Raises the errors of batch_norm_forward_training.
    """
    dy, x, scale, saved_mean, saved_inv_std, y = operands(handle, dy, x, scale, saved_mean, saved_inv_std, y)
    dx, dscale, dbias, of_residual = _C.batch_norm_backward(
        dy, x, scale, saved_mean, saved_inv_std, per_activation, y, activation, dresidual, algo, handle
    )
    return (dx, dscale, dbias) if of_residual is None else (dx, dscale, dbias, of_residual)
