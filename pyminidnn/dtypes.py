# SPDX-License-Identifier: Apache-2.0
"""The element types of tensors, as objects: pyminidnn.float32 and so on."""

from __future__ import annotations

import builtins
from typing import Any

from . import _C


class DType(str):
    """An element type. It is a str with the name, and equals the dtypes of NumPy, torch and ml_dtypes of that name.

    name      "float32"
    itemsize  the bytes of an element
    """

    __slots__ = ("itemsize",)
    itemsize: int

    def __new__(cls, name: str, itemsize: int) -> DType:
        """Called once for each dtype, below."""
        self = super().__new__(cls, name)
        self.itemsize = itemsize
        return self

    @property
    def name(self) -> str:
        """The name as a plain str."""
        return str(self)

    def __eq__(self, other: object) -> builtins.bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        if isinstance(other, (int, float)):
            return False
        name = getattr(other, "name", None) or getattr(other, "__name__", None) or str(other)
        return isinstance(name, str) and str.__eq__(self, name.rpartition(".")[2])

    def __ne__(self, other: object) -> builtins.bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> Any:
        return _named, (str(self),)


def _named(name: str) -> DType:
    return DTYPES[_C.dtypes.index(name)]


DTYPES = tuple(DType(name, size) for name, size in zip(_C.dtypes, _C.itemsizes, strict=True))
float32, float64, float16, bfloat16, int8, uint8, int32, int64, bool = DTYPES
_C.set_dtype_objects(DTYPES)
