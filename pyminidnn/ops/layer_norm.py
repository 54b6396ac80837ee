# SPDX-License-Identifier: Apache-2.0
"""Layer, RMS, group and instance normalization, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands


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
    algo         an engine by name, "cuda.layer_norm.persistent_rows" or "persistent_rows"; None: the fastest expected
    handle       None: the current handle of x's device
    returns      y, like x; mean and inv_std, x.shape[:axis], for layer_norm_backward; on x's device and the handle's
                 stream (does not synchronise)

    Sums are float32 (float64 for float64). They are sums of deviations, so a mean far from 0 costs only its own
    rounding. NaN or Inf makes its row NaN and no other. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450.
    """
    x, scale, bias = operands(handle, x, scale, bias)
    y, mean, inv_std = _C.layer_norm_forward("layer_norm_forward", "layer", axis, x, scale, bias, eps, algo, handle)
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
    dx, dscale, dbias = _C.layer_norm_backward(
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
    y, _, inv_rms = _C.layer_norm_forward("rms_norm_forward", "rms", axis, x, scale, None, eps, algo, handle)
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
    dx, dscale, _ = _C.layer_norm_backward("rms_norm_backward", "rms", axis, dy, x, scale, None, inv_rms, algo, handle)
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
    y, mean, inv_std = _C.layer_norm_forward("group_norm_forward", "group", groups, x, scale, bias, eps, algo, handle)
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
    dx, dscale, dbias = _C.layer_norm_backward(
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
    y, mean, inv_std = _C.layer_norm_forward("instance_norm_forward", "instance", 0, x, scale, bias, eps, algo, handle)
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
    dx, dscale, dbias = _C.layer_norm_backward(
        "instance_norm_backward", "instance", 0, dy, x, scale, mean, inv_std, algo, handle
    )
    assert dbias is not None
    return dx, dscale, dbias
