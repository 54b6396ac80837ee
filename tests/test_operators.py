# SPDX-License-Identifier: Apache-2.0
"""Operators and methods of DeviceTensor against NumPy's ndarray: values, dtypes, shapes and refusals."""

from __future__ import annotations

import copy
import multiprocessing
import operator
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyminidnn as dnn

DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")
BINARY = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift")
}
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
SHIFTS = ("lshift", "rshift")


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype("bool")
    if dtype.startswith(("int", "uint")):
        return rng.integers(1, 6, shape).astype(dtype)
    return rng.uniform(0.5, 4, shape).astype(dtype)


def expected_dtype(dtype: np.dtype[Any]) -> str:
    """NumPy's dtype, or the one that stands for it here."""
    return {"int16": "int32"}.get(dtype.name, dtype.name)


def check(got: Any, want: Any, what: str) -> None:
    want = np.asarray(want)
    assert isinstance(got, dnn.DeviceTensor), what
    assert (got.shape, got.dtype) == (want.shape, expected_dtype(want.dtype)), what
    host = got.numpy()
    # Floating-point results may differ from NumPy's by a few ulp, because NumPy's functions round differently.
    if want.dtype.kind == "f":
        np.testing.assert_allclose(
            host.astype("float64"), want.astype("float64"), rtol=8 * np.finfo(want.dtype).eps, err_msg=what
        )
    else:
        np.testing.assert_array_equal(host, want, err_msg=what)


def outcome(function: Any, *arguments: Any) -> Any:
    """The result, or the exception."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*arguments)
        except Exception as error:
            return error


@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_of_two_dtypes(dtype: str, other: str, device: str) -> None:
    a, b = values(dtype, (3, 4), 0), values(other, (4,), 1)
    t, u = dnn.asarray(a, device=device), dnn.asarray(b, device=device)
    for name, function in (BINARY | COMPARISONS).items():
        want, got = outcome(function, a, b), outcome(function, t, u)
        what = f"{name} {dtype} {other}"
        if isinstance(want, Exception):
            assert isinstance(got, (dnn.Error, TypeError)), (what, got)
        else:
            check(got, want, what)
            if name not in COMPARISONS:
                check(outcome(function, u, t), outcome(function, b, a), what)


@pytest.mark.parametrize("number", [2, 3.5, True, np.float32(2.5), np.int32(3), np.float64(1.5)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_with_numbers(dtype: str, number: Any, device: str) -> None:
    a = values(dtype, (2, 3), 0)
    t = dnn.asarray(a, device=device)
    for name, function in (BINARY | COMPARISONS).items():
        if (name, dtype, number) == ("pow", "bool", 2):
            # For a bool x, NumPy computes x ** 2 as square(x), whose result is int8. With any other int exponent, the
            # result is int64.
            continue
        for mine, theirs in (((t, number), (a, number)), ((number, t), (number, a))):
            want, got = outcome(function, *theirs), outcome(function, *mine)
            what = f"{name} {dtype} {number!r}"
            if isinstance(want, Exception):
                assert isinstance(got, (dnn.Error, TypeError)), (what, got)
            else:
                check(got, want, what)


def test_operators_with_arrays_of_numpy(device: str) -> None:
    """On both sides, the result is a tensor on the tensor's device; functions of NumPy give arrays."""
    a = values("float32", (2, 3), 0)
    t = dnn.asarray(a, device=device)
    for result in (a + t, t + a, a * t, a - t, a / t, a == t, a < t, a @ t.T):
        assert isinstance(result, dnn.DeviceTensor) and result.device == device
    check(a - t, a - a, "ndarray on the left")
    if device == "cpu":
        assert isinstance(np.add(t, a), np.ndarray)


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_operators(dtype: str, device: str) -> None:
    a = values(dtype, (5,), 0)
    t = dnn.asarray(a, device=device)
    for function in (operator.neg, operator.pos, abs, operator.invert):
        want, got = outcome(function, a), outcome(function, t)
        if isinstance(want, Exception):
            assert isinstance(got, (dnn.Error, TypeError)), (function, dtype, got)
        else:
            check(got, want, f"{function} {dtype}")


