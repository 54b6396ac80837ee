# SPDX-License-Identifier: Apache-2.0
"""DeviceTensor: creation, attributes, reshaping and conversion, NumPy and the buffer protocol, memory and its
statistics."""

from __future__ import annotations

import array
import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from support import values_of

import pyminidnn as dnn
from pyminidnn import _C

DTYPES = _C.dtypes
NUMPY_DTYPES = [d for d in DTYPES if d != "bfloat16"]
ITEMSIZE = dict(zip(DTYPES, (4, 8, 2, 2, 1, 1, 4, 8, 1), strict=True))
LAYOUTS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def pointer(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def ramp(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


# ---- tests of the functions that make tensors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(), (0,), (7,), (2, 3), (4, 0, 3), (2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 2), (1,) * 8]
)
def test_new_tensor(shape: tuple[int, ...], dtype: str, device: str) -> None:
    t = dnn.empty(shape, dtype=dtype, device=device)
    count = int(np.prod(shape))
    assert (t.shape, t.ndim, t.size, t.dtype, t.device) == (shape, len(shape), count, dtype, device)
    assert t.nbytes == count * ITEMSIZE[dtype]
    assert (
        t.strides == tuple(s // ITEMSIZE[dtype] for s in np.empty(shape, f"V{ITEMSIZE[dtype]}").strides) or count == 0
    )
    assert t.layout == (LAYOUTS[len(shape)][0] if len(shape) in LAYOUTS else "contiguous")
    assert not t.read_only
    assert t.data_ptr % 64 == 0 and (t.data_ptr != 0) == (count > 0)
    assert (values_of(dnn.zeros(shape, dtype=dtype, device=device)) == 0).all()


@pytest.mark.parametrize("rank", LAYOUTS)
def test_layouts_are_stride_orders(rank: int, device: str) -> None:
    shape = (2, 3, 4, 5, 6)[:rank]
    first, last = LAYOUTS[rank]
    t = dnn.DeviceTensor(shape, layout=last, device=device)
    assert t.shape == shape and t.layout == last and t.strides[1] == 1 and t.strides[-1] == 3
    assert dnn.empty(shape, layout=first, device=device).layout == first
    x = ramp(*shape)
    u = dnn.asarray(x, layout=last, device=device)
    assert u.layout == last and u.strides == t.strides
    np.testing.assert_array_equal(values_of(u), x)
    back = u.to(layout=first)
    assert back.layout == first
    np.testing.assert_array_equal(values_of(back), x)
    assert u.to(layout=last).data_ptr == u.data_ptr  # u already has the layout `last`, so to() makes no copy
    assert u.to().data_ptr == u.data_ptr
    assert u.to(copy=True).data_ptr != u.data_ptr and u.to(copy=True).layout == last


def test_shape_may_be_a_number_or_any_sequence(device: str) -> None:
    for shape in (5, np.int64(5), [5], np.array([5]), range(5, 6)):
        assert dnn.zeros(shape, device=device).shape == (5,)


def test_names_of_dtypes() -> None:
    for dtype in ("f32", "float32", np.float32, np.dtype("float32"), np.dtype("=f4")):
        assert dnn.empty(1, dtype=dtype).dtype == "float32"
    with pytest.raises(dnn.DTypeError, match=r"empty: dtype=dtype\('>f4'\) has its bytes swapped"):
        dnn.empty(1, dtype=np.dtype(">f4"))
    assert dnn.empty(1, dtype=bool).dtype == "bool" and dnn.empty(1, dtype=np.bool_).dtype == "bool"
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert dnn.empty(1, dtype=ml_dtypes.bfloat16).dtype == "bfloat16"
    assert dnn.empty(1, dtype=np.dtype(ml_dtypes.bfloat16)).dtype == "bfloat16"


def test_full(device: str) -> None:
    def full(value: object, dtype: str) -> float:
        (v,) = set(values_of(dnn.full((3, 2), value, dtype=dtype, device=device)).ravel().tolist())
        return v

    assert full(2.5, "float32") == full(2.5, "bfloat16") == 2.5
    assert full(300, "int8") == 127 and full(-1, "uint8") == 0 and full(float("nan"), "int32") == 0
    assert full(-7, "bool") == 1 and full(float("nan"), "bool") == 1 and full(0.0, "bool") == 0
    assert np.signbit(full(-0.0, "float16")) and full(float("inf"), "float16") == float("inf")
    assert full(np.float32(0.1), "float64") == float(np.float32(0.1)) and full(True, "int64") == 1
    for value in (2**53 + 1, -(2**63), 2**63 - 1):  # integers that a conversion to double would change
        assert set(dnn.full(3, value, dtype="int64", device=device).numpy().tolist()) == {value}


def test_repr_len_bool_and_hash() -> None:
    assert repr(dnn.zeros((1, 2))) == "DeviceTensor([[0., 0.]], dtype='float32', layout='contiguous', device='cpu')"
    assert len(dnn.empty((4, 2))) == 4
    with pytest.raises(TypeError, match="has no length"):
        len(dnn.empty(()))
    for t in (dnn.empty(0), dnn.empty(3)):
        with pytest.raises(ValueError, match="__bool__: the tensor must have one element"):
            bool(t)
    t = dnn.zeros(1)
    assert weakref.ref(t)() is t and hash(t) == hash(t) and not t and t == t and t != dnn.ones(1)


# ---- tests of views of tensors


def test_reshape(device: str) -> None:
    x = ramp(2, 3, 4)
    t = dnn.asarray(x, device=device)
    for shape in [(24,), (6, 4), (2, 12), (1, 2, 1, 3, 4, 1), (4, 3, 2), (-1,), (3, -1), (2, 3, -1, 2)]:
        v = t.reshape(shape)
        assert v.data_ptr == t.data_ptr
        np.testing.assert_array_equal(values_of(v), x.reshape(shape))
    transposed = t.permute((2, 0, 1))
    copy = transposed.reshape((8, 3))
    assert copy.data_ptr != t.data_ptr
    np.testing.assert_array_equal(values_of(copy), x.transpose(2, 0, 1).reshape(8, 3))
    assert dnn.empty((0, 3), device=device).reshape((5, 0)).shape == (5, 0)
    assert dnn.zeros((), device=device).reshape((1, 1)).shape == (1, 1)
    assert dnn.empty((0, 3), device=device).reshape((-1, 3)).shape == (0, 3)


def test_permute_and_as_strided(device: str) -> None:
    x = ramp(4, 6)
    t = dnn.asarray(x, device=device)
    np.testing.assert_array_equal(values_of(t.permute((1, 0))), x.T)
    np.testing.assert_array_equal(values_of(t.permute((-1, -2))), x.T)
    np.testing.assert_array_equal(values_of(t.as_strided((2, 3), (12, 2), 1)), x[::2, 1::2])
    np.testing.assert_array_equal(values_of(t.as_strided((4, 6), (-6, -1), 23)), x[::-1, ::-1])
    np.testing.assert_array_equal(values_of(t.as_strided((3, 6), (0, 1), 6)), np.broadcast_to(x[1], (3, 6)))
    window = t.as_strided((2, 2), (6, 1), 7)
    np.testing.assert_array_equal(values_of(window.as_strided((2,), (7,))), [7, 14])


BIG = 2**62


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda t: t.reshape((5,)), "reshape: shape [5] cannot be a view of [4, 6] float32 with strides [6, 1], which has another number"),
        (lambda t: t.reshape((5, -1)), "reshape: shape [5, -1] does not divide the 24 elements of [4, 6]"),
        (lambda t: t.reshape((-1, -1)), "reshape: shape may have one negative size, -1; got [-1, -1]"),
        (lambda t: dnn.zeros((0, 4)).reshape((0, -1)), "reshape: shape [0, -1] does not determine -1"),
        (lambda t: t.reshape((2, -2)), "reshape: shape [2, -2] has a negative size in dimension 1"),
        (lambda t: t.reshape((BIG, BIG)), "is larger than 2^63 bytes"),
        (lambda t: t.reshape((1,) * 9), "has 9 dimensions; at most 8 are supported"),
        (lambda t: t.reshape((2**70,)), "reshape: shape must be an int or a sequence of ints from -2^63 to 2^63 - 1, at most 2^20; got (1180591620717411303424,)"),
        (lambda t: t.permute((0, 0)), "permute: axes must name each of 2 dimensions once; got [0, 0]"),
        (lambda t: t.permute((0,)), "permute: axes must name each of 2 dimensions once; got [0]"),
        (lambda t: t.permute((-1, 1)), "permute: axes must name each of 2 dimensions once; got [-1, 1]"),
        (lambda t: t.permute((0, -3)), "permute: axes must name each of 2 dimensions once; got [0, -3]"),
        (lambda t: t.as_strided((25,), (1,)), "reaches elements 0 to 25 around offset 0; the tensor has 0 to 24"),
        (lambda t: t.as_strided((1,), (1,), -1), "around offset -1; the tensor has 0 to 24"),
        (lambda t: t.as_strided((1,), (1,), 24), "around offset 24"),
        (lambda t: t.as_strided((2,), (-1,)), "reaches elements -1 to 1"),
        # In these calls, products of sizes and strides exceed 64 bits and overflow to small numbers.
        (lambda t: t.as_strided((5,), (BIG,)), "reaches beyond 2^63 bytes"),
        (lambda t: t.as_strided((2, 2), (-BIG, BIG)), "reaches beyond 2^63 bytes"),
        (lambda t: t.as_strided((2,), (-(2**63),)), "reaches beyond 2^63 bytes"),
        (lambda t: t.as_strided((1,), (1,), 2**63 - 1), f"around offset {2**63 - 1}"),
        (lambda t: t.as_strided((2,), (-1,), -(2**63)), f"around offset {-(2**63)}"),
        (lambda t: t.as_strided((2, 2), (1,)), "shape [2, 2] has 2 dimensions, strides [1] have 1"),
        (lambda t: t.to(layout="NHWC"), "layout 'NHWC' does not name an order of 2 dimensions; use 'contiguous'"),
        (lambda t: dnn.empty((2, 2, 2), layout="NHWC"), "use 'NCW', 'NWC' or 'contiguous'"),
        (lambda t: dnn.empty((2, -2)), "empty: shape [2, -2] has a negative size in dimension 1"),
        (lambda t: dnn.empty(-1), "has a negative size in dimension 0"),
        (lambda t: dnn.zeros((2**32, 2**31)), "zeros: shape [4294967296, 2147483648] float32 is larger than 2^63 bytes"),
        (lambda t: dnn.empty((2,) * 9), "has 9 dimensions; at most 8 are supported"),
        (lambda t: dnn.full(3, 2**63, dtype="int64"), "full: value must be a number that fits int64; got 9223372036854775808"),
    ],
)  # fmt: skip
def test_shape_errors(call: object, text: str) -> None:
    x = ramp(4, 6)
    t = dnn.asarray(x)
    with pytest.raises(dnn.ShapeError) as caught:
        call(t)
    assert text in str(caught.value)
    np.testing.assert_array_equal(t.numpy(), x)


