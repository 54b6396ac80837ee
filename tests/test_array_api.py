# SPDX-License-Identifier: Apache-2.0
"""pyminidnn.array_api against NumPy's functions of the same names: values, dtypes, shapes, signatures and refusals."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from array_api_suite import VERDICTS, exceptions

import pyminidnn as dnn
import pyminidnn.array_api as xp

# The names of the standard, version 2024.12, without its sorting and set functions and without the dtypes that tensors
# do not have.
NAMES = {
    "constants": "e inf nan newaxis pi",
    "dtypes": "bool int8 int32 int64 uint8 float32 float64",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu "
    "zeros zeros_like",
    "data types": "__array_namespace_info__ astype can_cast finfo iinfo isdtype result_type",
    "unary": "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf "
    "isnan log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan "
    "tanh trunc",
    "binary": "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum "
    "multiply nextafter not_equal pow remainder subtract",
    "other elementwise": "clip where",
    "products": "matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze "
    "stack tile unstack",
    "indexing": "take take_along_axis",
    "searching": "argmax argmin count_nonzero nonzero searchsorted",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utilities": "all any diff",
}
FLOATS, INTEGERS = ("float32", "float64", "float16"), ("int8", "uint8", "int32", "int64")
SHAPES = [(), (0, 3), (7,), (2, 3, 4)]
DOMAINS = {"acos": (-1, 1), "asin": (-1, 1), "atanh": (-1, 1), "acosh": (1, 9), "log": (0, 9), "log1p": (-1, 9),
           "log2": (0, 9), "log10": (0, 9), "sqrt": (0, 9)}  # fmt: skip
ONLY_FLOATS = {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log1p", "log2", "log10",
               "reciprocal", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "atan2", "copysign", "hypot", "logaddexp"}  # fmt: skip
BITS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift"}
LOGICAL = {"logical_and", "logical_or", "logical_xor", "logical_not"}


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0, low: float = -4, high: float = 4) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype("bool")
    if dtype in INTEGERS:
        return rng.integers(0 if dtype == "uint8" else int(low), int(high) + 1, shape).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def tensor(x: Any, device: str) -> dnn.DeviceTensor:
    return dnn.array(x, device=device)


def agree(got: Any, want: Any, what: str = "", ulps: float = 8) -> None:
    """Floating-point values agree up to some ulp of the result's dtype; everything else agrees exactly."""
    want = np.asarray(want)
    assert isinstance(got, dnn.DeviceTensor), what
    assert (got.shape, got.dtype.name) == (want.shape, want.dtype.name), what
    host = got.to(device="cpu").numpy()
    if want.dtype.kind == "f":
        eps = float(np.finfo(want.dtype).eps)
        np.testing.assert_allclose(
            host.astype("float64"), want.astype("float64"), rtol=ulps * eps, atol=ulps * eps, err_msg=what
        )
    else:
        np.testing.assert_array_equal(host, want, err_msg=what)


def quietly(function: Any, *arguments: Any, **keywords: Any) -> Any:
    with np.errstate(all="ignore"):
        return function(*arguments, **keywords)


def test_names() -> None:
    names = set(" ".join(NAMES.values()).split())
    assert names | {"float16", "bfloat16", "__array_api_version__"} == set(xp.__all__)
    assert all(hasattr(xp, name) for name in xp.__all__)


def test_every_function_has_numpys_argument_names() -> None:
    """The signatures are those of the standard. NumPy's functions have other optional arguments, too."""
    optional = {
        "sum": "(x, /, *, axis=None, dtype=None, keepdims=False)", "var": "(x, /, *, axis=None, correction=0.0, keepdims=False)",
        "concat": "(arrays, /, *, axis=0)", "clip": "(x, /, min=None, max=None)", "add": "(x1, x2, /)", "exp": "(x, /)",
        "searchsorted": "(x1, x2, /, *, side='left', sorter=None)", "roll": "(x, /, shift, *, axis=None)",
        "linspace": "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)", "repeat": "(x, repeats, /, *, axis=None)",
        "diff": "(x, /, *, axis=-1, n=1, prepend=None, append=None)", "astype": "(x, dtype, /, *, copy=True, device=None)",
        "asarray": "(obj, /, *, dtype=None, device=None, copy=None)", "reshape": "(x, /, shape, *, copy=None)",
    }  # fmt: skip
    for name, want in optional.items():
        plain = inspect.signature(getattr(xp, name))
        bare = plain.replace(
            parameters=[p.replace(annotation=p.empty) for p in plain.parameters.values()], return_annotation=plain.empty
        )
        assert str(bare) == want, name