@pytest.mark.parametrize("name", sorted(BINARY))
def test_in_place(name: str, device: str) -> None:
    function = getattr(operator, f"i{name.rstrip('_')}")
    for dtype in DTYPES:
        for other in (values("float32", (3,), 1), values("int32", (3,), 1), 2, True, 1.5):
            a = values(dtype, (2, 3), 0)
            t = dnn.asarray(a.copy(), device=device)
            before = t
            u = dnn.asarray(other, device=device) if isinstance(other, np.ndarray) else other
            want, got = outcome(function, a, other), outcome(function, t, u)
            what = f"{name} {dtype} {other!r}"
            if isinstance(want, Exception):
                assert isinstance(got, (dnn.Error, TypeError)), (what, got)
                check(t, a, what)  # the error has left the tensor unchanged
            else:
                assert got is before, what
                check(t, a, what)


def test_in_place_cannot_grow(device: str) -> None:
    t = dnn.ones((3,), device=device)
    with pytest.raises(dnn.ShapeError, match=r"add: b \[2, 3\] does not broadcast to a \[3\]"):
        t += dnn.ones((2, 3), device=device)


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,))],
    ids=str,
)
def test_matrix_multiply(shapes: tuple[tuple[int, ...], tuple[int, ...]], device: str) -> None:
    a, b = (np.round(values("float64", s, i)) for i, s in enumerate(shapes))
    check(dnn.asarray(a, device=device) @ dnn.asarray(b, device=device), a @ b, str(shapes))


def test_comparisons_with_what_is_no_array(device: str) -> None:
    t = dnn.ones((2,), device=device)
    assert (t == None) is False and (t != None) is True and (t == "a") is False  # noqa: E711
    with pytest.raises(TypeError):
        t < "a"  # noqa: B015
    with pytest.raises(TypeError):
        t + "a"
    small = dnn.asarray(np.array([1, -1], "int8"), device=device)
    assert (small == 300).tolist() == [False, False] and (small < 2**70).tolist() == [True, True]
    assert hash(t) == hash(t) and t in {t: 1}


def test_one_element_as_a_number(device: str) -> None:
    one = dnn.asarray(np.array([[2.75]], "float32"), device=device)
    assert (float(one), int(one), bool(one), one.item(), f"{one:.1f}") == (2.75, 2, True, 2.75, "2.8")
    index = dnn.asarray(np.array(3), device=device)
    assert [10, 20, 30, 40][index] == 40 and index.item() == 3 and type(index.item()) is int
    assert dnn.asarray(np.array(True), device=device).item() is True
    for refused in (
        lambda: bool(dnn.ones((2,), device=device)),
        lambda: dnn.ones((2,), device=device).item(),
        lambda: float(dnn.empty((0,), device=device)),
    ):
        with pytest.raises(dnn.ShapeError, match="must have one element"):
            refused()
    with pytest.raises(dnn.DTypeError, match="only an integer tensor without dimensions"):
        [1, 2][one]


