# SPDX-License-Identifier: Apache-2.0
"""DLPack's C exchange in both directions: types of this test with their own tables, torch, and the table of
DeviceTensor. Equal pointers prove that nothing is copied, and counts that each deleter is called once."""

from __future__ import annotations

import ctypes
import gc
import threading
from ctypes import c_int64, c_void_p, py_object
from typing import Any

import dlpack_c
import numpy as np
import pytest
from dlpack_c import COPIED, READ_ONLY, DLTensor, Exchanged, Foreign, ManagedVersioned, exchange_type, table_of
from support import values_of
from test_dlpack import WRONG, nothing_leaks, pointer, ramp  # noqa: F401  # nothing_leaks is a fixture

import pyminidnn as dnn
from pyminidnn import _C

Array = exchange_type()


# ---- import


@pytest.mark.parametrize("make", [
    lambda: ramp(2, 3, 4), lambda: ramp(4, 6)[::2, ::-1], lambda: ramp(2, 3).T, lambda: ramp(1).reshape(()),
    lambda: ramp(2, 0, 3), lambda: np.broadcast_to(ramp(3), (2, 3)),
])  # fmt: skip
@pytest.mark.parametrize("take", [dnn.from_dlpack, dnn.asarray])
def test_arrays_are_shared(make: Any, take: Any) -> None:
    for dtype in ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"):
        x = make().astype(dtype)
        t = take(array := Array(Foreign(x)))
        assert array.exports == 1
        assert (t.shape, t.dtype, t.device, t.read_only) == (x.shape, dtype, "cpu", False)
        assert t.data_ptr == pointer(x) or x.size == 0
        np.testing.assert_array_equal(t.numpy(), x)
        view = t.as_strided(t.shape, t.strides)
        del t
        assert array.foreign.deleted == 0
        del view
        assert array.foreign.deleted == 1


def test_optional_fields() -> None:
    x = ramp(4, 3)
    for fields, want in [
        ({"strides": None}, x),  # allowed before DLPack 1.2
        ({"byte_offset": 12, "shape": (3, 3), "strides": None}, x[1:]),
        ({"shape": None, "strides": None, "ndim": 0}, x[0, 0]),
        ({"data": None, "shape": (0, 5), "strides": None}, np.zeros((0, 5))),
        ({"device": (3, 0)}, x),  # device type 3 of DLPack is page-locked host memory of CUDA
        ({"flags": READ_ONLY}, x),
        ({"flags": COPIED | 1 << 40}, x),
        ({"version": (1, 99)}, x),
        ({"deleter": False}, x),
    ]:
        t = dnn.from_dlpack(array := Array(Foreign(x, **fields)))
        np.testing.assert_array_equal(t.numpy(), want)
        assert t.read_only == (fields.get("flags") == READ_ONLY)
        del t
        assert (array.exports, array.foreign.deleted) == (1, fields.get("deleter", True))
    assert dnn.from_dlpack(Array(Foreign(np.ones(2, "f2"), code=4))).dtype == "bfloat16"