# ---- tensors as NumPy arrays, and through the buffer protocol


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_both_ways_shares_memory(dtype: str) -> None:
    for x in (ramp(3, 4, dtype=dtype), ramp(4, 6, dtype=dtype)[::2, ::3], np.asfortranarray(ramp(3, 4, dtype=dtype)),
              ramp(3, 4, dtype=dtype)[::-1, ::-1], ramp(1, dtype=dtype).reshape(()), ramp(2, 0, dtype=dtype),
              np.broadcast_to(ramp(4, dtype=dtype), (3, 4))):  # fmt: skip
        t = dnn.asarray(x)
        assert t.shape == x.shape and t.dtype == dtype
        assert t.read_only == (not x.flags.writeable)
        if x.size:
            assert t.data_ptr == pointer(x)
            assert t.strides == tuple(s // x.itemsize for s in x.strides)
        for back in (t.numpy(), np.asarray(t), np.asarray(memoryview(t)), np.from_dlpack(t)):
            assert back.dtype == x.dtype and back.flags.writeable == x.flags.writeable
            np.testing.assert_array_equal(back, x)
            if x.size:
                assert pointer(back) == pointer(x) and back.strides == x.strides
    y = dnn.zeros((2, 2), dtype=dtype)
    np.asarray(y)[0, 1] = 1
    y.numpy()[1, 0] = 1
    np.testing.assert_array_equal(values_of(y), [[0, 1], [1, 0]])


def test_numpy_copies_when_asked() -> None:
    t = dnn.zeros((2, 3))
    assert pointer(np.array(t)) != t.data_ptr and pointer(np.asarray(t, copy=True)) != t.data_ptr
    assert pointer(np.asarray(t, copy=False)) == t.data_ptr
    assert np.asarray(t, dtype="float64").dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, dtype="float64", copy=False)
    assert t.__array__().dtype == np.float32 and t.__array__(np.int8).dtype == np.int8
    with pytest.raises(ValueError, match="another dtype needs a copy"):
        t.__array__(np.int8, copy=False)