def test_methods(device: str) -> None:
    a = values("float32", (2, 1, 3), 0)
    t = dnn.asarray(a, device=device)
    for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all"):
        for axis in (None, 0, -1):
            want = getattr(a, name)(axis=axis)
            got = getattr(t, name)(axis=axis)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, err_msg=name)
            np.testing.assert_allclose(getattr(dnn, name)(t, axis=axis).numpy(), want, rtol=1e-6, err_msg=name)
    check(t.T, a.T, "T")
    check(t.mT, a.mT if hasattr(a, "mT") else a.swapaxes(-1, -2), "mT")
    check(t.permute(2, 0, 1), a.transpose(2, 0, 1), "permute")
    check(t.permute((2, 0, 1)), a.transpose(2, 0, 1), "permute")
    check(t.transpose(2, 0, 1), a.transpose(2, 0, 1), "transpose")
    check(t.reshape(3, 2), a.reshape(3, 2), "reshape")
    check(t.reshape((3, -1)), a.reshape(3, 2), "reshape")
    check(t.reshape(-1), a.reshape(-1), "reshape")
    check(t.flatten(), a.flatten(), "flatten")
    check(t.ravel(), a.ravel(), "ravel")
    check(t.squeeze(), a.squeeze(), "squeeze")
    check(t.squeeze(1), a.squeeze(1), "squeeze")
    check(t.unsqueeze(-1), a[..., None], "unsqueeze")
    check(t.astype("int32"), a.astype("int32"), "astype")
    check(t.to("float64"), a.astype("float64"), "to")
    check(t.to(dtype="f8"), a.astype("float64"), "to")
    check(t.to("cpu"), a, "to")
    assert t.to(device).data_ptr == t.data_ptr and t.astype("float32", copy=False) is not None
    assert t.copy().data_ptr != t.data_ptr and t.cpu().device == "cpu" and t.tolist() == a.tolist()
    assert t.itemsize == 4 and t.is_contiguous() and not t.T.is_contiguous() and t.T.contiguous().is_contiguous()
    assert t.copy().fill_(2).tolist() == np.full_like(a, 2).tolist()
    assert [x.tolist() for x in t] == a.tolist() and len(t) == 2 and a[0, 0, 0] in t and 9 not in t


def test_new_tensors(device: str) -> None:
    x = dnn.ones((2, 3, 4, 5), layout="NHWC", dtype="float16", device=device)
    for like in (dnn.empty_like(x), dnn.zeros_like(x), dnn.ones_like(x), dnn.full_like(x, 3)):
        assert (like.shape, like.dtype, like.layout, like.device) == (x.shape, x.dtype, x.layout, x.device)
    assert dnn.full_like(x, 3).sum().item() == 360 and dnn.zeros_like(x, dtype="int32").dtype == "int32"
    for arguments in ((5,), (2, 7), (7, 2, -2), (0, 1, 0.25), (3, 3)):
        want = np.arange(*arguments)
        np.testing.assert_array_equal(dnn.arange(*arguments, device=device).numpy(), want)
    np.testing.assert_array_equal(dnn.linspace(0, 1, 5, device=device).numpy(), np.linspace(0, 1, 5))
    np.testing.assert_array_equal(dnn.eye(2, 3, k=1, device=device).numpy(), np.eye(2, 3, 1))
    np.testing.assert_array_equal(
        dnn.stack([dnn.ones((2,), device=device), dnn.zeros((2,), device=device)], 1).numpy(), [[1, 0], [1, 0]]
    )
    with pytest.raises(dnn.ShapeError, match="step must not be 0"):
        dnn.arange(0, 1, 0)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_copies_and_pickles(dtype: str, device: str) -> None:
    t = dnn.asarray(values("float32", (2, 3), 0), device=device).to(dtype=dtype)
    for other in (copy.copy(t), copy.deepcopy(t), *(pickle.loads(pickle.dumps(t, protocol)) for protocol in (2, 4, 5))):
        assert (other.dtype, other.device, other.shape) == (t.dtype, t.device, t.shape) and other.data_ptr != t.data_ptr
        assert bool((other == t).all())


VIEWS: dict[str, Callable[[dnn.DeviceTensor], dnn.DeviceTensor]] = {
    "contiguous": lambda t: t,
    "NHWC": lambda t: t.to(layout="NHWC"),
    "transposed": lambda t: t.permute(3, 1, 0, 2),
    "one channel": lambda t: t[:, :1].to(layout="NHWC", copy=True),
    "no elements": lambda t: t[:0],
    "no dimensions": lambda t: t[0, 0, 0, 0],
}


