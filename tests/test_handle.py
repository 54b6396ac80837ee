# SPDX-License-Identifier: Apache-2.0
"""Handle: which handle a call uses, its options and their limits, streams of all kinds, closing."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import _C


def test_options_and_repr(device: str) -> None:
    h = dnn.Handle(device)
    assert (h.device, h.stream, h.max_workspace, h.deterministic, h.math, h.closed) == (
        device,
        0,
        None,
        False,
        "tf32",
        False,
    )
    assert repr(h) == f"Handle('{device}')"
    h = dnn.Handle(device, max_workspace=1 << 20, deterministic=True, math="ieee")
    assert (h.max_workspace, h.deterministic, h.math) == (1 << 20, True, "ieee")
    assert dnn.Handle(device, max_workspace=0).max_workspace == 0
    assert dnn.Handle().device == "cpu"
    assert dnn.Handle().threads is None
    assert dnn.Handle(threads=1 << 40).threads == 2**31 - 1
    with pytest.raises(AttributeError):
        h.math = "tf32"  # read-only, since a cached plan must stay valid for the lifetime of its handle


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_of_a_call(threads: int) -> None:
    """With threads=1, the thread pool is not even created. A handle of two threads has the same result as one of
    four."""
    program = f"""
import os, numpy as np, pyminidnn as dnn
def tasks(): return len(os.listdir("/proc/self/task"))
x, before = np.linspace(-3, 3, 1_000_000), tasks()
few = dnn.Handle(threads={threads})
got = dnn.activation_forward(x, "gelu", handle=few).numpy()
print(few.threads, tasks() - before)
print((got == dnn.activation_forward(x, "gelu", handle=dnn.Handle()).numpy()).all(), tasks() - before)
"""
    ran = subprocess.run([sys.executable, "-c", program], env={**os.environ, "OMP_NUM_THREADS": "4"}, capture_output=True,
                         text=True, check=True)  # fmt: skip
    assert ran.stdout.split() == [str(threads), str(0 if threads == 1 else 3), "True", "3"]


def test_the_current_handle(device: str) -> None:
    assert _C.entered_handle() is None
    with dnn.Handle(device) as outer:
        assert _C.entered_handle() is outer
        with dnn.Handle(device) as inner, outer:  # the handle `outer` is entered twice
            assert _C.entered_handle() is outer
        with inner:
            assert _C.entered_handle() is inner
            assert dnn.zeros(3).device == device
        assert _C.entered_handle() is outer
    assert _C.entered_handle() is None
    with pytest.raises(ZeroDivisionError), dnn.Handle(device):
        raise ZeroDivisionError
    assert _C.entered_handle() is None


def test_a_call_obeys_the_handle_entered_last(device: str) -> None:
    x, w = dnn.zeros((1, 8, 9, 9), device=device), dnn.zeros((6, 8, 3, 3), device=device)

    def may_take_workspace() -> bool:
        try:
            dnn.conv_forward(x, w, algo="im2col_gemm")
        except dnn.NotSupported as error:
            assert "Handle.max_workspace allows 0 bytes" in str(error)
            return False
        return True

    free, none = dnn.Handle(device), dnn.Handle(device, max_workspace=0)
    with free:
        assert may_take_workspace()
        with none:
            assert not may_take_workspace()
            with free:
                assert may_take_workspace()
            assert not may_take_workspace()
        assert may_take_workspace()


def test_the_entered_handle_is_per_thread(device: str) -> None:
    seen = []
    with dnn.Handle(device):
        thread = threading.Thread(target=lambda: seen.append(_C.entered_handle()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_leaving_out_of_order() -> None:
    def steps(handle: dnn.Handle) -> Iterator[None]:
        with handle:
            yield

    a, b = dnn.Handle(), dnn.Handle()
    first, second = steps(a), steps(b)
    next(first), next(second)
    failed = []

    def leave() -> None:
        try:
            b.__exit__(None, None, None)
        except dnn.DeviceError:
            failed.append(True)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert failed and _C.entered_handle() is b
    with pytest.raises(dnn.DeviceError, match="not the innermost one entered on this thread"):
        next(first)
    assert _C.entered_handle() is b
    next(second, None)
    assert _C.entered_handle() is None  # not handle a, which has been left before


def test_a_closed_handle(device: str) -> None:
    h = dnn.Handle(device)
    x = dnn.zeros(3, device=device)
    assert dnn.activation_forward(x, "relu", handle=h).shape == (3,)
    h.close()
    h.close()
    assert h.closed and repr(h) == f"Handle('{device}', closed)"
    for call in (
        lambda: dnn.activation_forward(x, "relu", handle=h),
        lambda: dnn.activation_forward(x.to(device="cpu"), "relu", handle=h),
    ):
        with pytest.raises(
            dnn.DeviceError, match=f"activation_forward: the handle for {device} is closed; make a new Handle"
        ):
            call()
    with pytest.raises(dnn.DeviceError, match="is closed; make a new one"), h:
        pass
    with dnn.Handle(device) as entered:
        entered.close()
        with pytest.raises(dnn.DeviceError, match="is closed"):
            dnn.activation_forward(x, "relu")
    # The default handle still works, although the handle h is closed.
    assert dnn.activation_forward(x, "relu").shape == (3,)


def test_closing_while_another_thread_works(device: str) -> None:
    wrong = []

    def work(h: dnn.Handle) -> None:
        try:
            for n in range(1, 200):
                dnn.activation_forward(dnn.zeros(n, device=device), "relu", handle=h)
        except dnn.DeviceError as error:
            if "is closed" not in str(error):
                wrong.append(error)

    for _ in range(20):
        h = dnn.Handle(device)
        thread = threading.Thread(target=work, args=(h,))
        thread.start()
        h.close()
        thread.join()
    assert not wrong


def test_a_handle_of_another_device() -> None:
    x = dnn.zeros(3)
    if _C.why_no_cuda():
        with pytest.raises(dnn.DeviceError) as caught:
            dnn.Handle("cuda:0")
        assert str(caught.value) == f"Handle: device='cuda:0': {_C.why_no_cuda()}"
        return
    with pytest.raises(dnn.DeviceError, match="activation_forward: x is on cpu, the handle is for cuda:0; move one"):
        dnn.activation_forward(x, "relu", handle=dnn.Handle("cuda:0"))
    with dnn.Handle("cuda:0"):  # this entered handle is for another device, so the call on the CPU does not use it
        assert dnn.activation_forward(x, "relu").device == "cpu"


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        ({"device": "gpu"}, dnn.DeviceError, "device must be 'cpu', 'cuda' or 'cuda:<index>'; got 'gpu'"),
        ({"device": "cuda:-1"}, dnn.DeviceError, "got 'cuda:-1'"),
        ({"device": "cuda:99"}, dnn.DeviceError, _C.why_no_cuda() or "there is no cuda:99"),
        ({"stream": 5}, dnn.DeviceError, "Handle: stream is not supported on device 'cpu'; omit it"),
        ({"max_workspace": -1}, dnn.ShapeError, "Handle: max_workspace must be 0 or more bytes; got -1"),
        (
            {"max_workspace": 2**70},
            dnn.ShapeError,
            "Handle: max_workspace must be an int from -2^63 to 2^63 - 1; got 1180591620717411303424",
        ),
        ({"threads": 0}, dnn.ShapeError, "Handle: threads must be 1 or more; got 0"),
        ({"math": "fp8"}, dnn.ShapeError, "Handle: math must be 'tf32' or 'ieee'; got 'fp8'"),
        ({"device": 0}, dnn.DTypeError, "Handle: device must be a str; got 0"),
        (
            {"devise": "cpu"},
            dnn.DTypeError,
            "Handle: got an unexpected keyword argument 'devise'; the arguments are device, stream, ",
        ),
    ],
)
def test_errors(arguments: dict, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        dnn.Handle(**arguments)
    assert text in str(caught.value)


# ---- handles on streams that other libraries have created


class ByMethod:
    def __init__(self, address: object):
        self.address = address

    def __cuda_stream__(self) -> object:
        return (0, self.address)


class ByAttribute:
    def __init__(self, address: int):
        self.__cuda_stream__ = (0, address)


class LikeTorch:
    def __init__(self, address: int):
        self.cuda_stream = address


class LikeCuPy:
    def __init__(self, address: int):
        self.ptr = address


KINDS = (int, ByMethod, ByAttribute, LikeTorch, LikeCuPy)


def stream_error(stream: object) -> Exception:
    """The error for this stream. Without a GPU, the stream is still checked before the device."""
    with pytest.raises(dnn.Error) as caught:
        dnn.Handle("cuda:0", stream=stream)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_streams_in_all_accepted_forms(kind: type) -> None:
    if _C.why_no_cuda():
        # Handle() checks the stream before it looks for a GPU. So if the error text says that there is no GPU, the
        # stream has been accepted.
        assert str(stream_error(kind(0x1000))).endswith(_C.why_no_cuda())
        return
    # The handle only stores the address of the stream; no work is submitted to it.
    assert dnn.Handle("cuda:0", stream=kind(0x1000)).stream == 0x1000
    assert dnn.Handle("cuda:0", stream=kind(0)).stream == 0
    # 1 is CUDA's number of the legacy default stream. The handle shows it as 0.
    assert dnn.Handle("cuda:0", stream=kind(1)).stream == 0
    assert dnn.Handle("cuda:0", stream=kind(2)).stream == 2  # 2 is CUDA's number of the per-thread default stream


@pytest.mark.parametrize(
    "stream, kind, text",
    [
        (-5, dnn.DeviceError, "Handle: stream must be the address of a stream; got -5"),
        (2**64, dnn.DeviceError, "Handle: stream must be the address of a stream; got 18446744073709551616"),
        (ByMethod(-1), dnn.DeviceError, "Handle: stream must be the address of a stream; got -1"),
        ("0", dnn.DTypeError, "Handle: stream must be an int, a torch or CuPy stream, or have __cuda_stream__; got <class 'str'>"),
        (1.5, dnn.DTypeError, "got <class 'float'>"),
        (ByMethod("x"), dnn.DTypeError, "got <class 'test_handle.ByMethod'>"),
        (type("OneOfThree", (), {"__cuda_stream__": (0, 1, 2)})(), dnn.DTypeError,
         "__cuda_stream__ must return a pair (version, address); got (0, 1, 2)"),
        (type("NoPair", (), {"__cuda_stream__": 7})(), dnn.DTypeError, "__cuda_stream__ must return a pair (version, address); got 7"),
    ],
)  # fmt: skip
def test_invalid_streams(stream: object, kind: type[Exception], text: str) -> None:
    error = stream_error(stream)
    assert type(error) is kind and text in str(error)


def test_exceptions_of_a_stream_propagate() -> None:
    class Gone:
        def __cuda_stream__(self) -> object:
            raise LookupError("the stream is gone")

    with pytest.raises(LookupError, match="the stream is gone"):
        dnn.Handle("cuda:0", stream=Gone())


@pytest.mark.gpu
def test_a_handle_keeps_its_stream_alive() -> None:
    stream = ByMethod(0)
    count = sys.getrefcount(stream)
    h = dnn.Handle("cuda:0", stream=stream)
    assert sys.getrefcount(stream) == count + 1
    del h
    gc.collect()
    assert sys.getrefcount(stream) == count


@pytest.mark.torch
@pytest.mark.gpu
def test_torch_streams() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    stream = torch.cuda.Stream()
    x = torch.randn(1 << 20, device="cuda")
    with dnn.Handle("cuda:0", stream=stream) as h:
        assert h.stream == stream.cuda_stream
        for _ in range(20):  # torch's current stream reads the results, so it must wait for the handle's stream
            y = dnn.activation_forward(x, "relu")
            assert torch.equal(torch.from_dlpack(y), x.relu())
    z = dnn.activation_forward(
        x, "relu", handle=h
    )  # z is computed on the handle's stream, and numpy() waits for that stream
    assert np.array_equal(z.numpy(), x.relu().cpu().numpy())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, *(lambda h, p=p: pickle.dumps(h, p) for p in range(6))])
def test_handles_and_reports_are_not_copied(copied: Callable[[object], object]) -> None:
    report = dnn.explain(dnn.relu, dnn.ones(2))[0]
    for value in (dnn.Handle(), report, report.engines[0]):
        with pytest.raises(dnn.DTypeError, match=f"a {type(value).__name__} can be neither copied nor pickled"):
            copied(value)
