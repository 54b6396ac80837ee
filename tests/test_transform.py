# SPDX-License-Identifier: Apache-2.0
"""Copies: samples for the case lines, every cast against the documented rules, accumulation, broadcasting, concat, slice,
split, errors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import INTEGERS, REAL, Result, Sample, assert_close, framed, tensor, values_for_copies, values_of

import pyminidnn as dnn
from pyminidnn import _C

DTYPES = _C.dtypes
# For each dtype: the number of significant bits, the exponent of the smallest subnormal number, and the exponent of the
# first power of two beyond the largest number.
FORMATS = {
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
    "float32": (24, -149, 128),
    "float64": (53, -1074, 1024),
}
ALPHA, BETA = 0.75, -1.5


def to_real(v: float | int, dtype: str) -> float:
    """The nearest number of the dtype, ties to even, computed with exact fractions: a single rounding for values of any
    width."""
    if v != v or v in (np.inf, -np.inf) or v == 0:
        return float(v)
    bits, smallest, limit = FORMATS[dtype]
    exact = Fraction(v)
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length() - bits - 1
    while abs(exact) >= Fraction(2) ** (exponent + bits):
        exponent += 1
    step = Fraction(2) ** max(exponent, smallest)
    rounded = round(exact / step) * step  # round() rounds ties to even
    return (
        float(np.copysign(np.inf, v)) if abs(rounded) >= Fraction(2) ** limit else float(np.copysign(float(rounded), v))
    )


def documented(v: float | int, source: str, to: str) -> float | int:
    """One value cast by the rules of transform()'s docstring."""
    if to == "bool":
        return int(v != 0)
    if to in REAL:
        return to_real(v, to)
    low, high = INTEGERS[to]
    if source in REAL:
        return 0 if v != v else max(low, min(high, int(np.clip(v, -1e300, 1e300))))
    return (int(v) - low) % (high - low + 1) + low  # the result has the low bits of the integer


def array_of(values: list[float | int], dtype: str) -> np.ndarray:
    """A NumPy array of the dtype; the values fit it exactly. bfloat16 is held as its 16 bits."""
    if dtype == "bfloat16":
        return (np.array(values, "float32").view("uint32") >> 16).astype("uint16").view("float16")
    return np.array(values, dtype)


def exactly(array: np.ndarray, dtype: str, device: str) -> dnn.DeviceTensor:
    """Such an array as a tensor. The library casts nothing."""
    t = dnn.asarray(array).to(device=device)
    return _C.reinterpret(t, "bfloat16") if dtype == "bfloat16" else t


def contents(t: dnn.DeviceTensor) -> list[float | int]:
    """The values of a tensor as Python numbers. The library casts nothing."""
    if t.dtype == "bfloat16":
        bits = _C.reinterpret(t, "float16").numpy().view("uint16").astype("uint32") << 16
        return bits.view("float32").astype("float64").ravel().tolist()
    return t.numpy().ravel().tolist()


def sample(case: Case) -> Sample:
    rng = generator(case)
    shape, to = case.operands["x"].shape, case.out_dtype
    x = values_for_copies(case, rng)

    if case.direction == "copy":
        if case.dtype in REAL and to in REAL:
            want = reference.rounded(x, to)  # test_the_oracle_rounds_like_fractions compares it with `documented`
        else:
            numbers = [int(v) if case.dtype not in REAL else v for v in x.ravel().tolist()]
            want = np.array([float(documented(v, case.dtype, to)) for v in numbers]).reshape(shape)

        def copy(
            t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
        ) -> list[dnn.DeviceTensor]:
            return [dnn.transform(t["x"], dtype=None if out is not None else to, algo=algo, out=out)]

        return Sample({"x": x}, copy, [Result(want, 0)])

    if case.direction == "scale":

        def scale(
            t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
        ) -> list[dnn.DeviceTensor]:
            return [dnn.transform(t["x"], alpha=ALPHA, dtype=None if out is not None else to, algo=algo, out=out)]

        # x is rounded to the accumulator's dtype. Then the product alpha x is rounded once.
        return Sample({"x": x}, scale, [Result(ALPHA * x, reference.tolerance(to, 2, ALPHA * np.abs(x)))])

    y = reference.rounded(rng.normal(0, 100, shape), to)

    def accumulate(
        t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
    ) -> list[dnn.DeviceTensor]:
        # Each call adds to a fresh copy of y, because tests fill new outputs with poison (NaN, or 85 for integers).
        x = t["x"]
        fresh = exactly(array_of(y.ravel().tolist(), to).reshape(shape), to, x.device)
        if x.layout == "NHWC":
            order = dnn.empty(shape, layout="NHWC", device=x.device).strides
            bits = array_of(np.moveaxis(y, 1, -1).ravel().tolist(), to)
            fresh = exactly(bits, to, x.device).as_strided(shape, order)
        return [dnn.transform(x, alpha=ALPHA, beta=BETA, algo=algo, out=fresh)]

    scale_of = ALPHA * np.abs(x) + abs(BETA) * np.abs(y)
    return Sample({"x": x}, accumulate, [Result(ALPHA * x + BETA * y, reference.tolerance(to, 3, scale_of))])


