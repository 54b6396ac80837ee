# SPDX-License-Identifier: Apache-2.0
"""Batch norm: samples for the case lines, properties, running values, comparison with torch, special values and
errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, drawn, tensor, values_of, zeros

import pyminidnn as dnn

EPS = 1e-5  # the default eps of batch norm


def view_of(parameter: np.ndarray, x: np.ndarray, per_activation: bool) -> np.ndarray:
    return parameter[None] if per_activation else parameter.reshape(1, -1, *(1,) * (x.ndim - 2))


def training_results(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, dtype: str, *, eps: float = EPS, per_activation: bool = False,
    running: Sequence[np.ndarray] | None = None,
) -> list[Result]:  # fmt: skip
    """The expected results of training and, if `running` has the old running values, the new ones."""
    momentum = 0.1
    old_mean, old_var = running or (None, None)
    y, mean, inv_std, new_mean, new_var = reference.batch_norm_forward_training(
        x, scale, bias, running_mean=old_mean, running_var=old_var, momentum=momentum, eps=eps,
        per_activation=per_activation,
    )  # fmt: skip
    acc = reference.accumulator(dtype)
    unit = reference.EPS[acc]
    view = partial(view_of, x=x, per_activation=per_activation)
    n = x.size // mean.size
    axes = 0 if per_activation else (0, *range(2, x.ndim))
    # The mean is computed as the first element plus the mean of the differences x - x[first]. A difference is at most
    # twice the largest deviation. The result is rounded once.
    spread = 2 * np.abs(x - view(mean)).max(axis=axes)
    mean_tolerance = reference.tolerance(acc, n, spread) + unit * np.abs(mean)
    # The variance has the relative error of its sum plus that of a deviation, and the squared error of the mean, which
    # is a few roundings of `spread`, a bound of |x - x[first]|. The square root halves the relative error.
    relative = reference.tolerance(acc, n, 2.0) + 2 * unit
    y_hat = np.abs(y - view(bias))
    y_tolerance = (
        reference.EPS[dtype] * np.abs(y)
        + y_hat * relative
        + np.abs(view(scale * inv_std)) * (view(mean_tolerance) + unit * np.abs(x - view(mean)))
        + unit * (y_hat + np.abs(view(bias)))
    )
    results = [Result(y, y_tolerance), Result(mean, mean_tolerance), Result(inv_std, inv_std * relative)]
    if running is not None:
        results.append(Result(new_mean, momentum * mean_tolerance + 2 * unit * (np.abs(old_mean) + np.abs(mean))))
        results.append(Result(new_var, new_var * 2 * relative))
    return results


def backward_results(
    dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, inv_std: np.ndarray, dtype: str,
    *, per_activation: bool = False,
) -> list[Result]:  # fmt: skip
    dx, dscale, dbias = reference.batch_norm_backward(dy, x, scale, mean, inv_std, per_activation=per_activation)
    acc = reference.accumulator(dtype)
    unit = reference.EPS[acc]
    view = partial(view_of, x=x, per_activation=per_activation)
    n = x.size // mean.size
    axes = 0 if per_activation else (0, *range(2, x.ndim))
    x_hat = (x - view(mean)) * view(inv_std)
    # The error is relative to the sum of the terms' magnitudes, because terms may cancel. A term of dscale has three
    # roundings.
    dbias_tolerance = reference.tolerance(acc, n, np.abs(dy).sum(axis=axes))
    dscale_tolerance = reference.tolerance(acc, n, 2 * np.abs(dy * x_hat).sum(axis=axes))
    # dx is a scaled sum of three terms. Each term is rounded a few times.
    terms = np.abs(dy) + (np.abs(view(dbias)) + np.abs(x_hat * view(dscale))) / n
    sums = (view(dbias_tolerance) + np.abs(x_hat) * view(dscale_tolerance)) / n
    dx_tolerance = np.abs(view(scale * inv_std)) * (sums + 8 * unit * terms) + reference.EPS[dtype] * np.abs(dx)
    return [Result(dx, dx_tolerance), Result(dscale, dscale_tolerance), Result(dbias, dbias_tolerance)]


def parameters(rng: np.random.Generator, shape: Sequence[int], acc: str) -> list[np.ndarray]:
    """scale, bias, mean and variance."""
    values = [rng.normal(1, 0.5, shape), rng.normal(0, 1, shape), rng.normal(0, 2, shape), rng.uniform(0.5, 4, shape)]
    return [reference.rounded(p, acc) for p in values]


def sample(case: Case) -> Sample:
    rng = generator(case)
    per_activation = "per_activation" in case.words
    acc = reference.accumulator(case.dtype)

    x = drawn(case, rng, "x", 1)
    scale, bias, mean, var = parameters(rng, x.shape[1:] if per_activation else x.shape[1:2], acc)

    def on(t: dict[str, dnn.DeviceTensor], *values: np.ndarray) -> list[dnn.DeviceTensor]:
        """Cast by NumPy, because the first operation that explain() reports must not be a cast."""
        return [dnn.asarray(v.astype(acc), device=t["x"].device) for v in values]

    relu = "relu" in case.words
    activation = "relu" if relu else None
    add = "add" in case.words
    inputs = {"x": x}
    if case.direction != "backward" and (add or "residual" in case.operands):
        inputs["residual"] = drawn(case, rng, "residual", 0.5)

    def fused(y: Result) -> Result:
        """Adding the residual rounds once more; relu does not round."""
        residual = inputs.get("residual", np.zeros(()))
        want = y.want + residual
        rounding = reference.EPS[acc] * (np.abs(y.want) + np.abs(residual)) + reference.EPS[case.dtype] * np.abs(
            residual
        )
        return Result(np.maximum(want, 0) if relu else want, y.tolerance + (rounding if "residual" in inputs else 0))

    if case.direction == "training":
        running = [mean, var] if "running" in case.words else None

        def train(t: dict[str, dnn.DeviceTensor], algo: str | None, out: None = None) -> Sequence[dnn.DeviceTensor]:
            moving = on(t, *running) if running else [None, None]
            outputs = dnn.batch_norm_forward_training(
                t["x"], *on(t, scale, bias), running_mean=moving[0], running_var=moving[1],
                per_activation=per_activation, activation=activation, residual=t.get("residual"), algo=algo,
            )  # fmt: skip
            return [*outputs, *moving] if running else outputs

        results = training_results(x, scale, bias, case.dtype, per_activation=per_activation, running=running)
        return Sample(inputs, train, [fused(results[0]), *results[1:]])
    if case.direction == "inference":
        want = reference.batch_norm_forward_inference(x, scale, bias, mean, var, per_activation=per_activation)
        view = partial(view_of, x=x, per_activation=per_activation)
        y_hat = np.abs(view(scale / np.sqrt(var + EPS))) * (np.abs(x) + np.abs(view(mean)))
        # An upper bound for six roundings whose errors all have the same sign.
        tolerance = reference.tolerance(case.dtype, 36, y_hat + np.abs(view(bias)))

        def infer(
            t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
        ) -> Sequence[dnn.DeviceTensor]:
            given = on(t, scale, bias, mean, var)
            return [
                dnn.batch_norm_forward_inference(
                    t["x"], *given, per_activation=per_activation, activation=activation, residual=t.get("residual"),
                    algo=algo, out=out,
                )
            ]  # fmt: skip

        return Sample(inputs, infer, [fused(Result(want, tolerance))])
    dy = drawn(case, rng, "dy", 0)
    # In the backward pass, the saved mean and inverse deviation are inputs. The test takes them from the forward
    # oracle, and rounds them to the dtype in which the library stores them.
    _, mean, inv_std, _, _ = reference.batch_norm_forward_training(x, scale, bias, per_activation=per_activation)
    mean, inv_std = reference.rounded(mean, acc), reference.rounded(inv_std, acc)

    inputs["dy"] = dy
    if relu:  # backward reads only the sign of y, so y may have any values
        inputs["y"] = np.maximum(drawn(case, rng, "y", 0), 0)
        dy = np.where(inputs["y"] > 0, dy, 0)

    def back(t: dict[str, dnn.DeviceTensor], algo: str | None, out: None = None) -> Sequence[dnn.DeviceTensor]:
        given = on(t, scale, mean, inv_std)
        return dnn.batch_norm_backward(
            t["dy"], t["x"], *given, per_activation=per_activation, y=t.get("y"), activation=activation, dresidual=add,
            algo=algo,
        )  # fmt: skip

    results = backward_results(dy, x, scale, mean, inv_std, case.dtype, per_activation=per_activation)
    return Sample(inputs, back, results + [Result(dy, 0)] * add)


def ones_and_zeros(c: int, dtype: str, device: str) -> list[dnn.DeviceTensor]:
    return [dnn.full((c,), v, dtype=dtype, device=device) for v in (1.0, 0.0)]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_mean_0_and_variance_1(layout: str, device: str) -> None:
    x = np.random.default_rng(1).normal(5, 3, (6, 4, 5, 7))
    t = dnn.asarray(x, layout=layout).to(device=device)
    y, mean, inv_std = dnn.batch_norm_forward_training(t, *ones_and_zeros(4, "float64", device), eps=0)
    assert (y.layout, mean.shape, inv_std.shape) == (layout, (4,), (4,))
    values = values_of(y)
    np.testing.assert_allclose(values.mean(axis=(0, 2, 3)), 0, atol=1e-14)
    np.testing.assert_allclose(values.std(axis=(0, 2, 3)), 1, rtol=1e-14)
    # The results of batch norm must not change if x is scaled and shifted.
    moved = dnn.batch_norm_forward_training(
        tensor(8 * x - 3, "float64", device), *ones_and_zeros(4, "float64", device), eps=0
    )
    np.testing.assert_allclose(values_of(moved[0]), values, atol=1e-13)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype, mean, std", [("float32", 1e4, 1e-2), ("float32", -3e5, 1.0), ("bfloat16", 1e4, 40.0)])
def test_mean_far_from_zero(dtype: str, mean: float, std: float, layout: str, device: str) -> None:
    """The statistics of two passes are those of the stored numbers, to a few units of the dtype. E[x^2] - E[x]^2 would
    have an error of eps mean^2, which is 1e4 times the variance. The error of y is at most the rounding of the mean,
    which training_results includes: half a unit of |mean|, like the rounding of x itself."""
    x = reference.rounded(np.random.default_rng(2).normal(mean, std, (16, 3, 20, 20)), dtype)
    scale, bias = np.array([1.0, 0.5, 2.0]), np.zeros(3)
    running = [np.zeros(3), np.ones(3)]
    results = training_results(x, scale, bias, dtype, eps=1e-12, running=running)
    s, b = (tensor(values, "float32", device) for values in (scale, bias))
    t = dnn.asarray(x, dtype=dtype, layout=layout).to(device=device)
    (report,) = dnn.explain(dnn.batch_norm_forward_training, t, s, b)
    for engine in (e.name for e in report.engines if not e.why_not):
        m, v = (tensor(values, "float32", device) for values in running)
        got = dnn.batch_norm_forward_training(t, s, b, running_mean=m, running_var=v, eps=1e-12, algo=engine)
        names = ("y", "mean", "inv_std", "running mean", "running var")
        for value, result, name in zip((*got, m, v), results, names, strict=True):
            assert_close(value, result, f"{engine} {name}")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_channels_with_unrepresentative_first_elements(layout: str, device: str) -> None:
    """Zeros where an engine may take its first sample (at the start of a plane, or every 64th pixel), and numbers near
    1e4 elsewhere. inv_std has an error of a few units of float32."""
    x = np.random.default_rng(11).normal(1e4, 1, (1, 2, 256, 256) if layout == "NCHW" else (16, 64, 16, 16))
    x[(0, slice(None), slice(4)) if layout == "NCHW" else (slice(None), slice(None), slice(None, None, 4), 0)] = 0
    x = reference.rounded(x, "float32")
    ones = dnn.full((x.shape[1],), 1, device=device)
    t = dnn.asarray(x, dtype="float32", layout=layout).to(device=device)
    want = 1 / np.sqrt(x.var(axis=(0, 2, 3)) + 1e-5)
    for engine in dnn.explain(dnn.batch_norm_forward_training, t, ones, ones)[0].engines:
        if not engine.why_not:
            _, _, inv_std = dnn.batch_norm_forward_training(t, ones, ones, algo=engine.name)
            few = 4 * reference.EPS["float32"]
            np.testing.assert_allclose(values_of(inv_std), want, rtol=few, err_msg=engine.name)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["steps", "outlier"])
def test_channels_that_drift(kind: str, layout: str, device: str) -> None:
    """The first elements are far from the mean; the statistics are as accurate as for other data."""
    x = np.random.default_rng(10).normal(0, 1e-2, (8, 3, 60, 50))
    if kind == "steps":
        x += np.repeat(np.repeat([0.0, 100.0, -7.0, 1000.0], 30), 100).reshape(4, 60, 50)[[0, 1, 2, 3] * 2][:, None]
    else:
        x[0, :, 0, 0] = 1e4
    x = reference.rounded(x, "float32")
    scale, bias = np.array([1.0, 0.5, 2.0]), np.zeros(3)
    s, b = (tensor(values, "float32", device) for values in (scale, bias))
    t = dnn.asarray(x, dtype="float32", layout=layout).to(device=device)
    got = dnn.batch_norm_forward_training(t, s, b)
    for value, result, name in zip(
        got, training_results(x, scale, bias, "float32"), ("y", "mean", "inv_std"), strict=True
    ):
        assert_close(value, result, name)


THREADS = """
import sys, zlib, numpy as np, pyminidnn as dnn
rng = np.random.default_rng(0)
for shape, layout in [((2, 3, 300, 301), "NCHW"), ((2, 5, 300, 301), "NHWC"), ((3, 70, 9, 9), "NCHW"), ((40, 3000), "NC")]:
    x = dnn.asarray(rng.normal(1, 2, shape).astype("float32"), **({"layout": layout} if len(shape) > 2 else {}))
    p = [dnn.asarray(rng.normal(1, 0.5, shape[1]).astype("float32")) for _ in range(2)]
    y, mean, inv_std = dnn.batch_norm_forward_training(x, *p)
    outputs = [y, mean, inv_std, *dnn.batch_norm_backward(x, y, p[0], mean, inv_std)]
    print([zlib.crc32(t.numpy().tobytes()) for t in outputs])