@pytest.mark.parametrize("view", VIEWS)
def test_pickles_share_memory_out_of_band(view: str, device: str) -> None:
    """With protocol 5, the elements of every dense tensor are outside of the pickle. On the CPU they are not copied."""
    t = VIEWS[view](dnn.arange(1200, dtype="float32", device=device).reshape(4, 3, 10, 10))
    for dtype in ("float32", "bfloat16"):
        t = t.to(dtype=dtype)
        buffers: list[pickle.PickleBuffer] = []
        text = pickle.dumps(t, protocol=5, buffer_callback=buffers.append)
        assert len(text) < 300 and sum(b.raw().nbytes for b in buffers) == t.nbytes
        again = pickle.loads(text, buffers=buffers)
        assert (again.layout, again.shape, again.dtype, again.device) == (t.layout, t.shape, t.dtype, device)
        assert again.size == 0 or device != "cpu" or again.data_ptr == t.data_ptr
        assert not again.read_only and bool((again == t).all())
        frozen = pickle.loads(text, buffers=[bytes(b.raw()) for b in buffers])
        assert bool((frozen == t).all()) and (frozen.read_only or device != "cpu")
        # Without buffer_callback, the pickle contains the elements.
        for protocol in (2, 5):
            copied = pickle.loads(pickle.dumps(t, protocol))
            assert copied.layout == t.layout and bool((copied == t).all()) and not copied.fill_(0).read_only


def test_pickles_of_views_with_gaps_have_no_gaps(device: str) -> None:
    t = dnn.arange(10**6, device=device)[::1000]
    for view in (t, dnn.arange(1000, device=device).as_strided((1000,), (-1,), 999)):
        text = pickle.dumps(view)
        again = pickle.loads(text)
        assert len(text) < 10_000 and again.layout == "contiguous" and bool((again == view).all())


@pytest.mark.parametrize("view", ["contiguous", "NHWC"])
def test_tensors_go_to_a_spawned_process_and_back(view: str, device: str) -> None:
    t = VIEWS[view](dnn.arange(1200, dtype="float32", device=device).reshape(4, 3, 10, 10))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for dtype in ("float32", "bfloat16"):
            sent = t.to(dtype=dtype)
            back = pool.apply(dnn.neg, (sent,))
            assert (back.layout, back.dtype, back.device) == (t.layout, dtype, device) and bool((back == -sent).all())


def test_print_shows_values_and_reads_only_the_edges(device: str) -> None:
    t = dnn.asarray(np.arange(6, dtype="float32").reshape(2, 3), device=device)
    assert repr(t) == (
        "DeviceTensor([[0., 1., 2.],\n              [3., 4., 5.]], dtype='float32', layout='contiguous', "
        f"device='{device}')"
    )
    large = dnn.arange(10**6, device=device).reshape(1000, 1000)
    assert "...," in repr(large) and "shape=(1000, 1000)" in repr(large) and "999999" in repr(large)
    wide = dnn.arange(2000, device=device)
    assert repr(wide).startswith("DeviceTensor([   0,    1,    2, ..., 1997, 1998, 1999], shape=(2000,)")
    assert "shape=(0, 2)" in repr(dnn.empty((0, 2), device=device))
    assert repr(dnn.asarray([1.5], dtype="bfloat16", device=device)).startswith(
        "DeviceTensor([1.5], dtype='bfloat16', "
    )


def test_dtype_objects(device: str) -> None:
    t = dnn.ones((2,), dtype="float16", device=device)
    assert t.dtype == "float16" == dnn.float16 == np.float16 and np.dtype("float16") == t.dtype and t.dtype != "float32"
    assert (
        t.dtype is dnn.float16
        and t.dtype.name == "float16"
        and t.dtype.itemsize == 2
        and np.dtype(t.dtype) == np.float16
    )
    assert pickle.loads(pickle.dumps(t.dtype)) is dnn.float16 and {t.dtype: 1}["float16"] == 1
    for spelling in ("f8", "d", float, np.float64, "double", dnn.float64):
        assert dnn.ones((1,), dtype=spelling, device=device).dtype == dnn.float64


@pytest.mark.torch
def test_dtype_objects_equal_those_of_torch() -> None:
    import torch

    assert dnn.float16 == torch.float16 and torch.bfloat16 == dnn.bfloat16 and dnn.int8 != torch.float32
