# SPDX-License-Identifier: Apache-2.0
"""Batch normalization: training, inference and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output


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
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """Each channel brought to mean 0 and variance 1 over the batch, then scaled and shifted.

    y = scale x_hat + bias,  x_hat = (x - mean) inv_std,  inv_std = 1 / sqrt(var + eps)
    mean = sum(x) / n,  var = sum((x - mean)^2) / n,  over the n elements of a channel
    running = (1 - momentum) running + momentum batch,  batch being mean, and var n / (n - 1), or var if n is 1

    x               [N, C, spatial...], 2 to 5 dimensions, any strides; float32, float64, float16 or bfloat16; NumPy,
                    DLPack or DeviceTensor
    scale, bias     [C]; float32, and float64 if x is float64
    running_mean, running_var  both or neither; like scale, contiguous, on x's device. Updated IN PLACE: a NumPy array
                    is changed itself, and one that could only be copied is refused
    momentum        the weight of this batch, in [0, 1], as torch has it
    eps             0 or more; with 0 a constant channel gives NaN
    per_activation  statistics over N alone, one per element of a sample: all that is [C] is x.shape[1:] instead
    algo            an engine by name, "cuda.norm.generic" or "generic"; None: the fastest expected
    handle          None: the current one for x's device
    returns         y like x; mean and inv_std, [C], for batch_norm_backward. On x's device and the handle's stream
                    (does not synchronise)

    Sums are float32, float64 for float64, and of deviations, never of squares of x: a mean far from 0 costs only its
    own rounding, which moves y by at most eps(float32) |mean| inv_std |scale|. NaN or Inf makes its channel NaN and
    leaves the others alone. An empty batch gives NaN for mean and inv_std and leaves the running values as they are.
    Deterministic. explain() and find() write nothing.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167.
    """
    x, scale, bias = operands(handle, x, scale, bias)
    return _C.batch_norm_forward_training(
        x, scale, bias, output(running_mean), output(running_var), momentum, eps, per_activation, algo or "", handle
    )


def batch_norm_forward_inference(
    x: ArrayLike,
    scale: ArrayLike,
    bias: ArrayLike,
    mean: ArrayLike,
    var: ArrayLike,
    *,
    eps: float = 1e-5,
    per_activation: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Batch normalization with given statistics, the running ones of training.

    y = scale (x - mean) / sqrt(var + eps) + bias

    x                       as in batch_norm_forward_training
    scale, bias, mean, var  [C], with per_activation x.shape[1:]; float32, float64 if x is float64
    eps, per_activation, algo, handle  as in batch_norm_forward_training
    out                     written instead of a new tensor; shape, dtype and device of x; may be x itself
    returns                 y like x

    Computed in float32, float64 for float64, then rounded once. Deterministic. Raises as batch_norm_forward_training.
    """
    x, scale, bias, mean, var = operands(handle, x, scale, bias, mean, var, out=out)
    return _C.batch_norm_forward_inference(
        x, scale, bias, mean, var, eps, per_activation, algo or "", output(out), handle
    )


def batch_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    scale: ArrayLike,
    saved_mean: ArrayLike,
    saved_inv_std: ArrayLike,
    *,
    per_activation: bool = False,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of batch_norm_forward_training, through its mean and variance too.

    dbias = sum(dy),  dscale = sum(dy x_hat),  dx = scale inv_std (dy - dbias / n - x_hat dscale / n)

    dy, x           one shape [N, C, spatial...], dtype and device; any strides
    scale           [C], with per_activation x.shape[1:]; float32, float64 if x is float64
    saved_mean, saved_inv_std  what the forward call returned, like scale
    per_activation, algo, handle  as in the forward call
    returns         dx like x; dscale and dbias, like scale

    Sums are float32, float64 for float64. NaN or Inf in a channel of x or dy makes that channel's results NaN. An empty
    batch gives zeros for dscale and dbias. Deterministic. Raises as batch_norm_forward_training.
    """
    dy, x, scale, saved_mean, saved_inv_std = operands(handle, dy, x, scale, saved_mean, saved_inv_std)
    return _C.batch_norm_backward(dy, x, scale, saved_mean, saved_inv_std, per_activation, algo or "", handle)
