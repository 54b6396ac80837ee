# SPDX-License-Identifier: Apache-2.0
"""Reductions over any dimensions: sum, mean, product, extremes and their indices, norms, any and all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import ReduceMode


class _Reduction(Protocol):
    def __call__(
        self,
        x: ArrayLike,
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        algo: str | None = None,
        out: ArrayLike | None = None,
        handle: Handle | None = None,
    ) -> DeviceTensor: ...


def reduce(
    x: ArrayLike,
    mode: ReduceMode,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """Reduces the elements along `axis` to one value.

    sum, mean, prod     the sum, mean or product of the elements
    max, min, amax      the largest element, the smallest element, the largest absolute value; NaN if an element is NaN.
                        amax of the smallest integer gives the largest integer, because its dtype has no such magnitude
    norm1, norm2, sumsq the sum of |x|, the root of the sum of x^2, the sum of x^2
    argmax, argmin      the index of the first largest or smallest element, in row-major order of the reduced
                        dimensions; if there is a NaN, the index of the first NaN
    any, all            whether any element is true, whether all are; zero is false, everything else (also NaN) is true

    x         any shape, strides and dtype; NumPy, DLPack or DeviceTensor
    axis      a dimension or several; negative ones count from the end; None: all
    keepdims  True: a reduced dimension keeps one element; False: it is removed
    algo, handle  as in activation_forward
    out       receives the result instead of a new tensor; shape and dtype of the result; shares no memory with x
    returns   a row-major tensor on x's device and the handle's stream (does not synchronise). It has the dtype of x,
              except: bool for any and all; int64 for argmax and argmin. For integers and bool: int64 for sum, prod and
              sumsq; float32 for mean, norm1 and norm2

    Floats are computed in float32 (float64 for float64). Integers are computed in int64, which wraps around, and their
    means and norms in float64. norm2 does not scale the elements, so it overflows if the sum of squares does. For zero
    elements sum and norms are 0, prod is 1, mean is NaN, any is False and all is True; extremes and their indices raise
    ShapeError. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    """
    (x,) = operands(handle, x, out=out)
    return _C.reduce(x, mode, axis, keepdims, algo, output(out, handle), handle)


def _mode(name: ReduceMode) -> _Reduction:
    def function(
        x: ArrayLike,
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        algo: str | None = None,
        out: ArrayLike | None = None,
        handle: Handle | None = None,
    ) -> DeviceTensor:
        return reduce(x, name, axis=axis, keepdims=keepdims, algo=algo, out=out, handle=handle)

    function.__name__ = function.__qualname__ = name
    # Texts of errors take the name of the public function from its code object.
    function.__code__ = function.__code__.replace(co_name=name)
    function.__doc__ = f'reduce(x, "{name}", ...).'
    return function


sum, mean, max, min, prod = (_mode(name) for name in ("sum", "mean", "max", "min", "prod"))
argmax, argmin, any, all = (_mode(name) for name in ("argmax", "argmin", "any", "all"))
