# SPDX-License-Identifier: Apache-2.0
"""Making tensors, and turning what other libraries call an array into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from . import _C
from ._C import DeviceTensor, Handle

# A DeviceTensor, a NumPy array, anything with __dlpack__, or what numpy.asarray() takes.
ArrayLike: TypeAlias = Any


def empty(
    shape: Sequence[int], *, dtype: Any = "float32", layout: str | None = None, device: str | None = None
) -> DeviceTensor:
    """A tensor of that shape, uninitialised.

    layout  "NCHW", "NHWC" (rank 4), "NCW", "NWC" (3), "NCDHW", "NDHWC" (5), "contiguous" (any); None: channels first
    device  "cpu" or "cuda:<index>"; None: that of the handle entered last, else the CPU
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    return DeviceTensor(list(shape), dtype=dtype, layout=layout, device=device or _current_device())


def full(
    shape: Sequence[int], value: float, *, dtype: Any = "float32", layout: str | None = None, device: str | None = None
) -> DeviceTensor:
    """A tensor of that shape holding `value` everywhere. Arguments and errors as in empty()."""
    return _C.full(list(shape), value, dtype=dtype, layout=layout, device=device or _current_device())


def zeros(
    shape: Sequence[int], *, dtype: Any = "float32", layout: str | None = None, device: str | None = None
) -> DeviceTensor:
    """A tensor of that shape holding zeros. Arguments and errors as in empty()."""
    return full(shape, 0.0, dtype=dtype, layout=layout, device=device)


def from_dlpack(x: Any, *, device: str | None = None, copy: bool | None = None) -> DeviceTensor:
    """The array behind x.__dlpack__(), sharing its memory where that is possible.

    device  where the tensor shall be; None: where the array is
    copy    None: only if another device asks for it; True: always; False: never, DeviceError where it would be needed
    Raises DTypeError for an object without __dlpack__ or an element type unknown here, ShapeError and DeviceError for a
    capsule that does not describe memory.
    """
    return _C.from_dlpack(x, device=device, copy=copy)


def asarray(
    obj: ArrayLike, *, dtype: Any = None, layout: str | None = None, device: str | None = None, copy: bool | None = None
) -> DeviceTensor:
    """A tensor with the elements of `obj`, sharing its memory unless dtype, layout, device or `copy` ask otherwise.

    obj     a DeviceTensor, NumPy array, object with __dlpack__ or __cuda_array_interface__, buffer, number or nested list
    copy    None: only if needed; True: always; False: never, DeviceError where it would be needed
    Raises DTypeError, ShapeError, DeviceError.
    """
    tensor = _shared(obj)
    if tensor is None:
        if copy is False:
            raise _C.DeviceError(f"asarray: {type(obj).__name__} has no memory to share, and copy=False forbids a copy")
        tensor = _shared(np.array(obj, order="C"))
        assert tensor is not None
        copy = None  # made just now
    result = tensor.to(device=device, dtype=dtype, layout=layout, copy=bool(copy))
    if copy is False and result.data_ptr != tensor.data_ptr:
        raise _C.DeviceError(f"asarray: {tensor!r} needs a copy to become {result!r}, and copy=False forbids it")
    return result


def operands(handle: Handle | None, *arrays: ArrayLike) -> Sequence[Any]:
    """The arrays as tensors; None stays None. Host arrays follow the tensors beside them, or the handle, to a GPU."""
    for array in arrays:
        if type(array) is not DeviceTensor and array is not None:
            return _converted(handle, arrays)
    return arrays


def output(out: ArrayLike | None) -> DeviceTensor | None:
    """`out` as a tensor that shares its memory."""
    return out if out is None or type(out) is DeviceTensor else asarray(out, copy=False)


def _converted(handle: Handle | None, arrays: Sequence[ArrayLike]) -> list[DeviceTensor | None]:
    tensors = [None if a is None else asarray(a) for a in arrays]
    on_host = [not (type(a) is DeviceTensor or hasattr(a, "__cuda_array_interface__")) for a in arrays]
    handle = handle or _C.entered_handle()
    devices = [t.device for t, host in zip(tensors, on_host, strict=True) if t is not None and not host]
    target = devices[0] if devices else handle.device if handle else "cpu"
    return [t.to(device=target) if t is not None and host else t for t, host in zip(tensors, on_host, strict=True)]


def _shared(obj: ArrayLike) -> DeviceTensor | None:
    """`obj` without a copy, or None if it has no memory of its own that a tensor can use."""
    if type(obj) is DeviceTensor:
        return obj
    if isinstance(obj, np.ndarray):
        return _from_numpy(obj)
    if hasattr(obj, "__dlpack__"):
        return _C.from_dlpack(obj)
    if hasattr(obj, "__cuda_array_interface__"):
        return _C.from_cuda_array_interface(obj)
    return None


def _from_numpy(array: np.ndarray[Any, Any]) -> DeviceTensor | None:
    if not array.flags.aligned or not array.dtype.isnative:
        return None
    if any(stride % array.itemsize for stride in array.strides):  # a field of a record, say
        return None
    if array.dtype.name == "bfloat16":  # ml_dtypes': DLPack does not export it
        return _C.reinterpret(_C.from_dlpack(array.view(np.uint16)), "bfloat16")
    if array.dtype.kind not in "fiub":
        raise _C.DTypeError(f"asarray: NumPy arrays of {array.dtype} have no dtype here; cast with .astype() first")
    return _C.from_dlpack(array)


def _current_device() -> str:
    handle = _C.entered_handle()
    return handle.device if handle else "cpu"
