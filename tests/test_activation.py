# SPDX-License-Identifier: Apache-2.0
"""Activations: samples for the case lines, properties, special values and errors."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn
from pyminidnn import _C

MODES = reference.activation.MODES
# The absolute error of rounding a tiny result. In float16, it is half of the distance between subnormal numbers.
SMALLEST = {"float32": 0.0, "float64": 0.0, "float16": 2.0**-25, "bfloat16": 0.0}


def exponent(mode: str, x: np.ndarray) -> np.ndarray:
    """The largest |e| of the exponentials exp(e) in a formula. A relative error r of e is an error r |e| of exp(e).
    1 + |x|^2 / 2, with the e of gelu, is enough for every mode but gelu_tanh."""
    if mode == "gelu_tanh":
        return 2 * np.sqrt(2 / np.pi) * (np.abs(x) + 0.044715 * np.abs(x) ** 3)
    return x * x / 2


def sample(case: Case) -> Sample:
    rng = generator(case)
    (mode,) = case.words
    x_operand = case.operands["x"]
    shape = x_operand.shape
    # Along a dimension with stride zero, all elements are the same element in memory. So one random value is drawn for
    # each element in memory.
    distinct = tuple(
        1 if x_operand.strides and s == 0 else n for n, s in zip(shape, x_operand.strides or shape, strict=True)
    )
    x = np.broadcast_to(reference.rounded(rng.normal(0, 3, distinct), case.dtype), shape)
    if case.direction == "forward":
        want = reference.activation_forward(x, mode)
        # The input is exact. A formula has at most 8 roundings, whose errors later operations multiply by at most 1 plus
        # the exponent. A factor of x may be subnormal: gelu(-13.8) is -13.8 times 1.4e-43.
        factor = reference.SUBNORMAL[reference.accumulator(case.dtype)] * np.abs(x)
        tolerance = (
            reference.tolerance(case.dtype, 8, np.abs(want) * (1 + exponent(mode, x))) + factor + SMALLEST[case.dtype]
        )
        call = lambda t, algo, out=None: [dnn.activation_forward(t["x"], mode, algo=algo, out=out)]
        return Sample({"x": x}, call, [Result(want, tolerance)])
    dy = reference.rounded(rng.normal(0, 1, shape), case.dtype)
    want = reference.activation_backward(dy, x, None, mode)
    # The error is like that of the forward pass. In addition, a derivative is a sum of terms of up to 1 + |x|. If such
    # terms cancel, their rounding errors remain.
    tolerance = reference.tolerance(case.dtype, 8, np.abs(dy) * (1 + np.abs(x)) + np.abs(want) * exponent(mode, x))
    call = lambda t, algo, out=None: [dnn.activation_backward(t["dy"], t["x"], t["x"], mode, algo=algo, out=out)]
    return Sample({"dy": dy, "x": x}, call, [Result(want, tolerance)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nan_and_infinity(mode: str, dtype: str, device: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, -3.0, 6.0, 40.0, -40.0, 300.0, -300.0, 3e4, -3e4])
    with np.errstate(all="ignore"):
        want = reference.activation_forward(x, mode)
        slope = reference.activation_backward(np.ones_like(x), x, want, mode)
    t = tensor(x, dtype, device)
    # If a float16 result overflows, it is Inf in the library and in the oracle.
    rounded = reference.rounded(want, dtype)
    magnitude = np.where(np.isfinite(rounded), np.abs(rounded), 0)
    # For x = -3, the error of exp(-x^2 / 2) in gelu is up to 5.5 roundings, which the factor 16 of the tolerance
    # covers. For all x < -3 in this test, it underflows.
    tolerance = reference.tolerance(dtype, 8, magnitude * 16) + SMALLEST[dtype]
    assert_close(dnn.activation_forward(t, mode), Result(rounded, tolerance), mode)
    got = dnn.activation_backward(tensor(np.ones_like(x), dtype, device), t, t, mode)
    assert_close(got, Result(slope, reference.tolerance(dtype, 8, 8.0)), f"{mode} backward")


@pytest.mark.parametrize("mode", MODES)
def test_in_place(mode: str, device: str) -> None:
    x = np.linspace(-4, 4, 33)
    t = tensor(x, "float64", device)
    y = dnn.activation_forward(t, mode)
    in_place = dnn.activation_forward(t, mode, out=t)
    assert in_place.data_ptr == t.data_ptr
    np.testing.assert_array_equal(values_of(t), values_of(y))


@pytest.mark.parametrize("mode, alpha", [("clipped_relu", 1.5), ("leaky_relu", 0.3), ("elu", 2.0), ("softplus", 3.0)])
def test_alpha(mode: str, alpha: float, device: str) -> None:
    x = np.linspace(-3, 3, 31)
    t = tensor(x, "float64", device)
    y = dnn.activation_forward(t, mode, alpha=alpha)
    assert_close(y, Result(reference.activation_forward(x, mode, alpha=alpha), 1e-14))
    dx = dnn.activation_backward(t, t, y, mode, alpha=alpha)
    assert_close(dx, Result(reference.activation_backward(x, x, None, mode, alpha=alpha), 1e-13))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("n", [5, 4096, 9001])
def test_unaligned_addresses(dtype: str, n: int, device: str) -> None:
    """Slices that begin one element after a multiple of 16 bytes: each operand alone, and all together."""
    values = np.linspace(-4, 4, n)
    whole = tensor(np.concatenate([[0], values]), dtype, device)
    fits, shifted = tensor(values, dtype, device), whole.as_strided((n,), (1,), 1)
    want = values_of(dnn.activation_forward(fits, "gelu"))
    slope = values_of(dnn.activation_backward(fits, fits, fits, "gelu"))
    buffer = dnn.full((n + 1,), 7, dtype=dtype, device=device)
    for x, out in [
        (shifted, None),
        (fits, buffer.as_strided((n,), (1,), 1)),
        (shifted, buffer.as_strided((n,), (1,), 1)),
    ]:
        np.testing.assert_array_equal(values_of(dnn.activation_forward(x, "gelu", out=out)), want)
        np.testing.assert_array_equal(values_of(dnn.activation_backward(fits, x, x, "gelu", out=out)), slope)
        assert values_of(buffer)[0] == 7


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_all_magnitudes(mode: str, dtype: str, device: str) -> None:
    """All finite values of the 16-bit dtypes. For float32: those of bfloat16. Of softplus, alpha * x overflows."""
    bits = np.arange(2**16, dtype=np.uint16)
    x = bits.view(np.float16) if dtype == "float16" else (bits.astype(np.uint32) << 16).view(np.float32)
    x = x[np.isfinite(x)].astype(np.float64)
    alpha = {"alpha": 3.0} if mode == "softplus" else {}
    want = reference.activation_forward(x, mode, **alpha)
    assert np.isfinite(want).all()
    # For 16-bit results, formulas have an error of 2^-15 + 2^-19 x^2, and the result is rounded once.
    ulp = {"float32": 2.0**-24 * 16, "float16": 2.0**-11 + 2.0**-15, "bfloat16": 2.0**-8 + 2.0**-15}[dtype]
    steps = 2.0**-24 * 8 * (1 + x * x / 2) if dtype == "float32" else 2.0**-19 * x * x
    smallest = {"float32": 2.0**-149 * (9 + np.abs(x)), "float16": 2.0**-24, "bfloat16": 2.0**-133}[dtype]
    y = dnn.activation_forward(tensor(x, dtype, device), mode, **alpha)
    assert_close(y, Result(want, (ulp + steps) * np.abs(want) + smallest))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gelu_of_all_magnitudes(dtype: str) -> None:
    """All values of bfloat16 and every 20011th of float32, for the library's own polynomials on the CPU. With AVX-512,
    the polynomial of each interval is read from a table: x's square is not rounded, and the polynomials for bfloat16
    have an error of 2^-13.9."""
    x = np.arange(0, 2**32, {"float32": 20011, "bfloat16": 65536}[dtype]).astype(np.uint32).view(np.float32)
    x = x[np.isfinite(x)].astype(np.float64)
    want = reference.activation_forward(x, "gelu")
    steps = 1 if _C.cpu_isa().startswith("x86-64-v4") else 1 + x * x / 2
    tolerance = {"float32": 2.0**-24 * 6 * steps, "bfloat16": 2.0**-8 + 2.0**-13 * steps}[dtype] * np.abs(want)
    # An absolute tolerance for tiny results: the absolute error of a tiny value of the normal cdf, times |x|.
    smallest = {"float32": 9 * 2.0**-149, "bfloat16": 2.0**-134}[dtype]
    assert_close(dnn.activation_forward(tensor(x, dtype, "cpu"), "gelu"), Result(want, tolerance + smallest))


def test_empty(device: str) -> None:
    x = dnn.empty((4, 0, 3), device=device)
    assert dnn.activation_forward(x, "relu").shape == (4, 0, 3)
    assert dnn.activation_backward(x, x, x, "relu").shape == (4, 0, 3)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.activation_forward(x, "rely"), dnn.ShapeError, "activation_forward: mode must be one of identity, relu"),
        (lambda x: dnn.activation_forward(x, "softplus", alpha=0), dnn.ShapeError, "softplus needs alpha > 0; got 0"),
        (lambda x: dnn.activation_forward(x.to(dtype="int32"), "relu"), dnn.DTypeError, "x is int32; supported are"),
        (lambda x: dnn.activation_backward(x, x.reshape((6,)), x, "relu"), dnn.ShapeError,
         "activation_backward: x must be [2, 3] like dy; got [6]"),
        (lambda x: dnn.activation_backward(x.to(dtype="float64"), x, x, "relu"), dnn.DTypeError,
         "dy is float64, x is float32; cast one"),
        (lambda x: dnn.activation_forward(x, "relu", out=dnn.empty((3, 2), device=x.device)), dnn.ShapeError,
         "out must be [2, 3]; got [3, 2]"),
        (lambda x: dnn.activation_forward(x, "relu", algo="warp"), dnn.NotSupported, "algo='warp' names no engine for "),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)  # the failed call has not changed x
