# SPDX-License-Identifier: Apache-2.0
"""Makes tensors, and converts the arrays of other libraries to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from . import _C
from ._C import DeviceTensor, Error, Handle
from .options import DTypeLike, DTypeName, Layout
from .refusals import MOST_ELEMENTS, refusal, short

# A DeviceTensor, a NumPy array, an array with DLPack, or anything else that numpy.asarray() accepts.
ArrayLike: TypeAlias = Any


Size: TypeAlias = "int | Sequence[int]"

# NumPy's type codes of the dtypes that tensors support, without the character for the byte order.
_PLAIN = {"f4", "f8", "f2", "i1", "u1", "i4", "i8", "b1"}

# For each dtype that NumPy does not have: NumPy's dtype of the same size, under which an array holds the bits.
STAND_INS: dict[str, DTypeName] = {"bfloat16": "float16"}


def empty(
    shape: Size, *sizes: int, dtype: DTypeLike = "float32", layout: Layout | None = None, device: str | None = None
) -> DeviceTensor:
    """An uninitialised tensor.

    shape   sizes of the dimensions N, C, spatial..., 8 dimensions at most; a number n means (n,)
    sizes   further sizes if `shape` is a number: empty(2, 3) is empty((2, 3))
    dtype   a name or a NumPy dtype
    layout  "NCHW", "NHWC" (rank 4), "NCW", "NWC" (3), "NCDHW", "NDHWC" (5), "contiguous" (any); None: channels first
    device  "cpu" or "cuda:<index>"; None: the device of the current handle (the one entered last), else the CPU

    Raises ShapeError, DTypeError, DeviceError, OutOfMemory.
    """
    shape = joined(shape, sizes)
    return DeviceTensor(shape, dtype=dtype, layout=layout, device=current_device() if device is None else device)


def full(
    shape: Size, value: float, *, dtype: DTypeLike = "float32", layout: Layout | None = None, device: str | None = None
) -> DeviceTensor:
    """A tensor whose elements are all `value`, cast as in transform(). Other arguments and errors as in empty()."""
    return _C.full(shape, value, dtype=dtype, layout=layout, device=current_device() if device is None else device)


def from_dlpack(x: Any, *, device: str | None = None, copy: bool | None = None) -> DeviceTensor:
    """A tensor made from x by DLPack. It shares the memory of x unless a copy is needed.

    x       an array whose type has __dlpack_c_exchange_api__ (DLPack's C exchange: torch 2.10 and later), an object
            with __dlpack__, or a DLPack capsule
    device  the device of the tensor; None: the device of x
    copy    None: copy only if `device` is another device; True: always; False: never, DeviceError if a copy is needed

    The current stream waits, on the device, for the work that the other library has enqueued on its current stream. The
    rules of the other library say when its memory may be written or reused: keep x alive until work on other streams
    has read it.
    Raises DTypeError for an object without DLPack and for an unknown element type, ShapeError and DeviceError for a
    structure that does not describe memory. If the C exchange fails, x.__dlpack__() is called, whose exceptions are
    passed on.
    """
    if device is None and (copy is None or copy is False):
        tensor = _C.exchanged(x, None)
        if tensor is not None:
            return tensor
    return _exported(x, device=device, copy=copy)


def asarray(
    obj: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: str | None = None,
    copy: bool | None = None,
) -> DeviceTensor:
    """A tensor with the elements of `obj`. It shares the memory of `obj` unless a copy is needed.

    obj     a DeviceTensor, a NumPy array, an array with DLPack or __cuda_array_interface__, a buffer (anything that
            memoryview() accepts), a number or a nested list
    dtype, layout, device  of the tensor; None: those of `obj`
    copy    None: copy only if needed; True: always; False: never, DeviceError if a copy is needed

    Numbers and lists get the dtype that NumPy gives them; integers are int64. Some arrays are refused: a masked array,
    because a tensor has no mask, and a torch tensor that requires grad, has the negative or the conjugate bit, or is
    sparse.
    Raises DTypeError, ShapeError, DeviceError. Exceptions of obj.__dlpack__() and obj.__array__() are passed on.
    """
    tensor = _shared(obj, None)
    if tensor is None:
        if copy is False:
            found = f"must have memory that a tensor can share without a copy; got {short(obj)}"
            raise refusal(_C.DeviceError, obj, found)
        tensor = _from_numpy(_plain(obj))
        copy = None  # _from_numpy(_plain(obj)) has made the copy already
    elif tensor is not obj and dtype is None and layout is None and device is None and (copy is None or copy is False):
        return tensor
    result = tensor.to(device=device, dtype=dtype, layout=layout, copy=False if copy is None else copy)
    if copy is False and result.data_ptr != tensor.data_ptr:
        raise refusal(
            _C.DeviceError,
            obj,
            f"needs a copy to become {short(result)}, and copy=False forbids it; got {short(tensor)}",
        )
    return result


def joined(shape: Size, sizes: tuple[int, ...]) -> Size:
    """The shape that zeros(*sizes) and zeros(shape) name."""
    # if the shape is ((2, 3), 4), the extension raises an error
    return (shape, *sizes) if sizes else shape  # type: ignore[arg-type]


def has_dlpack(x: Any) -> bool:
    """Whether from_dlpack() can take the object."""
    return hasattr(x, "__dlpack__") or hasattr(type(x), "__dlpack_c_exchange_api__")


def operand(x: ArrayLike, name: str, device: str | None = None) -> DeviceTensor:
    """asarray(x) for an operator. Errors begin with `name`, such as "add: b"."""
    try:
        return asarray(x, device=device)
    except Error as error:
        raise type(error)(str(error).replace("asarray: obj", name, 1)) from error.__cause__


def operands(handle: Handle | None, *arrays: ArrayLike, out: ArrayLike | None = None) -> Sequence[Any]:
    """The arrays as tensors; None stays None.

    Host arrays are copied to the device of the first other operand. If there is none, it is that of `out`, else that of
    the handle, else the CPU.
    """
    for array in arrays:
        if type(array) is not DeviceTensor and array is not None:
            return _C.exchanged_operands(arrays, out, handle) or _converted(handle, arrays, out)
    return arrays


def output(out: ArrayLike | None, handle: Handle | None = None) -> DeviceTensor | None:
    """`out` as a tensor that shares its memory. The handle's stream waits for earlier work on that memory."""
    if out is None or type(out) is DeviceTensor:
        return out
    shared = _shared(out, handle)
    # If `out` cannot share its memory, asarray() raises an error that says why.
    return asarray(out, copy=False) if shared is None else shared


def entered(handle: Handle | None) -> AbstractContextManager[Handle | None]:
    """For `with`: makes the handle the current one; None changes nothing."""
    if handle is None:
        return nullcontext()
    if not isinstance(handle, Handle):
        raise refusal(_C.DTypeError, handle, f"must be a pyminidnn.Handle or None; got {short(handle)}")
    return handle


def elements(values: Sequence[ArrayLike]) -> list[ArrayLike]:
    """The arrays of a sequence, as a list. An iterator without end is refused."""
    try:
        found = list(islice(iter(values), MOST_ELEMENTS + 1))
    except TypeError:
        found = None
    if found is None or len(found) > MOST_ELEMENTS:
        raise refusal(_C.DTypeError, values, f"must be a sequence of arrays; got {short(values)}")
    return found


def _converted(handle: Handle | None, arrays: Sequence[ArrayLike], out: ArrayLike | None) -> list[DeviceTensor | None]:
    entered(handle)
    shared = [None if a is None else _shared(a, handle) for a in arrays]
    tensors = [asarray(a) if t is None and a is not None else t for a, t in zip(arrays, shared, strict=True)]
    on_host = [
        t is not None and type(a) is not DeviceTensor and t.device == "cpu"
        for a, t in zip(arrays, tensors, strict=True)
    ]
    handle = handle or _C.entered_handle()
    devices = [t.device for t, host in zip(tensors, on_host, strict=True) if t is not None and not host]
    if not devices and out is not None and not isinstance(out, np.ndarray):
        written = output(out, handle)
        devices = [written.device] if written is not None else []
    target = devices[0] if devices else handle.device if handle else "cpu"
    return [t.to(device=target) if t is not None and host else t for t, host in zip(tensors, on_host, strict=True)]


def _shared(obj: ArrayLike, handle: Handle | None) -> DeviceTensor | None:
    """A tensor that shares the memory of `obj`, or None if `obj` has no memory that a tensor can describe.

    For a GPU array, the stream of `handle` (None: of the current handle) waits for the work that writes the array.
    """
    if type(obj) is DeviceTensor:
        return obj
    if isinstance(obj, np.ndarray):
        return _from_numpy(obj) if _is_plain(obj, obj) else None
    tensor = _C.exchanged(obj, handle)
    if tensor is not None:
        return tensor
    if has_dlpack(obj):
        return _exported(obj, handle=handle)
    if hasattr(obj, "__cuda_array_interface__"):
        return _C.from_cuda_array_interface(obj, handle)
    if isinstance(obj, np.generic):  # a NumPy scalar has a buffer, but it is treated as a number
        return None
    try:
        array = np.asarray(memoryview(obj))
    except (TypeError, ValueError, BufferError):
        return None
    return _from_numpy(array) if _is_plain(array, obj) else None


def _is_plain(array: np.ndarray[Any, Any], obj: ArrayLike) -> bool:
    """Whether a tensor can describe `array`: it is aligned, in native byte order, and strides are whole elements.

    Strides of a record's fields are not. `obj` is the caller's object, which errors name.
    """
    _check_unmasked(array)
    if array.dtype.str[1:] not in _PLAIN and not _is_bfloat16(array):
        found = f"elements of {array.dtype}" if isinstance(obj, np.ndarray) else short(obj)
        raise refusal(_C.DTypeError, obj, f"must be an array or numbers of {', '.join(_C.dtypes)}; got {found}")
    if array.ndim > 8:
        raise refusal(_C.ShapeError, obj, f"has {array.ndim} dimensions; 0 to 8 are supported")
    return array.flags.aligned and array.dtype.isnative and not any(s % array.itemsize for s in array.strides)


def _plain(obj: ArrayLike) -> np.ndarray[Any, Any]:
    """A copy of `obj` in row-major order and native byte order, which a tensor can describe."""
    try:
        array = np.array(obj, order="C")
    except (ValueError, MemoryError) as error:
        assert error.__traceback__ is not None
        if error.__traceback__.tb_next is not None:  # the object's own __array__() has raised the error
            raise
        if isinstance(error, MemoryError):
            raise refusal(_C.OutOfMemory, obj, f"is too large to copy; got {short(obj)}") from error
        # np.array() fails, for example, if `obj` is a list of lists of unequal length.
        raise refusal(_C.ShapeError, obj, f"is not an array: {error}") from error
    _is_plain(array, obj)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _from_numpy(array: np.ndarray[Any, Any]) -> DeviceTensor:
    if _is_bfloat16(array):  # NumPy does not export bfloat16 through DLPack, so the bits are passed as float16
        return from_bits(array.view(np.float16), "bfloat16")
    return _C.from_dlpack(array)


def bits(t: DeviceTensor) -> np.ndarray[Any, Any]:
    """A CPU tensor as an array of NumPy that shares its memory. A dtype that NumPy lacks has that of STAND_INS."""
    return _C.reinterpret(t, STAND_INS.get(t.dtype, t.dtype)).numpy()


def from_bits(array: np.ndarray[Any, Any], dtype: DTypeLike) -> DeviceTensor:
    """The tensor of bits(), which shares the memory of the array."""
    return _C.reinterpret(_C.from_dlpack(array), dtype)


def _is_bfloat16(array: np.ndarray[Any, Any]) -> bool:
    """Whether the dtype is bfloat16 of ml_dtypes."""
    return bool(array.dtype.kind == "V" and array.dtype.name == "bfloat16")


def _check_unmasked(x: Any) -> None:
    if type(x) is not np.ndarray and isinstance(x, np.ndarray) and isinstance(x, np.ma.MaskedArray):
        raise refusal(_C.DTypeError, x, "is a masked array, and tensors have no mask; pass .filled(value) of it")


def _check_of_torch(x: Any) -> None:
    if x.requires_grad:
        raise refusal(_C.DTypeError, x, "is a torch tensor that requires grad; pass .detach() of it")
    # If a torch tensor has its negative bit set, its values in memory have the wrong sign. torch exports these values
    # unchanged.
    if x.is_neg():
        raise refusal(_C.DTypeError, x, "is a torch tensor with the negative bit set; pass .resolve_neg() of it")
    if x.is_conj():
        raise refusal(_C.DTypeError, x, "is a torch tensor with the conjugate bit set; pass .resolve_conj() of it")
    if str(x.layout) != "torch.strided" and not x.is_nested:
        raise refusal(_C.DTypeError, x, f"is a torch tensor of layout {x.layout}; pass .to_dense() of it")


def _exported(x: Any, **keywords: Any) -> DeviceTensor:
    _check_unmasked(x)
    if hasattr(x, "is_neg"):
        _check_of_torch(x)
    return _C.from_dlpack(x, **keywords)


def current_device() -> str:
    """The device of the current handle, else the CPU."""
    handle = _C.entered_handle()
    return handle.device if handle else "cpu"
