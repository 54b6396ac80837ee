# SPDX-License-Identifier: Apache-2.0
"""Reductions: samples for the case lines, NaN and Inf, long sums, empty ones, keepdims, torch, errors."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import REAL, Result, Sample, framed, tensor, values_of

import pyminidnn as dnn

MODES = ("sum", "mean", "max", "min", "prod", "norm1", "norm2", "sumsq", "amax", "any", "all", "argmax", "argmin")
INTEGERS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-1000, 1000), "int64": (-1000, 1000), "bool": (0, 1)}


def result_dtype(mode: str, dtype: str) -> str:
    if mode in ("any", "all"):
        return "bool"
    if mode in ("argmax", "argmin"):
        return "int64"
    if dtype in REAL or mode in ("max", "min", "amax"):
        return dtype
    return "float32" if mode in ("mean", "norm1", "norm2") else "int64"


def sample(case: Case) -> Sample:
    rng = generator(case)
    mode, operand = case.direction, case.operands["x"]
    axes = () if case.attributes["axes"] == "none" else tuple(map(int, case.attributes["axes"].split(",")))
    shape = operand.shape
    distinct = tuple(
        1 if operand.strides and s == 0 else n for n, s in zip(shape, operand.strides or shape, strict=True)
    )
    if case.dtype in REAL:
        x = rng.normal(size=distinct)
        if mode == "prod":  # magnitudes near 1, so that the product is neither 0 nor Inf
            x = np.sign(x) * np.exp(x / 8)
        if mode.startswith("arg"):  # few distinct values, since the first of several equal extrema counts
            x = np.round(x * 4) / 4
        x = reference.rounded(x, case.dtype)
    else:
        low, high = INTEGERS[case.dtype]
        x = rng.integers(low, high, distinct, endpoint=True).astype("float64")
        if mode == "amax":
            # The smallest integer is left out, because its absolute value would overflow.
            x = np.maximum(x, -high)
        if mode == "prod":
            x = np.clip(x, -9, 9)
    # For `any`, most elements are zero, so some outputs depend on zeros only. For `all`, most elements are nonzero, so
    # some outputs depend on no zero.
    if mode in ("any", "all"):
        x = x * (rng.random(distinct) < (0.1 if mode == "any" else 0.9))
    x = np.broadcast_to(x, shape)
    want = reference.reduce(x, mode, axis=axes)
    to = result_dtype(mode, case.dtype)
    count = max(x.size // max(want.size, 1), 1)
    if to not in REAL:
        tolerance: float | np.ndarray = 0.0
    elif mode in ("max", "min", "amax"):
        tolerance = 0.0
    elif mode == "prod":  # the relative error of the product is the sum of the relative errors of its factors
        accumulator = reference.accumulator(case.dtype)
        tolerance = (reference.EPS[to] + count * reference.EPS[accumulator]) * np.abs(want)
    else:
        scale = {"sum": "norm1", "mean": "norm1"}.get(mode, mode)
        size = reference.reduce(x, scale, axis=axes) / (count if mode == "mean" else 1)
        tolerance = reference.tolerance(to, count, size)

    def call(
        t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
    ) -> list[dnn.DeviceTensor]:
        return [dnn.reduce(t["x"], mode, axis=axes, algo=algo, out=out)]

    return Sample({"x": x}, call, [Result(want, tolerance)])


def every(x: dnn.DeviceTensor, mode: str, device: str, **options: object) -> list[np.ndarray]:
    """The results of all engines that support the problem."""
    (report, *_) = dnn.explain(dnn.reduce, x, mode, **options)
    return [values_of(dnn.reduce(x, mode, algo=e.name, **options)) for e in report.engines if not e.why_not]


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("axis", [0, 1])
# A row of 777 elements is so long that engines reduce several vectors in parallel.
@pytest.mark.parametrize("shape", [(24, 40), (27, 41), (13, 777)])
def test_special_values(shape: tuple[int, int], dtype: str, axis: int, device: str) -> None:
    rng = np.random.default_rng(1)
    # All magnitudes are near 1, so that the product of a row is finite and not 0.
    x = rng.uniform(0.9, 1.1, shape) * rng.choice((-1, 1), shape)
    x = reference.rounded(x if axis else x.T, dtype)
    rows = x if axis else x.T
    rows[1, 7] = np.nan
    rows[2, 9], rows[2, 3] = np.nan, np.inf
    rows[3, 5] = -np.inf
    rows[4, 8] = np.inf
    rows[5] = -np.inf
    rows[6] = np.inf
    rows[7, :] = 0
    rows[8, :], rows[8, 39] = 0, np.nan  # NaN counts as true
    rows[9, 30], rows[9, 20] = np.nan, np.nan  # the first of two NaN counts
    rows[10, 5], rows[10, 6] = 0, np.nan  # a row with a zero, a NaN and ordinary elements
    rows[11], rows[11, 3], rows[11, 9] = -1, -0.0, 0.0  # -0.0 and 0.0 count as equal
    rows[12], rows[12, 4], rows[12, 7] = 1, 0.0, -0.0
    t = tensor(x, dtype, device)
    for mode in ("max", "min", "amax", "any", "all", "argmax", "argmin"):
        want = reference.reduce(x, mode, axis=axis)
        for got in every(t, mode, device, axis=axis):
            np.testing.assert_array_equal(got, want, err_msg=mode)
    for mode in ("sum", "mean", "norm1", "norm2", "sumsq", "prod"):
        want = reference.reduce(x, mode, axis=axis)
        for got in every(t, mode, device, axis=axis):
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=mode)
            assert np.isfinite(got[finite]).all()


def test_long_sums_keep_their_digits(device: str) -> None:
    """The sum of a million times 0.1: a single float32 sum would be off by a percent."""
    x = dnn.full((1 << 20,), 0.1, device=device)
    want = float(np.float32(0.1)) * 2**20
    for mode in ("sum", "norm1"):
        for got in every(x, mode, device):
            assert abs(got - want) <= 2e-6 * want
    for got in every(dnn.full((1 << 20, 2), 0.1, device=device), "mean", device, axis=0):
        assert (abs(got - 0.1) <= 1e-6).all()


def test_empty(device: str) -> None:
    x = dnn.empty((3, 0), device=device)
    for mode, value in (("sum", 0), ("prod", 1), ("norm1", 0), ("norm2", 0), ("sumsq", 0), ("any", 0), ("all", 1)):
        np.testing.assert_array_equal(values_of(dnn.reduce(x, mode, axis=1)), np.full(3, value), err_msg=mode)
        assert dnn.reduce(x, mode, axis=0).shape == (0,)
    assert np.isnan(values_of(dnn.reduce(x, "mean"))).all()
    assert dnn.reduce(x, "max", axis=()).shape == (3, 0)


def test_keepdims_and_dtypes(device: str) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    for dtype in (*REAL, *INTEGERS):
        t = tensor(x % 2 if dtype == "bool" else x, dtype, device)
        for mode in MODES:
            y = dnn.reduce(t, mode, axis=(0, -1), keepdims=True)
            assert (y.shape, y.dtype) == ((1, 3, 1), result_dtype(mode, dtype)), (dtype, mode)
            out, untouched = framed((1, 3, 1), (90, 2, 70), y.dtype, device)
            dnn.reduce(t, mode, axis=(0, -1), keepdims=True, out=out)
            np.testing.assert_array_equal(values_of(out), values_of(y))
            assert untouched()


def test_integers_wrap_around(device: str) -> None:
    x = np.array([2**62, 2**62, 5])
    assert values_of(dnn.reduce(dnn.asarray(x, device=device), "sum")) == float(-(2**63) + 5)
    low = dnn.asarray(np.array([-(2**63), 3]), device=device)
    assert dnn.reduce(low, "min").numpy() == -(2**63) and dnn.reduce(low, "argmin").numpy() == 0


def test_amax_of_the_least_integer(device: str) -> None:
    """The magnitude of the smallest integer does not fit the dtype, so the result is the largest integer."""
    for dtype in ("int8", "int32", "int64"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = dnn.asarray(np.array([[low, 3], [low + 1, 3], [-5, 3]], dtype), device=device)
        assert dnn.reduce(x, "amax", axis=1).to(device="cpu").numpy().tolist() == [high, high, 5]


@pytest.mark.torch
def test_torch_agrees(device: str) -> None:
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    x = torch.randn(3, 40, 17, device=device)
    for axis in (0, 1, 2):
        for mode in ("sum", "mean", "amax", "argmax", "argmin", "any", "all"):
            y = x.abs() if mode == "amax" else x
            got, want = torch.from_dlpack(dnn.reduce(x, mode, axis=axis)), getattr(torch, mode)(y, axis)
            assert got.dtype == want.dtype and torch.allclose(got.double(), want.double(), atol=1e-5)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.reduce(x, "median"), dnn.ShapeError, "reduce: mode must be one of sum, mean"),
        (lambda x: dnn.reduce(x, "sum", axis=2), dnn.ShapeError, "reduce: axis must be from -2 to 1 for x [2, 3]; got 2"),
        (lambda x: dnn.reduce(x, "sum", axis=(0, -2)), dnn.ShapeError, "reduce: axis names dimension 0 twice"),
        (lambda x: dnn.reduce(dnn.empty((2, 0), device=x.device), "max", axis=1), dnn.ShapeError,
         "reduce: max of no elements has no value; x is [2, 0]"),
        (lambda x: dnn.reduce(x, "sum", axis=0, out=dnn.empty((2,), device=x.device)), dnn.ShapeError,
         "reduce: out must be [3]; got [2]"),
        (lambda x: dnn.reduce(x, "argmax", axis=0, out=dnn.empty((3,), device=x.device)), dnn.DTypeError,
         "reduce: out must be int64; got float32"),
        (lambda x: dnn.reduce(x, "sum", axis=0, out=x.as_strided((3,), (1,))), dnn.ShapeError, "out shares memory with x"),
        (lambda x: dnn.reduce(x, "sum", algo="warp"), dnn.NotSupported, "algo='warp' names no engine for "),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)  # the failed call has not changed x
