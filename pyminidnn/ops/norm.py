# SPDX-License-Identifier: Apache-2.0
"""Batch, layer, RMS, group, instance, local response and local contrast normalization, forward and backward."""

from __future__ import annotations

from typing import Literal

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
    algo            an engine by name, "cuda.norm.generic" or "generic"; None: the fastest expected
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


def layer_norm_forward(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """Normalizes each row to mean 0 and variance 1, then scales and shifts it element by element.

    y = scale x_hat + bias,  x_hat = (x - mean) inv_std,  inv_std = 1 / sqrt(var + eps)
    mean = sum(x) / n,  var = sum((x - mean)^2) / n,  over the n elements of a row: dimensions axis and later

    x            any shape and strides; float32, float64, float16 or bfloat16; NumPy, DLPack or DeviceTensor
    scale, bias  x.shape[axis:]; float32 (float64 if x is float64); None: ones, zeros
    axis         the first dimension of a row; negative counts from the end
    eps          0 or more; with 0 a constant row gives NaN
    algo         an engine by name, "cuda.norm.rows" or "rows"; None: the fastest expected
    handle       None: the current handle of x's device
    returns      y, like x; mean and inv_std, x.shape[:axis], for layer_norm_backward; on x's device and the handle's
                 stream (does not synchronise)

    Sums are float32 (float64 for float64). They are sums of deviations, so a mean far from 0 costs only its own
    rounding. NaN or Inf makes its row NaN and no other. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """
    x, scale, bias = operands(handle, x, scale, bias)
    y, mean, inv_std = _C.row_norm_forward("layer_norm_forward", "layer", axis, x, scale, bias, eps, algo, handle)
    assert mean is not None
    return y, mean, inv_std


def layer_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    scale: ArrayLike | None,
    mean: ArrayLike,
    inv_std: ArrayLike,
    *,
    axis: int = -1,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of layer_norm_forward, including those through its mean and variance.

    g = dy scale,  dx = inv_std (g - sum(g) / n - x_hat sum(g x_hat) / n)  over a row
    dscale = sum(dy x_hat),  dbias = sum(dy)                               over all rows

    dy, x          one shape, dtype and device; any strides
    scale, axis, algo, handle  as in the forward call
    mean, inv_std  what the forward call returned
    returns        dx, like x; dscale and dbias, x.shape[axis:], float32 (float64 if x is float64)

    Sums are float32 (float64 for float64). Deterministic. Raises the errors of layer_norm_forward.
    """
    dy, x, scale, mean, inv_std = operands(handle, dy, x, scale, mean, inv_std)
    dx, dscale, dbias = _C.row_norm_backward(
        "layer_norm_backward", "layer", axis, dy, x, scale, mean, inv_std, algo, handle
    )
    assert dbias is not None
    return dx, dscale, dbias


def rms_norm_forward(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    axis: int = -1,
    eps: float = 1e-5,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """Divides each row by its root mean square, then scales it element by element.

    y = scale x inv_rms,  inv_rms = 1 / sqrt(sum(x^2) / n + eps)
    over the n elements of a row: dimensions axis and later

    x, scale, axis, eps, algo, handle  as in layer_norm_forward
    returns  y, like x; inv_rms, x.shape[:axis], for rms_norm_backward

    Sums are float32 (float64 for float64). Deterministic. Raises the errors of layer_norm_forward.
    Source: Zhang & Sennrich 2019, arXiv:1910.07467.
    """
    x, scale = operands(handle, x, scale)
    y, _, inv_rms = _C.row_norm_forward("rms_norm_forward", "rms", axis, x, scale, None, eps, algo, handle)
    return y, inv_rms


def rms_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    scale: ArrayLike | None,
    inv_rms: ArrayLike,
    *,
    axis: int = -1,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """The gradients of rms_norm_forward.

    g = dy scale,  dx = inv_rms (g - x_hat sum(g x_hat) / n),  x_hat = x inv_rms;  dscale = sum(dy x_hat) over all rows

    dy, x, scale, axis, algo, handle  as in layer_norm_backward
    inv_rms  what the forward call returned
    returns  dx, like x; dscale, x.shape[axis:], float32 (float64 if x is float64)

    Sums are float32 (float64 for float64). Deterministic. Raises the errors of layer_norm_forward.
    """
    dy, x, scale, inv_rms = operands(handle, dy, x, scale, inv_rms)
    dx, dscale, _ = _C.row_norm_backward("rms_norm_backward", "rms", axis, dy, x, scale, None, inv_rms, algo, handle)
    return dx, dscale


def group_norm_forward(
    x: ArrayLike,
    groups: int,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """Normalizes groups of channels of each sample to mean 0 and variance 1, then scales and shifts each channel.

    y = scale x_hat + bias,  x_hat = (x - mean) inv_std,  inv_std = 1 / sqrt(var + eps)
    mean and var over the channels of a group and the spatial dimensions

    x            [N, C, spatial...], 2 to 5 dimensions, any strides; dtypes as in layer_norm_forward
    groups       the number of groups; divides C; a group is C / groups neighbouring channels
    scale, bias  [C]; float32 (float64 if x is float64); None: ones, zeros
    eps, algo, handle  as in layer_norm_forward
    returns      y, like x; mean and inv_std, [N, groups], for group_norm_backward

    Numerics and errors as in layer_norm_forward. Source: Wu & He 2018, arXiv:1803.08494.
    """
    x, scale, bias = operands(handle, x, scale, bias)
    y, mean, inv_std = _C.row_norm_forward("group_norm_forward", "group", groups, x, scale, bias, eps, algo, handle)
    assert mean is not None
    return y, mean, inv_std


def group_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    groups: int,
    scale: ArrayLike | None,
    mean: ArrayLike,
    inv_std: ArrayLike,
    *,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of group_norm_forward: the formulas of layer_norm_backward, with a group of a sample as a row.

    dy, x          one shape [N, C, spatial...], dtype and device; any strides
    groups, scale, algo, handle  as in the forward call
    mean, inv_std  what the forward call returned
    returns        dx, like x; dscale and dbias, [C], summed over N and the spatial dimensions, float32 (float64 if x is
                   float64)

    Numerics and errors as in layer_norm_backward.
    """
    dy, x, scale, mean, inv_std = operands(handle, dy, x, scale, mean, inv_std)
    dx, dscale, dbias = _C.row_norm_backward(
        "group_norm_backward", "group", groups, dy, x, scale, mean, inv_std,
        algo, handle,
    )  # fmt: skip
    assert dbias is not None
    return dx, dscale, dbias


def instance_norm_forward(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """Normalizes each channel of each sample to mean 0 and variance 1, then scales and shifts it.

    This is group_norm_forward with one channel per group: arguments, results and errors are the same. mean and inv_std
    are [N, C].
    Source: Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022.
    """
    x, scale, bias = operands(handle, x, scale, bias)
    y, mean, inv_std = _C.row_norm_forward("instance_norm_forward", "instance", 0, x, scale, bias, eps, algo, handle)
    assert mean is not None
    return y, mean, inv_std


def instance_norm_backward(
    dy: ArrayLike,
    x: ArrayLike,
    scale: ArrayLike | None,
    mean: ArrayLike,
    inv_std: ArrayLike,
    *,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of instance_norm_forward. Arguments, results and errors as in group_norm_backward."""
    dy, x, scale, mean, inv_std = operands(handle, dy, x, scale, mean, inv_std)
    dx, dscale, dbias = _C.row_norm_backward(
        "instance_norm_backward", "instance", 0, dy, x, scale, mean, inv_std, algo, handle
    )
    assert dbias is not None
    return dx, dscale, dbias


def lrn_forward(
    x: ArrayLike,
    size: int,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Local response normalization: divides each element by a power of the sum of squares over neighbouring channels.

    y_c = x_c s_c^-beta,  s_c = k + alpha / size sum(x_j^2)  over channels j of [c - (size - 1) // 2, c + size // 2]

    x        [N, C, spatial...], 2 to 5 dimensions, any strides; float32, float64, float16 or bfloat16; NumPy, DLPack or
             DeviceTensor
    size     the number of channels in a window, 1 to 2^20; channels that do not exist count as zeros
    alpha    0 or more; it is divided by size, as in torch, ONNX and cuDNN
    beta     above 0
    k        0 or more; ONNX calls it bias. The default of cuDNN is 2
    algo     an engine by name, "cuda.norm.across" or "across"; None: the fastest expected
    out      receives y instead of a new tensor; shape, dtype and device of x; not x itself
    handle   None: the current handle of x's device
    returns  y, like x, on x's device and the handle's stream (does not synchronise)

    For an even size, the window has one more channel after c than before it, as in cuDNN and ONNX; in torch it has one
    more before. Computed in float32 (float64 for float64), with a separate sum for each window, then rounded once. NaN
    makes the windows that contain it NaN. Inf makes its own y NaN and the other y of its windows 0. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Krizhevsky, Sutskever & Hinton 2012, section 3.3.
    """
    (x,) = operands(handle, x, out=out)
    return _C.lrn_forward(x, size, alpha, beta, k, algo, output(out), handle)


def lrn_backward(
    dy: ArrayLike,
    x: ArrayLike,
    size: int,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of lrn_forward, computed from its input.

    dx_c = dy_c s_c^-beta - 2 alpha beta / size x_c sum(dy_j x_j s_j^(-beta - 1))  over all j whose window contains c

    dy, x    one shape, dtype and device; any strides
    size, alpha, beta, k, algo, handle  as in the forward call
    out      receives dx instead of a new tensor; like x; not x or dy
    returns  dx, like x

    Numerics and errors as in lrn_forward.
    """
    dy, x = operands(handle, dy, x, out=out)
    return _C.lrn_backward(dy, x, size, alpha, beta, k, algo, output(out), handle)


def lcn_forward(
    x: ArrayLike,
    size: int,
    *,
    means: ArrayLike | None = None,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Local contrast normalization: divides each element by a power of the variance of its spatial neighbours.

    y_i = x_i s_i^-beta,  s_i = k + alpha / size^d sum((x_j - m_i)^2)  over its window in d spatial dimensions

    x        [N, C, spatial...], 3 to 5 dimensions, any strides; dtypes as in lrn_forward
    size     of the window along each spatial dimension, 1 to 2^20: (size - 1) // 2 elements before i, size // 2 after.
             At an edge the window is clipped, and the sum is still divided by size^d
    means    m_i, usually the mean of the window of i; shape and dtype of x, any strides; None: zeros
    alpha, beta, k, algo, out, handle  as in lrn_forward
    returns  y, like x

    This is cuDNN's divisive normalization with precomputed means: m_i is subtracted from the x_j in the window of i,
    but not from the x_i that is divided. With zero means it equals Caffe's LRN within channels. Numerics and errors as
    in lrn_forward.
    Source: Jarrett, Kavukcuoglu, Ranzato & LeCun 2009.
    """
    x, means = operands(handle, x, means, out=out)
    return _C.lcn_forward(x, means, size, alpha, beta, k, algo, output(out), handle)


def lcn_backward(
    dy: ArrayLike,
    x: ArrayLike,
    size: int,
    *,
    means: ArrayLike | None = None,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor | tuple[DeviceTensor, DeviceTensor]:
    """The gradients of lcn_forward, computed from its inputs.

    g_i = dy_i x_i s_i^(-beta - 1),  c = 2 alpha beta / size^d
    dx_i = dy_i s_i^-beta - c sum(g_j (x_i - m_j))  over all j whose window contains i
    dmeans_i = c g_i sum(x_j - m_i)                 over all j in the window of i

    dy, x, means  one shape, dtype and device; any strides
    size, alpha, beta, k, algo, handle  as in the forward call
    out      receives dx instead of a new tensor; like x; not dy, x or means
    returns  dx, like x; with means, also dmeans, like x

    Numerics and errors as in lrn_forward.
    """
    dy, x, means = operands(handle, dy, x, means, out=out)
    dx, dmeans = _C.lcn_backward(dy, x, means, size, alpha, beta, k, algo, output(out), handle)
    return dx if dmeans is None else (dx, dmeans)