@pytest.mark.parametrize("fields, kind, text", WRONG, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_invalid_structures(fields: dict, kind: type[Exception], text: str) -> None:
    array = Array(Foreign(ramp(4, 3), **fields))
    with pytest.raises(kind) as caught:
        dnn.from_dlpack(array)
    assert text in str(caught.value)
    with pytest.raises(kind, match=r"activation_forward: x |device type|driver|there is no cuda"):
        dnn.activation_forward(array, "relu")
    assert array.foreign.deleted == array.exports  # the deleter was called once for each export


def test_a_tensor_of_another_major_version() -> None:
    array = Array(Foreign(ramp(3), version=(2, 0), ndim=99, code=99))
    with pytest.raises(dnn.DeviceError, match=r"x uses DLPack 2\.0; supported is 1\.x"):
        dnn.from_dlpack(array)
    assert array.foreign.deleted == array.exports


def test_functions_take_operands_and_outputs() -> None:
    x, out = Array(Foreign(-ramp(2, 3))), Array(Foreign(ramp(2, 3)))
    y = dnn.activation_forward(x, "relu", out=out)
    assert y.data_ptr == pointer(out.foreign.array) and (out.foreign.array == 0).all()
    del y
    z = dnn.activation_backward(x, np.ones((2, 3), "float32"), dnn.ones((2, 3)), "identity")
    np.testing.assert_array_equal(z.numpy(), -ramp(2, 3))
    np.testing.assert_array_equal((dnn.ones((2, 3)) + x).numpy(), 1 - ramp(2, 3))
    with pytest.raises(dnn.ShapeError, match="activation_forward: out is read-only"):
        dnn.activation_forward(x, "relu", out=Array(Foreign(ramp(2, 3), flags=READ_ONLY)))
    assert x.foreign.deleted == x.exports and out.foreign.deleted == out.exports


@pytest.mark.parametrize("handle", [None, "given", "entered"])
def test_host_arrays_move_to_the_device_of_the_others(handle: str | None, device: str) -> None:
    h = dnn.Handle(device)
    x = Array(Foreign(-ramp(2, 3)))
    if handle is None:
        y = dnn.activation_backward(x, dnn.ones((2, 3), device=device), x, "identity")
        z = dnn.activation_forward(x, "identity", out=dnn.empty((2, 3), device=device))
    elif handle == "given":
        y = dnn.activation_backward(x, x, x, "identity", handle=h)
        z = dnn.activation_forward(x, "identity", handle=h)
    else:
        with h:
            y, z = dnn.activation_backward(x, x, x, "identity"), dnn.activation_forward(x, "identity")
    assert y.device == z.device == device
    np.testing.assert_array_equal(values_of(y), -ramp(2, 3))
    np.testing.assert_array_equal(values_of(z), -ramp(2, 3))


def test_copies_and_devices_on_request() -> None:
    array = Array(Foreign(x := ramp(2, 3)))
    assert dnn.from_dlpack(array, copy=True).data_ptr != pointer(x) and array.foreign.deleted == 1
    assert dnn.from_dlpack(array, copy=False).data_ptr == dnn.from_dlpack(array, device="cpu").data_ptr == pointer(x)
    assert dnn.asarray(array, copy=False).data_ptr == pointer(x)
    with pytest.raises(dnn.DeviceError):
        dnn.from_dlpack(array, device="cuda:99")
    assert array.foreign.deleted == array.exports == 4


# ---- the exceptions of other libraries


class Both(Exchanged):
    """An array whose __dlpack__() returns the capsule of a Foreign, or raises an exception."""

    answer: BaseException | None = None

    def __dlpack__(self, **keywords: object) -> object:
        if self.answer:
            raise self.answer
        return self.foreign.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("call", [dnn.from_dlpack, dnn.asarray, lambda x: dnn.activation_forward(x, "relu")])
def test_an_exception_of_the_library_is_the_cause(call: Any) -> None:
    cause = BufferError("the array is on the moon")
    with pytest.raises(
        dnn.DTypeError, match=": (x|obj) cannot be exported by its library: the array is on the moon"
    ) as e:
        call(exchange_type(fails=True)(Foreign(ramp(3)), cause))
    assert e.value.__cause__ is cause
    with pytest.raises(dnn.DTypeError, match="add: b cannot be exported by its library: the array") as e:
        _ = dnn.ones(3) + exchange_type(fails=True)(Foreign(ramp(3)), cause)
    assert e.value.__cause__ is cause


def test_dunder_dlpack_is_called_if_the_exchange_fails() -> None:
    array = exchange_type(fails=True, base=Both)(Foreign(x := ramp(3)), cause := RuntimeError("no"))
    assert dnn.from_dlpack(array).data_ptr == pointer(x)
    array.answer = BufferError("still no")
    with pytest.raises(BufferError, match="still no") as caught:
        dnn.from_dlpack(array)
    assert caught.value is array.answer and caught.value.__context__ is cause


@pytest.mark.parametrize("base", [Exchanged, Both])
def test_an_interrupt_is_no_failure(base: type) -> None:
    array = exchange_type(fails=True, base=base)(Foreign(ramp(3)), KeyboardInterrupt())
    for call in (dnn.from_dlpack, lambda x: dnn.from_dlpack(x, copy=True), dnn.asarray,
                 lambda x: dnn.activation_forward(x, "relu")):  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            call(array)


# ---- tables that are not used


@pytest.mark.parametrize(
    "arguments",
    [{"version": (2, 0)}, {"version": (0, 9)}, {"name": b"dlpack_api"}, {"current_stream": None}],
    ids=str,
)
def test_tables_that_are_not_supported(arguments: dict) -> None:
    array = exchange_type(base=Both, **arguments)(Foreign(x := ramp(3)))
    assert dnn.from_dlpack(array).data_ptr == pointer(x) and array.exports == 0  # by __dlpack__
    with pytest.raises(dnn.DTypeError, match="x must have __dlpack__ and __dlpack_device__, or be a DLPack capsule"):
        dnn.from_dlpack(exchange_type(**arguments)(Foreign(x)))


def test_an_older_table_in_the_chain() -> None:
    newer = exchange_type(version=(3, 0), previous=exchange_type(version=(2, 0), previous=Array.table).table)
    assert dnn.from_dlpack(array := newer(Foreign(x := ramp(3)))).data_ptr == pointer(x) and array.exports == 1


def test_the_attribute_belongs_to_the_type() -> None:
    array = Both(Foreign(x := ramp(3)))
    array.__dlpack_c_exchange_api__ = vars(Array)["__dlpack_c_exchange_api__"]
    assert dnn.from_dlpack(array).data_ptr == pointer(x) and array.exports == 0
    for other in (None, 5, "text", dnn.ones(1)):
        kind = type("Other", (Both,), {"__dlpack_c_exchange_api__": other})
        assert dnn.from_dlpack(kind(Foreign(x))).data_ptr == pointer(x)


def test_types_that_are_made_at_run_time() -> None:
    """More types than the library remembers, with and without a table, which may get the address of a deleted one."""
    for i in range(200):
        array = exchange_type(base=Both, version=(1 + i % 2, 0))(Foreign(x := ramp(3)))
        assert dnn.from_dlpack(array).data_ptr == pointer(x) and array.exports == (i % 2 == 0)
        del array
        gc.collect(0)


def test_threads_meet_new_types() -> None:
    kinds, wrong, threads = [exchange_type() for _ in range(20)], [], 8
    barrier = threading.Barrier(threads)

    def work() -> None:
        for kind in kinds:
            array = kind(Foreign(x := ramp(3)))
            barrier.wait()
            if dnn.from_dlpack(array).data_ptr != pointer(x) or (array.exports, array.foreign.deleted) != (1, 1):
                wrong.append(kind)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong


# ---- torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch, whose __dlpack__ raises an exception: all arrays must come in by the C exchange."""
    import torch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("torch 2.10 and later have the C exchange")

    def fail(*positional: object, **keywords: object) -> None:
        raise AssertionError("__dlpack__ was called")

    monkeypatch.setattr(torch.Tensor, "__dlpack__", fail)
    monkeypatch.setattr(torch.Tensor, "__dlpack_device__", fail)
    return torch


@pytest.mark.torch
def test_torch_tensors_come_in_by_the_exchange(torch: Any, device: str) -> None:
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")

    class Own(torch.Tensor):
        pass

    x = torch.arange(-60.0, 60, device=device).reshape(2, 3, 4, 5)
    parameter = torch.nn.Parameter(x, requires_grad=False)
    for source in (x, x.to(memory_format=torch.channels_last), x[:, ::2], x[:0], x[0, 0, 0, 0], x.as_subclass(Own),
                   parameter, torch.inference_mode()(lambda: x + 1)()):  # fmt: skip
        for t in (dnn.from_dlpack(source), dnn.asarray(source), dnn.asarray(source, copy=False)):
            assert (t.shape, t.dtype, t.device) == (tuple(source.shape), "float32", device)
            assert not source.numel() or (t.data_ptr, t.strides) == (source.data_ptr(), source.stride())
        np.testing.assert_array_equal(values_of(dnn.relu(source)), source.relu().cpu().numpy())
    out = torch.empty_like(x)
    assert dnn.activation_forward(x, "relu", out=out).data_ptr == out.data_ptr() and torch.equal(out, x.relu())
    np.testing.assert_array_equal(values_of(dnn.add(x, x)), (x + x).cpu().numpy())
    np.testing.assert_array_equal(values_of(dnn.from_dlpack(x) + x), (x + x).cpu().numpy())


@pytest.mark.torch
def test_torch_gets_its_memory_back(torch: Any, device: str) -> None:
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    x = torch.ones(5, device=device)
    before = torch._C._storage_Use_Count(x.untyped_storage()._cdata)
    t = dnn.from_dlpack(x)
    view = t[1:]
    held = x.untyped_storage()._cdata
    del t
    y = dnn.relu(x)
    assert torch._C._storage_Use_Count(held) >= before
    del view, y
    assert torch._C._storage_Use_Count(held) == before


@pytest.mark.torch
def test_a_subclass_of_torch_exports_itself() -> None:
    import torch

    called = []

    class Own(torch.Tensor):
        def __dlpack__(self, **keywords: Any) -> Any:
            called.append(self)
            return super().__dlpack__(**keywords)

    class Same(torch.Tensor):
        pass

    x = torch.arange(4.0)
    assert dnn.relu(x.as_subclass(Own)).tolist() == [0, 1, 2, 3] and len(called) == 1
    assert dnn.relu(x.as_subclass(Same)).tolist() == [0, 1, 2, 3]
    with pytest.raises(Exception, match="(?i)masked"):
        dnn.relu(torch.masked.masked_tensor(x, x > 1))


@pytest.mark.torch
def test_refusals_of_torch_tensors() -> None:
    import torch

    for x, text in [
        (torch.ones(2, requires_grad=True), "requires grad; pass .detach() of it"),
        (torch.ones(2, dtype=torch.complex64).conj().imag, "with the negative bit set; pass .resolve_neg() of it"),
        (torch.ones(2, dtype=torch.complex64).conj(), "with the conjugate bit set; pass .resolve_conj() of it"),
        (torch.eye(2).to_sparse(), "of layout torch.sparse_coo; pass .to_dense() of it"),
        (torch.ones(2, dtype=torch.complex64), "DLPack type (code 5, 64 bits, 1 lanes)"),
        (torch.ones((1,) * 9), "has 9 dimensions; 0 to 8 are supported"),
    ]:
        for call, name in [
            (dnn.from_dlpack, "from_dlpack: x "),
            (dnn.asarray, "asarray: obj "),
            (dnn.relu, "relu: input "),
            (lambda x: dnn.activation_forward(x, "relu"), "activation_forward: x "),
            (lambda x: dnn.activation_forward(torch.ones(2), "relu", out=x), "activation_forward: out "),
            (lambda x: dnn.add(torch.ones(2), x), "add: b "),
            (lambda x: dnn.ones(2) + x, "add: b "),
        ]:
            with pytest.raises((dnn.DTypeError, dnn.ShapeError)) as caught:
                call(x)
            assert str(caught.value).startswith(name) and text in str(caught.value), (x, name)
    with pytest.raises(ValueError, match="meta"):  # an exception of torch's __dlpack__ is passed on
        dnn.from_dlpack(torch.ones(2, device="meta"))
    with pytest.raises(RuntimeError):
        torch.vmap(dnn.from_dlpack)(torch.ones(3, 2))


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("own_stream", [False, True], ids=["default stream", "own stream"])
def test_calls_wait_for_the_current_stream_of_torch(torch: Any, own_stream: bool) -> None:
    handle = dnn.Handle("cuda:0", stream=torch.cuda.Stream() if own_stream else None)
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    ones = dnn.ones(1 << 20, device="cuda:0")
    for call in (dnn.relu, lambda x: dnn.from_dlpack(x) * 1, lambda x: dnn.asarray(x) * 1, lambda x: ones * 0 + x,
                 lambda x: dnn.activation_forward(ones, "identity", out=x)):  # fmt: skip
        x.zero_()
        torch.cuda.synchronize()
        # The stream of Stream() does not wait for the default stream, nor the default stream for it.
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(100_000_000)  # keeps the stream busy for about 50 ms
            x += 1
            with handle:
                y = call(x)
        torch.cuda.synchronize()
        assert (values_of(y) == 1).all()
        assert (x == 1).all()


@pytest.mark.gpu
@pytest.mark.torch
def test_a_capture_of_torch(torch: Any) -> None:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    handle = dnn.Handle("cuda:0", stream=stream)
    x, out = torch.zeros(100, device="cuda"), torch.zeros(100, device="cuda")
    dnn.activation_forward(x, "relu", out=out, handle=handle)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        dnn.activation_forward(x, "relu", out=out, handle=handle)
        with pytest.raises(dnn.DeviceError, match="cannot wait, because only one of them is being captured"):
            dnn.from_dlpack(x)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 3).all()