# ---- tests of casts

INTERESTING = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.999, -0.999, 1.5, 2.5, -2.5, 126.9, 127.0, 127.5, 128.0, -127.9, -128.0, -128.9, -129.0,
    254.9, 255.0, 255.5, 256.0, 300.0, 2047.0, 2049.0, 4097.0, 65504.0, 65519.9, 65520.0, 65536.0, 1e6, 16777217.0,
    2.0**31 - 1, 2.0**31, -(2.0**31), -(2.0**31) - 1, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 2.0**63 - 1024, 2.0**64, 1e30,
    -1e30, 3.3e38, 3.4e38, 3.5e38, 1e300, 1e-5, 6e-8, 2.9e-8, 1e-38, 1e-40, 1e-45, 1e-300, 5e-324, np.inf, -np.inf, np.nan,
    # Here are numbers that are next to ties of rounding.
    1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50,
]  # fmt: skip
INTEGRAL = [0, 1, -1, 2, 3, 126, 127, 128, 129, -127, -128, -129, 254, 255, 256, 257, 2047, 2048, 2049, 2051, 65503, 65519, 65520,
            65535, 65536, 2**24, 2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31), 2**31, 2**53, 2**53 + 1, 2**53 + 3, 2**62 + 2**54,
            2**62 + 2**54 + 1, 2**62 + 2**54 - 1, 2**63 - 1, -(2**63), -(2**62) - 2**54 - 1, 2**40 + 2**32 + 1]  # fmt: skip


@pytest.mark.parametrize("to", REAL)
def test_the_oracle_rounds_like_fractions(to: str) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [INTERESTING, rng.normal(0, 100, 1000), np.ldexp(rng.normal(size=1000), rng.integers(-160, 130, 1000))]
    )
    want = np.array([to_real(v, to) for v in values.tolist()])
    np.testing.assert_array_equal(reference.rounded(values, to), want)


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_every_cast_by_the_documented_rules(source: str, to: str, device: str) -> None:
    if source in REAL:
        values = list({repr(v): v for v in (to_real(v, source) for v in INTERESTING)}.values())
    elif source == "bool":
        values = [0, 1]
    else:
        low, high = INTEGERS[source]
        values = [v for v in INTEGRAL if low <= v <= high]
    want = [v if to == source else documented(v, source, to) for v in values]
    x = exactly(array_of(values, source), source, device)
    for got in (
        x.to(dtype=to, copy=True),
        dnn.transform(x, dtype=to),
        dnn.transform(x, out=dnn.empty(len(values), dtype=to, device=device)),
    ):
        assert got.dtype == to
        for value, g, w in zip(values, contents(got), want, strict=True):
            same = g == w and np.signbit(g) == np.signbit(w) if to in REAL else g == w
            assert same or (g != g and w != w), f"{source} {value!r} to {to}: got {g!r}, want {w!r}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plain_copy_keeps_every_bit(dtype: str, device: str) -> None:
    """NaN payloads, also of signalling NaN, for each kind of loop: dense, strided, to another layout."""
    size = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "float64": 8, "int64": 8}.get(dtype, 1)
    bits = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 256, (4 * 6, size), "uint8")
    x = exactly(bits.view("float16" if dtype == "bfloat16" else dtype).reshape(4, 6), dtype, device)

    def bytes_of(t: dnn.DeviceTensor) -> bytes:
        t = _C.reinterpret(t, {1: "uint8", 2: "float16", 4: "int32", 8: "int64"}[size])
        return t.numpy().tobytes()

    assert bytes_of(x.to(copy=True)) == bytes_of(x) == bits.tobytes()
    assert bytes_of(x.permute((1, 0)).to(layout="contiguous", copy=True).permute((1, 0))) == bits.tobytes()
    assert bytes_of(x.to(device="cpu")) == bits.tobytes()
    assert bytes_of(x.to(copy=True).to(device=device)) == bits.tobytes()