def test_namespace_of_a_tensor() -> None:
    t = dnn.ones(2)
    assert t.__array_namespace__() is t.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(
        dnn.NotSupported, match=r"__array_namespace__: api_version must be None or one of 2021.12, .*2030.12"
    ):
        t.__array_namespace__(api_version="2030.12")


def test_import_does_not_load_the_namespace() -> None:
    code = "import sys, pyminidnn; assert 'pyminidnn.array_api' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", NAMES["unary"].split())
def test_unary(name: str, device: str) -> None:
    dtypes = FLOATS if name in ONLY_FLOATS else (*INTEGERS, "bool") if name in BITS else (*FLOATS, *INTEGERS)
    for dtype, shape in itertools.product(("bool",) if name in LOGICAL else dtypes, SHAPES):
        x = drawn(dtype, shape, 1, *DOMAINS.get(name, (-4, 4)))
        if dtype in FLOATS and x.size > 4:
            x.reshape(-1)[:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
        wide = x.astype("float64") if dtype in FLOATS else x
        want = quietly(getattr(np, name), wide)
        want = want.astype(dtype) if want.dtype == "float64" else want
        got = getattr(xp, name)(tensor(x, device))
        agree(got, want, f"{name} {dtype} {shape}")
        if dtype in FLOATS and want.dtype == dtype:
            zeros = want == 0
            np.testing.assert_array_equal(
                np.signbit(got.numpy()[zeros]), np.signbit(want[zeros]), err_msg=f"{name} {dtype}"
            )


@pytest.mark.parametrize("name", [n for n in NAMES["binary"].split() if n != "nextafter"])
def test_binary(name: str, device: str) -> None:
    dtypes = (
        FLOATS
        if name in ONLY_FLOATS
        else INTEGERS
        if name in BITS
        else ("bool",)
        if name in LOGICAL
        else (*FLOATS, *INTEGERS)
    )
    theirs = getattr(np, name)
    for dtype, (shape, other) in itertools.product(
        dtypes, [((), (3,)), ((2, 3, 4), (3, 1)), ((0, 3), (3,)), ((5,), (5,))]
    ):
        a, b = drawn(dtype, shape, 1, 1, 5), drawn(dtype, other, 2, 1, 5)
        want = quietly(theirs, a, b)
        mine = getattr(xp, name)
        t, u = tensor(a, device), tensor(b, device)
        agree(mine(t, u), want, f"{name} {dtype}")
        if name not in LOGICAL:
            number = 2 if dtype in INTEGERS else 2.5
            agree(mine(t, number), quietly(theirs, a, number), f"{name} {dtype} {number}")
            agree(mine(number, u), quietly(theirs, number, b), f"{name} {number} {dtype}")


def test_promotion(device: str) -> None:
    for a, b in itertools.product((*FLOATS, *INTEGERS), repeat=2):
        want = np.result_type(a, b).name.replace("int16", "int32") if "uint16" not in (a, b) else ""
        assert xp.result_type(a, dnn.ones(1, dtype=b)) == want
        x, y = drawn(a, (3,), 1, 1, 5), drawn(b, (3,), 2, 1, 5)
        assert xp.add(tensor(x, device), tensor(y, device)).dtype == want
        assert xp.concat([tensor(x, device), tensor(y, device)]).dtype == want
        assert xp.where(tensor(x > 2, device), tensor(x, device), tensor(y, device)).dtype == want
    assert xp.result_type(xp.float32, 2, True) == xp.float32 and xp.result_type("int8", 2) == xp.int8
    assert xp.result_type(xp.bfloat16, 1.5) == xp.bfloat16
    with pytest.raises(dnn.DTypeError, match="result_type: arrays_and_dtypes must have"):
        xp.result_type(1, 2.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nextafter(dtype: str, device: str) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    a = np.array(
        [1, 1, -1, -1, 0.0, -0.0, 0.0, tiny, -tiny, 2, np.inf, np.finfo(dtype).max, np.nan, 1, 0.0, -0.0], dtype
    )
    b = np.array([2, 0, 0, -2, 1, 1, -1, 0, 0, 2, 0, np.inf, 1, np.nan, -0.0, 0.0], dtype)
    got = xp.nextafter(tensor(a, device), tensor(b, device))
    want = quietly(np.nextafter, a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(np.signbit(got.numpy())[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])
    agree(xp.nextafter(tensor(a[:1], device), 5), np.nextafter(a[:1], 5), ulps=0)
    with pytest.raises(dnn.NotSupported, match="nextafter: x1 and x2 must be float32 or float64; got float16"):
        xp.nextafter(dnn.ones(1, dtype="float16", device=device), 2.0)


def test_clip(device: str) -> None:
    for dtype in ("float32", "float64", "int8", "int64"):
        x, low, high = drawn(dtype, (3, 4), 1), drawn(dtype, (4,), 2, -3, 0), drawn(dtype, (3, 1), 3, 1, 3)
        t, u, v = (tensor(a, device) for a in (x, low, high))
        agree(xp.clip(t, u, v), np.clip(x, low, high))
        agree(xp.clip(t, min=u), np.clip(x, low, None))
        agree(xp.clip(t, max=2), np.clip(x, None, np.asarray(2, dtype)))
        agree(xp.clip(t, -1, v), np.clip(x, np.asarray(-1, dtype), high))
        agree(xp.clip(t), x)
    nan = xp.clip(tensor(np.array([np.nan, 1.0], "float32"), device), 0.0, 2.0)
    assert np.isnan(nan.numpy()[0]) and nan.numpy()[1] == 1


def test_where(device: str) -> None:
    chosen, x, y = drawn("bool", (3, 1), 1), drawn("int32", (4,), 2), drawn("float64", (3, 4), 3)
    c, t, u = (tensor(a, device) for a in (chosen, x, y))
    agree(xp.where(c, t, u), np.where(chosen, x, y))
    agree(xp.where(c, t, 3), np.where(chosen, x, np.int32(3)))
    agree(xp.where(c, 1.5, u), np.where(chosen, 1.5, y))


def test_creation(device: str) -> None:
    on = {"device": device}
    agree(xp.zeros((2, 3), **on), np.zeros((2, 3), "float32"))
    agree(xp.ones(3, dtype=xp.int32, **on), np.ones(3, "int32"))
    assert xp.empty((2, 0), **on).shape == (2, 0) and xp.empty(3).dtype == xp.float32
    for value, dtype in ((True, "bool"), (2**53 + 1, "int64"), (1.5, "float32")):
        agree(xp.full((2,), value, **on), np.full((2,), value, dtype))
    like = tensor(drawn("int8", (2, 3)), device)
    for got, want in ((xp.zeros_like(like), 0), (xp.ones_like(like), 1), (xp.full_like(like, 7), 7)):
        agree(got, np.full((2, 3), want, "int8"))
        assert got.device == device
    assert (xp.empty_like(like, dtype=xp.float64).dtype, xp.empty_like(like).device) == (xp.float64, device)
    agree(xp.arange(5, **on), np.arange(5))
    agree(xp.arange(1, 7, 2, **on), np.arange(1, 7, 2))
    agree(xp.arange(1.0, stop=2, step=0.25, **on), np.arange(1, 2, 0.25, "float32"))
    agree(xp.linspace(0, 3, 7, endpoint=False, **on), np.linspace(0, 3, 7, endpoint=False, dtype="float32"))
    for k in (-2, 0, 1, 2**70, -(2**70)):
        near = max(-3, min(k, 4))
        agree(xp.eye(3, 4, k=k, dtype=xp.int32, **on), np.eye(3, 4, near, dtype="int32"))
        x = drawn("float32", (2, 3, 4), 1)
        agree(xp.tril(tensor(x, device), k=k), np.tril(x, near))
        agree(xp.triu(tensor(x, device), k=k), np.triu(x, near))
    arrays = [drawn("float32", (n,), n) for n in (3, 2, 4)]
    for indexing, count in itertools.product(("xy", "ij"), (0, 1, 2, 3)):
        got = xp.meshgrid(*(tensor(a, device) for a in arrays[:count]), indexing=indexing)
        for g, w in zip(got, np.meshgrid(*arrays[:count], indexing=indexing), strict=True):
            agree(g, w)


def test_asarray(device: str) -> None:
    for obj, dtype in (
        (1.5, "float32"),
        ([1, 2], "int64"),
        ([[True], [False]], "bool"),
        ([1.0, 2], "float32"),
        ([], "float32"),
    ):
        got = xp.asarray(obj, device=device)
        assert (got.dtype, got.device) == (dtype, device)
        assert got.tolist() == obj
    x = drawn("float64", (3,))
    assert xp.asarray(x).dtype == xp.float64 and xp.asarray(1, dtype="float64").dtype == "float64"
    shared = xp.asarray(x, copy=False)
    shared[0] = 7.0
    assert x[0] == 7 and xp.asarray(shared).data_ptr == shared.data_ptr
    t = tensor(x, device)
    assert xp.asarray(t, copy=True).data_ptr != t.data_ptr
    with pytest.raises(ValueError, match="asarray: obj"):
        xp.asarray(t, dtype=xp.float32, copy=False)
    with pytest.raises(ValueError, match="asarray: obj"):
        xp.asarray([1.0], copy=False)
    agree(xp.from_dlpack(t), x)


def test_data_types() -> None:
    assert xp.astype(dnn.ones(2), xp.int8).dtype == xp.int8
    one = dnn.ones(2)
    assert xp.astype(one, xp.float32, copy=False).data_ptr == one.data_ptr
    assert xp.astype(one, xp.float32).data_ptr != one.data_ptr
    for dtype in ("float32", "float64", "float16"):
        for got in (xp.finfo(dtype), xp.finfo(dnn.ones(1, dtype=dtype))):
            want = np.finfo(dtype)
            assert got.dtype == dtype and got.bits == want.bits
            for name in ("eps", "max", "min", "smallest_normal"):
                assert getattr(got, name) == float(getattr(want, name)) and type(getattr(got, name)) is float
    assert (xp.finfo(xp.bfloat16).eps, xp.finfo(xp.bfloat16).max) == (2.0**-7, 3.3895313892515355e38)
    for dtype in INTEGERS:
        assert (xp.iinfo(dtype).min, xp.iinfo(dtype).max) == (np.iinfo(dtype).min, np.iinfo(dtype).max)
        assert xp.iinfo(dnn.ones(1, dtype=dtype)).bits == np.iinfo(dtype).bits
    standard = ("bool", *INTEGERS, "float32", "float64")
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")
    for dtype, kind in itertools.product(standard, kinds):
        assert xp.isdtype(getattr(xp, dtype), kind) == np.isdtype(np.dtype(dtype), kind)
    assert xp.isdtype(xp.bfloat16, ("integral", "real floating")) and xp.isdtype(xp.int8, xp.int8)
    assert not xp.isdtype(xp.int8, (xp.int32, "bool"))
    for a, b in itertools.product(standard, repeat=2):
        same = np.dtype(a).kind == np.dtype(b).kind or {np.dtype(a).kind, np.dtype(b).kind} == {"i", "u"}
        assert xp.can_cast(a, getattr(xp, b)) == (same and np.can_cast(a, b)), (a, b)
    for call, text in (
        (lambda: xp.finfo(xp.int8), "finfo: type must be a floating dtype; got int8"),
        (lambda: xp.iinfo(xp.float32), "iinfo: type must be an integer dtype"),
        (lambda: xp.isdtype(xp.int8, "whole"), "isdtype: kind must be"),
        (lambda: xp.result_type(xp.int8, "int99"), "result_type: .* must be one of float32"),
    ):
        with pytest.raises(dnn.DTypeError, match=text):
            call()


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}
    assert info.default_device() == "cpu" and info.devices() == [
        "cpu",
        *(f"cuda:{i}" for i in range(dnn.device_count())),
    ]
    assert info.default_dtypes() == {"real floating": xp.float32, "integral": xp.int64, "indexing": xp.int64}
    assert set(info.dtypes()) == {"bool", *INTEGERS, "float32", "float64"}
    assert info.dtypes(kind=("unsigned integer", "bool")) == {"bool": xp.bool, "uint8": xp.uint8}
    assert info.dtypes(kind="complex floating") == {}


REDUCTIONS = {"max": {}, "min": {}, "sum": {}, "prod": {}, "mean": {}, "var": {"correction": 1}, "std": {}, "all": {}, "any": {},
              "count_nonzero": {}}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions(name: str, device: str) -> None:
    floating = name in ("mean", "var", "std")
    for dtype, keepdims in itertools.product(FLOATS if floating else (*FLOATS, *INTEGERS, "bool"), (False, True)):
        if dtype == "bool" and name in ("max", "min", "sum", "prod"):
            continue
        x = drawn(dtype, (3, 4, 5), 1, -2, 2)
        for axis in (None, 0, -1, (0, 2), (1, -1, 0), ()):
            wide = x.astype("float64") if dtype in FLOATS else x
            if axis == () and name in ("var", "std"):
                continue  # one element is left, and the variance divides by zero
            want = np.asarray(getattr(np, name)(wide, axis=axis, keepdims=keepdims, **REDUCTIONS[name]))
            if want.dtype == "float64":
                want = want.astype(dtype)
            if want.dtype == "uint64":  # tensors have int64 only
                want = want.astype("int64")
            got = getattr(xp, name)(tensor(x, device), axis=axis, keepdims=keepdims, **REDUCTIONS[name])
            agree(got, want, f"{name} {dtype} {axis}", ulps=16)


def test_reductions_of_integers_and_with_a_dtype(device: str) -> None:
    x = drawn("int32", (5, 6), 1)
    t = tensor(x, device)
    agree(xp.mean(t), np.float32(x.mean()))
    agree(xp.var(t, axis=0), x.var(axis=0).astype("float32"))
    agree(xp.sum(t, dtype=xp.float64), x.sum(dtype="float64"))
    agree(xp.sum(tensor(np.full(3, 100, "int8"), device), dtype=xp.int8), np.int8(44))
    agree(xp.prod(t, axis=0, dtype=xp.int64), x.prod(axis=0, dtype="int64"))
    agree(xp.sum(tensor(np.full(3, 1.75, "float32"), device), dtype=xp.int32), np.int32(3))
    assert np.isnan(float(xp.var(dnn.ones(1, device=device), correction=1)))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_indices_of_extremes(name: str, device: str) -> None:
    for dtype, axis, keepdims in itertools.product(("float32", "int64"), (None, 0, -1), (False, True)):
        x = drawn(dtype, (3, 4, 5), 1)
        agree(
            getattr(xp, name)(tensor(x, device), axis=axis, keepdims=keepdims),
            getattr(np, name)(x, axis=axis, keepdims=keepdims),
        )


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_scans(name: str, device: str) -> None:
    for dtype, shape in itertools.product((*FLOATS, *INTEGERS), [(1,), (7,), (0,), (3, 4, 5), (2, 0, 3), (64,)]):
        x = drawn(dtype, shape, 1, 0.5, 1.5)
        t = tensor(x, device)
        for axis, initial in itertools.product(range(-1, len(shape)), (False, True)):
            wide = x.astype("float64") if dtype in FLOATS else x.astype("int64")
            want = getattr(np, name)(wide, axis=axis, include_initial=initial)
            got = getattr(xp, name)(t, axis=axis, include_initial=initial)
            agree(got, want.astype(dtype if dtype in FLOATS else "int64"), f"{name} {dtype} {shape} {axis}", ulps=16)
        agree(t, x)  # the input is unchanged
    agree(getattr(xp, name)(dnn.ones(3, device=device)), getattr(np, name)(np.ones(3, "float32")))
    got = getattr(xp, name)(tensor(np.full(3, 100, "int8"), device), dtype=xp.int8)
    agree(got, getattr(np, name)(np.full(3, 100, "int8"), dtype="int8"))
    with pytest.raises(dnn.ShapeError, match=f"{name}: x must have one dimension, or axis"):
        getattr(xp, name)(dnn.ones((2, 2), device=device))


def test_diff(device: str) -> None:
    x = drawn("int32", (3, 6), 1)
    t = tensor(x, device)
    for axis, n in itertools.product((0, 1, -1), (0, 1, 2)):
        agree(xp.diff(t, axis=axis, n=n), np.diff(x, axis=axis, n=n))
    agree(xp.diff(t, prepend=t[:, :1], append=t[:, :2]), np.diff(x, prepend=x[:, :1], append=x[:, :2]))


def test_nonzero(device: str) -> None:
    for dtype in ("float32", "int8", "bool"):
        x = drawn(dtype, (3, 4), 1, -1, 1) * drawn("bool", (3, 4), 2)
        for got, want in zip(xp.nonzero(tensor(x, device)), np.nonzero(x), strict=True):
            agree(got, want)
            assert got.device == device
    with pytest.raises(dnn.ShapeError, match="nonzero: x must have a dimension"):
        xp.nonzero(dnn.ones((), device=device))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: str, device: str) -> None:
    for size, dtype in itertools.product((0, 1, 2, 3, 7, 8, 9, 100), ("float32", "int32", "uint8")):
        x, values = drawn(dtype, (size,), 1, 0, 20), drawn(dtype, (4, 9), 2, 0, 22)
        ordered = np.sort(x)
        got = xp.searchsorted(tensor(ordered, device), tensor(values, device), side=side)
        agree(got, np.searchsorted(ordered, values, side=side))
        if size:
            sorter = np.argsort(x, stable=True)
            got = xp.searchsorted(tensor(x, device), tensor(values, device), side=side, sorter=tensor(sorter, device))
            agree(got, np.searchsorted(x, values, side=side, sorter=sorter))


def test_take(device: str) -> None:
    x = drawn("float32", (3, 4, 5), 1)
    t = tensor(x, device)
    for axis in (0, 1, -1):
        index = np.array([2, 0, -1, 1])
        agree(xp.take(t, tensor(index, device), axis=axis), np.take(x, index, axis))
        shape = tuple(2 if i == axis % 3 else n for i, n in enumerate(x.shape))
        size = x.shape[axis]
        along = np.random.default_rng(2).integers(-size, size, shape)
        agree(xp.take_along_axis(t, tensor(along, device), axis=axis), np.take_along_axis(x, along, axis))
    agree(xp.take(tensor(x[0, 0], device), tensor(np.array([1, 3], "int8"), device)), x[0, 0][[1, 3]])
    wide = np.array([[[0, 4, -5]]])
    agree(xp.take_along_axis(t, tensor(wide, device)), np.take_along_axis(x, wide, -1))
    with pytest.raises(dnn.ShapeError, match="take: axis must be given for x of 3 dimensions"):
        xp.take(t, tensor(np.array([0]), device))
    bad = tensor(np.full((3, 4, 1), 5), device)
    if device == "cpu":
        with pytest.raises(dnn.IndexingError, match="take_along_axis: indices must be from -5 to 4"):
            xp.take_along_axis(t, bad)
    else:
        assert not xp.take_along_axis(t, bad).any()


def test_joining(device: str) -> None:
    x, y = drawn("float32", (2, 3), 1), drawn("float32", (2, 3), 2)
    t, u = tensor(x, device), tensor(y, device)
    for axis in (0, 1, -1, None):
        agree(xp.concat([t, u], axis=axis), np.concat([x, y], axis=axis))
    for axis in (0, 1, 2, -1, -3):
        agree(xp.stack((t, u), axis=axis), np.stack((x, y), axis=axis))
    for axis in (0, 1, -1):
        for got, want in zip(xp.unstack(t, axis=axis), np.unstack(x, axis=axis), strict=True):
            agree(got, want)


def test_shapes(device: str) -> None:
    x = drawn("int32", (2, 1, 3), 1)
    t = tensor(x, device)
    agree(xp.broadcast_to(t, (4, 2, 5, 3)), np.broadcast_to(x, (4, 2, 5, 3)))
    agree(xp.broadcast_to(t[::-1], (2, 2, 3)), np.broadcast_to(x[::-1], (2, 2, 3)))
    agree(xp.broadcast_to(t, (2, 0, 3)), np.broadcast_to(x, (2, 0, 3)))
    y = drawn("int32", (4, 1), 2)
    for got, want in zip(xp.broadcast_arrays(t, tensor(y, device)), np.broadcast_arrays(x, y), strict=True):
        agree(got, want)
    for axis in (0, 1, 3, -1, -4):
        agree(xp.expand_dims(t, axis=axis), np.expand_dims(x, axis))
    agree(xp.squeeze(t, axis=1), np.squeeze(x, 1))
    agree(xp.permute_dims(t, (2, 0, 1)), np.permute_dims(x, (2, 0, 1)))
    agree(xp.matrix_transpose(t), np.matrix_transpose(x))
    for source, destination in ((0, -1), (2, 0), ((0, 1), (2, 0)), ((-1, 0), (0, 1))):
        agree(xp.moveaxis(t, source, destination), np.moveaxis(x, source, destination))
    for axis in (None, 0, -1, (0, 2)):
        agree(xp.flip(t, axis=axis), np.flip(x, axis))
    agree(xp.reshape(t, (3, -1)), np.reshape(x, (3, -1)))
    assert xp.reshape(t, (6,), copy=True).data_ptr != t.data_ptr == xp.reshape(t, (6,), copy=False).data_ptr
    with pytest.raises(ValueError, match="reshape: x"):
        xp.reshape(xp.permute_dims(t, (2, 0, 1)), (6,), copy=False)


def test_repeated_elements(device: str) -> None:
    x = drawn("float32", (2, 3, 4), 1)
    t = tensor(x, device)
    for shift, axis in ((1, None), (-2, 0), (3, -1), ((1, 2), (0, 2)), ((1, 1), (1, 1)), (2, (0, 1)), (0, 1), (100, 2)):
        got = xp.roll(t, shift, axis=axis)
        agree(got, np.roll(x, shift, axis), f"{shift} {axis}")
        assert got.data_ptr != t.data_ptr
    for repeats, axis in ((2, None), (3, 0), (0, 1), (1, -1)):
        got = xp.repeat(t, repeats, axis=axis)
        agree(got, np.repeat(x, repeats, axis), f"{repeats} {axis}")
        assert got.data_ptr != t.data_ptr
    counts = np.array([2, 0, 3])
    agree(xp.repeat(t, tensor(counts, device), axis=1), np.repeat(x, counts, 1))
    for times in ((2,), (1, 2, 3), (2, 1, 1, 2), (0, 1), (), (1, 1, 1)):
        got = xp.tile(t, times)
        agree(got, np.tile(x, times), str(times))
        assert got.size == 0 or got.data_ptr != t.data_ptr


PRODUCTS = [((3, 4), (4, 2)), ((4,), (4,)), ((4,), (4, 2)), ((5, 3, 4), (4, 2)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 0), (0, 2)),
            ((2, 1, 1, 1, 3, 4), (3, 1, 1, 4, 2))]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", *INTEGERS])
