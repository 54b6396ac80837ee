# SPDX-License-Identifier: Apache-2.0
"""Copies that scale, accumulate, cast, or change layout."""

from __future__ import annotations

from typing import Any

from .. import _C
from .._C import DeviceTensor, Handle
from ..tensor import ArrayLike, operands, output


def transform(
    x: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: Any = None,
    layout: str | None = None,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """alpha x + beta out: a copy that may scale, add to what is there, cast, broadcast or change layout.

    x        any shape, strides and dtype; broadcast to out's shape as NumPy does
    alpha    factor of x; other than 1 it needs floating dtypes
    beta     factor of out's old value, which is not read when beta is 0; needs `out` and floating dtypes
    dtype, layout  of the result when `out` is not given; None: x's own
    out      written instead of a new tensor; may be x itself when shape, strides and dtype agree
    algo, handle  as in activation_forward
    returns  the result, on x's device and the handle's stream (does not synchronise)

    Casts round to nearest even; real to integer truncates and saturates, NaN gives 0; anything to bool is "not zero".
    Scaling is computed in float32, float64 for a float64 result. Deterministic.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    (x,) = operands(handle, x, out=out)
    return _C.transform(x, alpha, beta, dtype, layout, algo or "", output(out, handle), handle)
