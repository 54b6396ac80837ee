# SPDX-License-Identifier: Apache-2.0
"""Random tensors and dropout. A seed and an offset determine the numbers."""

from __future__ import annotations

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, Size, empty, entered, operands, output
from ..options import DTypeLike, Layout


def random_uniform(
    shape: Size,
    *,
    seed: int,
    offset: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = "float32",
    layout: Layout | None = None,
    device: str | None = None,
    algo: str | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Uniformly distributed random numbers in [low, high).

    low + (high - low) u,  u = w 2^-24 for 24 bits w of a word of Philox 4x32-10; for float64, 53 bits of two words

    shape, dtype, layout, device  as in empty(); floating dtypes
    seed, offset  from 0 to 2^63 - 1; calls with the same seed and offset give the same numbers, others unrelated ones
    low, high     finite, low <= high; if they are equal, every element has this value
    algo, handle  as in activation_forward()
    returns       a new tensor, written on the handle's stream (does not synchronise)

    An element depends on seed, offset and its index in row-major order of the shape. It has the same bits in every
    layout, on every device and for every number of threads. float16 and bfloat16 are rounded, so they can reach `high`.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
    """
    with entered(handle):  # the memory of y is allocated on the stream that writes y
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
    dtype: DTypeLike = "float32",
    layout: Layout | None = None,
    device: str | None = None,
    algo: str | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Normally distributed random numbers.

    mean + std z,  z = sqrt(-2 log u) cos(2 pi v) and sqrt(-2 log u) sin(2 pi v) for two elements

    mean, std  of the distribution; finite, std 0 or more
    The other arguments, the result and the errors are as in random_uniform().

    |z| is at most 6.8 in float32 and 8.6 in float64. Results on different devices differ by a few ulp of the logarithm.
    Source: Box & Muller 1958.
    """
    with entered(handle):  # the memory of y is allocated on the stream that writes y
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
    """Sets elements of x to zero at random, each with probability p, and scales the others by 1 / (1 - p).

    x             any shape and strides; float32, float64, float16 or bfloat16
    p             from 0 to 1
    seed, offset  as in random_uniform(); in a training loop, each call needs a different offset
    algo, handle  as in activation_forward()
    out           receives the result instead of a new tensor; may be x itself
    returns       a tensor like x, on x's device and the handle's stream (does not synchronise)

    No mask is stored: dropout_backward() computes it again from seed and offset. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
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
    """The gradient of dropout_forward: dy / (1 - p) where x was kept, and 0 elsewhere.

    dy               shape and dtype of x; its layout may differ from that of x
    p, seed, offset  those of the forward call
    out              receives dx instead of a new tensor; may be dy itself
    algo, handle, returns, errors  as in dropout_forward()
    """
    (dy,) = operands(handle, dy, out=out)
    return _C.dropout(dy, p, seed, offset, True, algo, output(out, handle), handle)