def test_products(dtype: str, device: str) -> None:
    for first, second in PRODUCTS:
        x, y = drawn(dtype, first, 1), drawn(dtype, second, 2)
        agree(xp.matmul(tensor(x, device), tensor(y, device)), np.matmul(x, y), f"{first} {second}", ulps=16)
    x, y = drawn(dtype, (3, 4, 5), 1), drawn(dtype, (4, 5, 2), 2)
    t, u = tensor(x, device), tensor(y, device)
    agree(xp.tensordot(t, u), np.tensordot(x, y), ulps=32)
    agree(xp.tensordot(t, u, axes=0), np.tensordot(x, y, 0))
    agree(xp.tensordot(t, u, axes=([2, 1], [1, 0])), np.tensordot(x, y, ([2, 1], [1, 0])), ulps=32)
    agree(xp.tensordot(t, u, axes=((-1,), (-2,))), np.tensordot(x, y, ((-1,), (-2,))), ulps=16)
    z = drawn(dtype, (4, 5), 3)
    for axis in (-1, -2):
        agree(xp.vecdot(t, tensor(z, device), axis=axis), np.vecdot(x, z, axis=axis), f"vecdot {dtype}", ulps=16)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_products_of_integers_wrap_around(dtype: str, device: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    rng = np.random.default_rng(0)
    x, y = (rng.integers(low, high, shape, dtype, endpoint=True) for shape in ((5, 300), (300, 7)))
    x[0], y[:, 0], x[1] = low, low, high
    agree(tensor(x, device) @ tensor(y, device), x @ y)


def test_products_of_many_integers() -> None:
    """Rows of more than 2^20 elements are divided, so that the sums of digits remain exact."""
    x = np.full(2**20 + 5, 2**31 - 1, "int32")
    assert int(dnn.asarray(x) @ dnn.asarray(x)) == int(np.dot(x, x))


def test_masks(device: str) -> None:
    x = drawn("float32", (), 1)
    t = tensor(x, device)
    for value in (True, False):
        agree(t[tensor(np.asarray(value), device)], x[np.asarray(value)])
        u = tensor(x, device)
        u[tensor(np.asarray(value), device)] = 7.0
        assert float(u) == (7 if value else float(x))
    empty = dnn.ones((0, 1), device=device)
    assert empty[dnn.zeros((0, 0), dtype="bool", device=device)].shape == (0,)


def test_methods(device: str) -> None:
    t = dnn.arange(6, dtype="float32", device=device).reshape(2, 3)
    assert t.to_device(device).data_ptr == t.data_ptr and t.to_device("cpu").device == "cpu"
    with dnn.Handle(device) as handle:
        assert t.to_device(device).device == handle.device
    assert complex(t[0, 1]) == 1 + 0j
    agree(t.mT, t.to(device="cpu").numpy().T)
    if device == "cpu":
        with pytest.raises(dnn.DeviceError, match="stream"):
            t.to_device("cpu", stream=1)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda t: xp.expand_dims(t, axis=4), IndexError, "expand_dims: axis must name different dimensions of 3; got 4"),
        (lambda t: xp.flip(t, axis=(0, 0)), IndexError, "flip: axis must name different dimensions"),
        (lambda t: xp.moveaxis(t, (0, 1), 0), ValueError, "moveaxis: source and destination must be equally many"),
        (lambda t: xp.broadcast_to(t, (2, 2)), ValueError, r"broadcast_to: x \[2, 3\] does not broadcast to shape \[2, 2\]"),
        (lambda t: xp.broadcast_arrays(t, t.T), ValueError, "broadcast_arrays: arrays must broadcast"),
        (lambda t: xp.repeat(t, -1), ValueError, "repeat: repeats must be"),
        (lambda t: xp.tile(t, (-1,)), ValueError, "tile: repetitions must be"),
        (lambda t: xp.roll(t, (1, 2, 3), axis=(0, 1)), ValueError, "roll: shift and axis"),
        (lambda t: xp.tensordot(t, t, axes=1), ValueError, "tensordot: axes must name dimensions of equal sizes"),
        (lambda t: xp.vecdot(t, t, axis=0), ValueError, "vecdot: axis must be from -2 to -1; got 0"),
        (lambda t: xp.meshgrid(t), ValueError, "meshgrid: arrays must have one dimension"),
        (lambda t: xp.tril(t[0]), ValueError, "tril: x must have two dimensions"),
        (lambda t: xp.searchsorted(t, t), ValueError, "searchsorted: x1 must have one dimension"),
        (lambda t: xp.searchsorted(t[0], t, sorter=t[:, 0]), ValueError, "searchsorted: sorter must have the shape"),
        (lambda t: xp.diff(t, n=-1), ValueError, "diff: n must be 0 or more"),
        (lambda t: xp.add(t, "a"), TypeError, "add: x2 must be"),
        (lambda t: xp.exp(xp.ones(2, dtype=xp.int8)), TypeError, "exp: x is int8"),
        (lambda t: xp.acos("a"), TypeError, "acos: x must be"),
    ],
    ids=lambda v: v.split(":")[0] if isinstance(v, str) else "",
)  # fmt: skip
def test_refusals(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        call(dnn.ones((2, 3)))
    assert isinstance(caught.value, dnn.Error)


def test_exceptions_of_the_suite_have_reasons() -> None:
    assert all(reason and verdict in VERDICTS for verdict, _, reason in exceptions())


@pytest.mark.skipif(not find_spec("jax"), reason="jax is not installed")
def test_jax() -> None:
    import jax
    import jax.numpy as jnp

    for dtype in ("float32", "int32", "bool", "float16", "bfloat16", "uint8"):
        t = dnn.asarray(drawn("int8", (2, 3), 1), dtype=dtype)
        for view in (t, t.T, t[:, ::2], t[0, 0]):
            got = jnp.asarray(view)
            assert isinstance(got, jax.Array) and got.dtype.name == dtype and got.shape == view.shape
            assert got.tolist() == view.tolist()
            assert xp.asarray(got).tolist() == view.tolist()