"""


def test_results_do_not_depend_on_threads() -> None:
    def run(threads: int) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        return subprocess.run(
            [sys.executable, "-c", THREADS], env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert run(1) == run(2) == run(5)


@pytest.mark.parametrize("per_activation", [False, True])
def test_backward_is_the_derivative(per_activation: bool, device: str) -> None:
    """<dx, v> and the like against central differences of the forward call, in float64."""
    rng = np.random.default_rng(3)
    x, dy = rng.normal(1, 2, (5, 3, 2, 4)), rng.normal(0, 1, (5, 3, 2, 4))
    shape = x.shape[1:] if per_activation else (3,)
    scale, bias = rng.normal(1, 0.5, shape), rng.normal(0, 1, shape)

    def loss(*values: np.ndarray) -> float:
        tensors = [tensor(v, "float64", device) for v in values]
        y, *_ = dnn.batch_norm_forward_training(*tensors, per_activation=per_activation)
        return float((values_of(y) * dy).sum())

    tensors = [tensor(v, "float64", device) for v in (x, scale, bias)]
    _, mean, inv_std = dnn.batch_norm_forward_training(*tensors, per_activation=per_activation)
    gradients = dnn.batch_norm_backward(
        tensor(dy, "float64", device), *tensors[:2], mean, inv_std, per_activation=per_activation
    )
    # h is the step of the central differences. With it, the truncation error h^2 and the cancellation error eps / h are
    # both about 1e-10.
    h = 1e-5
    for i, gradient in enumerate(gradients):
        v = rng.normal(0, 1, gradient.shape)
        ahead, behind = [x, scale, bias], [x, scale, bias]
        ahead[i], behind[i] = ahead[i] + h * v, behind[i] - h * v
        np.testing.assert_allclose((values_of(gradient) * v).sum(), (loss(*ahead) - loss(*behind)) / (2 * h), rtol=1e-6)


def test_gradient_is_orthogonal_to_shifts_and_scales(device: str) -> None:
    """dx has no component along 1 or along x_hat: changing x in these directions does not change y (eps = 0)."""
    rng = np.random.default_rng(4)
    x, dy = (tensor(rng.normal(0, 1, (4, 3, 9)), "float64", device) for _ in range(2))
    one, zero = ones_and_zeros(3, "float64", device)
    y, mean, inv_std = dnn.batch_norm_forward_training(x, one, zero, eps=0)
    dx = values_of(dnn.batch_norm_backward(dy, x, one, mean, inv_std)[0])
    np.testing.assert_allclose(dx.sum(axis=(0, 2)), 0, atol=1e-13)
    np.testing.assert_allclose((dx * values_of(y)).sum(axis=(0, 2)), 0, atol=1e-13)


def test_inference_repeats_training(device: str) -> None:
    rng = np.random.default_rng(5)
    t = tensor(rng.normal(2, 3, (4, 3, 5)), "float64", device)
    scale, bias = (tensor(rng.normal(0, 1, 3), "float64", device) for _ in range(2))
    y, mean, inv_std = dnn.batch_norm_forward_training(t, scale, bias)
    var = tensor(1 / values_of(inv_std) ** 2 - EPS, "float64", device)
    again = dnn.batch_norm_forward_inference(t, scale, bias, mean, var)
    np.testing.assert_allclose(values_of(again), values_of(y), rtol=1e-12, atol=1e-13)


def test_rank_2_is_per_activation(device: str) -> None:
    x = tensor(np.random.default_rng(6).normal(0, 1, (9, 5)), "float32", device)
    one, zero = ones_and_zeros(5, "float32", device)
    spatial = dnn.batch_norm_forward_training(x, one, zero)
    activation = dnn.batch_norm_forward_training(x, one, zero, per_activation=True)
    for a, b in zip(spatial, activation, strict=True):
        np.testing.assert_array_equal(values_of(a), values_of(b))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
# Index 0 is the first element of a channel, where sums start. Index 5 is any other element of a channel.
@pytest.mark.parametrize("at", [0, 5])
def test_nan_and_infinity_stay_in_their_channel(bad: float, at: int, device: str) -> None:
    rng = np.random.default_rng(7)
    x, dy = rng.normal(0, 1, (2, 3, 4)), rng.normal(0, 1, (2, 3, 4))
    one, zero = ones_and_zeros(3, "float32", device)
    t, g = (tensor(values, "float32", device) for values in (x, dy))
    clean = dnn.batch_norm_forward_training(t, one, zero)
    clean_gradients = dnn.batch_norm_backward(g, t, one, *clean[1:])
    x[at % 2, 1, at // 2] = bad
    t = tensor(x, "float32", device)
    y, mean, inv_std = dnn.batch_norm_forward_training(t, one, zero)
    gradients = dnn.batch_norm_backward(g, t, one, mean, inv_std)
    assert not np.isfinite(values_of(mean)[1])
    assert np.isnan(values_of(inv_std)[1])
    assert np.isnan(values_of(y)[:, 1]).all()
    assert np.isnan(values_of(gradients[0])[:, 1]).all()
    for got, want in zip((y, *gradients[:1]), (clean[0], *clean_gradients[:1]), strict=True):
        np.testing.assert_array_equal(values_of(got)[:, [0, 2]], values_of(want)[:, [0, 2]])
    for got, want in zip((mean, inv_std, *gradients[1:]), (*clean[1:], *clean_gradients[1:]), strict=True):
        np.testing.assert_array_equal(values_of(got)[[0, 2]], values_of(want)[[0, 2]])


def test_eps_0_and_a_constant_channel(device: str) -> None:
    x = tensor(np.full((3, 1, 2), 7.0), "float32", device)
    one, zero = ones_and_zeros(1, "float32", device)
    y, mean, inv_std = dnn.batch_norm_forward_training(x, one, zero, eps=0)
    assert np.isnan(values_of(y)).all()
    assert values_of(mean)[0] == 7
    assert values_of(inv_std)[0] == np.inf
    np.testing.assert_array_equal(values_of(dnn.batch_norm_forward_training(x, one, zero)[0]), 0)


@pytest.mark.parametrize("shape", [(0, 3, 4), (5, 3, 0)])
def test_empty_batch(shape: tuple[int, ...], device: str) -> None:
    x = dnn.empty(shape, device=device)
    one, zero = ones_and_zeros(3, "float32", device)
    running_mean, running_var = dnn.full((3,), 2.0, device=device), dnn.full((3,), 3.0, device=device)
    y, mean, inv_std = dnn.batch_norm_forward_training(x, one, zero, running_mean=running_mean, running_var=running_var)
    assert y.shape == shape
    assert np.isnan(values_of(mean)).all()
    assert np.isnan(values_of(inv_std)).all()
    np.testing.assert_array_equal(values_of(running_mean), 2)
    np.testing.assert_array_equal(values_of(running_var), 3)
    assert dnn.batch_norm_forward_inference(x, one, zero, zero, one).shape == shape
    dx, dscale, dbias = dnn.batch_norm_backward(x, x, one, zero, one)
    assert dx.shape == shape
    np.testing.assert_array_equal(values_of(dscale), 0)
    np.testing.assert_array_equal(values_of(dbias), 0)


@pytest.mark.parametrize("per_activation", [False, True])
def test_no_channels(per_activation: bool, device: str) -> None:
    x = dnn.empty((2, 0, 4), device=device)
    p = dnn.empty((0, 4) if per_activation else (0,), device=device)
    y, mean, inv_std = dnn.batch_norm_forward_training(x, p, p, per_activation=per_activation)
    assert (y.shape, mean.shape, inv_std.shape) == (x.shape, p.shape, p.shape)
    assert dnn.batch_norm_forward_inference(x, p, p, p, p, per_activation=per_activation).shape == x.shape
    dx, dscale, dbias = dnn.batch_norm_backward(x, x, p, p, p, per_activation=per_activation)
    assert (dx.shape, dscale.shape, dbias.shape) == (x.shape, p.shape, p.shape)


def test_numpy_running_values_are_updated_in_place() -> None:
    x = np.random.default_rng(8).normal(3, 2, (4, 2, 5)).astype("float32")
    scale, bias, mean, var = (np.full(2, v, "float32") for v in (1, 0, 0, 1))
    dnn.batch_norm_forward_training(x, scale, bias, running_mean=mean, running_var=var, momentum=0.25)
    np.testing.assert_allclose(mean, 0.25 * x.mean(axis=(0, 2)), rtol=1e-6)
    np.testing.assert_allclose(var, 0.75 + 0.25 * x.var(axis=(0, 2), ddof=1), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2])
def test_unbiased_variance_of_few(n: int, device: str) -> None:
    x = tensor(np.arange(n * 3).reshape(n, 3) ** 2.0, "float64", device)
    one, zero = ones_and_zeros(3, "float64", device)
    running_mean, running_var = ones_and_zeros(3, "float64", device)
    dnn.batch_norm_forward_training(x, one, zero, running_mean=running_mean, running_var=running_var, momentum=1)
    values = values_of(x)
    np.testing.assert_allclose(values_of(running_mean), values.mean(axis=0))
    np.testing.assert_allclose(values_of(running_var), values.var(axis=0, ddof=min(n - 1, 1)))


@pytest.mark.parametrize("per_activation", [False, True])
def test_explain_and_find_write_nothing(per_activation: bool, device: str) -> None:
    x = tensor(np.random.default_rng(9).normal(0, 1, (4, 3, 8)), "float32", device)
    p = [dnn.full((3, 8) if per_activation else (3,), v, device=device) for v in (1.0, 0.0, 5.0, 6.0)]
    for look in (dnn.explain, dnn.find):
        running = {"running_mean": p[2], "running_var": p[3]}
        reports = look(dnn.batch_norm_forward_training, x, *p[:2], **running, per_activation=per_activation)
        assert reports[0].problem == "batch_norm training f32 x=4x3x8 running" + " per_activation" * per_activation
        np.testing.assert_array_equal(values_of(p[2]), 5)
        np.testing.assert_array_equal(values_of(p[3]), 6)
    out = dnn.full(x.shape, 9.0, device=device)
    dnn.find(dnn.batch_norm_forward_inference, x, *p, out=out, per_activation=per_activation)
    np.testing.assert_array_equal(values_of(out), 9)


def test_in_place_inference(device: str) -> None:
    x = tensor(np.random.default_rng(10).normal(0, 1, (4, 3, 6)), "float32", device)
    p = [dnn.full((3,), v, device=device) for v in (2.0, 1.0, 0.5, 3.0)]
    y = dnn.batch_norm_forward_inference(x, *p)
    again = dnn.batch_norm_forward_inference(x, *p, out=x)
    assert again.data_ptr == x.data_ptr
    np.testing.assert_array_equal(values_of(x), values_of(y))


def test_parameters_of_any_strides(device: str) -> None:
    rng = np.random.default_rng(11)
    x, dy = (tensor(rng.normal(0, 1, (4, 3, 6)), "float32", device) for _ in range(2))
    # The columns of this array are scale, bias, mean and variance. Each is a strided tensor.
    values = np.abs(rng.normal(1, 0.3, (3, 4)))
    columns = tensor(values, "float32", device)
    strided = [columns.as_strided((3,), (4,), i) for i in range(4)]
    dense = [tensor(values[:, i], "float32", device) for i in range(4)]
    calls: list[Callable[..., Sequence[dnn.DeviceTensor]]] = [
        lambda p: dnn.batch_norm_forward_training(x, *p[:2]),
        lambda p: [dnn.batch_norm_forward_inference(x, *p)],
        lambda p: dnn.batch_norm_backward(dy, x, p[0], p[2], p[3]),
    ]
    for call in calls:
        for got, want in zip(call(strided), call(dense), strict=True):
            np.testing.assert_array_equal(values_of(got), values_of(want))


@pytest.mark.torch
@pytest.mark.parametrize("shape, per_activation", [((8, 5), False), ((4, 3, 5, 7), False), ((2, 3, 4, 2, 3), False)])
def test_like_torch_over_several_steps(shape: tuple[int, ...], per_activation: bool, device: str) -> None:
    import torch

    rng = np.random.default_rng(12)
    c = shape[1]
    modules = {2: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
    theirs = modules[len(shape)](c, eps=1e-3, momentum=0.3).double()
    scale, bias = rng.normal(1, 0.5, c), rng.normal(0, 1, c)
    theirs.weight.data[:], theirs.bias.data[:] = torch.from_numpy(scale), torch.from_numpy(bias)
    s, b = tensor(scale, "float64", device), tensor(bias, "float64", device)
    running_var, running_mean = ones_and_zeros(c, "float64", device)
    keywords = {"running_mean": running_mean, "running_var": running_var, "momentum": 0.3, "eps": 1e-3}
    for step in range(4):
        x, dy = rng.normal(step, 2, shape), rng.normal(0, 1, shape)
        xt = torch.from_numpy(x).requires_grad_()
        theirs.zero_grad()
        yt = theirs(xt)
        yt.backward(torch.from_numpy(dy))
        ours, g = (tensor(values, "float64", device) for values in (x, dy))
        y, mean, inv_std = dnn.batch_norm_forward_training(ours, s, b, **keywords)
        gradients = dnn.batch_norm_backward(g, ours, s, mean, inv_std)
        wanted = (yt.detach(), theirs.running_mean, theirs.running_var, xt.grad, theirs.weight.grad, theirs.bias.grad)
        for got, want in zip((y, running_mean, running_var, *gradients), wanted, strict=True):
            np.testing.assert_allclose(values_of(got), want.numpy(), rtol=1e-11, atol=1e-12)
    theirs.eval()
    x = rng.normal(0, 2, shape)
    y = dnn.batch_norm_forward_inference(tensor(x, "float64", device), s, b, running_mean, running_var, eps=1e-3)
    np.testing.assert_allclose(values_of(y), theirs(torch.from_numpy(x)).detach().numpy(), rtol=1e-11, atol=1e-12)


def read_only(values: np.ndarray) -> np.ndarray:
    values.setflags(write=False)
    return values


def train(x: dnn.DeviceTensor, **keywords: object) -> object:
    p = [dnn.full((3,), v, device=x.device) for v in (1.0, 0.0, 2.0, 3.0)]
    defaults = {"scale": p[0], "bias": p[1], "running_mean": p[2], "running_var": p[3]} | keywords
    return dnn.batch_norm_forward_training(x, **defaults)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: train(x, scale=zeros(x, 4)), dnn.ShapeError,
         "batch_norm_forward_training: scale must be [3] for the channels of x; got [4]"),
        (lambda x: train(x, per_activation=True), dnn.ShapeError,
         "scale must be [3, 4] for the samples of x, per activation; got [3]"),
        (lambda x: train(x.to(dtype="float16"), bias=zeros(x, 3, "float16")), dnn.DTypeError,
         "bias must be float32 for x of float16; got float16"),
        (lambda x: train(x.to(dtype="float64")), dnn.DTypeError, "scale must be float64 for x of float64; got float32"),
        (lambda x: train(x.to(dtype="int32")), dnn.DTypeError, "x is int32; supported are"),
        (lambda x: train(x.reshape((24,))), dnn.ShapeError, "x must have 2 to 5 dimensions; got [24]"),
        (lambda x: train(x.reshape((2, 3, 1, 2, 1, 2))), dnn.ShapeError, "x must have 2 to 5 dimensions"),
        (lambda x: train(x, eps=-1e-5), dnn.ShapeError, "eps must be 0 or a positive number; got -1e-05"),
        (lambda x: train(x, eps=float("nan")), dnn.ShapeError, "eps must be 0 or a positive number; got nan"),
        (lambda x: train(x, momentum=1.5), dnn.ShapeError, "momentum must be in [0, 1]; got 1.5"),
        (lambda x: train(x, momentum=float("nan")), dnn.ShapeError, "momentum must be in [0, 1]; got nan"),
        (lambda x: train(x, running_var=None), dnn.ShapeError,
         "running_mean is given without running_var; pass both or neither"),
        (lambda x: train(x, running_mean=None), dnn.ShapeError, "running_var is given without running_mean"),
        (lambda x: train(x, running_mean=zeros(x, 2)), dnn.ShapeError, "running_mean must be [3]; got [2]"),
        (lambda x: train(x, running_var=zeros(x, 3, "float64")), dnn.DTypeError,
         "running_var must be float32; got float64"),
        (lambda x: train(x, running_mean=[0.0, 0.0, 0.0]), dnn.DeviceError, "running_mean must have memory that a tensor can share without a copy; got "),
        (lambda x: train(x, running_mean=zeros(x, 6).as_strided((3,), (2,))), dnn.ShapeError,
         "running_mean has strides [2]; it is updated in place and must be contiguous"),
        (lambda x: train(x, running_mean=x.as_strided((3,), (1,))), dnn.ShapeError,
         "running_mean shares memory with x"),
        (lambda x: train(x, **dict.fromkeys(("running_mean", "running_var"), zeros(x))), dnn.ShapeError,
         "running_var shares memory with running_mean"),
        (lambda x: train(x, activation="gelu"), dnn.ShapeError,
         "batch_norm_forward_training: activation must be None or 'relu'; got 'gelu'"),
        (lambda x: train(x, residual=zeros(x)), dnn.ShapeError, "residual must be [2, 3, 4] like x; got [3]"),
        (lambda x: train(x, residual=x.to(dtype="float16")), dnn.DTypeError, "x is float32, residual is float16"),
        (lambda x: dnn.batch_norm_backward(x, x, *[zeros(x)] * 3, activation="relu"), dnn.ShapeError,
         "batch_norm_backward: activation 'relu' needs y, the result of the forward call"),
        (lambda x: dnn.batch_norm_backward(x, x, *[zeros(x)] * 3, y=x), dnn.ShapeError,
         "y needs activation='relu'; got None"),
        (lambda x: dnn.batch_norm_backward(x, x, *[zeros(x)] * 3, y=zeros(x), activation="relu"), dnn.ShapeError,
         "y must be [2, 3, 4] like x; got [3]"),
        (lambda x: train(x, algo="welford"), dnn.NotSupported, "algo='welford' names no engine for "),
        (lambda x: dnn.batch_norm_forward_inference(x, *[zeros(x)] * 3, zeros(x, 1)), dnn.ShapeError,
         "batch_norm_forward_inference: var must be [3] for the channels of x; got [1]"),
        (lambda x: dnn.batch_norm_forward_inference(x, *[zeros(x)] * 4, eps=-1), dnn.ShapeError,
         "eps must be 0 or a positive number; got -1"),
        (lambda x: dnn.batch_norm_forward_inference(
            x, *[zeros(x)] * 4, out=x.as_strided((1, 3, 4), (12, 4, 1))), dnn.ShapeError,
         "out must be [2, 3, 4]; got [1, 3, 4]"),
        (lambda x: dnn.batch_norm_forward_inference(
            x.as_strided((1, 3, 4), (12, 4, 1)), *[zeros(x)] * 4,
            out=x.as_strided((1, 3, 4), (12, 4, 1), 4)), dnn.ShapeError,
         "out overlaps x without being the same elements"),
        (lambda x: dnn.batch_norm_backward(x.reshape((2, 12)), x, *[zeros(x)] * 3), dnn.ShapeError,
         "batch_norm_backward: dy must be [2, 3, 4] like x; got [2, 12]"),
        (lambda x: dnn.batch_norm_backward(x.to(dtype="float16"), x, *[zeros(x)] * 3), dnn.DTypeError,
         "x is float32, dy is float16; cast one"),
        (lambda x: dnn.batch_norm_backward(
            x, x, *[zeros(x)] * 2, zeros(x, 3, "float64")), dnn.DTypeError,
         "saved_inv_std must be float32 for x of float32; got float64"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[dnn.DeviceTensor], object], kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3, 4)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)  # the failed call has not changed x


def test_read_only_running_values_are_refused() -> None:
    x, scale, bias, var = np.ones((2, 3), "float32"), *(np.ones(3, "float32") for _ in range(3))
    mean = read_only(np.zeros(3, "float32"))
    with pytest.raises(dnn.ShapeError, match="running_mean is read-only; pass a writable tensor"):
        dnn.batch_norm_forward_training(x, scale, bias, running_mean=mean, running_var=var)
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_array_equal(var, 1)


@pytest.mark.gpu
def test_devices_must_agree() -> None:
    x, one = dnn.zeros((2, 3), device="cuda:0"), dnn.full((3,), 1.0, device="cuda:0")
    with pytest.raises(dnn.DeviceError, match="x is on cuda:0, bias is on cpu"):
        dnn.batch_norm_forward_training(x, one, dnn.zeros((3,)))
    # The array is in host memory. An input would be copied to the GPU, but this call also writes running_mean.
    running = np.zeros(3, "float32")
    with pytest.raises(dnn.DeviceError, match="the inputs are on cuda:0, running_mean is on cpu"):
        dnn.batch_norm_forward_training(x, one, one, running_mean=running, running_var=one)
