# SPDX-License-Identifier: Apache-2.0
"""Random tensors and dropout, replayable from a seed and an offset."""

from __future__ import annotations

from typing import Any

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, Size, empty, entered, operands, output


def random_uniform(
    shape: Size,
    *,
    seed: int,
    offset: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    dtype: Any = "float32",
    layout: str | None = None,
    device: str | None = None,
    algo: str | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Random numbers from `low` to below `high`, each as likely.

    low + (high - low) u,  u = w 2^-24 for 24 bits of a word of Philox 4x32-10, 53 bits of two words for float64

    low, high  finite, and low <= high; where both are one number, it is the result

    shape, dtype, layout, device  as in empty(); floating dtypes
    seed, offset  from 0 to 2^63 - 1; two calls that agree in both give the same numbers, others unrelated ones
    algo, handle  as in activation_forward()

    An element's number depends on seed, offset and its place in row-major order of the shape: on no layout, device or
    number of threads, and the bits are the same on all. float16 and bfloat16 are rounded, and so reach `high`.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
    """
    with entered(handle):  # allocated on the stream that writes it
        y = empty(shape, dtype=dtype, layout=layout, device=device)
    _C.fill_uniform(y, seed, offset, low, high, algo, handle)
    return y


def random_normal(
    shape: Size,
    *,
    seed: int,
    offset: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = "float32",
    layout: str | None = None,
    device: str | None = None,
    algo: str | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Random numbers of a normal distribution.

    mean + std z,  z = sqrt(-2 log u) cos(2 pi v) and sqrt(-2 log u) sin(2 pi v) for two elements

    mean, std  of the distribution: finite, std not negative; the rest as in random_uniform()

    |z| is at most 6.8, and 8.6 in float64.

    The numbers are the same everywhere but for some ulp of the logarithm. Source: Box & Muller 1958.
    """
    with entered(handle):  # allocated on the stream that writes it
        y = empty(shape, dtype=dtype, layout=layout, device=device)
    _C.fill_normal(y, seed, offset, mean, std, algo, handle)
    return y


def dropout_forward(
    x: ArrayLike,
    p: float,
    *,
    seed: int,
    offset: int = 0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """x with elements set to zero at random, each with probability p, and the others scaled by 1 / (1 - p).

    x             any shape and strides; float32, float64, float16 or bfloat16
    p             from 0 to 1
    seed, offset  as in random_uniform(); a training loop gives each call another offset
    out           written instead of a new tensor; may be x itself
    returns       a tensor like x

    No mask is stored: dropout_backward() computes it again from seed and offset. Deterministic.
    Source: Srivastava et al. 2014, Dropout: a simple way to prevent neural networks from overfitting.
    """
    (x,) = operands(handle, x, out=out)
    return _C.dropout(x, p, seed, offset, False, algo, output(out, handle), handle)


def dropout_backward(
    dy: ArrayLike,
    p: float,
    *,
    seed: int,
    offset: int = 0,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of dropout_forward: dy where x was kept, scaled by 1 / (1 - p), and 0 elsewhere.

    p, seed, offset are those of the forward call; dy may have another layout than x had. `out` may be dy itself.
    """
    (dy,) = operands(handle, dy, out=out)
    return _C.dropout(dy, p, seed, offset, True, algo, output(out, handle), handle)