def test_buffer() -> None:
    t = dnn.zeros((2, 3, 4, 5), dtype="int64", layout="NHWC")
    view = memoryview(t)
    assert view.shape == t.shape and view.strides == tuple(8 * s for s in t.strides) and view.format == "l"
    # NumPy has two integer types of 64 bits. The view must have the one that NumPy calls int64.
    assert np.asarray(view).dtype.char == np.dtype("int64").char
    assert not view.readonly and memoryview(dnn.asarray(b"ab")).readonly
    with pytest.raises((BufferError, TypeError)):
        # c_char.from_buffer() requires a writable buffer.
        ctypes.c_char.from_buffer(dnn.asarray(b"ab"))
    data, weak = t.data_ptr, weakref.ref(t)
    del t
    assert weak() is not None  # the memoryview keeps the tensor alive
    assert np.asarray(view).ctypes.data == data
    del view
    assert weak() is None


def test_bfloat16_to_numpy_and_back() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([[1.0, -2.5], [3e38, np.inf]], ml_dtypes.bfloat16)
    t = dnn.asarray(x)
    assert t.dtype == "bfloat16" and t.data_ptr == pointer(x)
    # NumPy cannot read bfloat16 through the buffer protocol, so __array__ converts the tensor.
    for back in (t.numpy(), np.asarray(t)):
        assert back.dtype == ml_dtypes.bfloat16 and pointer(back) == pointer(x)
    assert dnn.asarray(x[:, ::-1]).strides == (2, -1) and dnn.asarray(x[0, 0].reshape(())).dtype == "bfloat16"
    with pytest.raises(BufferError):
        memoryview(t)


