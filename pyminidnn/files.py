# SPDX-License-Identifier: Apache-2.0
"""save() and load(): a dict of tensors in an .npz or a .safetensors file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import numpy as np
from numpy.lib import format as npy

from . import _C
from ._C import DeviceTensor, DTypeError, Error, NotSupported, OutOfMemory, ShapeError
from .conversion import STAND_INS, ArrayLike, asarray, bits, current_device, from_bits
from .options import DTypeName
from .refusals import short

Path = str | os.PathLike[str]
_Format = TypeVar("_Format")

# The names of dtypes in .safetensors files, and the names of the same dtypes in this library.
_SAFETENSORS: dict[str, DTypeName] = {
    "F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "I8": "int8", "U8": "uint8",
    "I32": "int32", "I64": "int64", "BOOL": "bool",
}  # fmt: skip


def save(path: Path, tensors: Mapping[str, ArrayLike]) -> None:
    """Writes a dict of tensors to a file. The suffix of its name is the format.

    path     ends in .npz, an archive of NumPy without compression, or in .safetensors, which needs the package
             safetensors; an existing file is replaced
    tensors  arrays by name; any device, shape, strides and dtype

    The file is complete when it appears under its name: it is written under another name, then renamed. Elements are in
    row-major order, so a layout such as NHWC is not kept. NumPy has no bfloat16: in an .npz file, these tensors are
    records with a field "bfloat16" that has the bits, and np.load(path)["w"]["bfloat16"] is an array of uint16.
    Waits for the GPU.
    Raises DTypeError, ShapeError for another suffix or an unusable name, NotSupported without the package safetensors,
    and the OSError of the file system.
    """
    target, write = target_of("save", path, {".npz": _write_npz, ".safetensors": _write_safetensors})
    if not isinstance(tensors, Mapping):
        raise DTypeError(f"save: tensors must be a dict of arrays; got {short(tensors)}")
    for name in tensors:
        if not isinstance(name, str):
            raise DTypeError(f"save: names of tensors must be str; got {short(name)}")
        # The format .safetensors reserves the name __metadata__.
        if not _encodes(name, str.encode) or name == "__metadata__":
            raise ShapeError(f"save: tensors has the name {short(name)}, which a file cannot hold")
    with replaced(target) as file:
        write(file, {name: asarray(t).to(device="cpu") for name, t in tensors.items()})


def load(path: Path, *, device: str | None = None) -> dict[str, DeviceTensor]:
    """The tensors of a file that save(), numpy.savez() or safetensors has written, by name.

    path    ends in .npz or .safetensors
    device  of the tensors; None: the device of the current handle, else the CPU

    Raises ShapeError for another suffix, and for a file that is damaged or incomplete; DTypeError for elements that
    tensors do not have; DeviceError; OutOfMemory; NotSupported without the package safetensors; and the OSError of the
    file system, such as FileNotFoundError.
    """
    source, read = target_of("load", path, {".npz": _read_npz, ".safetensors": _read_safetensors})
    device = current_device() if device is None else device
    with open(source, "rb") as file:
        try:
            tensors = dict(read(file))
        except Error:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"load: path {short(source)} holds more than the memory of the host") from error
        # A damaged file raises errors of many types, from zipfile, zlib, struct, NumPy or safetensors.
        except Exception as error:
            text = f"load: path must be a complete file of its format; {short(source)} is damaged: {short(str(error))}"
            raise ShapeError(text) from error
    return {name: t.to(device=device) for name, t in tensors.items()}


@contextmanager
def replaced(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A new file that replaces the file at `path`, or becomes it, when the block ends. After an error, nothing changes.

    path     if it is a symbolic link, the file that it points to is replaced, and the link stays
    private  whether other users may not read the new file; else umask decides
    """
    target = os.path.realpath(os.fsdecode(path))
    unfinished = os.path.join(os.path.dirname(target), f".pyminidnn-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    mode = 0o600 if private else 0o666
    try:
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        if os.path.lexists(unfinished):
            os.unlink(unfinished)
        raise


def target_of(call: str, path: Path, formats: Mapping[str, _Format]) -> tuple[str, _Format]:
    """The path as text, and what `formats` has for its suffix."""
    if not isinstance(path, (str, os.PathLike)):
        raise DTypeError(f"{call}: path must be a str or an os.PathLike; got {short(path)}")
    text = os.fsdecode(path)
    suffix = os.path.splitext(text)[1].lower()
    if suffix not in formats or not _encodes(text, os.fsencode):
        raise ShapeError(f"{call}: path must be a file name that ends in {' or '.join(formats)}; got {short(text)}")
    return text, formats[suffix]


def _encodes(text: str, encode: Callable[[str], bytes]) -> bool:
    """Whether a file can have the name: it has no NUL and no lone surrogate."""
    try:
        return b"\0" not in encode(text)
    except UnicodeEncodeError:
        return False


def _write_npz(file: IO[bytes], tensors: dict[str, DeviceTensor]) -> None:
    import zipfile  # imported at first use, because the import takes milliseconds

    with zipfile.ZipFile(file, "w") as archive:
        for name, t in tensors.items():
            array = bits(t)
            if t.dtype in STAND_INS:
                array = np.ascontiguousarray(array).view([(str(t.dtype), f"<u{t.itemsize}")])
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                npy.write_array(entry, np.ascontiguousarray(array).reshape(t.shape), allow_pickle=False)


def _read_npz(file: IO[bytes]) -> Iterator[tuple[str, DeviceTensor]]:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as entry:
                yield name, _read_npy(name, entry, info.file_size)


def _read_npy(name: str, entry: IO[bytes], size: int) -> DeviceTensor:
    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, fortran, dtype = headers[npy.read_magic(entry)](entry)
    wanted: Any = dtype.name
    if dtype.names and len(dtype.names) == 1 and dtype.names[0] in STAND_INS:
        wanted = dtype.names[0]
        dtype = np.dtype(STAND_INS[wanted])
    if wanted not in _C.dtypes:
        raise _unsupported(name, str(dtype))
    bytes_ = math.prod(shape) * dtype.itemsize
    if entry.tell() + bytes_ != size:
        raise ValueError(f"the header of {name!r} does not fit its size")
    memory = np.empty(bytes_, "uint8")
    at = 0
    while at < bytes_:
        at += (got := entry.readinto(memory[at : at + 2**24]))  # type: ignore[attr-defined]
        if got == 0:
            raise ValueError(f"{name!r} ends early")
    array = memory.view(dtype).reshape(shape, order="F" if fortran else "C")
    return from_bits(np.ascontiguousarray(array.astype(dtype.newbyteorder("="), copy=False)), wanted).reshape(shape)


def _safetensors(call: str) -> Any:
    try:
        import safetensors
    except ImportError as error:
        text = f"{call}: path ends in .safetensors, which needs the package safetensors; pip install safetensors"
        raise NotSupported(text) from error
    return safetensors


def _write_safetensors(file: IO[bytes], tensors: dict[str, DeviceTensor]) -> None:
    library = _safetensors("save")
    # safetensors reads these arrays by their addresses, so the dict keeps them alive until the file is written.
    arrays = {name: np.ascontiguousarray(bits(t)) for name, t in tensors.items()}
    entries = {}
    for name, t in tensors.items():
        common = {"dtype": str(t.dtype), "shape": t.shape}
        array = arrays[name]
        if hasattr(library, "TensorSpec"):
            entries[name] = library.TensorSpec(**common, data_ptr=array.ctypes.data, data_len=array.nbytes)
        else:  # safetensors before version 0.8 takes dicts
            entries[name] = {**common, "data": array.tobytes()}
    file.write(library.serialize(entries))


def _read_safetensors(file: IO[bytes]) -> Iterator[tuple[str, DeviceTensor]]:
    for name, entry in _safetensors("load").deserialize(file.read()):
        dtype = _SAFETENSORS.get(entry["dtype"])
        if dtype is None:
            raise _unsupported(name, entry["dtype"])
        data = bytearray(entry["data"])
        yield name, from_bits(np.frombuffer(data, STAND_INS.get(dtype, dtype)).reshape(entry["shape"]), dtype)


def _unsupported(name: str, dtype: str) -> Error:
    supported = ", ".join(_C.dtypes)
    return DTypeError(f"load: path holds {short(name)} with elements of {dtype}; supported are {supported}")