def test_any_byte_but_zero_is_true(device: str) -> None:
    x = dnn.asarray(np.array([0, 1, 2, 128, 255], "uint8").view(bool)).to(device=device)
    for dtype in DTYPES:
        assert contents(x.to(dtype=dtype, copy=True)) == [0, 1, 1, 1, 1]
    assert _C.reinterpret(x.to(copy=True), "uint8").numpy().tolist() == [0, 1, 1, 1, 1]


# ---- tests of scaling (alpha) and accumulating (beta)


def test_out_is_not_read_without_beta(device: str) -> None:
    for alpha in (1.0, 2.0):
        # The tensor `out` is filled with NaN.
        out, untouched = framed((2, 3), (3, 1), "float32", device)
        y = dnn.transform(np.ones((2, 3), "float32"), alpha=alpha, out=out)
        assert y.data_ptr == out.data_ptr and (values_of(out) == alpha).all() and untouched()
    nan = dnn.full(3, float("nan"), device=device)
    # With beta, the library reads `out`.
    assert np.isnan(values_of(dnn.transform(dnn.zeros(3, device=device), beta=1.0, out=nan))).all()
    # x is read even if alpha is 0.
    assert np.isnan(values_of(dnn.transform(nan, alpha=0.0))).all()


@pytest.mark.parametrize("to", REAL)
@pytest.mark.parametrize("source", REAL)
def test_accumulate_between_dtypes_strides_and_layouts(source: str, to: str, device: str) -> None:
    rng = np.random.default_rng(7)
    shape = (2, 3, 4, 5)
    x, y = reference.rounded(rng.normal(size=shape), source), reference.rounded(rng.normal(size=shape), to)
    want = Result(
        reference.transform(x, alpha=ALPHA, beta=BETA, y=y),
        reference.tolerance(to, 3, ALPHA * np.abs(x) + 1.5 * np.abs(y)),
    )
    for x_layout in ("NCHW", "NHWC"):
        for strides in ((60, 20, 5, 1), (60, 1, 15, 3), (400, 100, 12, 2), (-60, -20, -5, -1)):
            out, untouched = framed(shape, strides, to, device)
            dnn.transform(tensor(y, to, device), out=out)
            dnn.transform(tensor(x, source, device).to(layout=x_layout), alpha=ALPHA, beta=BETA, out=out)
            assert_close(out, want, f"{x_layout} to {strides}")
            assert untouched()


def test_in_place(device: str) -> None:
    x = np.linspace(-2, 2, 40).reshape(5, 8)
    for strides in ((8, 1), (1, 5), (16, 2)):
        t = dnn.zeros(80, dtype="float64", device=device).as_strided((5, 8), strides)
        dnn.transform(x, out=t)
        assert dnn.transform(t, alpha=3.0, out=t).data_ptr == t.data_ptr
        dnn.transform(t, alpha=1.0, beta=-0.5, out=t)
        np.testing.assert_array_equal(values_of(t), 3 * x * 0.5)


def test_linear(device: str) -> None:
    rng = np.random.default_rng(3)
    x = tensor(rng.normal(size=1000), "float64", device)
    out = dnn.transform(x, alpha=2.0)
    dnn.transform(x, alpha=-2.0, beta=1.0, out=out)
    assert (values_of(out) == 0).all()


# ---- tests of broadcasting, shapes and layouts


@pytest.mark.parametrize("x_shape, out_shape", [((), (2, 3)), ((3,), (2, 3)), ((2, 1), (2, 3)), ((1, 1, 1), (4, 2, 3)), ((1, 3), (0, 3)),
                                                ((4, 1, 3), (4, 2, 3)), ((1,), ()), ((3,), (2, 4, 3)), ((1, 3), (3,))])  # fmt: skip