def test_bfloat16_without_ml_dtypes_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    t = dnn.zeros(3, dtype="bfloat16")
    for call in (t.numpy, lambda: np.asarray(t)):
        with pytest.raises(dnn.DTypeError, match=r"pip install ml_dtypes, or call \.to\(dtype='float32'\) first"):
            call()
    assert t.to(dtype="float32").numpy().tolist() == [0, 0, 0]


@pytest.mark.gpu
def test_numpy_of_a_gpu_tensor() -> None:
    t = dnn.full((2, 3), 2.0, device="cuda:0")
    assert t.numpy().tolist() == [[2.0] * 3] * 2
    for call in (lambda: np.asarray(t), lambda: t.__array__(), lambda: np.array([t])):
        with pytest.raises(TypeError, match=r"on cuda:0, .*call \.numpy\(\) or \.to\(device='cpu'\)"):
            call()
    with pytest.raises((BufferError, TypeError)):
        memoryview(t)


# ---- tests of asarray()


def unaligned() -> np.ndarray:
    return np.frombuffer(bytes(1) + ramp(6).tobytes(), "f4", offset=1)


RECORDS = np.zeros(5, np.dtype([("a", "u1"), ("b", "<f4"), ("c", "<i8")]))
RECORDS["b"] = np.arange(5)


