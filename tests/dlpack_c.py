# SPDX-License-Identifier: Apache-2.0
"""The C side of DLPack in ctypes: valid and invalid capsules, as another library would make them, and access to the
structures inside our own.

A Foreign array counts the calls of its deleter.
"""

from __future__ import annotations

import ctypes
from ctypes import (  # fmt: skip
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from typing import Any

import numpy as np


class DLDevice(Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class DLDataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(Structure):
    _fields_ = (("data", c_void_p), ("device", DLDevice), ("ndim", c_int32), ("dtype", DLDataType),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64))  # fmt: skip


Deleter = CFUNCTYPE(None, c_void_p)


class Managed(Structure):  # a managed tensor of DLPack versions before 1.0
    _fields_ = (("tensor", DLTensor), ("context", c_void_p), ("deleter", Deleter))


class ManagedVersioned(Structure):  # a managed tensor of DLPack 1.x
    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", Deleter), ("flags", c_uint64),
                ("tensor", DLTensor))  # fmt: skip


READ_ONLY, COPIED = 1, 2
NAMES = {Managed: b"dltensor", ManagedVersioned: b"dltensor_versioned"}

Destructor = CFUNCTYPE(None, c_void_p)
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, Destructor)(("PyCapsule_New", ctypes.pythonapi))
# While the destructor of a capsule runs, no new reference to the capsule may be made. So these functions take the
# capsule's address instead of the object.
_is_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))


@Destructor
def _destroy(capsule: int) -> None:
    """The destructor that the protocol requires of an exporter: it deletes the structure if no consumer has taken
    it."""
    for kind, name in NAMES.items():
        if _is_valid(capsule, name):
            managed = kind.from_address(_pointer(capsule, name))
            if managed.deleter:
                managed.deleter(ctypes.addressof(managed))


def look_into(capsule: object) -> Managed | ManagedVersioned | None:
    """The structure in a capsule that no consumer has taken."""
    for kind, name in NAMES.items():
        if _is_valid(id(capsule), name):
            return kind.from_address(_pointer(id(capsule), name))
    return None


def consume(capsule: object) -> Managed | ManagedVersioned:
    """Takes ownership of the structure, as a library written in C would: the caller must call its deleter."""
    managed = look_into(capsule)
    assert managed is not None
    _rename(id(capsule), b"used_" + NAMES[type(managed)])
    return managed


class Foreign:
    """An array of another library with __dlpack__. Keywords replace fields of the structure: data, ndim, shape,
    strides, byte_offset, code, bits, lanes, device, version, flags; deleter=False leaves out the deleter."""

    def __init__(
        self, array: np.ndarray, *, versioned: bool = True, claims: tuple[int, int] | None = None, **fields: Any
    ):
        self.array, self.deleted = array, 0
        shape, strides = (
            fields.pop("shape", array.shape),
            fields.pop("strides", [s // array.itemsize for s in array.strides]),
        )
        kind = {"f": 2, "i": 0, "u": 1, "b": 6}[array.dtype.kind]
        self._keep = [None if v is None else (c_int64 * max(len(v), 1))(*v) for v in (shape, strides)]
        as_pointer = [POINTER(c_int64)() if v is None else ctypes.cast(v, POINTER(c_int64)) for v in self._keep]
        self.managed = ManagedVersioned() if versioned else Managed()
        if versioned:
            self.managed.major, self.managed.minor = fields.pop("version", (1, 0))
            self.managed.flags = fields.pop("flags", 0)
        t = self.managed.tensor
        t.data = fields.pop("data", array.ctypes.data)
        t.ndim = fields.pop("ndim", len(shape) if shape is not None else array.ndim)
        t.dtype = DLDataType(fields.pop("code", kind), fields.pop("bits", array.itemsize * 8), fields.pop("lanes", 1))
        t.device = DLDevice(*fields.pop("device", (1, 0)))
        t.shape, t.strides = as_pointer
        t.byte_offset = fields.pop("byte_offset", 0)
        self.claims = claims or (1, 0)  # the device type and the device number that __dlpack_device__() returns

        def delete(address: int) -> None:
            assert address == ctypes.addressof(self.managed)
            self.deleted += 1

        self._delete = Deleter(delete)
        if fields.pop("deleter", True):
            self.managed.deleter = self._delete
        assert not fields, f"no such field: {fields}"

    def capsule(self) -> object:
        return _new(ctypes.addressof(self.managed), NAMES[type(self.managed)], _destroy)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> object:
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.claims


# The functions of DLPack's C exchange. A foreign call of a PYFUNCTYPE raises the Python exception that the function has
# set.
Allocate = CFUNCTYPE(
    c_int, POINTER(DLTensor), POINTER(c_void_p), c_void_p, CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
)
FromObject = PYFUNCTYPE(c_int, py_object, POINTER(c_void_p))
ToObject = PYFUNCTYPE(c_int, c_void_p, POINTER(py_object))
View = PYFUNCTYPE(c_int, py_object, POINTER(DLTensor))
CurrentStream = PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class Table(Structure):  # DLPackExchangeAPI of DLPack 1.3
    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p), ("allocate", c_void_p),
                ("from_object", c_void_p), ("to_object", c_void_p), ("view", c_void_p),
                ("current_stream", c_void_p))  # fmt: skip


TABLE_NAME = b"dlpack_exchange_api"


def table_of(kind: type) -> Table:
    capsule = vars(kind)["__dlpack_c_exchange_api__"]
    return Table.from_address(_pointer(id(capsule), TABLE_NAME))


def _address(function: Any) -> int:
    address = ctypes.cast(function, c_void_p).value
    assert address is not None
    return address


@FromObject
def _from_object(array: Any, out: Any) -> int:
    array.exports += 1
    out[0] = ctypes.addressof(array.foreign.managed)
    return 0


@CurrentStream
def _no_stream(kind: int, index: int, out: Any) -> int:
    out[0] = None
    return 0


# Calls __len__() of the array. If that raises an exception, this function returns -1, as the function of a library does
# that fails. A function of ctypes could not set an exception.
_fails = ctypes.pythonapi.PyObject_Size


class Exchanged:
    """An array with DLPack's C exchange and without __dlpack__. Only types that exchange_type() makes have a table."""

    def __init__(self, foreign: Foreign, error: BaseException | None = None):
        self.foreign, self.error, self.exports = foreign, error, 0

    def __len__(self) -> int:
        assert self.error is not None
        raise self.error


def exchange_type(
    *, name: bytes = TABLE_NAME, version: tuple[int, int] = (1, 3), previous: Table | None = None, fails: bool = False,
    current_stream: Any = _no_stream, base: type = Exchanged,
) -> type:  # fmt: skip
    """A new type of arrays with a table. The table and its functions live as long as the process."""
    table = Table(*version, None if previous is None else ctypes.addressof(previous))
    table.from_object = _address(_fails if fails else _from_object)
    table.current_stream = _address(current_stream) if current_stream else None
    _tables.append((table, name, current_stream))
    capsule = _new(ctypes.addressof(table), name, Destructor())
    return type("Array", (base,), {"__dlpack_c_exchange_api__": capsule, "table": table})


_tables: list[Any] = []