# ---- export: the table of DeviceTensor


def exported(t: dnn.DeviceTensor) -> ManagedVersioned:
    out = c_void_p()
    assert dlpack_c.FromObject(table_of(dnn.DeviceTensor).from_object)(t, ctypes.byref(out)) == 0
    return ManagedVersioned.from_address(out.value)


def release(managed: ManagedVersioned) -> None:
    managed.deleter(ctypes.addressof(managed))


def test_the_table() -> None:
    table = table_of(dnn.DeviceTensor)
    assert (table.major, table.minor, table.previous) == (1, 3, None)
    assert dnn.ones(1).__dlpack_c_exchange_api__ is vars(dnn.DeviceTensor)["__dlpack_c_exchange_api__"]


@pytest.mark.parametrize("dtype", _C.dtypes)
def test_exported_structures(dtype: str, device: str) -> None:
    before = dnn.memory_stats(device)["allocated_bytes"]
    t = dnn.empty((2, 3, 4, 5), dtype=dtype, layout="NHWC", device=device)
    managed, view = exported(t), DLTensor()
    assert (managed.major, managed.minor, managed.flags) == (1, 3, 0)
    assert dlpack_c.View(table_of(dnn.DeviceTensor).view)(t, ctypes.byref(view)) == 0
    capsule = t.__dlpack__(max_version=(1, 3))
    want = dlpack_c.look_into(capsule).tensor
    for d in (managed.tensor, view):
        assert (d.data, d.byte_offset, d.ndim) == (t.data_ptr, 0, 4)
        assert bytes(d.dtype) == bytes(want.dtype) and bytes(d.device) == bytes(want.device)
        assert tuple(d.shape[:4]) == t.shape and tuple(d.strides[:4]) == t.strides == (60, 1, 15, 3)
    del t, capsule, want
    assert dnn.memory_stats(device)["allocated_bytes"] > before  # the structure owns the memory
    release(managed)
    assert dnn.memory_stats(device)["allocated_bytes"] == before


