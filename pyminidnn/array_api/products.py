# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and tensors by the array API."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, DTypeError, ShapeError
from ..conversion import asarray
from ..options import DTypeLike
from ..refusals import short
from .data_types import FLOATING, result_type
from .manipulation import axes_of, moveaxis


def matmul(x1: DeviceTensor, x2: DeviceTensor, /) -> DeviceTensor:
    """The matrix product x1 @ x2, with NumPy's rules for one dimension and for batches. Integers wrap around."""
    return asarray(x1) @ asarray(x2)


def matrix_transpose(x: DeviceTensor, /) -> DeviceTensor:
    """A view of x with the last two dimensions swapped."""
    return asarray(x).mT


def tensordot(
    x1: DeviceTensor, x2: DeviceTensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> DeviceTensor:
    """The sum of products over some dimensions: a matrix product after a permutation.

    axes  a number n: the last n dimensions of x1 with the first n of x2; or the dimensions of x1, and those of x2
    returns  the other dimensions of x1, then those of x2
    """
    a, b = asarray(x1), asarray(x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ShapeError(f"tensordot: axes must be from 0 to {min(a.ndim, b.ndim)}; got {short(axes)}")
        first, second = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    elif isinstance(axes, (tuple, list)) and len(axes) == 2:
        first, second = axes_of("tensordot", axes[0], a.ndim), axes_of("tensordot", axes[1], b.ndim)
    else:
        raise DTypeError(f"tensordot: axes must be an int or a pair of sequences of ints; got {short(axes)}")
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise ShapeError(
            f"tensordot: axes must name dimensions of equal sizes; got {short(axes)} of x1 {list(a.shape)} and x2 "
            f"{list(b.shape)}"
        )
    rows = [i for i in range(a.ndim) if i not in first]
    columns = [i for i in range(b.ndim) if i not in second]
    shape = [*(a.shape[i] for i in rows), *(b.shape[i] for i in columns)]
    m, k, n = (math.prod(sizes) for sizes in (
        [a.shape[i] for i in rows], [a.shape[i] for i in first], [b.shape[i] for i in columns]))  # fmt: skip
    left, right = a.permute((*rows, *first)).reshape((m, k)), b.permute((*second, *columns)).reshape((k, n))
    return (left @ right).reshape(shape)


def vecdot(x1: DeviceTensor, x2: DeviceTensor, /, *, axis: int = -1) -> DeviceTensor:
    """The sum of products along `axis`, from -min(ranks) to -1; other dimensions broadcast. Integers wrap around."""
    a, b = asarray(x1), asarray(x2)
    most = min(a.ndim, b.ndim)
    if not -most <= _C.integer(axis) < 0:
        raise ShapeError(f"vecdot: axis must be from {-most} to -1; got {short(axis)}")
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(f"vecdot: x1 {list(a.shape)} and x2 {list(b.shape)} must have one size along axis {axis}")
    dtype = result_type(a, b)
    # The products of 16-bit numbers are not rounded before they are added.
    compute: DTypeLike = "float32" if dtype in FLOATING and dtype.itemsize == 2 else dtype
    products = moveaxis(a.to(dtype=compute), axis, -1) * moveaxis(b.to(dtype=compute), axis, -1)
    return products.sum(axis=-1).to(dtype=dtype)
