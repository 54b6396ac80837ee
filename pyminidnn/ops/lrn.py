# SPDX-License-Identifier: Apache-2.0
"""Local response and local contrast normalization, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output


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
    algo     an engine by name, "cuda.lrn.cross_channel" or "cross_channel"; None: the fastest expected
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