def test_read_only_tensors() -> None:
    x = ramp(3)
    x.flags.writeable = False
    managed = exported(t := dnn.asarray(x))
    assert managed.flags == READ_ONLY
    release(managed)
    with pytest.raises(
        BufferError, match="a DLTensor cannot mark a read-only tensor; use managed_tensor_from_py_object"
    ):
        dlpack_c.View(table_of(dnn.DeviceTensor).view)(t, ctypes.byref(DLTensor()))


def test_objects_that_are_no_tensors() -> None:
    for bad in (3, dnn.DeviceTensor.__new__(dnn.DeviceTensor)):
        with pytest.raises((dnn.DTypeError, TypeError, RuntimeError)):
            exported(bad)


def to_object(managed: Any, kind: type = dnn.DeviceTensor) -> Any:
    out = py_object()
    dlpack_c.ToObject(table_of(kind).to_object)(ctypes.addressof(managed), ctypes.byref(out))
    result = out.value
    ctypes.pythonapi.Py_DecRef(py_object(result))  # the function returns a new reference, which ctypes does not own
    return result


def test_a_tensor_of_a_structure() -> None:
    foreign = Foreign(x := ramp(2, 3), flags=READ_ONLY)
    t = to_object(foreign.managed)
    assert type(t) is dnn.DeviceTensor and t.data_ptr == pointer(x) and t.shape == (2, 3) and t.read_only
    del t
    assert foreign.deleted == 1