@pytest.mark.parametrize(
    "source",
    [
        ramp(4, 3).astype(">f4"),
        ramp(4, 3).astype(">i8"),
        unaligned(),
        # Neighbouring float32 elements are 13 bytes apart, which is not a multiple of 4 bytes.
        RECORDS["b"],
        [[1.0, 2.0], [3.0, 4.0]],
        3,
        2.5,
        True,
        np.float32(2.5),
        [],
        (1, 2),
        [np.float16(1), np.float16(2)],
    ],
    ids=lambda v: type(v).__name__,
)
def test_asarray_copies_what_it_cannot_share(source: object) -> None:
    t = dnn.asarray(source)
    want = np.asarray(source)
    assert t.shape == want.shape and t.dtype == want.dtype.name and not t.read_only
    np.testing.assert_array_equal(t.numpy(), want)
    with pytest.raises(dnn.DeviceError, match="obj must have memory that a tensor can share without a copy; got "):
        dnn.asarray(source, copy=False)


@pytest.mark.parametrize(
    "source",
    [bytearray(b"abc"), b"abc", memoryview(b"abc"), array.array("d", [1, 2]), (ctypes.c_int32 * 3)(1, 2, 3),
     np.zeros(3, [("a", "<f4"), ("b", "<i4")])["b"]],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_asarray_shares_buffers(source: object) -> None:
    t = dnn.asarray(source, copy=False)
    want = np.asarray(memoryview(source))
    assert t.data_ptr == pointer(want) and t.read_only == (not want.flags.writeable)
    np.testing.assert_array_equal(t.numpy(), want)
    assert dnn.asarray(source, copy=True).data_ptr != t.data_ptr


def test_asarray_copy_and_dtype() -> None:
    x = ramp(2, 3)
    t = dnn.asarray(x, copy=True)
    assert t.data_ptr != pointer(x) and not t.read_only
    assert dnn.asarray(t).data_ptr == t.data_ptr == dnn.asarray(t, copy=False).data_ptr
    assert dnn.asarray(x, dtype="float32", copy=False).data_ptr == pointer(x)
    with pytest.raises(dnn.DeviceError, match=r"obj needs a copy to become .*dtype='int8'.*; got .*dtype='float32'"):
        dnn.asarray(x, dtype="int8", copy=False)
    x.flags.writeable = False
    assert dnn.asarray(x).read_only and not dnn.asarray(x, copy=True).read_only
    with pytest.raises(dnn.ShapeError, match="out is read-only"):
        dnn.transform(ramp(2, 3), out=x)


@pytest.mark.parametrize(
    "source, kind, text",
    [
        ("text", dnn.DTypeError, "bool; got 'text'"),
        (["a", "bc"], dnn.DTypeError, "got ['a', 'bc']"),
        (object(), dnn.DTypeError, "got <object object"),
        (None, dnn.DTypeError, "got None"),
        ({1: 2}, dnn.DTypeError, "got {1: 2}"),
        (2**63, dnn.DTypeError, "got 9223372036854775808"),
        (2**100, dnn.DTypeError, "asarray: obj must be an array or numbers of float32, float64, "),
        (1j, dnn.DTypeError, "got 1j"),
        (np.zeros(3, ">c8"), dnn.DTypeError, "got elements of >c8"),
        (np.zeros(3, "u2"), dnn.DTypeError, "got elements of uint16"),
        (np.zeros(3, np.longdouble), dnn.DTypeError, "got elements of"),
        (np.zeros(3, "M8[s]"), dnn.DTypeError, "got elements of datetime64[s]"),
        (np.zeros(3, object), dnn.DTypeError, "got elements of object"),
        (RECORDS, dnn.DTypeError, "got elements of [("),
        (
            np.ma.masked_array([1.0, 2.0], mask=[0, 1]),
            dnn.DTypeError,
            "asarray: obj is a masked array, and tensors have no mask",
        ),
        ([[1, 2], [3]], dnn.ShapeError, "asarray: obj is not an array: setting an array element with a sequence"),
        (np.zeros((1,) * 9), dnn.ShapeError, "asarray: obj has 9 dimensions; 0 to 8 are supported"),
    ],
)
def test_asarray_errors(source: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        dnn.asarray(source)
    assert text in str(caught.value)


def test_exceptions_of_objects_propagate() -> None:
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise LookupError("not today")

    with pytest.raises(LookupError, match="not today"):
        dnn.asarray(Broken())


def test_host_operands_are_copied_to_the_device(device: str) -> None:
    x = ramp(2, 3)
    t = dnn.asarray(x, device=device)
    y = dnn.activation_backward(x, t, x, "identity")
    assert y.device == device  # the host arrays are copied to the device of the tensor t
    np.testing.assert_array_equal(values_of(y), x)
    with dnn.Handle(device):
        # No argument is a tensor. Then host arrays are copied to the device of the handle that `with` entered.
        assert dnn.activation_forward(x, "relu").device == device
        assert dnn.empty(2).device == device and dnn.zeros(2).device == device
    assert dnn.activation_forward(x, "relu", handle=dnn.Handle(device)).device == device
    for empty in (np.zeros((0, 3)), [], np.float32(1)):
        assert dnn.transform(empty, handle=dnn.Handle(device)).device == device


# ---- tests of the allocator


def test_memory_statistics(device: str) -> None:
    gc.collect()
    dnn.empty_cache(device)
    dnn.reset_peak_memory(device)
    before = dnn.memory_stats(device)
    assert before["cached_bytes"] == 0 and before["peak_allocated_bytes"] == before["allocated_bytes"]
    t = dnn.empty(1000, device=device)
    during = dnn.memory_stats(device)
    assert 4000 <= during["allocated_bytes"] - before["allocated_bytes"] <= 4500
    assert (
        during["allocations"]
        == before["allocations"] + 1
        == during["device_allocations"] - before["device_allocations"] + before["allocations"]
    )
    data = t.data_ptr
    del t
    after = dnn.memory_stats(device)
    assert after["allocated_bytes"] == before["allocated_bytes"] and after["cached_bytes"] >= 4000
    assert after["peak_allocated_bytes"] == during["peak_allocated_bytes"]
    again = dnn.empty(1000, device=device)
    assert again.data_ptr == data  # a cached block of memory is reused, so it no longer counts as free
    assert dnn.memory_stats(device)["device_allocations"] == during["device_allocations"]
    assert dnn.memory_stats(device)["cached_bytes"] == 0
    del again
    assert dnn.memory_stats(device)["cached_bytes"] == after["cached_bytes"]
    dnn.empty_cache(device)
    assert dnn.memory_stats(device)["cached_bytes"] == 0


def test_views_keep_memory_alive(device: str) -> None:
    gc.collect()
    before = dnn.memory_stats(device)["allocated_bytes"]
    t = dnn.full(1000, 3.0, device=device)
    views = [t.reshape((10, 100)), t.as_strided((2,), (7,), 5), t.permute((0,)), t.to()]
    del t
    assert dnn.memory_stats(device)["allocated_bytes"] > before
    assert all((values_of(v) == 3).all() for v in views)
    del views
    gc.collect()
    assert dnn.memory_stats(device)["allocated_bytes"] == before


def test_out_of_memory(device: str) -> None:
    gc.collect()
    kept = dnn.empty(3000, device=device)
    del kept
    before = dnn.memory_stats(device)
    with pytest.raises(dnn.OutOfMemory) as caught:
        dnn.empty(2**50, dtype="int8", device=device)
    text = str(caught.value)
    assert f"empty: shape [{2**50}] int8 needs 1125.9 TB on {device}; " in text and text.endswith(" are free")
    with pytest.raises(MemoryError):
        dnn.zeros((2**20, 2**20, 2**12), device=device)
    h = dnn.Handle(device)
    x = dnn.zeros((1,), device=device).as_strided((2**46,), (0,))
    with pytest.raises(dnn.OutOfMemory, match=r"activation_forward: out \[70368744177664\] float32 needs 281.5 TB"):
        dnn.activation_forward(x, "relu", handle=h)
    # The handle still works after the error.
    assert dnn.activation_forward(dnn.zeros(3, device=device), "relu", handle=h).shape == (3,)
    del x
    gc.collect()
    after = dnn.memory_stats(device)
    assert after["allocated_bytes"] == before["allocated_bytes"] and after["cached_bytes"] >= before["cached_bytes"]


# ---- calls from several threads and processes


def test_two_threads_with_separate_handles(device: str) -> None:
    """Operations release the GIL: threads use plan caches, allocator and thread pool at the same time."""
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            with dnn.Handle(device) as h:
                for n, _ in itertools.product((1, 33, 4099, 70001), range(8)):
                    x = rng.standard_normal(n).astype("float32")
                    y = dnn.activation_forward(x, "relu")
                    z = dnn.transform(y, dtype="float64")
                    np.testing.assert_array_equal(values_of(z), np.maximum(x, 0))
                    assert dnn.memory_stats(device)["allocated_bytes"] > 0
                h.synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_one_handle_on_two_threads(device: str) -> None:
    handle, errors = dnn.Handle(device), []

    def work() -> None:
        try:
            for n in range(1, 60):  # each size needs a new plan
                assert dnn.activation_forward(dnn.zeros(n, device=device), "relu", handle=handle).shape == (n,)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_tensors_may_be_freed_on_any_thread() -> None:
    """A thread that does not hold the GIL, or is not the main thread, releases a storage that owns a Python object."""
    x = ramp(1000)
    count = sys.getrefcount(x)
    tensors = [dnn.asarray(x) for _ in range(100)]
    assert sys.getrefcount(x) == count + 100

    def drop(chunk: list[dnn.DeviceTensor]) -> None:
        while chunk:
            chunk.pop()

    chunks = [tensors[i::4] for i in range(4)]
    tensors.clear()
    threads = [threading.Thread(target=drop, args=(p,)) for p in chunks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    assert sys.getrefcount(x) == count


def test_fork_after_use_of_the_pool() -> None:
    x = np.linspace(-3, 3, 200_000)
    want = np.maximum(x, 0)
    assert (dnn.activation_forward(x, "relu").numpy() == want).all()
    child = os.fork()
    if child == 0:  # after a fork, the child has no worker threads, so its thread pool starts new ones
        ok = False
        try:
            ok = all((dnn.activation_forward(x, "relu").numpy() == want).all() for _ in range(5))
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (dnn.activation_forward(x, "relu").numpy() == want).all()


def test_a_process_may_end_with_live_tensors() -> None:
    """With tensors in globals, in cycles and on threads, and with a blocked thread pool, the process exits without a
    crash."""
    program = """
import threading, numpy as np, pyminidnn as dnn
x = np.zeros(100000); t = dnn.asarray(x); y = dnn.activation_forward(t, "relu"); h = dnn.Handle(); h.__enter__()
class Cycle: pass
c = Cycle(); c.me = c; c.t = dnn.asarray(x); c.capsule = t.__dlpack__(); c.view = memoryview(y)
threading.Thread(target=lambda: dnn.activation_forward(x, "relu"), daemon=True).start()
"""
    for _ in range(3):
        subprocess.run(
            [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )


def test_checks_of_the_allocator() -> None:
    """Tests and sanitizers rely on both: poison fills each new block, and exact blocks are not kept for reuse."""
    code = """
import numpy as np, pyminidnn as dnn
from pyminidnn import _C
_C.set_allocator_checks(exact=True, poison=0x3c)
t = dnn.empty(1001, dtype="uint8")
print((t.numpy() == 0x3c).all(), dnn.memory_stats("cpu")["allocated_bytes"])
del t
print(dnn.memory_stats("cpu")["cached_bytes"], dnn.memory_stats("cpu")["allocated_bytes"])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True 1001\n0 0\n"
