# SPDX-License-Identifier: Apache-2.0
"""Exchange with other libraries: DLPack in both directions, with counted ownership and invalid capsules; torch, JAX,
CuPy and __cuda_array_interface__. Equal pointers prove that nothing is copied."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from dlpack_c import COPIED, READ_ONLY, Foreign, Managed, ManagedVersioned, consume, look_into
from support import values_of

import pyminidnn as dnn
from pyminidnn import _C

CODES = {"float32": (2, 32), "float64": (2, 64), "float16": (2, 16), "bfloat16": (4, 16), "int8": (0, 8), "uint8": (1, 8),
         "int32": (0, 32), "int64": (0, 64), "bool": (6, 8)}  # fmt: skip
NO_GPU = bool(_C.why_no_cuda())


def ramp(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def pointer(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """The memory of live tensors is no larger after a test than before it."""
    before = dnn.memory_stats("cpu")["allocated_bytes"]
    yield
    if dnn.memory_stats("cpu")["allocated_bytes"] > before:
        gc.collect()
        assert dnn.memory_stats("cpu")["allocated_bytes"] <= before


# ---- export: other libraries read tensors of this library


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3), (2, 0), [1, 0]])
def test_fields_of_a_capsule(dtype: str, max_version: object, device: str) -> None:
    t = dnn.empty((2, 3, 4, 5), dtype=dtype, layout="NHWC", device=device)
    managed = look_into(capsule := t.__dlpack__(max_version=max_version))
    versioned = max_version is not None and max_version[0] >= 1
    assert type(managed) is (ManagedVersioned if versioned else Managed)
    if versioned:
        assert (managed.major, managed.minor, managed.flags) == (1, 3, 0)
    d = managed.tensor
    assert (d.data, d.byte_offset, d.ndim) == (t.data_ptr, 0, 4)
    assert (d.dtype.code, d.dtype.bits, d.dtype.lanes) == (*CODES[dtype], 1)
    assert (d.device.type, d.device.id) == t.__dlpack_device__() == ((1, 0) if device == "cpu" else (2, 0))
    assert tuple(d.shape[:4]) == t.shape and tuple(d.strides[:4]) == t.strides == (60, 1, 15, 3)
    del capsule


def test_an_unconsumed_capsule_frees_its_tensor(device: str) -> None:
    before = dnn.memory_stats(device)["allocated_bytes"]
    for version in (None, (1, 0)):
        t = dnn.empty(1000, device=device)
        capsule = t.__dlpack__(max_version=version)
        del t
        # The capsule keeps the memory of the deleted tensor alive.
        assert dnn.memory_stats(device)["allocated_bytes"] > before
        del capsule
        assert dnn.memory_stats(device)["allocated_bytes"] == before


def test_a_consumer_in_c_owns_what_it_took(device: str) -> None:
    before = dnn.memory_stats(device)["allocated_bytes"]
    for version in (None, (1, 0)):
        t = dnn.empty(1000, device=device)
        capsule = t.__dlpack__(max_version=version)
        managed = consume(capsule)
        del t, capsule
        assert dnn.memory_stats(device)["allocated_bytes"] > before
        managed.deleter(ctypes.addressof(managed))
        assert dnn.memory_stats(device)["allocated_bytes"] == before


def test_read_only_tensors_are_exported_read_only() -> None:
    x = ramp(3)
    x.flags.writeable = False
    t = dnn.asarray(x)
    assert look_into(c := t.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    assert not np.from_dlpack(t).flags.writeable
    for version in (None, (0, 5)):
        with pytest.raises(BufferError, match="a read-only tensor needs DLPack 1.0"):
            t.__dlpack__(max_version=version)
    # copy=True is accepted for a read-only tensor, because the copy is writable.
    assert look_into(c := t.__dlpack__(copy=True)).tensor.data != pointer(x)
    del c


def test_copies_on_request(device: str) -> None:
    t = dnn.full((2, 3), 7.0, device=device)
    managed = look_into(c := t.__dlpack__(max_version=(1, 0), copy=True))
    assert managed.flags == COPIED and managed.tensor.data != t.data_ptr
    assert look_into(c := t.__dlpack__(max_version=(1, 0), copy=False)).tensor.data == t.data_ptr
    managed = look_into(c := t.__dlpack__(max_version=(1, 0), dl_device=(1, 0)))
    assert (managed.tensor.device.type, managed.flags) == (1, 0 if device == "cpu" else COPIED)
    np.testing.assert_array_equal(np.from_dlpack(t, device="cpu"), np.full((2, 3), 7.0))
    del c


def test_export_errors() -> None:
    t = dnn.zeros(3)
    for arguments, kind, text in [
        ({"stream": 1}, BufferError, "stream is for CUDA tensors; this one is on the CPU"),
        ({"max_version": "1.0"}, dnn.DTypeError, "max_version must be a pair of 32-bit integers; got '1.0'"),
        ({"max_version": (1,)}, dnn.DTypeError, "max_version must be a pair of 32-bit integers; got (1,)"),
        ({"max_version": (2**40, 0)}, dnn.DTypeError, "max_version must be a pair of 32-bit integers"),
        ({"dl_device": "cpu"}, dnn.DTypeError, "dl_device must be a pair of 32-bit integers; got 'cpu'"),
        (
            {"dl_device": (17, 0)},
            BufferError,
            "__dlpack__: dl_device=(17, 0): device type 17 is neither the CPU (1) nor CUDA (2)",
        ),
        ({"dl_device": (2, 99)}, BufferError, _C.why_no_cuda() or "there is no cuda:99"),
    ]:
        with pytest.raises(kind) as caught:
            t.__dlpack__(**arguments)
        assert text in str(caught.value)


# ---- import: this library reads tensors of other libraries


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("make", [
    lambda: ramp(2, 3, 4), lambda: ramp(4, 6)[::2, ::-1], lambda: ramp(2, 3).T, lambda: ramp(1).reshape(()),
    lambda: ramp(2, 0, 3), lambda: np.broadcast_to(ramp(3), (2, 3)),
])  # fmt: skip
def test_a_valid_capsule(make: object, versioned: bool) -> None:
    for dtype in (d for d in CODES if d != "bfloat16"):
        x = make().astype(dtype)
        foreign = Foreign(x, versioned=versioned)
        t = dnn.from_dlpack(foreign)
        assert (t.shape, t.dtype, t.device, t.read_only) == (x.shape, dtype, "cpu", False)
        assert t.data_ptr == pointer(x) or x.size == 0
        np.testing.assert_array_equal(t.numpy(), x)
        views = [t.permute(tuple(range(x.ndim))), np.asarray(t), memoryview(t), t.__dlpack__()]
        del t
        assert foreign.deleted == 0
        while views:
            assert foreign.deleted == 0
            views.pop()
        gc.collect()
        assert foreign.deleted == 1  # the exporter's deleter was called once, with the last view


def test_optional_fields() -> None:
    x = ramp(4, 3)
    for fields, want in [
        ({"strides": None}, x),  # strides=None means that the elements are in row-major order
        ({"byte_offset": 12, "shape": (3, 3), "strides": None}, x[1:]),
        ({"shape": None, "strides": None, "ndim": 0}, x[0, 0]),
        ({"data": None, "shape": (0, 5), "strides": None}, np.zeros((0, 5))),
        ({"device": (3, 0)}, x),  # device type 3 of DLPack is page-locked host memory of CUDA
        ({"flags": READ_ONLY}, x),
        ({"flags": COPIED | 1 << 40}, x),  # an unknown flag, as a later version of DLPack may define it
        ({"version": (1, 99)}, x),
        ({"deleter": False}, x),
    ]:
        t = dnn.from_dlpack(foreign := Foreign(x, **fields))
        np.testing.assert_array_equal(t.numpy(), want)
        assert t.read_only == (fields.get("flags") == READ_ONLY)
        del t
        assert foreign.deleted == fields.get("deleter", True)
    assert dnn.from_dlpack(Foreign(np.ones(2, "f2"), code=4)).dtype == "bfloat16"


WRONG = [
    ({"data": None}, dnn.ShapeError, "from_dlpack: x [4, 3] has a null data pointer; its exporter is at fault"),
    ({"shape": None, "ndim": 2}, dnn.ShapeError, "has 2 dimensions and a null shape; its exporter is at fault"),
    ({"ndim": -1}, dnn.ShapeError, "from_dlpack: x has -1 dimensions; 0 to 8 are supported"),
    ({"ndim": 99}, dnn.ShapeError, "from_dlpack: x has 99 dimensions; 0 to 8 are supported"),
    ({"ndim": -(2**31)}, dnn.ShapeError, "from_dlpack: x has -2147483648 dimensions"),
    ({"shape": (4, -3)}, dnn.ShapeError, "from_dlpack: x [4, -3] has a negative size in dimension 1"),
    ({"shape": (2**62, 2**62), "strides": None}, dnn.ShapeError, "is larger than 2^63 bytes"),
    ({"shape": (0, 2**62), "strides": None}, dnn.ShapeError, "is larger than 2^63 bytes"),
    ({"strides": (2**62, 1)}, dnn.ShapeError, "with strides [4611686018427387904, 1] reaches beyond 2^63 bytes"),
    ({"strides": (-(2**63), 1)}, dnn.ShapeError, "reaches beyond 2^63 bytes"),
    ({"shape": (5,), "strides": (2**60,)}, dnn.ShapeError, "reaches beyond 2^63 bytes"),
    ({"code": 17}, dnn.DTypeError, "from_dlpack: x has elements of DLPack type (code 17, 32 bits, 1 lanes); supported are float32, "),
    ({"bits": 12}, dnn.DTypeError, "elements of DLPack type (code 2, 12 bits, 1 lanes)"),
    ({"lanes": 4}, dnn.DTypeError, "elements of DLPack type (code 2, 32 bits, 4 lanes)"),
    ({"lanes": 0}, dnn.DTypeError, "elements of DLPack type (code 2, 32 bits, 0 lanes)"),
    # DLPack's type for complex numbers of 64 bits.
    ({"code": 5, "bits": 64}, dnn.DTypeError, "elements of DLPack type (code 5, 64 bits, 1 lanes)"),
    # DLPack's type uint16.
    ({"code": 1, "bits": 16}, dnn.DTypeError, "elements of DLPack type (code 1, 16 bits, 1 lanes)"),
    ({"device": (99, 0)}, dnn.DeviceError, "device type 99 is neither the CPU (1) nor CUDA (2)"),
    ({"device": (0, 0)}, dnn.DeviceError, "device type 0 is neither"),
    ({"device": (2, 99)}, dnn.DeviceError, _C.why_no_cuda() or "there is no cuda:99"),
    ({"device": (2, -1)}, dnn.DeviceError, _C.why_no_cuda() or "there is no cuda:-1"),
    ({"byte_offset": 2**63}, dnn.ShapeError, "byte_offset 9223372036854775808, which exceeds 2^63 - 1; its exporter is at fault"),
    ({"byte_offset": 2**64 - 4}, dnn.ShapeError, "from_dlpack: x has byte_offset 18446744073709551612, which exceeds 2^63 - 1"),
    ({"byte_offset": 2}, dnn.ShapeError, "is not aligned to its element size 4; copy it first"),
]  # fmt: skip


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("fields, kind, text", WRONG, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_an_invalid_capsule(fields: dict, kind: type[Exception], text: str, versioned: bool) -> None:
    for deleter in (True, False):
        foreign = Foreign(ramp(4, 3), versioned=versioned, deleter=deleter, **fields)
        capsule = foreign.capsule()
        with pytest.raises(kind) as caught:
            dnn.from_dlpack(capsule)
        assert text in str(caught.value)
        # The library has refused the capsule and has not consumed it. So the exporter still owns the memory.
        assert look_into(capsule) is not None and foreign.deleted == 0
        del capsule, caught
        gc.collect()
        assert foreign.deleted == deleter
        # The library itself requests the capsule of the object `foreign`. So no one else can consume that capsule.
        with pytest.raises(kind):
            dnn.from_dlpack(foreign)
        gc.collect()
        assert foreign.deleted == 2 * deleter


def test_a_later_major_version_is_refused_unread() -> None:
    foreign = Foreign(ramp(3), version=(2, 0), ndim=99, code=99)
    with pytest.raises(dnn.DeviceError, match=r"x uses DLPack 2\.0; supported is 1\.x"):
        dnn.from_dlpack(foreign)
    gc.collect()
    assert foreign.deleted == 1


def test_a_capsule_is_consumed_once() -> None:
    for capsule in (Foreign(ramp(3)).capsule(), dnn.zeros(3).__dlpack__(), dnn.zeros(3).__dlpack__(max_version=(1, 0))):
        t = dnn.from_dlpack(capsule)
        for _ in range(2):
            with pytest.raises(dnn.ShapeError, match="this capsule has been consumed already; call __dlpack__ again"):
                dnn.from_dlpack(capsule)
        assert t.shape == (3,)


def test_a_failed_import_releases_the_capsule() -> None:
    foreign = Foreign(ramp(3))
    with pytest.raises(dnn.DeviceError):
        dnn.from_dlpack(foreign, device="cuda:99")
    gc.collect()
    assert foreign.deleted == 0  # the library has refused the device before it requested a capsule
    foreign = Foreign(ramp(3))
    with pytest.raises(dnn.DTypeError):
        dnn.asarray(foreign, dtype="float17")
    gc.collect()
    assert foreign.deleted == 1


class Old:
    """An exporter older than version 1.0, whose __dlpack__ only takes `stream`."""

    def __init__(self, foreign: Foreign):
        self.foreign = foreign

    def __dlpack__(self, stream: object = None) -> object:
        return self.foreign.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_an_old_exporter() -> None:
    foreign = Foreign(x := ramp(3), versioned=False)
    assert dnn.from_dlpack(Old(foreign)).data_ptr == pointer(x)
    assert foreign.deleted == 1


def test_objects_that_are_not_exporters() -> None:
    class Fake:
        device, capsule = (1, 0), None

        def __dlpack__(self, **keywords: object) -> object:
            if isinstance(self.capsule, Exception):
                raise self.capsule
            return self.capsule

        def __dlpack_device__(self) -> object:
            return self.device

    def fake(**attributes: object) -> Fake:
        f = Fake()
        vars(f).update(attributes)
        return f

    other = ctypes.pythonapi.PyCapsule_New
    other.restype, other.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    for source, kind, text in [
        (
            object(),
            dnn.DTypeError,
            "from_dlpack: x must have __dlpack__ and __dlpack_device__, or be a DLPack capsule; got <object",
        ),
        (
            np.ma.masked_array([1.0], mask=[1]),
            dnn.DTypeError,
            "from_dlpack: x is a masked array, and tensors have no mask",
        ),
        (None, dnn.DTypeError, "x must have __dlpack__ and __dlpack_device__, or be a DLPack capsule; got None"),
        (fake(), dnn.ShapeError, "__dlpack__ returned None, which is not a DLPack capsule"),
        (fake(capsule=5), dnn.ShapeError, "__dlpack__ returned 5"),
        (fake(capsule=other(1, b"something", None)), dnn.ShapeError, "which is not a DLPack capsule"),
        (fake(device="cpu"), dnn.DTypeError, "__dlpack_device__() must be a pair of 32-bit integers; got 'cpu'"),
        (fake(device=(1,)), dnn.DTypeError, "__dlpack_device__() must be a pair of 32-bit integers; got (1,)"),
        (fake(device=(17, 0)), dnn.DeviceError, "device type 17 is neither"),
        # The exporter's own error must reach the caller with its text.
        (fake(capsule=BufferError("it is a view")), BufferError, "it is a view"),
        (fake(capsule=TypeError("wrong day")), TypeError, "wrong day"),
    ]:
        with pytest.raises(kind) as caught:
            dnn.from_dlpack(source)
        assert text in str(caught.value)


def test_from_dlpack_copies_on_request(device: str) -> None:
    x = ramp(2, 3)
    foreign = Foreign(x)
    t = dnn.from_dlpack(foreign, copy=True)
    assert t.data_ptr != pointer(x) and foreign.deleted == 1
    assert dnn.from_dlpack(x, copy=False).data_ptr == pointer(x)
    assert dnn.from_dlpack(x, device="cpu").data_ptr == pointer(x)
    moved = dnn.from_dlpack(x, device=device)
    assert moved.device == device
    np.testing.assert_array_equal(values_of(moved), x)
    if device != "cpu":
        with pytest.raises(dnn.DeviceError, match="from cpu to cuda:0 needs a copy, and copy=False forbids it"):
            dnn.from_dlpack(x, device=device, copy=False)


def test_ownership_is_shared_with_numpy_in_both_directions() -> None:
    x = ramp(100)
    count = sys.getrefcount(x)
    t = dnn.from_dlpack(x)
    assert sys.getrefcount(x) == count + 1
    u = t.as_strided((2,), (1,))
    del t
    assert sys.getrefcount(x) == count + 1
    del u
    gc.collect()
    assert sys.getrefcount(x) == count
    t = dnn.zeros(100)
    y = np.from_dlpack(t)
    data, weak = t.data_ptr, weakref.ref(t)
    del t
    gc.collect()
    # The array y keeps the memory alive, but not the deleted tensor object.
    assert weak() is None and y.ctypes.data == data and (y == 0).all()


def test_errors_release_their_references() -> None:
    x = ramp(10)
    count = sys.getrefcount(x)
    for call in (lambda: dnn.activation_forward(x, "no mode"), lambda: dnn.transform(x, out=ramp(3)),
                 lambda: dnn.asarray(x, layout="NHWC"), lambda: dnn.asarray(x).reshape((3,))):  # fmt: skip
        with pytest.raises(dnn.Error):
            call()
        gc.collect()
        assert sys.getrefcount(x) == count


# ---- exchange with torch, CuPy and other libraries


@pytest.mark.torch
@pytest.mark.parametrize("dtype", CODES)
def test_torch(dtype: str, device: str) -> None:
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    x = torch.arange(2 * 3 * 4 * 5, device=device).remainder(100).reshape(2, 3, 4, 5).to(getattr(torch, dtype))
    for source, layout in [(x, "NCHW"), (x.to(memory_format=torch.channels_last), "NHWC"), (x[:, :2], "strided"),
                           (x.permute(3, 2, 1, 0), "strided"), (x[0, 0, 0, 0], "contiguous"), (x[:0], "NCHW"),
                           (x[:, :, :1].expand(2, 3, 4, 5), "strided")]:  # fmt: skip
        t = dnn.from_dlpack(source)
        assert (t.shape, t.dtype, t.device, t.layout) == (tuple(source.shape), dtype, device, layout)
        if source.numel():
            assert t.data_ptr == source.data_ptr() and t.strides == source.stride()
        back = torch.from_dlpack(t)
        assert back.dtype == source.dtype and torch.equal(back, source)
        if source.numel():
            assert back.data_ptr() == source.data_ptr() and back.stride() == source.stride()
        assert dnn.asarray(source, copy=False).data_ptr == t.data_ptr
    nhwc = dnn.from_dlpack(x.to(memory_format=torch.channels_last))
    assert torch.from_dlpack(nhwc).is_contiguous(memory_format=torch.channels_last)
    if dtype in ("float32", "float64", "float16", "bfloat16"):
        y = dnn.activation_forward(x.to(memory_format=torch.channels_last), "relu")
        assert y.layout == "NHWC"  # the result has the layout of x
        assert torch.equal(torch.from_dlpack(y), x.relu())


@pytest.mark.torch
def test_torch_owns_what_it_took(device: str) -> None:
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    # Frees the tensors of earlier tests now, so that they are not freed during this test.
    gc.collect()
    before = dnn.memory_stats(device)["allocated_bytes"]
    a = torch.from_dlpack(dnn.full((50,), 2.0, device=device))
    b = a[10:20]
    del a
    gc.collect()
    assert dnn.memory_stats(device)["allocated_bytes"] > before and (b == 2).all()
    del b
    assert dnn.memory_stats(device)["allocated_bytes"] == before

    source = torch.full((5,), 3.0, device=device)
    weak = weakref.ref(source)
    t = dnn.from_dlpack(source)
    del source
    gc.collect()
    assert (values_of(t) == 3).all()
    del t
    gc.collect()
    assert weak() is None  # torch's Python object is freed together with its C++ object


@pytest.mark.torch
def test_torch_as_output_and_its_refusals() -> None:
    import torch

    x, out = torch.tensor([-1.0, 2.0]), torch.empty(2)
    y = dnn.activation_forward(x, "relu", out=out)
    assert y.data_ptr == out.data_ptr() and out.tolist() == [0.0, 2.0]
    with pytest.raises(dnn.DTypeError, match="activation_forward: x is a torch tensor that requires grad"):
        dnn.activation_forward(torch.ones(2, requires_grad=True), "relu")
    with pytest.raises(dnn.DTypeError, match="elements of DLPack type"):
        dnn.from_dlpack(torch.ones(2, dtype=torch.complex64))
    assert dnn.empty(3, dtype=torch.float16).dtype == "float16" and dnn.asarray(x, dtype=torch.int64).dtype == "int64"


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(12, dtype="float32").reshape(3, 4)
    t = dnn.from_dlpack(x)
    assert t.read_only or t.device != "cpu" or t.data_ptr == x.unsafe_buffer_pointer()
    np.testing.assert_array_equal(values_of(t), np.asarray(x))
    y = dnn.activation_forward(x, "relu")
    np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(y)), np.asarray(x))
    half = jax.numpy.ones(3, "bfloat16")
    assert dnn.asarray(half).dtype == "bfloat16"


@pytest.mark.gpu
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(24, dtype="float32").reshape(2, 3, 4)
    t = dnn.from_dlpack(x)
    assert t.data_ptr == x.data.ptr and t.device == "cuda:0"
    for back in (cupy.from_dlpack(t), cupy.asarray(t)):
        assert back.data.ptr == t.data_ptr and (back == x).all()
    with dnn.Handle("cuda:0", stream=cupy.cuda.Stream(non_blocking=True)):
        assert (cupy.asarray(dnn.activation_forward(-x, "relu")) == 0).all()


# ---- streams and devices of CUDA


@pytest.mark.gpu
def test_stream_rules() -> None:
    t = dnn.zeros(3, device="cuda:0")
    for stream in (None, 1, 2, -1):
        assert look_into(c := t.__dlpack__(stream=stream)).tensor.data == t.data_ptr
    for stream, text in [
        (0, "stream=0 is ambiguous; pass 1 for the legacy default stream"),
        (-2, "stream=-2 is ambiguous"),
    ]:
        with pytest.raises(dnn.DeviceError, match=text):
            t.__dlpack__(stream=stream)
    with pytest.raises(dnn.DTypeError, match="stream must be an int; got 'x'"):
        t.__dlpack__(stream="x")
    del c
    with pytest.raises(BufferError, match="from cuda:0 to cpu needs a copy, and copy=False forbids it"):
        t.__dlpack__(dl_device=(1, 0), copy=False)


@pytest.mark.gpu
def test_a_host_pointer_is_not_gpu_memory() -> None:
    foreign = Foreign(ramp(3), device=(2, 0), claims=(2, 0))
    with pytest.raises(
        dnn.DeviceError, match="says that it is on cuda:0, which cannot reach that address; its exporter is at fault"
    ):
        dnn.from_dlpack(foreign)
    gc.collect()
    assert foreign.deleted == 1


class Interface:
    def __init__(self, **facts: object):
        self.__cuda_array_interface__ = {
            "shape": (3,),
            "typestr": "<f4",
            "data": (0x1000, False),
            "version": 3,
            **facts,
        }


def test_cuda_array_interface_errors() -> None:
    for source, kind, text in [
        (Interface(), dnn.DeviceError, _C.why_no_cuda() or "is not memory of cuda:0"),
        (
            Interface(typestr="<f16"),
            dnn.DTypeError,
            "asarray: obj has elements of typestr '<f16'; supported are float32, ",
        ),
        (Interface(typestr=">f4"), dnn.DTypeError, "obj has elements of typestr '>f4'; supported are "),
        (Interface(shape=(-3,)), dnn.ShapeError, "[-3] has a negative size"),
        (Interface(shape=(2**40, 2**40)), dnn.ShapeError, "is larger than 2^63 bytes"),
        (
            Interface(strides=(6,)),
            dnn.ShapeError,
            "obj has the stride 6, which is not a multiple of the element size 4",
        ),
        (Interface(strides=(4, 4)), dnn.ShapeError, "has 1 dimensions, strides [1, 1] have 2"),
        (Interface(strides=(2**62,)), dnn.ShapeError, "reaches beyond 2^63 bytes"),
        (Interface(mask=object()), dnn.DTypeError, "has a mask, which tensors do not support"),
        (Interface(shape="abc"), dnn.DTypeError, "does not follow the protocol"),
        (Interface(data=5), dnn.DTypeError, "does not follow the protocol"),
        (Interface(data=(-5, False)), dnn.DTypeError, "does not follow the protocol"),
        (Interface(typestr=None), dnn.DTypeError, "does not follow the protocol"),
    ]:
        with pytest.raises(kind) as caught:
            dnn.asarray(source)
        assert text in str(caught.value)
    empty = Interface()
    empty.__cuda_array_interface__ = {"shape": (3,)}
    with pytest.raises(dnn.DTypeError, match=r"\{'shape': \(3,\)\} does not follow the protocol"):
        dnn.asarray(empty)


def test_cuda_array_interface_is_for_gpu_tensors() -> None:
    assert not hasattr(dnn.zeros(3), "__cuda_array_interface__")


@pytest.mark.gpu
def test_cuda_array_interface() -> None:
    class Lender:
        def __init__(self, t: dnn.DeviceTensor):
            self.tensor, self.__cuda_array_interface__ = t, t.__cuda_array_interface__

    t = dnn.full((2, 3, 4, 5), 2.0, layout="NHWC", device="cuda:0")
    facts = t.__cuda_array_interface__
    assert facts["data"] == (t.data_ptr, False) and facts["strides"] == tuple(4 * s for s in t.strides)
    assert (facts["typestr"], facts["version"], facts["stream"]) == ("<f4", 3, 1)
    lender = Lender(t)
    count = sys.getrefcount(lender)
    u = dnn.asarray(lender)
    assert u.data_ptr == t.data_ptr and u.layout == "NHWC" and sys.getrefcount(lender) == count + 1
    assert (values_of(u) == 2).all()
    del u
    assert sys.getrefcount(lender) == count
    assert not hasattr(dnn.zeros(3, dtype="bfloat16", device="cuda:0"), "__cuda_array_interface__")