@pytest.mark.parametrize("fields", [{"ndim": 99}, {"code": 17}, {"version": (2, 0)}], ids=str)
def test_a_structure_that_is_refused_is_deleted(fields: dict) -> None:
    foreign = Foreign(ramp(2, 3), **fields)
    with pytest.raises(dnn.Error):
        to_object(foreign.managed)
    assert foreign.deleted == 1


@pytest.mark.torch
def test_torch_takes_an_exported_structure(torch: Any, device: str) -> None:
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    before = dnn.memory_stats(device)["allocated_bytes"]
    t = dnn.full((2, 3, 4, 5), 2.0, layout="NHWC", device=device)
    there = to_object(exported(t), torch.Tensor)
    assert (there.data_ptr(), there.shape, there.stride()) == (t.data_ptr, t.shape, t.strides)
    del t
    assert (there == 2).all()
    del there
    assert dnn.memory_stats(device)["allocated_bytes"] == before


@pytest.mark.gpu
@pytest.mark.torch
def test_the_current_stream_waits_for_the_streams_of_an_exported_tensor(torch: Any) -> None:
    side = torch.cuda.Stream()
    handle = dnn.Handle("cuda:0", stream=side)
    t, ones = dnn.zeros(1 << 20, device="cuda:0"), dnn.ones(1 << 20, device="cuda:0")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)  # keeps the stream busy for about 50 ms
    dnn.activation_forward(ones, "identity", out=t, handle=handle)
    assert current_stream(2, 0) is None  # torch's default stream, too
    assert (to_object(exported(t), torch.Tensor) == 1).all()


