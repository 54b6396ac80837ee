# SPDX-License-Identifier: Apache-2.0
"""Scaled copies, casts, and rounding to the storage dtypes. Results are float64 numbers, whatever dtype they are
rounded to."""

import numpy as np

_INTEGERS = ("int8", "uint8", "int16", "int32", "int64")


def transform(x, *, alpha=1.0, beta=0.0, y=None):
    """alpha * x + beta * y, y broadcast to x. beta == 0 does not read y, so NaN in y does not reach the result."""
    x = np.asarray(x, np.float64)
    if y is None or beta == 0:
        return alpha * x
    return alpha * x + beta * np.broadcast_to(np.asarray(y, np.float64), x.shape)


def rounded(x, dtype):
    """x rounded to the nearest value of float16, bfloat16, float32 or float64, ties to even; too large numbers give
    inf.

    It is a single rounding from float64: float64 -> float32 -> bfloat16 would round twice. Subnormals are kept.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return x.astype(dtype).astype(np.float64)
        # bfloat16 has 8 significant bits. Neighbouring numbers with |x| in [2^(e-1), 2^e) are 2^(e-8) apart.
        # Neighbouring subnormal numbers are 2^-133 apart. rint rounds ties to even.
        _, e = np.frexp(x)
        spacing = np.ldexp(1.0, np.maximum(e - 8, -133))
        y = np.rint(x / spacing) * spacing
        return np.where(np.abs(y) >= 2.0**128, np.copysign(np.inf, y), y)


def cast(x, dtype_name):
    """The values of x in dtype `dtype_name`: floats are rounded(), integers truncate toward zero, bool is x != 0 (NaN
    is true).

    An integer cast of NaN or of a value out of range has no defined result: ValueError.
    """
    x = np.asarray(x, np.float64)
    if dtype_name == "bool":
        return (x != 0).astype(np.float64)
    if dtype_name not in _INTEGERS:
        return rounded(x, dtype_name)
    whole, limits = np.trunc(x), np.iinfo(dtype_name)
    # limits.max + 1 is a power of two, so it is exact in float64, even for int64.
    if not np.all((whole >= float(limits.min)) & (whole < float(limits.max + 1))):
        raise ValueError(f"a cast to {dtype_name} takes values in [{limits.min}, {limits.max}]")
    return whole + 0.0  # + 0.0 turns -0.0 into 0.0, since integers have only one zero