def test_broadcasting_as_in_numpy(x_shape: tuple[int, ...], out_shape: tuple[int, ...], device: str) -> None:
    x = np.arange(np.prod(x_shape, dtype=int)).reshape(x_shape).astype("float32")
    out = dnn.full(out_shape, 9.0, device=device)
    try:
        want = np.broadcast_to(x, out_shape)
    except ValueError:
        with pytest.raises(dnn.ShapeError) as caught:
            dnn.transform(x, out=out)
        assert f"transform: x {list(x_shape)} does not broadcast to out {list(out_shape)}" in str(caught.value)
        assert (values_of(out) == 9).all()
        return
    dnn.transform(x, alpha=2.0, beta=1.0, out=out)
    np.testing.assert_array_equal(values_of(out), 2 * want + 9)


def test_layout_and_dtype_of_the_result(device: str) -> None:
    x = dnn.asarray(np.arange(120).reshape(2, 3, 4, 5), device=device)
    assert (dnn.transform(x).layout, dnn.transform(x).dtype) == ("NCHW", "int64")
    y = dnn.transform(x, layout="NHWC", dtype="float16")
    assert (y.layout, y.dtype) == ("NHWC", "float16") and dnn.transform(y).layout == "NHWC"
    np.testing.assert_array_equal(values_of(y), values_of(x))
    # This view has 2 of the 3 channels. It has gaps, and its layout is channels-last.
    channels = y.as_strided((2, 2, 4, 5), y.strides)
    assert dnn.transform(channels).layout == "NHWC"
    # One channel is repeated with stride 0. So the smallest stride does not tell the layout.
    repeated = x.as_strided((2, 3, 4, 5), (60, 0, 5, 1))
    assert dnn.transform(repeated).layout == "NCHW"


def test_empty(device: str) -> None:
    for shape in ((0,), (3, 0, 2), (0, 2, 3, 4)):
        x = dnn.empty(shape, device=device)
        assert dnn.transform(x).shape == shape == dnn.transform(x, alpha=2.0, dtype="float16").shape
        assert dnn.transform(x, out=x).shape == shape
        assert dnn.zeros(shape, dtype="int8", device=device).to(dtype="bool").shape == shape


@pytest.mark.torch
def test_torch_agrees(device: str) -> None:
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    # x is exact in float32. torch converts float64 to 16 bits through float32, so any other number would be rounded
    # twice.
    x = (torch.randn(3, 5, 8, 7, device=device) * 100).double()
    for source in REAL:
        s = x.to(getattr(torch, source))
        for to in (*REAL, "int32", "int64", "bool"):
            want = s.to(getattr(torch, to))
            assert torch.equal(torch.from_dlpack(dnn.transform(s, dtype=to)), want), (source, to)
            last = torch.from_dlpack(dnn.transform(s, dtype=to, layout="NHWC"))
            assert torch.equal(last, want) and last.is_contiguous(memory_format=torch.channels_last)
    out = torch.ones_like(x)
    dnn.transform(x, alpha=2.0, beta=-1.0, out=out)
    assert torch.equal(out, 2 * x - 1)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.transform(x, beta=1.0), dnn.ShapeError, "transform: beta=1 needs out, which is not given"),
        (lambda x: dnn.transform(x, dtype="int8", out=x), dnn.ShapeError,
         "transform: dtype and layout are those of out; omit them when out is given"),
        (lambda x: dnn.transform(x, layout="contiguous", out=x), dnn.ShapeError, "dtype and layout are those of out"),
        (lambda x: dnn.transform(x.to(dtype="int8"), alpha=2.0), dnn.DTypeError,
         "transform: alpha and beta need floating dtypes; x is int8, the result int8"),
        (lambda x: dnn.transform(x, alpha=2.0, dtype="int8"), dnn.DTypeError, "x is float32, the result int8"),
        (lambda x: dnn.transform(x, dtype="float8"), dnn.DTypeError, "transform: dtype must be one of float32, float64"),
        (lambda x: dnn.transform(x, layout="NHWC"), dnn.ShapeError, "layout 'NHWC' does not name an order of 2 dimensions"),
        (lambda x: dnn.transform(x, out=dnn.empty((2, 4), device=x.device)), dnn.ShapeError,
         "transform: x [2, 3] does not broadcast to out [2, 4]"),
        (lambda x: dnn.transform(x, out=x.as_strided((2, 3), (0, 1))), dnn.ShapeError, "two of its elements share memory"),
        (lambda x: dnn.transform(x, out=x.permute((1, 0))), dnn.ShapeError, "does not broadcast"),
        (lambda x: dnn.transform(x.as_strided((3, 2), (2, 1)), out=x.permute((1, 0))), dnn.ShapeError,
         "out overlaps x without being the same elements"),
        (lambda x: dnn.transform(x.as_strided((1, 3), (3, 1)), out=x), dnn.ShapeError, "out overlaps x"),
        (lambda x: dnn.transform(x, algo="memcpy"), dnn.NotSupported, "algo='memcpy' names no engine for "),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)  # the failed call has not changed x


