# SPDX-License-Identifier: Apache-2.0
"""Sums, means, products, extremes and their places, norms, any and all, over any dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output


def reduce(
    x: ArrayLike,
    mode: str,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """One value out of the elements along `axis`, as `mode` says.

    sum, mean, prod     of the elements
    max, min, amax      the largest, the smallest, the largest absolute value; NaN where there is one. The magnitude of
                        the least integer is no number of its dtype: amax gives the largest one instead
    norm1, norm2, sumsq sum of |x|, root of the sum of x^2, sum of x^2
    argmax, argmin      where the first largest or smallest element is, counted in row-major order of the dimensions
                        that are reduced; a NaN comes first
    any, all            whether an element is not zero (NaN is not), whether all are

    x         any shape, strides and dtype; NumPy, DLPack or DeviceTensor
    axis      a dimension or several, negative ones count from the end; None: all
    keepdims  dimensions that are reduced stay, with one element
    algo, handle  as in activation_forward
    out       written instead of a new tensor; of the result's shape and dtype, apart from x
    returns   of x's dtype, with these exceptions: bool for any and all; int64 for argmax and argmin; of integers and
              bool int64 for sum, prod and sumsq, float32 for mean, norm1 and norm2. Row-major, on x's device and the
              handle's stream (does not synchronise)

    Computed in float32, float64 for float64, int64 for integers (which wrap round), float64 for integers' means and
    norms; norm2 squares elements as they are, so it overflows where their squares do. Of no elements a sum is 0, a
    product 1, a mean NaN, any False and all True; extremes and their places have no value then. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    """
    (x,) = operands(handle, x, out=out)
    return _C.reduce(x, mode, axis, keepdims, algo, output(out, handle), handle)
