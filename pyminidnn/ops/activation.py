# SPDX-License-Identifier: Apache-2.0
"""Activations, forward and backward."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import Activation


def activation_forward(
    x: ArrayLike,
    mode: Activation,
    *,
    alpha: float | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Applies a nonlinear function to each element.

    identity x                        relu         max(x, 0)                clipped_relu  min(max(x, 0), alpha), alpha 6
    tanh     tanh x                   leaky_relu   x, alpha x below 0; 0.01 elu           x, alpha (e^x - 1) below 0; 1
    sigmoid  1 / (1 + e^-x)           gelu         x (1 + erf(x/sqrt 2))/2  gelu_tanh     its tanh approximation
    softplus log(1 + e^(alpha x)) / alpha, 1       silu (swish) x sigmoid x hardswish     x min(max(x + 3, 0), 6) / 6
    mish     x tanh(log(1 + e^x))

    x       any shape and strides; float32, float64, float16 or bfloat16; NumPy, DLPack or DeviceTensor
    mode    one of the names above
    alpha   the parameter in the formula; None: the default, which is the number after the formula
    algo    an engine by name, "cuda.activation.vectorized" or "vectorized"; None: the fastest expected
    out     receives the result instead of a new tensor; shape, dtype and device of x; may be x itself
    handle  None: the current handle of x's device
    returns a tensor like x, on x's device and the handle's stream (does not synchronise)

    Computed in float32 (float64 for float64), then rounded once. NaN gives NaN. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415 (gelu); Howard et al. 2019, arXiv:1905.02244 (hardswish);
    Misra 2019, arXiv:1908.08681 (mish); Clevert et al. 2015, arXiv:1511.07289 (elu).
    """
    (x,) = operands(handle, x, out=out)
    return _C.activation_forward(x, mode, alpha, algo, output(out, handle), handle)


def activation_backward(
    dy: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    mode: Activation,
    *,
    alpha: float | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of activation_forward: dx = dy f'(x).

    dy, x, y  one shape, dtype and device, any strides. x is the input of the forward call, which must not have been
              overwritten. y is its result: y is checked but not read, because every derivative is computed from x
    mode, alpha, algo, handle  as in activation_forward
    out       receives dx instead of a new tensor; may be dy or x itself
    returns   dx, in x's layout

    Computed in float32 (float64 for float64), then rounded once. At a kink the derivative is the left one: at 0 it is 0
    for relu and alpha for leaky_relu; the exception is hardswish at 3, where it is 1. NaN in x or dy gives NaN; for
    identity only NaN in dy does, since dx is dy. Deterministic. Raises the errors of activation_forward.
    """
    dy, x, y = operands(handle, dy, x, y, out=out)
    return _C.activation_backward(dy, x, y, mode, alpha, algo, output(out, handle), handle)