def parts(rng: np.random.Generator, dtype: str, layout: str, *sizes: int) -> list[dnn.DeviceTensor]:
    return [dnn.asarray(rng.integers(0, 2 if dtype == "bool" else 100, (3, n, 5, 4)).astype(dtype), layout=layout)
            for n in sizes]  # fmt: skip


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool"])
def test_concat(dtype: str, layout: str, device: str) -> None:
    tensors = parts(np.random.default_rng(2), dtype, layout, 8, 1, 0, 7)
    want = np.concatenate([t.numpy() for t in tensors], 1)
    got = dnn.concat([t.to(device=device) for t in tensors], 1)
    assert got.device == device and got.layout == layout
    np.testing.assert_array_equal(values_of(got), want)
    views = dnn.split(got, [8, 1, 0, 7], -3)
    assert all(v.data_ptr - got.data_ptr < got.nbytes for v in views[:2])
    for view, t in zip(views, tensors, strict=True):
        np.testing.assert_array_equal(values_of(view), values_of(t))
    out, margins_untouched = framed(want.shape, got.strides, dtype, device)
    dnn.concat([t.to(device=device) for t in tensors], axis=1, out=out)
    np.testing.assert_array_equal(values_of(out), want)
    assert margins_untouched()


def test_slice(device: str) -> None:
    x = np.arange(3 * 5 * 7.0).reshape(3, 5, 7)
    t = dnn.asarray(x, device=device)
    got = dnn.slice(t, [1, 0, 2], [3, 5, 7], [1, 2, 3])
    np.testing.assert_array_equal(values_of(got), x[1:3, 0:5:2, 2:7:3])
    assert got.data_ptr == t.data_ptr + 37 * 8
    assert dnn.slice(t, [1, 2, 0], [1, 5, 7]).shape == (0, 3, 7)
    assert [v.shape for v in dnn.split(x, 5, axis=1)] == [(3, 1, 7)] * 5


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: dnn.concat([]), "concat: tensors must hold one tensor or more; got none"),
        (lambda x: dnn.concat([x, x], 2), r"concat: axis must be a dimension of tensors\[0\] \[4, 6\]; got 2"),
        (
            lambda x: dnn.concat([x, x[:, :5]]),
            r"concat: tensors\[1\] must have the shape of tensors\[0\], \[4, 6\], except in dimension 0; got \[4, 5\]",
        ),
        (lambda x: dnn.concat([x, x.astype("int32")]), r"concat: tensors\[0\] is float64, tensors\[1\] is int32"),
        (lambda x: dnn.concat([x, x], out=x), r"concat: out must be \[8, 6\]"),
        (lambda x: dnn.concat([x[:2], x[2:]], out=x), r"concat: out shares memory with tensors\[0\]"),
        (
            lambda x: dnn.slice(x, [0], [1]),
            "slice: start, stop and step must have 2 numbers each for x .*; got 1, 1 and 2",
        ),
        (
            lambda x: dnn.slice(x, [0, 2], [4, 1]),
            "slice: start and stop must be 0 <= start <= stop <= 6, .*; got 2:1:1",
        ),
        (
            lambda x: dnn.split(x, [1, 2]),
            r"split: sizes must add up to the 4 elements of dimension 0 of x; got \[1, 2\]",
        ),
        (lambda x: dnn.split(x, 3), "split: sizes must be a number of equal parts of 4 elements; got 3"),
        (lambda x: dnn.split(x, 1, 2), r"split: axis must be a dimension of x \[4, 6\]; got 2"),
    ],
)
def test_errors_of_concat_slice_and_split(call: Callable[[np.ndarray], object], text: str) -> None:
    with pytest.raises(dnn.Error, match=text):
        call(np.zeros((4, 6)))
