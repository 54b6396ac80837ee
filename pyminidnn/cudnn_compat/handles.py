# SPDX-License-Identifier: Apache-2.0
"""Handles with streams, and the arrays of variant packs as tensors."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import numpy as np

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import _shared, asarray, current_device, entered
from ..creation import device_count
from ..errors import Error
from ..refusals import short
from .enums import DTYPE_OF, ITEMSIZE
from .tensors import Described, Tensor

# NumPy's type codes for elements of a number of bytes, under which an address is imported.
_BITS = {1: "|u1", 2: "<f2", 4: "<i4", 8: "<i8"}


class CudnnHandle:
    """What create_handle() returns: a device and a stream, and a pyminidnn.Handle for each way of computing on it."""

    def __init__(self, device: str) -> None:
        self.device, self.stream = device, 0
        self._made: dict[Any, Handle] = {}
        self.destroyed = False

    def handle(self, **options: Any) -> Handle:
        """The pyminidnn.Handle of the current stream with these options."""
        if self.destroyed:
            raise RuntimeError("the handle was destroyed by destroy_handle()")
        key = (self.stream, *options.items())
        if key not in self._made:
            self._made[key] = Handle(self.device, stream=self.stream or None, **options)
        return self._made[key]

    def __repr__(self) -> str:
        return f"CudnnHandle(device='{self.device}', stream={self.stream})"


def default_device() -> str:
    """The device of the current pyminidnn.Handle, else the first GPU, else the CPU."""
    current = current_device()
    return "cuda:0" if current == "cpu" and _C.entered_handle() is None and device_count() else current


def create_handle(device: str | None = None) -> CudnnHandle:
    """A handle for a device. None: that of the current pyminidnn.Handle, else the first GPU, else the CPU."""
    made = CudnnHandle(default_device() if device is None else device)
    made.device = made.handle().device
    return made


def destroy_handle(handle: CudnnHandle) -> None:
    """Ends the use of a handle."""
    _checked(handle).destroyed = True


def set_stream(handle: CudnnHandle, stream: int) -> None:
    """Sets the stream of later calls with the handle: the address of a CUDA stream, 0 for the default stream."""
    address = getattr(stream, "cuda_stream", stream)
    if not hasattr(address, "__index__"):
        raise ValueError(f"set_stream: stream must be the address of a CUDA stream; got {short(stream)}")
    # On the CPU there are no streams: calls are finished when they return.
    _checked(handle).stream = address.__index__() if handle.device.startswith("cuda") else 0


def get_stream(handle: CudnnHandle) -> int:
    """The address of the handle's stream; 0 for the default stream."""
    return _checked(handle).stream


def _checked(handle: Any) -> CudnnHandle:
    if not isinstance(handle, CudnnHandle):
        raise ValueError(f"handle must be one of create_handle(); got {short(handle)}")
    return handle


class _Address:
    """Memory of a GPU at an address, as CuPy's interface describes it."""

    def __init__(self, address: int, count: int, itemsize: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": _BITS[itemsize], "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


def _at_address(address: int, dtype: str, d: Described, device: str) -> DeviceTensor:
    count, itemsize = d.reach, ITEMSIZE[dtype]
    if device == "cpu":
        bytes_at = (ctypes.c_ubyte * (count * itemsize)).from_address(address)
        flat = _C.from_dlpack(np.frombuffer(memoryview(bytes_at), _BITS[itemsize]))
    else:
        flat = _C.from_cuda_array_interface(_Address(address, count, itemsize), None)
    return _C.reinterpret(flat, dtype)  # type: ignore[arg-type]


def in_memory(t: Tensor, d: Described, given: Any, device: str, handle: Handle | None) -> DeviceTensor:
    """The memory of an entry of a variant pack as a tensor with the sizes and strides of `d`.

    given  an array of any library, whose own sizes do not matter, or the address of the first element

    Raises ValueError if the memory is too small, is on another device or has elements of another size.
    """
    dtype = DTYPE_OF[d.kind]
    array = _at_address(given, dtype, d, device) if type(given) is int else _array(t, given, handle)
    if array.device != device:
        raise ValueError(f"execute: {t.label()} must be on {device}, where the graph runs; it is on {array.device}")
    if array.dtype != dtype:
        if ITEMSIZE[str(array.dtype)] != ITEMSIZE[dtype]:
            raise ValueError(f"execute: {t.label()} is {dtype} in the graph; got an array of {array.dtype}")
        array = _C.reinterpret(array, dtype)  # type: ignore[arg-type]
    if tuple(array.shape) == d.dim and tuple(array.strides) == d.stride:
        return array
    try:
        return array.as_strided(d.dim, d.stride)
    except Error:
        packed = "; a BOOLEAN is a byte, and masks of bits are not supported" if dtype == "bool" else ""
        raise ValueError(
            f"execute: {t.label()} needs memory of {d.reach} elements for sizes {list(d.dim)} and strides "
            f"{list(d.stride)}; got {short(given)}{packed}"
        ) from None


def _array(t: Tensor, given: Any, handle: Handle | None) -> DeviceTensor:
    detached = given.detach() if hasattr(given, "detach") else given
    try:
        array = None if isinstance(detached, (bool, float, list, tuple)) else _shared(detached, handle)
    except Error as error:
        raise ValueError(f"execute: {t.label()}: {error}") from error
    if array is None:
        raise ValueError(f"execute: {t.label()} must be an array or an address; got {short(given)}")
    return array


def number(t: Tensor, d: Described, given: Any, device: str, handle: Handle | None) -> float:
    """The value of a tensor that is a number: from a number, an array of one element or the address of one.

    The address is one of the host if the tensor is passed by value, else one of `device`. Memory of a GPU is read on
    the stream of the handle, which waits for the stream.
    """
    dtype = DTYPE_OF[d.kind]
    if isinstance(given, float):
        return given
    with entered(handle) if t.fetched else nullcontext():
        if type(given) is int:
            array = _at_address(given, dtype, d, "cpu" if t.by_value else device)
        else:
            array = asarray(_array(t, given, handle if t.fetched else None))
        if array.size != 1:
            how = "passed by value" if t.by_value else "a number"
            raise ValueError(f"execute: {t.label()} is {how}, so it must have one element; got {short(given)}")
        value: Any = array.to(device="cpu").reshape(()).item()
    return value  # type: ignore[no-any-return]
