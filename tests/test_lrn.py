# SPDX-License-Identifier: Apache-2.0
"""Local response and local contrast norm: samples for the case lines, comparison with torch, special values and
errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, drawn, tensor, values_of, zeros

import pyminidnn as dnn


def local_results(
    x: np.ndarray, dy: np.ndarray | None, means: np.ndarray | None, dtype: str, size: int, **options: Any
) -> list[Result]:
    """Expected results of local response and contrast norm: y, or dx and, with means, dmeans."""
    m = np.zeros(()) if means is None else means
    y, s = reference.local_norm_forward(x, size, means=m, **options)
    acc, beta = reference.accumulator(dtype), options["beta"]
    unit, n = reference.EPS[acc], size ** len(options["axes"])
    # s = k + alpha / n * (a sum of squares) has the relative error of the sum. The power s^-beta is computed by a
    # logarithm, whose rounding errors are multiplied by beta |ln s|.
    of_sum = reference.tolerance(acc, n, 1.0) + 2 * unit
    of_power = beta * of_sum + unit * (4 + 2 * beta * np.abs(np.log(s)))
    # The distance between subnormal numbers in float16; 0 for all other dtypes.
    least = 2.0**-24 if dtype == "float16" else 0
    if dy is None:
        return [Result(y, np.abs(y) * (of_power + reference.EPS[dtype]) + least)]
    dx, dmeans = reference.local_norm_backward(dy, x, size, means=m, **options)
    g = np.abs(dy * x) * s ** (-beta - 1)
    # dx and dmeans are sums of terms g (x_j - m_i), which have the errors of g, of the difference and of the products.
    weights = g * (of_power + of_sum + 6 * unit + reference.tolerance(acc, n, 1.0))
    of_dx, of_dmeans = reference.local_norm_backward(dy, x, size, means=m, weights=weights, **options)
    of_dx = of_dx + np.abs(dy) * s**-beta * (of_power + 2 * unit) + reference.EPS[dtype] * np.abs(dx) + least
    results = [Result(dx, of_dx)]
    return (
        results
        if means is None
        else [*results, Result(dmeans, of_dmeans + reference.EPS[dtype] * np.abs(dmeans) + least)]
    )


def sample(case: Case) -> Sample:
    rng = generator(case)
    kind, _, direction = case.direction.partition("_")
    size = case.integers("size", 1)
    assert isinstance(size, int)

    inputs = {"x": drawn(case, rng, "x", 0.5)}
    x = inputs["x"]
    if direction == "backward":
        inputs["dy"] = drawn(case, rng, "dy", 0)
    if "means" in case.operands or "centered" in case.words:
        inputs["means"] = drawn(case, rng, "means", 0.5)
    values = {"alpha": 2.0, "beta": float(rng.choice([0.5, 0.75, 1.25])), "k": float(rng.choice([1.0, 0.25]))}
    axes = (1,) if kind == "lrn" else tuple(range(2, x.ndim))
    results = local_results(x, inputs.get("dy"), inputs.get("means"), case.dtype, size, axes=axes, **values)

    def call(
        t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
    ) -> Sequence[dnn.DeviceTensor]:
        if kind == "lrn":
            if direction == "forward":
                return [dnn.lrn_forward(t["x"], size, **values, algo=algo, out=out)]
            return [dnn.lrn_backward(t["dy"], t["x"], size, **values, algo=algo, out=out)]
        if direction == "forward":
            return [dnn.lcn_forward(t["x"], size, means=t.get("means"), **values, algo=algo, out=out)]
        gradients = dnn.lcn_backward(t["dy"], t["x"], size, means=t.get("means"), **values, algo=algo, out=out)
        return gradients if isinstance(gradients, tuple) else [gradients]

    return Sample(inputs, call, results)


LOCAL = {"alpha": 0.7, "beta": 0.75, "k": 0.5}


@pytest.mark.torch
@pytest.mark.parametrize("size", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("shape", [(2, 7, 5), (2, 7, 4, 3), (2, 3, 2, 3, 4)])
def test_lrn_agrees_with_torch(shape: tuple[int, ...], size: int, device: str) -> None:
    """Odd sizes agree directly. For an even size, torch has the extra channel behind, cuDNN and ONNX ahead: results
    agree with the channels reversed."""
    import torch

    rng = np.random.default_rng(30)
    x, dy = rng.normal(0, 2, shape), rng.normal(0, 1, shape)
    turn = slice(None, None, 1 if size % 2 else -1)
    theirs = torch.from_numpy(x[:, turn].copy()).requires_grad_()
    y = torch.nn.functional.local_response_norm(theirs, size, **LOCAL)
    y.backward(torch.from_numpy(dy[:, turn].copy()))
    t, g = tensor(x, "float64", device), tensor(dy, "float64", device)
    np.testing.assert_allclose(
        values_of(dnn.lrn_forward(t, size, **LOCAL))[:, turn], y.detach().numpy(), rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(
        values_of(dnn.lrn_backward(g, t, size, **LOCAL))[:, turn], theirs.grad.numpy(), rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("size", [1, 4, 5, 20])
def test_lrn_backward_is_the_derivative(size: int, device: str) -> None:
    rng = np.random.default_rng(31)
    x, dy, v = rng.normal(0, 2, (2, 6, 3)), rng.normal(0, 1, (2, 6, 3)), rng.normal(0, 1, (2, 6, 3))

    def loss(values: np.ndarray) -> float:
        return float((values_of(dnn.lrn_forward(tensor(values, "float64", device), size, **LOCAL)) * dy).sum())

    dx = dnn.lrn_backward(tensor(dy, "float64", device), tensor(x, "float64", device), size, **LOCAL)
    h = 1e-5
    np.testing.assert_allclose((values_of(dx) * v).sum(), (loss(x + h * v) - loss(x - h * v)) / (2 * h), rtol=1e-6)


def test_lrn_over_all_channels_is_rms_norm(device: str) -> None:
    """With k = eps, beta = 1/2 and a window of twice the channels, alpha / size times the sum of squares is their
    mean."""
    x = tensor(np.random.default_rng(32).normal(0, 2, (4, 6, 1)), "float64", device)
    y = dnn.lrn_forward(x, 12, alpha=2, beta=0.5, k=1e-5)
    want, _ = dnn.rms_norm_forward(x.reshape((4, 6)), axis=1, eps=1e-5)
    np.testing.assert_allclose(values_of(y)[..., 0], values_of(want), rtol=1e-12)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_lrn_keeps_nan_in_its_windows(bad: float, layout: str, device: str) -> None:
    """All neighbours of a NaN become NaN. All neighbours of an infinity become 0, and itself becomes NaN."""
    rng = np.random.default_rng(33)
    x, dy = rng.normal(0, 1, (2, 16, 2, 4)), rng.normal(0, 1, (2, 16, 2, 4))
    g = dnn.asarray(dy, dtype="float32", layout=layout).to(device=device)

    def both() -> list[np.ndarray]:
        t = dnn.asarray(x, dtype="float32", layout=layout).to(device=device)
        return [values_of(dnn.lrn_forward(t, 5, **LOCAL)), values_of(dnn.lrn_backward(g, t, 5, **LOCAL))]

    clean = both()
    x[1, 7, 1, 2] = bad
    y, dx = both()
    assert np.isnan(y[1, 7, 1, 2])
    beside = [5, 6, 8, 9]
    assert (np.isnan(y[1, beside, 1, 2]) if np.isnan(bad) else y[1, beside, 1, 2] == 0).all()
    assert np.isnan(dx[1, 5:10, 1, 2]).all()
    for values, wanted, around in zip((y, dx), clean, (slice(5, 10), slice(3, 12)), strict=True):
        values[1, around, 1, 2] = wanted[1, around, 1, 2]
        np.testing.assert_array_equal(values, wanted)


def test_lrn_sums_each_window_separately(device: str) -> None:
    """Each window is summed on its own: a sliding sum would lose the ones that follow 1e6, whose square is 1e12."""
    x = np.ones((1, 12, 1, 4))
    x[:, 3] = 1e6
    y = dnn.lrn_forward(tensor(x, "float32", device), 3, alpha=3, beta=0.5, k=0)
    np.testing.assert_allclose(values_of(y)[:, 6:11], 1 / np.sqrt(3), rtol=1e-6)


def test_lrn_of_an_empty_tensor(device: str) -> None:
    empty = dnn.empty((0, 4, 3), device=device)
    assert dnn.lrn_forward(empty, 5).shape == (0, 4, 3)
    assert dnn.lrn_backward(empty, empty, 5).shape == (0, 4, 3)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.lrn_forward(x, 0), dnn.ShapeError, "lrn_forward: size must be in [1, 1048576]; got 0"),
        (lambda x: dnn.lrn_forward(x, 5, alpha=-1), dnn.ShapeError, "alpha must be 0 or a positive number; got -1"),
        (lambda x: dnn.lrn_forward(x, 5, beta=0), dnn.ShapeError, "beta must be a positive number; got 0"),
        (lambda x: dnn.lrn_forward(x, 5, k=np.nan), dnn.ShapeError, "k must be 0 or a positive number; got nan"),
        (lambda x: dnn.lrn_forward(x.reshape((24,)), 5), dnn.ShapeError, "lrn_forward: x must have 2 to 5 dimensions"),
        (lambda x: dnn.lrn_forward(x, 5, out=x), dnn.ShapeError, "lrn_forward: out"),
        (lambda x: dnn.lrn_backward(x, x, 5, out=x), dnn.ShapeError, "lrn_backward: out"),
        (lambda x: dnn.lrn_backward(x.reshape((3, 2, 4)), x, 5), dnn.ShapeError,
         "lrn_backward: dy must be [2, 3, 4] like x; got [3, 2, 4]"),
        (lambda x: dnn.lcn_forward(x.reshape((6, 4)), 5), dnn.ShapeError, "lcn_forward: x must have 3 to 5 dimensions"),
        (lambda x: dnn.lcn_forward(x, 5, means=x.reshape((3, 2, 4))), dnn.ShapeError,
         "lcn_forward: means must be [2, 3, 4] like x; got [3, 2, 4]"),
        (lambda x: dnn.lcn_backward(x, x, 5, means=zeros(x, 3, "float16")), dnn.DTypeError, "means is float16"),
    ],
)  # fmt: skip
def test_local_norm_errors(
    call: Callable[[dnn.DeviceTensor], object], kind: type[Exception], text: str, device: str
) -> None:
    with pytest.raises(kind) as caught:
        call(tensor(np.ones((2, 3, 4)), "float32", device))
    assert text in str(caught.value)


@pytest.mark.torch
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 6, 7), (1, 2, 4, 5, 6)])
def test_lcn_agrees_with_torchs_pooling(shape: tuple[int, ...], size: int, centered: bool, device: str) -> None:
    """sum((x_j - m_i)^2) = sum(x_j^2) - 2 m_i sum(x_j) + m_i^2 n_i, where each sum is an average pooling with
    padding."""
    import torch

    rng = np.random.default_rng(40)
    x, m, dy = (rng.normal(0, 1, shape) for _ in range(3))
    d = len(shape) - 2
    pool = (torch.nn.functional.avg_pool1d, torch.nn.functional.avg_pool2d, torch.nn.functional.avg_pool3d)[d - 1]

    def window(t: Any) -> Any:
        return pool(torch.nn.functional.pad(t, ((size - 1) // 2, size // 2) * d), size, 1)

    theirs, means = (torch.from_numpy(v).requires_grad_() for v in (x, m * centered))
    n = window(torch.ones_like(theirs))
    s = LOCAL["k"] + LOCAL["alpha"] * (window(theirs**2) - 2 * means * window(theirs) + means**2 * n)
    y = theirs * s ** -LOCAL["beta"]
    y.backward(torch.from_numpy(dy))
    t, g, given = (tensor(v, "float64", device) for v in (x, dy, m))
    keywords = {**LOCAL, "means": given if centered else None}
    np.testing.assert_allclose(values_of(dnn.lcn_forward(t, size, **keywords)), y.detach().numpy(), rtol=1e-11)
    got = dnn.lcn_backward(g, t, size, **keywords)
    wanted = [theirs.grad, means.grad] if centered else [theirs.grad]
    for a, b in zip(got if isinstance(got, tuple) else [got], wanted, strict=True):
        np.testing.assert_allclose(values_of(a), b.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [2, 5])
def test_lcn_backward_is_the_derivative(size: int, device: str) -> None:
    rng = np.random.default_rng(41)
    x, m, dy, v = (rng.normal(0, 1, (2, 2, 5, 6)) for _ in range(4))

    def loss(x: np.ndarray, m: np.ndarray) -> float:
        t, means = tensor(x, "float64", device), tensor(m, "float64", device)
        return float((values_of(dnn.lcn_forward(t, size, means=means, **LOCAL)) * dy).sum())

    t, means, g = (tensor(values, "float64", device) for values in (x, m, dy))
    dx, dmeans = dnn.lcn_backward(g, t, size, means=means, **LOCAL)
    h = 1e-5
    for gradient, a, b in ((dx, v, 0), (dmeans, 0, v)):
        change = (loss(x + h * a, m + h * b) - loss(x - h * a, m - h * b)) / (2 * h)
        np.testing.assert_allclose((values_of(gradient) * v).sum(), change, rtol=1e-6)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_lcn_far_from_zero(layout: str, device: str) -> None:
    """With means far from zero, the sum of squares keeps its digits: differences are squared, squares are not
    subtracted."""
    rng = np.random.default_rng(42)
    x = reference.rounded(rng.normal(1e4, 1e-1, (2, 8, 12, 16)), "float32")
    m = np.full(x.shape, 1e4)
    t, means = (dnn.asarray(v, dtype="float32", layout=layout).to(device=device) for v in (x, m))
    y = dnn.lcn_forward(t, 5, means=means, alpha=100, beta=0.5, k=1)
    want, _ = reference.local_norm_forward(x, 5, axes=(2, 3), means=m, alpha=100, beta=0.5, k=1)
    np.testing.assert_allclose(values_of(y), want, rtol=2e-6)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_lcn_keeps_nan_in_its_windows(layout: str, device: str) -> None:
    x = np.random.default_rng(43).normal(0, 1, (2, 8, 11, 16))
    clean = values_of(dnn.lcn_forward(dnn.asarray(x, dtype="float32", layout=layout).to(device=device), 5, **LOCAL))
    x[1, 3, 5, 7] = np.nan
    y = values_of(dnn.lcn_forward(dnn.asarray(x, dtype="float32", layout=layout).to(device=device), 5, **LOCAL))
    around = np.s_[1, 3, 3:8, 5:10]
    assert np.isnan(y[around]).all()
    y[around] = clean[around]
    np.testing.assert_array_equal(y, clean)
