# SPDX-License-Identifier: Apache-2.0
"""Convolution and its gradients, in 1-D, 2-D or 3-D according to the rank of the tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import Activation, ConvMode

PerDimension: TypeAlias = int | Sequence[int]
Padding: TypeAlias = int | Sequence[int | tuple[int, int]]


def conv_forward(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: int = 1,
    activation: Activation | None = None,
    mode: ConvMode = "cross_correlation",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Convolves x with the filters w, adds a bias and a residual, and applies an activation, in one pass over y.

    y[n, k, p] = activation(sum_{c, r} w[k, c, r] x[n, g C/groups + c, p stride - before + r dilation] + bias[k]
                            + residual[n, k, p])

    g = k // (K/groups) is the group of filter k. x counts as zero outside its bounds. p and r have 1 to 3 dimensions.
    In each, P = floor((before + H + after - dilation (R - 1) - 1) / stride) + 1.

    x           [N, C, spatial...], rank 3 to 5, any strides; float32, float64, float16 or bfloat16
    w           [K, C/groups, window...], dtype of x, any strides
    bias        [K], dtype of x; None: no bias
    residual    [N, K, P...], dtype of y, any strides; None: nothing is added
    stride, dilation  positive; one number for all spatial dimensions, or one for each
    padding     0 or more; one number for all spatial dimensions, or for each a number or a pair (before, after)
    groups      divides C and K; groups=C is a depthwise convolution
    activation  a mode of activation_forward, with its default alpha; None: none
    mode        "convolution" flips the window: it uses w[k, c, R-1-r]
    algo        an engine by name, "cpu.conv.im2col_gemm" or "im2col_gemm"; None: the fastest expected.
                A config may follow: "im2col_gemm:images=2"
    out         receives y instead of a new tensor; [N, K, P...] on x's device; dtype of x, or float32 for 16-bit x;
                may be residual itself, and shares memory with no other input
    handle      None: the current handle of x's device
    returns     y [N, K, P...] in the layout of x, on x's device and the handle's stream (does not synchronise)

    Sums are float32 (float64 for float64), and y is rounded once, after the activation. On a GPU, float32 products may
    be rounded to TF32; Handle(math="ieee") forbids this. Some engines skip the zeros of the padding, others multiply
    them by the weights: at a border, an infinite or NaN weight may make NaN or not. If C is 0,
    y = activation(bias + residual). Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Chellapilla, Puri & Simard 2006 (convolution as a matrix product).
    """
    x, w, bias, residual = operands(handle, x, w, bias, residual, out=out)
    return _C.conv_forward(
        x, w, bias, residual, stride, padding, dilation, groups, activation, mode, algo, output(out), handle
    )


def conv_forward_statistics(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: int = 1,
    activation: Activation | None = None,
    mode: ConvMode = "cross_correlation",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """conv_forward, and for each channel of y the sum of its elements and of their squares, as batch norm needs them.

    sum[k] = sum_{n, p} y[n, k, p],  sum_of_squares[k] = sum_{n, p} y[n, k, p]^2

    x, w, bias, residual, stride, padding, dilation, groups, activation, mode, algo, out, handle  as in conv_forward
    returns  y as conv_forward returns it, and the two sums [K], contiguous, float32 (float64 if y is float64), on x's
             device and the handle's stream (does not synchronise)

    Some engines add up y while they store it; the others read y again. The sums are those of y as it is stored, that is
    after the activation and after rounding. An empty batch gives zeros. A channel has N P elements:
    mean = sum / (N P), var = sum_of_squares / (N P) - mean^2. This variance loses digits if |mean| is much larger than
    the standard deviation. batch_norm_forward_training reads y again and does not lose them.
    Deterministic. Raises the errors of conv_forward.
    """
    x, w, bias, residual = operands(handle, x, w, bias, residual, out=out)
    return _C.conv_forward_statistics(
        x, w, bias, residual, stride, padding, dilation, groups, activation, mode, algo, output(out), handle
    )


def conv_backward_data(
    dy: ArrayLike,
    w: ArrayLike,
    x_shape: Sequence[int],
    *,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: int = 1,
    mode: ConvMode = "cross_correlation",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of conv_forward with respect to x. It is also the transposed convolution of dy.

    dx[n, c, h] = sum_{k, r, p: p stride - before + r dilation = h} w[k, c, r] dy[n, k, p]

    dy       [N, K, P...], the gradient before the activation, any strides
    w        [K, C/groups, window...] as in conv_forward
    x_shape  [N, C, spatial...] of x. With a stride, several sizes of x give the same size of dy; each is accepted
    out      receives dx instead of a new tensor; x_shape on dy's device; dtype of dy, or float32 for 16-bit dy; shares
             memory with no input
    stride, padding, dilation, groups, mode, algo, handle  as in conv_forward
    returns  dx in the layout of dy; zero at elements that no window contains

    Sums are float32 (float64 for float64) and rounded once. TF32, padding and errors are as in conv_forward.
    Deterministic.
    """
    dy, w = operands(handle, dy, w, out=out)
    return _C.conv_backward_data(dy, w, x_shape, stride, padding, dilation, groups, mode, algo, output(out), handle)


def conv_backward_filter(
    dy: ArrayLike,
    x: ArrayLike,
    w_shape: Sequence[int],
    *,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: int = 1,
    mode: ConvMode = "cross_correlation",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of conv_forward with respect to w.

    dw[k, c, r] = sum_{n, p} dy[n, k, p] x[n, g C/groups + c, p stride - before + r dilation]

    dy       [N, K, P...], the gradient before the activation, any strides
    x        [N, C, spatial...] as in conv_forward
    w_shape  [K, C/groups, window...] of w
    out      receives dw instead of a new tensor; w_shape on x's device; dtype of x, or float32 for 16-bit x; shares
             memory with no input
    stride, padding, dilation, groups, mode, algo, handle  as in conv_forward
    returns  dw, channels last in memory if x is channels last, else row-major

    The sum over all images is float32 (float64 for float64) and rounded once. An empty batch gives zeros. An infinite
    or NaN dy whose window overlaps the padding may make NaN or not; this depends on the engine. TF32 and
    errors are as in conv_forward. Deterministic.
    """
    dy, x = operands(handle, dy, x, out=out)
    return _C.conv_backward_filter(dy, x, w_shape, stride, padding, dilation, groups, mode, algo, output(out), handle)


def conv_backward_bias(
    dy: ArrayLike,
    *,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of conv_forward with respect to its bias.

    db[k] = sum_{n, p} dy[n, k, p]

    dy       [N, K, P...], rank 3 to 5, the gradient before the activation, any strides
    out      receives db instead of a new tensor; [K], dtype and device of dy; shares no memory with dy
    algo, handle  as in conv_forward
    returns  db [K]

    Sums are float32 (float64 for float64). An empty batch gives zeros. Deterministic.
    Raises the errors of conv_forward.
    """
    (dy,) = operands(handle, dy, out=out)
    return _C.conv_backward_bias(dy, algo, output(out), handle)
