# SPDX-License-Identifier: Apache-2.0
"""The kinds of error, and that each comes before any work: inputs unharmed, the text naming call, finding and remedy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support import values_of

import pyminidnn as dnn
from pyminidnn import _C, errors

KINDS = {"ShapeError": ValueError, "DTypeError": TypeError, "NotSupported": NotImplementedError,
         "DeviceError": RuntimeError, "OutOfMemory": MemoryError}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    kind = getattr(dnn, name)
    assert issubclass(kind, KINDS[name]) and issubclass(kind, dnn.Error) and not issubclass(dnn.Error, KINDS[name])
    assert getattr(errors, name) is kind and f"{kind.__module__}.{kind.__qualname__}" == f"pyminidnn.{name}"
    again = pickle.loads(pickle.dumps(kind("text")))  # as a worker process sends it
    assert type(again) is kind and again.args == ("text",)


def test_without_a_gpu_every_way_to_one_says_why() -> None:
    why = _C.why_no_cuda()
    if not why:
        pytest.skip("there is a GPU")
    t = dnn.zeros(3)
    for call in (
        lambda: dnn.Handle("cuda:0"),
        lambda: dnn.Handle("cuda"),
        lambda: dnn.empty(3, device="cuda:0"),
        lambda: dnn.zeros(3, device="cuda"),
        lambda: t.to(device="cuda"),
        lambda: t.to(device="cuda:7", dtype="int8"),
        lambda: dnn.asarray([1.0], device="cuda:0"),
        lambda: dnn.from_dlpack(t, device="cuda:0"),
        lambda: t.__dlpack__(dl_device=(2, 0)),
        lambda: dnn.memory_stats("cuda:0"),
        lambda: dnn.reset_peak_memory("cuda:0"),
        lambda: dnn.empty_cache("cuda:0"),
        lambda: _C.device_info("cuda:0"),
    ):
        with pytest.raises(dnn.DeviceError) as caught:
            call()
        assert str(caught.value) == why
    assert dnn.engines("activation", "cuda")  # what there would be needs no GPU


@pytest.mark.parametrize("index", [99, 2**31 - 1])
def test_a_device_there_is_not(index: int) -> None:
    with pytest.raises(
        dnn.DeviceError, match=_C.why_no_cuda().replace("(", r"\(").replace(")", r"\)") or f"there is no cuda:{index}; "
    ):
        dnn.empty(3, device=f"cuda:{index}")


def test_not_supported_lists_every_engine_with_its_reason(device: str) -> None:
    x = dnn.zeros(3, device=device)
    with pytest.raises(dnn.NotSupported) as caught:
        dnn.activation_forward(x, "relu", algo="winograd")
    first, *lines = str(caught.value).splitlines()
    assert first == f"no engine can run activation forward f32 relu x=3 on {device}"
    engines = dnn.engines("activation", device)
    assert lines == [f"  {e}: algo='winograd' asks for another engine" for e in engines]


# ---- outputs


def row(n: int, **keywords: object) -> dnn.DeviceTensor:
    return dnn.asarray(np.arange(n, dtype="float32"), **keywords)


@pytest.mark.parametrize(
    "out, kind, text",
    [
        (lambda x: row(7, device=x.device), dnn.ShapeError, "activation_forward: out must be [6]; got [7]"),
        (lambda x: row(6, device=x.device).reshape((1, 6)), dnn.ShapeError, "activation_forward: out must be [6]; got [1, 6]"),
        (lambda x: row(6, device=x.device, dtype="float64"), dnn.DTypeError, "activation_forward: out must be float32; got float64"),
        (lambda x: row(6, device=x.device).as_strided((6,), (0,)), dnn.ShapeError,
         "activation_forward: out has strides [0], so two of its elements share memory; pass a tensor of distinct elements"),
        (lambda x: row(9, device=x.device).as_strided((6,), (0,), 3), dnn.ShapeError, "two of its elements share memory"),
        (lambda x: x.as_strided((6,), (-1,), 5), dnn.ShapeError,
         "activation_forward: out overlaps x without being the same elements; pass x itself or another tensor"),
    ],
)  # fmt: skip
def test_outputs_that_will_not_do(out: object, kind: type[Exception], text: str, device: str) -> None:
    x = row(6, device=device)
    wrong = out(x)
    before = values_of(wrong).copy()
    with pytest.raises(kind) as caught:
        dnn.activation_forward(x, "relu", out=wrong)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), np.arange(6))
    np.testing.assert_array_equal(values_of(wrong), before)


def test_out_that_shifts_its_input(device: str) -> None:
    whole = row(10, device=device)
    x = whole.as_strided((6,), (1,), 0)
    for shift in (1, 3):
        with pytest.raises(dnn.ShapeError, match="overlaps x"):
            dnn.activation_forward(x, "relu", out=whole.as_strided((6,), (1,), shift))
    np.testing.assert_array_equal(values_of(whole), np.arange(10))
    dnn.activation_forward(x.as_strided((4,), (1,)), "identity", out=whole.as_strided((4,), (1,), 4))  # beside it
    np.testing.assert_array_equal(values_of(whole), [0, 1, 2, 3, 0, 1, 2, 3, 8, 9])


def test_slices_that_interleave_do_not_overlap(device: str) -> None:
    """Channels 0-1 to channels 2-3 of one tensor, as a network without concatenations does it."""
    whole = dnn.asarray(np.arange(2 * 4 * 3, dtype="float32").reshape(2, 4, 3), device=device)
    x, out = whole.as_strided((2, 2, 3), (12, 3, 1), 0), whole.as_strided((2, 2, 3), (12, 3, 1), 6)
    dnn.activation_forward(x, "identity", out=out)
    np.testing.assert_array_equal(values_of(out), values_of(x))
    np.testing.assert_array_equal(values_of(x)[1], np.arange(12, 18).reshape(2, 3))
    even, odd = whole.as_strided((12,), (2,), 0), whole.as_strided((12,), (2,), 1)
    dnn.activation_forward(even, "identity", out=odd)
    np.testing.assert_array_equal(values_of(odd), values_of(even))


def test_an_output_of_another_element_size_is_not_the_input_itself() -> None:
    """The same first byte and the same strides in elements, yet each element of one lies across two of the other."""
    buffer = np.arange(8, dtype="float64")
    with pytest.raises(dnn.ShapeError, match="out overlaps x without being the same elements"):
        dnn.transform(buffer, out=buffer.view("float32")[:8])
    np.testing.assert_array_equal(buffer, np.arange(8))
    same_size = buffer.view("int64")
    dnn.transform(buffer, out=same_size)  # element by element: a cast in place
    np.testing.assert_array_equal(same_size, np.arange(8))


def test_read_only_arrays_are_no_outputs() -> None:
    x = np.arange(6, dtype="float32")
    for out in (np.broadcast_to(x, (6,)), b"\0" * 24):
        out = np.frombuffer(out, "float32") if isinstance(out, bytes) else out
        with pytest.raises(dnn.ShapeError, match="activation_forward: out is read-only; pass a writable tensor"):
            dnn.activation_forward(x, "relu", out=out)
    for out, text in [([0.0] * 6, "asarray: list has no memory to share, and copy=False forbids a copy"),
                      (x.astype(">f4"), "asarray: ndarray has no memory to share")]:  # fmt: skip
        with pytest.raises(dnn.DeviceError, match=text):
            dnn.activation_forward(x, "relu", out=out)


@pytest.mark.gpu
def test_devices_do_not_mix() -> None:
    x, y = dnn.zeros(3), dnn.zeros(3, device="cuda:0")
    with pytest.raises(dnn.DeviceError, match="activation_backward: dy is on cpu, x is on cuda:0; move one with"):
        dnn.activation_backward(x, y, y, "relu")
    with pytest.raises(dnn.DeviceError, match="activation_forward: the inputs are on cuda:0, out is on cpu"):
        dnn.activation_forward(y, "relu", out=x)
