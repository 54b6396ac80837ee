# SPDX-License-Identifier: Apache-2.0
"""Data types of the array API: casts, promotion, limits, and what the namespace says about itself."""

from __future__ import annotations

from builtins import bool as _bool
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _C
from .._C import DeviceTensor, DTypeError
from ..conversion import asarray, current_device
from ..dtypes import DTYPES, DType, bfloat16, bool, float16, float32, float64, int8, int32, int64, uint8
from ..methods import dtype_with_number
from ..refusals import refusal, short

DEFAULT_FLOAT, DEFAULT_INTEGER = float32, int64

_SIGNED, _UNSIGNED = (int8, int32, int64), (uint8,)
FLOATING, INTEGRAL = (float32, float64, float16, bfloat16), (*_SIGNED, *_UNSIGNED)
_KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": INTEGRAL,
    "real floating": FLOATING,
    "complex floating": (),
    "numeric": (*INTEGRAL, *FLOATING),
}
_STANDARD = (bool, int8, int32, int64, uint8, float32, float64)  # float16 and bfloat16 are no dtypes of the standard


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating dtype: what finfo() returns.

    bits             the number of bits of an element
    eps              the difference between 1.0 and the next larger number
    max, min         the largest and the smallest finite number
    smallest_normal  the smallest positive number with full precision
    """

    dtype: DType
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float


@dataclass(frozen=True)
class IntegerInfo:
    """The limits of an integer dtype: what iinfo() returns. `max` and `min` are the largest and the smallest number."""

    dtype: DType
    bits: int
    max: int
    min: int


def dtype_of(x: Any) -> DType:
    """The dtype object of a tensor, or of a dtype by any name."""
    found = x.dtype if isinstance(x, DeviceTensor) else x
    for dtype in DTYPES:
        if dtype == found:
            return dtype
    raise refusal(DTypeError, x, f"must be one of {', '.join(DTYPES)}; got {short(x)}")


def flag(name: str, value: Any) -> _bool:
    """The value of a parameter that is True or False. Raises DTypeError for another one."""
    if not isinstance(value, (_bool, np.bool_)):
        raise DTypeError(f"{name} must be True or False; got {short(value)}")
    return _bool(value)


def astype(x: DeviceTensor, dtype: Any, /, *, copy: _bool = True, device: str | None = None) -> DeviceTensor:
    """The elements cast to `dtype`, as in to(), on `device` (None: the device of x).

    copy=False: x itself, if nothing changes.
    """
    return asarray(x).to(dtype=dtype, device=device, copy=copy)


def can_cast(from_: Any, to: Any, /) -> _bool:
    """Whether promotion of the dtypes `from_` (or of a tensor) and `to` gives `to`."""
    source, target = dtype_of(from_), dtype_of(to)
    kinds = ("bool", "integral", "real floating")
    same_kind = any(source in _KINDS[kind] and target in _KINDS[kind] for kind in kinds)
    return same_kind and _C.promoted(source, target) == target


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating dtype, or of the dtype of a tensor. DTypeError for another dtype."""
    dtype = dtype_of(type)
    if dtype not in FLOATING:
        raise DTypeError(f"finfo: type must be a floating dtype; got {dtype}")
    # The bits of the fraction, and the exponents of the largest and of the smallest normal number.
    fraction, high, low = {"float32": (23, 127, -126), "float64": (52, 1023, -1022), "float16": (10, 15, -14)}.get(
        dtype.name, (7, 127, -126)
    )
    largest = (2.0 - 2.0**-fraction) * 2.0**high
    return FloatInfo(dtype, 8 * dtype.itemsize, 2.0**-fraction, largest, -largest, 2.0**low)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype, or of the dtype of a tensor. DTypeError for another dtype."""
    dtype = dtype_of(type)
    if dtype not in INTEGRAL:
        raise DTypeError(f"iinfo: type must be an integer dtype; got {dtype}")
    bits = 8 * dtype.itemsize
    if dtype == "uint8":
        return IntegerInfo(dtype, bits, 255, 0)
    return IntegerInfo(dtype, bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))


def isdtype(dtype: Any, kind: Any) -> _bool:
    """Whether a dtype is of a kind: a dtype, the name of a kind, or a tuple of these.

    Kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" and
    "numeric". float16 and bfloat16 are real floating.
    """
    found = dtype_of(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, k) for k in kind)
    if isinstance(kind, str) and not isinstance(kind, DType):
        if kind not in _KINDS:
            raise DTypeError(f"isdtype: kind must be a dtype or one of {', '.join(_KINDS)}; got {short(kind)}")
        return found in _KINDS[kind]
    return found == dtype_of(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of a result of these tensors, dtypes and Python numbers, as operators promote them.

    A Python number takes the dtype of the others if its kind allows. Raises DTypeError if there are only numbers.
    """
    numbers = [x for x in arrays_and_dtypes if type(x) in (_bool, int, float)]
    dtypes = [dtype_of(x) for x in arrays_and_dtypes if type(x) not in (_bool, int, float)]
    if not dtypes:
        raise DTypeError("result_type: arrays_and_dtypes must have a tensor or a dtype")
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = dtype_of(_C.promoted(result, dtype))
    for number in numbers:
        result = dtype_of(dtype_with_number(result, number, compares=False))
    return result


class NamespaceInfo:
    """What the namespace supports, by the inspection functions of the standard."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and shapes that depend on data work; a tensor has at most 8 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> str:
        """The device of new tensors: that of the current handle, else the CPU."""
        return current_device()

    def devices(self) -> list[str]:
        """The CPU and all GPUs."""
        return ["cpu", *(f"cuda:{i}" for i in range(_C.cuda_device_count()))]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The default dtype of each kind. There is no complex one."""
        return {"real floating": DEFAULT_FLOAT, "integral": DEFAULT_INTEGER, "indexing": DEFAULT_INTEGER}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of the standard that tensors can have, by name: all, or those of `kind` as in isdtype()."""
        return {d.name: d for d in _STANDARD if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """An object with the inspection functions."""
    return NamespaceInfo()