def allocated(device: tuple[int, int], shape: tuple[int, ...], dtype: tuple[int, int]) -> Any:
    """The structure that the allocator returns, or the kind and the text of its error."""
    sizes, errors, out = (c_int64 * max(len(shape), 1))(*shape), [], c_void_p()
    set_error = dlpack_c.Allocate._argtypes_[3](lambda context, *error: errors.append((context, *error)))
    prototype = DLTensor(None, dlpack_c.DLDevice(*device), len(shape), dlpack_c.DLDataType(*dtype, 1), sizes, None, 0)
    allocate = dlpack_c.Allocate(table_of(dnn.DeviceTensor).allocate)
    result = allocate(ctypes.byref(prototype), ctypes.byref(out), 77, set_error)
    if result == 0:
        return ManagedVersioned.from_address(out.value)
    ((context, kind, text),) = errors
    assert (result, context) == (-1, 77)
    return kind.decode(), text.decode()


def test_the_allocator(device: str) -> None:
    pair = (1, 0) if device == "cpu" else (2, 0)
    before = dnn.memory_stats(device)["allocated_bytes"]
    for shape in ((2, 3), (), (0, 5)):
        managed = allocated(pair, shape, (2, 32))
        t = to_object(managed)
        assert (t.shape, t.dtype, t.device, t.is_contiguous()) == (shape, "float32", device, True)
        assert (values_of(t.fill_(2)) == 2).all()
        del t
    assert dnn.memory_stats(device)["allocated_bytes"] == before


def test_errors_of_the_allocator() -> None:
    head = "__dlpack_c_exchange_api__: the prototype"
    for arguments, kind, text in [
        (((17, 0), (2,), (2, 32)), "BufferError", "device type 17 is neither the CPU (1) nor CUDA (2)"),
        (((1, 0), (2,), (17, 4)), "BufferError", f"{head} has elements of DLPack type (code 17, 4 bits, 1 lanes)"),
        (((1, 0), (-2,), (2, 32)), "BufferError", f"{head} [-2] has a negative size in dimension 0"),
        (((1, 0), (1,) * 9, (2, 32)), "BufferError", f"{head} has 9 dimensions; 0 to 8 are supported"),
        (((1, 0), (2**60,), (2, 8)), "BufferError", "8 bits"),
        (((1, 0), (2**58,), (2, 32)), "MemoryError", f"{head} [{2**58}] float32 needs"),
    ]:
        got = allocated(*arguments)
        assert got[0] == kind and text in got[1], got


def current_stream(kind: int, index: int) -> int | None:
    out = c_void_p(99)
    dlpack_c.CurrentStream(table_of(dnn.DeviceTensor).current_stream)(kind, index, ctypes.byref(out))
    return out.value


def test_the_current_stream() -> None:
    assert current_stream(1, 0) is None and current_stream(3, 0) is None
    with pytest.raises(dnn.DeviceError, match="device type 17 is neither"):
        current_stream(17, 0)
    with pytest.raises(dnn.DeviceError):
        current_stream(2, 99)


@pytest.mark.gpu
def test_the_current_stream_is_that_of_the_handle() -> None:
    assert current_stream(2, 0) is None
    with dnn.Handle("cuda:0", stream=2):
        assert current_stream(2, 0) == 2


def test_foreign_streams_of_host_arrays_are_not_asked_for() -> None:
    asked = []

    @dlpack_c.CurrentStream
    def remember(kind: int, index: int, out: Any) -> int:
        asked.append((kind, index))
        return 0

    dnn.from_dlpack(exchange_type(current_stream=remember)(Foreign(ramp(3))))
    dnn.from_dlpack(exchange_type(current_stream=remember)(Foreign(ramp(3), device=(3, 0))))
    assert asked == []
