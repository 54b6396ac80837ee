# SPDX-License-Identifier: Apache-2.0
"""Batch norm: samples for the case lines, properties, running values, torch's opinion, special values and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

EPS = 1e-5  # the default eps


def accumulator(dtype: str) -> str:
    """The dtype of sums, parameters and statistics."""
    return "float64" if dtype == "float64" else "float32"


def view_of(parameter: np.ndarray, x: np.ndarray, per_activation: bool) -> np.ndarray:
    return parameter[None] if per_activation else parameter.reshape(1, -1, *(1,) * (x.ndim - 2))


def training_results(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, dtype: str, *, eps: float = EPS, per_activation: bool = False,
    running: Sequence[np.ndarray] | None = None,
) -> list[Result]:  # fmt: skip
    """What training must return, and the new running values if `running` gives the old ones."""
    momentum = 0.1
    old_mean, old_var = running or (None, None)
    y, mean, inv_std, new_mean, new_var = reference.batch_norm_forward_training(
        x, scale, bias, running_mean=old_mean, running_var=old_var, momentum=momentum, eps=eps,
        per_activation=per_activation,
    )  # fmt: skip
    acc = accumulator(dtype)
    unit = reference.EPS[acc]
    view = partial(view_of, x=x, per_activation=per_activation)
    n = x.size // mean.size
    axes = 0 if per_activation else (0, *range(2, x.ndim))
    # The mean is a sum of x - x[first], each no longer than twice the largest deviation, then rounded once.
    spread = 2 * np.abs(x - view(mean)).max(axis=axes)
    mean_tolerance = reference.tolerance(acc, n, spread) + unit * np.abs(mean)
    # Squares are positive: the variance has the relative error of its sum and of a deviation, and of `spread`, wrong by
    # a few units, it has the square. The root halves this.
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
    acc = accumulator(dtype)
    unit = reference.EPS[acc]
    view = partial(view_of, x=x, per_activation=per_activation)
    n = x.size // mean.size
    axes = 0 if per_activation else (0, *range(2, x.ndim))
    x_hat = (x - view(mean)) * view(inv_std)
    # The sums may cancel, so their scale is that of their terms; a term of dscale is a difference and two products.
    dbias_tolerance = reference.tolerance(acc, n, np.abs(dy).sum(axis=axes))
    dscale_tolerance = reference.tolerance(acc, n, 2 * np.abs(dy * x_hat).sum(axis=axes))
    # dx is a sum of three terms of a few roundings each, scaled.
    terms = np.abs(dy) + (np.abs(view(dbias)) + np.abs(x_hat * view(dscale))) / n
    sums = (view(dbias_tolerance) + np.abs(x_hat) * view(dscale_tolerance)) / n
    dx_tolerance = np.abs(view(scale * inv_std)) * (sums + 8 * unit * terms) + reference.EPS[dtype] * np.abs(dx)
    return [Result(dx, dx_tolerance), Result(dscale, dscale_tolerance), Result(dbias, dbias_tolerance)]


def parameters(rng: np.random.Generator, shape: Sequence[int], acc: str) -> list[np.ndarray]:
    """scale, bias, a mean and a variance."""
    drawn = [rng.normal(1, 0.5, shape), rng.normal(0, 1, shape), rng.normal(0, 2, shape), rng.uniform(0.5, 4, shape)]
    return [reference.rounded(p, acc) for p in drawn]


def row_sample(case: Case) -> Sample:
    """layer, rms and group norm. x is seen with its channels split into groups, (N, G, C / G, spatial)."""
    rng = generator(case)
    kind, _, direction = case.direction.partition("_")
    acc = accumulator(case.dtype)
    unit = reference.EPS[acc]
    operand = case.operand("x", case.operands["x"].shape)
    shape = operand.shape
    x = reference.rounded(rng.normal(1, 2, shape), case.dtype)
    if kind == "group":
        groups = case.integers("groups", 1)
        view = (shape[0], groups, shape[1] // groups, *shape[2:])
        rows, parameters = (0, 1), (1, groups, shape[1] // groups, *(1,) * (len(shape) - 2))
        of_parameter, of_statistic = (shape[1],), (shape[0], groups)
    else:
        axis = case.integers("axis", -1)
        view, rows = shape, tuple(range(axis))
        parameters = (*(1,) * axis, *shape[axis:])
        of_parameter, of_statistic = shape[axis:], shape[:axis]
    centered = kind != "rms"
    scale = reference.rounded(rng.normal(1, 0.5, of_parameter), acc)
    bias = reference.rounded(rng.normal(0, 1, of_parameter), acc) if centered else np.zeros(of_parameter)
    v = x.reshape(view)
    keywords = {"rows": rows, "parameters": parameters, "centered": centered}
    y, mean, inv_std = reference.row_norm_forward(v, scale, bias, **keywords)
    n = v.size // mean.size
    axes = tuple(i for i in range(v.ndim) if i not in rows)
    extra = {"groups": groups} if kind == "group" else {"axis": axis}

    def on(t: dict[str, dnn.DeviceTensor], *values: np.ndarray) -> list[dnn.DeviceTensor]:
        return [dnn.asarray(v.astype(acc), device=t["x"].device) for v in values]

    if direction == "forward":
        # As training_results: the mean to the rounding of its terms, the deviation to that of its squares.
        spread = 2 * np.abs(v - mean).max(axis=axes, keepdims=True)
        mean_tolerance = (reference.tolerance(acc, n, spread) + unit * np.abs(mean)) * centered
        relative = reference.tolerance(acc, n, 2.0) + 2 * unit
        s, b = np.abs(scale.reshape(parameters)), np.abs(bias.reshape(parameters))
        y_hat = np.abs(y - bias.reshape(parameters))
        y_tolerance = (
            reference.EPS[case.dtype] * np.abs(y)
            + y_hat * (relative + 2 * unit)
            + s * inv_std * (mean_tolerance + unit * np.abs(v - mean))
            + unit * (y_hat + b)
        )

        def forward(t: dict[str, dnn.DeviceTensor], algo: str | None, out: None = None) -> Sequence[dnn.DeviceTensor]:
            if kind == "rms":
                return dnn.rms_norm_forward(t["x"], *on(t, scale), **extra, algo=algo)
            call = dnn.layer_norm_forward if kind == "layer" else dnn.group_norm_forward
            return call(t["x"], scale=on(t, scale)[0], bias=on(t, bias)[0], **extra, algo=algo)

        results = [Result(y.reshape(shape), y_tolerance.reshape(shape))]
        if centered:
            results.append(Result(mean.reshape(of_statistic), mean_tolerance.reshape(of_statistic)))
        results.append(Result(inv_std.reshape(of_statistic), (inv_std * relative).reshape(of_statistic)))
        return Sample({"x": x}, forward, results)

    mean, inv_std = reference.rounded(mean, acc), reference.rounded(inv_std, acc)
    dy = reference.rounded(rng.normal(0, 1, shape), case.dtype)
    d = dy.reshape(view)
    dx, dscale, dbias = reference.row_norm_backward(d, v, scale, mean, inv_std, **keywords)
    x_hat, g = (v - mean) * inv_std, d * scale.reshape(parameters)
    others = tuple(i for i in range(v.ndim) if parameters[i] == 1)
    terms = v.size // scale.size
    dbias_tolerance = reference.tolerance(acc, terms, np.abs(d).sum(axis=others))
    dscale_tolerance = reference.tolerance(acc, terms, 3 * np.abs(d * x_hat).sum(axis=others))
    row = partial(np.mean, axis=axes, keepdims=True)
    sizes = np.abs(g) + row(np.abs(g)) + np.abs(x_hat) * row(np.abs(g * x_hat))
    sums = reference.tolerance(acc, n, 2 * (row(np.abs(g)) + np.abs(x_hat) * row(np.abs(g * x_hat))))
    dx_tolerance = np.abs(inv_std) * (sums + 8 * unit * sizes) + reference.EPS[case.dtype] * np.abs(dx)

    def back(t: dict[str, dnn.DeviceTensor], algo: str | None, out: None = None) -> Sequence[dnn.DeviceTensor]:
        s, m, i = on(t, scale, mean.reshape(of_statistic), inv_std.reshape(of_statistic))
        if kind == "rms":
            return dnn.rms_norm_backward(t["dy"], t["x"], s, i, **extra, algo=algo)
        call = dnn.layer_norm_backward if kind == "layer" else dnn.group_norm_backward
        return call(t["dy"], t["x"], scale=s, mean=m, inv_std=i, **extra, algo=algo)

    results = [Result(dx.reshape(shape), dx_tolerance.reshape(shape))]
    results.append(Result(dscale.reshape(of_parameter), dscale_tolerance.reshape(of_parameter)))
    if centered:
        results.append(Result(dbias.reshape(of_parameter), dbias_tolerance.reshape(of_parameter)))
    return Sample({"x": x, "dy": dy}, back, results)


def local_results(
    x: np.ndarray, dy: np.ndarray | None, means: np.ndarray | None, dtype: str, size: int, **options: Any
) -> list[Result]:
    """What local response and contrast norm must return: y, or dx and, with means, dmeans."""
    m = np.zeros(()) if means is None else means
    y, s = reference.local_norm_forward(x, size, means=m, **options)
    acc, beta = accumulator(dtype), options["beta"]
    unit, n = reference.EPS[acc], size ** len(options["axes"])
    # Squares are positive: s has the relative error of its sum. The power adds that of a logarithm, beta |ln s| units of
    # the result, and a few roundings.
    of_sum = reference.tolerance(acc, n, 1.0) + 2 * unit
    of_power = beta * of_sum + unit * (4 + 2 * beta * np.abs(np.log(s)))
    least = 2.0**-24 if dtype == "float16" else 0  # its subnormal numbers are apart by that
    if dy is None:
        return [Result(y, np.abs(y) * (of_power + reference.EPS[dtype]) + least)]
    dx, dmeans = reference.local_norm_backward(dy, x, size, means=m, **options)
    g = np.abs(dy * x) * s ** (-beta - 1)
    # A term of the sums: its g, a difference, products; then the sum's own rounding.
    weights = g * (of_power + of_sum + 6 * unit + reference.tolerance(acc, n, 1.0))
    of_dx, of_dmeans = reference.local_norm_backward(dy, x, size, means=m, weights=weights, **options)
    of_dx = of_dx + np.abs(dy) * s**-beta * (of_power + 2 * unit) + reference.EPS[dtype] * np.abs(dx) + least
    results = [Result(dx, of_dx)]
    return (
        results
        if means is None
        else [*results, Result(dmeans, of_dmeans + reference.EPS[dtype] * np.abs(dmeans) + least)]
    )


def local_sample(case: Case) -> Sample:
    rng = generator(case)
    kind, _, direction = case.direction.partition("_")
    size = case.integers("size", 1)
    assert isinstance(size, int)

    def draw(name: str, mean: float) -> np.ndarray:
        operand = case.operand(name, case.operands["x"].shape)
        strides = operand.strides or operand.shape
        distinct = tuple(1 if s == 0 else n for n, s in zip(operand.shape, strides, strict=True))
        return np.broadcast_to(reference.rounded(rng.normal(mean, 2, distinct), case.dtype), operand.shape)

    inputs = {"x": draw("x", 0.5)}
    x = inputs["x"]
    if direction == "backward":
        inputs["dy"] = draw("dy", 0)
    if "means" in case.operands or "centered" in case.words:
        inputs["means"] = draw("means", 0.5)
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


def sample(case: Case) -> Sample:
    if case.direction.startswith(("lrn", "lcn")):
        return local_sample(case)
    if "_" in case.direction:
        return row_sample(case)
    rng = generator(case)
    per_activation = "per_activation" in case.words
    acc = accumulator(case.dtype)

    def draw(name: str, mean: float) -> np.ndarray:
        operand = case.operand(name, case.operands["x"].shape)
        strides = operand.strides or operand.shape
        distinct = tuple(1 if s == 0 else n for n, s in zip(operand.shape, strides, strict=True))
        return np.broadcast_to(reference.rounded(rng.normal(mean, 2, distinct), case.dtype), operand.shape)

    x = draw("x", 1)
    scale, bias, mean, var = parameters(rng, x.shape[1:] if per_activation else x.shape[1:2], acc)

    def on(t: dict[str, dnn.DeviceTensor], *values: np.ndarray) -> list[dnn.DeviceTensor]:
        """Cast by NumPy: the first operation that explain() reports must not be a cast."""
        return [dnn.asarray(v.astype(acc), device=t["x"].device) for v in values]

    relu = "relu" in case.words
    activation = "relu" if relu else None
    add = "add" in case.words
    inputs = {"x": x}
    if case.direction != "backward" and (add or "residual" in case.operands):
        inputs["residual"] = draw("residual", 0.5)

    def fused(y: Result) -> Result:
        """The residual's addition rounds once more; relu loses nothing."""
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
        tolerance = reference.tolerance(case.dtype, 36, y_hat + np.abs(view(bias)))  # six roundings, all of one sign

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
    dy = draw("dy", 0)
    # The saved values are inputs here: those of the forward oracle, as the library would store them.
    _, mean, inv_std, _, _ = reference.batch_norm_forward_training(x, scale, bias, per_activation=per_activation)
    mean, inv_std = reference.rounded(mean, acc), reference.rounded(inv_std, acc)

    inputs["dy"] = dy
    if relu:  # a y of any signs tells as much as a true one
        inputs["y"] = np.maximum(draw("y", 0), 0)
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
    # A scale and shift of x changes nothing.
    moved = dnn.batch_norm_forward_training(
        tensor(8 * x - 3, "float64", device), *ones_and_zeros(4, "float64", device), eps=0
    )
    np.testing.assert_allclose(values_of(moved[0]), values, atol=1e-13)


@pytest.mark.parametrize("dtype, mean, std", [("float32", 1e4, 1e-2), ("float32", -3e5, 1.0), ("bfloat16", 1e4, 40.0)])
def test_mean_far_from_zero(dtype: str, mean: float, std: float, device: str) -> None:
    """Two passes lose nothing: the statistics are those of the numbers as stored, to a few units of the dtype, where
    E[x^2] - E[x]^2 would be noise of the size eps mean^2, 1e4 times the variance. y is off by no more than the rounding
    of the mean, which training_results allows for: half a unit of |mean|, the rounding of x itself."""
    x = reference.rounded(np.random.default_rng(2).normal(mean, std, (16, 3, 20, 20)), dtype)
    scale, bias = np.array([1.0, 0.5, 2.0]), np.zeros(3)
    running = [np.zeros(3), np.ones(3)]
    results = training_results(x, scale, bias, dtype, eps=1e-12, running=running)
    s, b, m, v = (tensor(values, "float32", device) for values in (scale, bias, *running))
    got = dnn.batch_norm_forward_training(tensor(x, dtype, device), s, b, running_mean=m, running_var=v, eps=1e-12)
    names = ("y", "mean", "inv_std", "running mean", "running var")
    for value, result, name in zip((*got, m, v), results, names, strict=True):
        assert_close(value, result, name)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["steps", "outlier"])
def test_channels_that_drift(kind: str, layout: str, device: str) -> None:
    """Where what comes first lies far from the mean, the statistics are as good as anywhere."""
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
    """<dx, v> and so on against central differences of the forward call in float64."""
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
    h = 1e-5  # truncation h^2 and cancellation eps / h are both near 1e-10
    for i, gradient in enumerate(gradients):
        v = rng.normal(0, 1, gradient.shape)
        ahead, behind = [x, scale, bias], [x, scale, bias]
        ahead[i], behind[i] = ahead[i] + h * v, behind[i] - h * v
        np.testing.assert_allclose((values_of(gradient) * v).sum(), (loss(*ahead) - loss(*behind)) / (2 * h), rtol=1e-6)


def test_gradient_leaves_mean_and_variance_alone(device: str) -> None:
    """dx has no component along 1 or along x_hat: moving x there does not change y (eps = 0)."""
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
@pytest.mark.parametrize("at", [0, 5])  # the first element of a channel, from which sums start, and another
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
        assert reports[0].problem == "norm training f32 x=4x3x8 running" + " per_activation" * per_activation
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
    values = np.abs(rng.normal(1, 0.3, (3, 4)))  # scale, bias, mean and variance side by side, in columns
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


@pytest.mark.parametrize("shape, per_activation", [((8, 5), False), ((4, 3, 5, 7), False), ((2, 3, 4, 2, 3), False)])
def test_like_torch_over_several_steps(shape: tuple[int, ...], per_activation: bool, device: str) -> None:
    torch = pytest.importorskip("torch")
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


def p(x: dnn.DeviceTensor, n: int = 3, dtype: str = "float32") -> dnn.DeviceTensor:
    return dnn.zeros((n,), dtype=dtype, device=x.device)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: train(x, scale=p(x, 4)), dnn.ShapeError,
         "batch_norm_forward_training: scale must be [3] for the channels of x; got [4]"),
        (lambda x: train(x, per_activation=True), dnn.ShapeError,
         "scale must be [3, 4] for the samples of x, per activation; got [3]"),
        (lambda x: train(x.to(dtype="float16"), bias=p(x, 3, "float16")), dnn.DTypeError,
         "bias must be float32 for x of float16; got float16"),
        (lambda x: train(x.to(dtype="float64")), dnn.DTypeError, "scale must be float64 for x of float64; got float32"),
        (lambda x: train(x.to(dtype="int32")), dnn.DTypeError, "x is int32; this call takes"),
        (lambda x: train(x.reshape((24,))), dnn.ShapeError, "x must have 2 to 5 dimensions; got [24]"),
        (lambda x: train(x.reshape((2, 3, 1, 2, 1, 2))), dnn.ShapeError, "x must have 2 to 5 dimensions"),
        (lambda x: train(x, eps=-1e-5), dnn.ShapeError, "eps must be 0 or a positive number; got -1e-05"),
        (lambda x: train(x, eps=float("nan")), dnn.ShapeError, "eps must be 0 or a positive number; got nan"),
        (lambda x: train(x, momentum=1.5), dnn.ShapeError, "momentum must be in [0, 1]; got 1.5"),
        (lambda x: train(x, momentum=float("nan")), dnn.ShapeError, "momentum must be in [0, 1]; got nan"),
        (lambda x: train(x, running_var=None), dnn.ShapeError,
         "running_mean is given without running_var; give both or neither"),
        (lambda x: train(x, running_mean=None), dnn.ShapeError, "running_var is given without running_mean"),
        (lambda x: train(x, running_mean=p(x, 2)), dnn.ShapeError, "running_mean must be [3]; got [2]"),
        (lambda x: train(x, running_var=p(x, 3, "float64")), dnn.DTypeError,
         "running_var must be float32; got float64"),
        (lambda x: train(x, running_mean=[0.0, 0.0, 0.0]), dnn.DeviceError, "list has no memory to share"),
        (lambda x: train(x, running_mean=p(x, 6).as_strided((3,), (2,))), dnn.ShapeError,
         "running_mean has strides [2]; it is updated in place and must be contiguous"),
        (lambda x: train(x, running_mean=x.as_strided((3,), (1,))), dnn.ShapeError,
         "running_mean shares memory with x"),
        (lambda x: train(x, **dict.fromkeys(("running_mean", "running_var"), p(x))), dnn.ShapeError,
         "running_var shares memory with running_mean"),
        (lambda x: train(x, activation="gelu"), dnn.ShapeError,
         "batch_norm_forward_training: activation must be None or 'relu'; got 'gelu'"),
        (lambda x: train(x, residual=p(x)), dnn.ShapeError, "residual must be [2, 3, 4] like x; got [3]"),
        (lambda x: train(x, residual=x.to(dtype="float16")), dnn.DTypeError, "x is float32, residual is float16"),
        (lambda x: dnn.batch_norm_backward(x, x, *[p(x)] * 3, activation="relu"), dnn.ShapeError,
         "batch_norm_backward: activation 'relu' needs y, the result of the forward call"),
        (lambda x: dnn.batch_norm_backward(x, x, *[p(x)] * 3, y=x), dnn.ShapeError,
         "y is given without an activation, whose gradient it would tell"),
        (lambda x: dnn.batch_norm_backward(x, x, *[p(x)] * 3, y=p(x), activation="relu"), dnn.ShapeError,
         "y must be [2, 3, 4] like x; got [3]"),
        (lambda x: train(x, algo="welford"), dnn.NotSupported, "algo='welford' asks for another engine"),
        (lambda x: dnn.batch_norm_forward_inference(x, *[p(x)] * 3, p(x, 1)), dnn.ShapeError,
         "batch_norm_forward_inference: var must be [3] for the channels of x; got [1]"),
        (lambda x: dnn.batch_norm_forward_inference(x, *[p(x)] * 4, eps=-1), dnn.ShapeError,
         "eps must be 0 or a positive number; got -1"),
        (lambda x: dnn.batch_norm_forward_inference(
            x, *[p(x)] * 4, out=x.as_strided((1, 3, 4), (12, 4, 1))), dnn.ShapeError,
         "out must be [2, 3, 4]; got [1, 3, 4]"),
        (lambda x: dnn.batch_norm_forward_inference(
            x.as_strided((1, 3, 4), (12, 4, 1)), *[p(x)] * 4,
            out=x.as_strided((1, 3, 4), (12, 4, 1), 4)), dnn.ShapeError,
         "out overlaps x without being the same elements"),
        (lambda x: dnn.batch_norm_backward(x.reshape((2, 12)), x, *[p(x)] * 3), dnn.ShapeError,
         "batch_norm_backward: dy must be [2, 3, 4] like x; got [2, 12]"),
        (lambda x: dnn.batch_norm_backward(x.to(dtype="float16"), x, *[p(x)] * 3), dnn.DTypeError,
         "x is float32, dy is float16; cast one"),
        (lambda x: dnn.batch_norm_backward(
            x, x, *[p(x)] * 2, p(x, 3, "float64")), dnn.DTypeError,
         "saved_inv_std must be float32 for x of float32; got float64"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[dnn.DeviceTensor], object], kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3, 4)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)  # nothing lost


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
    running = np.zeros(3, "float32")  # an argument that is only read would follow x to the GPU; this one would be lost
    with pytest.raises(dnn.DeviceError, match="the inputs are on cuda:0, running_mean is on cpu"):
        dnn.batch_norm_forward_training(x, one, one, running_mean=running, running_var=one)


ROW_NORMS: dict[str, Callable[..., Sequence[dnn.DeviceTensor]]] = {
    "layer": lambda x, s, b: dnn.layer_norm_forward(x, s, b),
    "rms": lambda x, s, b: dnn.rms_norm_forward(x, s),
    "group": lambda x, s, b: dnn.group_norm_forward(x, 2, s, b),
    "instance": lambda x, s, b: dnn.instance_norm_forward(x, s, b),
}
ROW_GRADIENTS: dict[str, Callable[..., Sequence[dnn.DeviceTensor]]] = {
    "layer": lambda dy, x, s, saved: dnn.layer_norm_backward(dy, x, s, *saved),
    "rms": lambda dy, x, s, saved: dnn.rms_norm_backward(dy, x, s, *saved),
    "group": lambda dy, x, s, saved: dnn.group_norm_backward(dy, x, 2, s, *saved),
    "instance": lambda dy, x, s, saved: dnn.instance_norm_backward(dy, x, s, *saved),
}


@pytest.mark.parametrize("kind", ROW_NORMS)
def test_row_norm_backward_is_the_derivative(kind: str, device: str) -> None:
    rng = np.random.default_rng(20)
    x, dy = rng.normal(1, 2, (3, 4, 2, 5)), rng.normal(0, 1, (3, 4, 2, 5))
    scale, bias = (
        rng.normal(1, 0.5, (5 if kind in ("layer", "rms") else 4,)),
        rng.normal(0, 1, (5 if kind in ("layer", "rms") else 4,)),
    )

    def loss(*values: np.ndarray) -> float:
        y, *_ = ROW_NORMS[kind](*[tensor(v, "float64", device) for v in values])
        return float((values_of(y) * dy).sum())

    t, s, b = (tensor(v, "float64", device) for v in (x, scale, bias))
    _, *saved = ROW_NORMS[kind](t, s, b)
    gradients = ROW_GRADIENTS[kind](tensor(dy, "float64", device), t, s, saved)
    assert len(gradients) == (2 if kind == "rms" else 3)
    h = 1e-5
    for i, gradient in enumerate(gradients):
        v = rng.normal(0, 1, gradient.shape)
        ahead, behind = [x, scale, bias], [x, scale, bias]
        ahead[i], behind[i] = ahead[i] + h * v, behind[i] - h * v
        np.testing.assert_allclose((values_of(gradient) * v).sum(), (loss(*ahead) - loss(*behind)) / (2 * h), rtol=1e-6)


def test_row_norms_are_each_other(device: str) -> None:
    """One group is layer norm of a sample; a group per channel is instance norm; no parameters are ones and zeros."""
    x = tensor(np.random.default_rng(21).normal(1, 2, (3, 4, 2, 5)), "float64", device)
    ones, zeros = (dnn.full((4,), v, dtype="float64", device=device) for v in (1.0, 0.0))
    layer = dnn.layer_norm_forward(x, axis=1)
    group = dnn.group_norm_forward(x, 1, ones, zeros)
    np.testing.assert_allclose(values_of(group[0]), values_of(layer[0]), atol=1e-14)
    for a, b in zip(dnn.group_norm_forward(x, 4), dnn.instance_norm_forward(x, ones, zeros), strict=True):
        np.testing.assert_array_equal(values_of(a), values_of(b))
    mean_0 = tensor(values_of(x) - values_of(x).mean(axis=-1, keepdims=True), "float64", device)
    np.testing.assert_allclose(
        values_of(dnn.rms_norm_forward(mean_0)[0]), values_of(dnn.layer_norm_forward(mean_0)[0]), atol=1e-14
    )


@pytest.mark.parametrize("mean, std", [(1e4, 1e-2), (-3e5, 1.0)])
def test_layer_norm_far_from_zero(mean: float, std: float, device: str) -> None:
    x = reference.rounded(np.random.default_rng(22).normal(mean, std, (5, 1000)), "float32")
    y, m, inv_std = dnn.layer_norm_forward(tensor(x, "float32", device), eps=1e-12)
    unit = reference.EPS["float32"]
    want_mean, want = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-12)
    assert_close(m, Result(want_mean, 2 * unit * np.abs(want_mean)), "mean")
    assert_close(inv_std, Result(want, want * reference.tolerance("float32", 1000, 2.0)), "inv_std")
    rounding = unit * np.abs(mean) * want.max() + 1e-5
    assert_close(y, Result((x - want_mean[:, None]) * want[:, None], rounding), "y")


@pytest.mark.parametrize("kind", ROW_NORMS)
def test_row_norms_keep_nan_in_its_row(kind: str, device: str) -> None:
    x = np.random.default_rng(23).normal(0, 1, (3, 4, 2, 6))
    n = 6 if kind in ("layer", "rms") else 4
    one, zero = ones_and_zeros(n, "float32", device)
    clean = values_of(ROW_NORMS[kind](tensor(x, "float32", device), one, zero)[0])
    x[1, 1, 1, 3] = np.nan
    y = values_of(ROW_NORMS[kind](tensor(x, "float32", device), one, zero)[0])
    row = {"layer": np.s_[1, 1, 1], "rms": np.s_[1, 1, 1], "group": np.s_[1, :2], "instance": np.s_[1, 1]}[kind]
    assert np.isnan(y[row]).all()
    y[row] = clean[row]
    np.testing.assert_array_equal(y, clean)


def test_row_norms_of_nothing(device: str) -> None:
    empty = dnn.empty((0, 4), device=device)
    y, mean, inv_std = dnn.layer_norm_forward(empty)
    assert (y.shape, mean.shape, inv_std.shape) == ((0, 4), (0,), (0,))
    dx, dscale, dbias = dnn.layer_norm_backward(empty, empty, None, mean, inv_std)
    assert dx.shape == (0, 4)
    np.testing.assert_array_equal(values_of(dscale), np.zeros(4))
    np.testing.assert_array_equal(values_of(dbias), np.zeros(4))


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.layer_norm_forward(x, p(x)), dnn.ShapeError,
         "layer_norm_forward: scale must be [4] for the rows of x; got [3]"),
        (lambda x: dnn.layer_norm_forward(x, axis=3), dnn.ShapeError, "axis must be from -3 to 2 for x [2, 3, 4]; got 3"),
        (lambda x: dnn.layer_norm_forward(x, eps=-1), dnn.ShapeError, "eps must be 0 or a positive number; got -1"),
        (lambda x: dnn.rms_norm_forward(x, p(x, 4, "float16")), dnn.DTypeError,
         "rms_norm_forward: scale must be float32 for x of float32; got float16"),
        (lambda x: dnn.layer_norm_forward(dnn.empty((2, 0), device=x.device)), dnn.ShapeError,
         "a row of x [2, 0] has no elements"),
        (lambda x: dnn.group_norm_forward(x, 2), dnn.ShapeError, "groups must divide the 3 channels of x; got 2"),
        (lambda x: dnn.group_norm_forward(x, 0), dnn.ShapeError, "groups must be 1 or more; got 0"),
        (lambda x: dnn.group_norm_forward(x, 3, p(x), p(x, 1)), dnn.ShapeError,
         "bias must be [3] for the channels of x; got [1]"),
        (lambda x: dnn.layer_norm_backward(x, x, None, p(x), p(x)), dnn.ShapeError,
         "layer_norm_backward: mean must be [2, 3] of the rows of x; got [3]"),
        (lambda x: dnn.layer_norm_backward(x.reshape((3, 2, 4)), x, None, p(x), p(x)), dnn.ShapeError,
         "dy must be [2, 3, 4] like x; got [3, 2, 4]"),
    ],
)  # fmt: skip
def test_row_norm_errors(
    call: Callable[[dnn.DeviceTensor], object], kind: type[Exception], text: str, device: str
) -> None:
    with pytest.raises(kind) as caught:
        call(tensor(np.ones((2, 3, 4)), "float32", device))
    assert text in str(caught.value)


LOCAL = {"alpha": 0.7, "beta": 0.75, "k": 0.5}


@pytest.mark.parametrize("size", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("shape", [(2, 7, 5), (2, 7, 4, 3), (2, 3, 2, 3, 4)])
def test_lrn_is_torchs(shape: tuple[int, ...], size: int, device: str) -> None:
    """Odd sizes. Of an even one torch has the odd channel behind, cuDNN and ONNX ahead: the same with channels reversed."""
    torch = pytest.importorskip("torch")
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
    """k = eps and beta = 1/2, with a window of twice the channels: alpha / size times their squares is their mean."""
    x = tensor(np.random.default_rng(32).normal(0, 2, (4, 6, 1)), "float64", device)
    y = dnn.lrn_forward(x, 12, alpha=2, beta=0.5, k=1e-5)
    want, _ = dnn.rms_norm_forward(x.reshape((4, 6)), axis=1, eps=1e-5)
    np.testing.assert_allclose(values_of(y)[..., 0], values_of(want), rtol=1e-12)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_lrn_keeps_nan_in_its_windows(bad: float, layout: str, device: str) -> None:
    """Of a NaN all its neighbours are NaN; of an infinity they are 0, and itself is NaN."""
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


def test_lrn_forgets_large_neighbours(device: str) -> None:
    """A window's sum is its own: after 1e6 it is not off by what 1e12 left of a 1."""
    x = np.ones((1, 12, 1, 4))
    x[:, 3] = 1e6
    y = dnn.lrn_forward(tensor(x, "float32", device), 3, alpha=3, beta=0.5, k=0)
    np.testing.assert_allclose(values_of(y)[:, 6:11], 1 / np.sqrt(3), rtol=1e-6)


def test_lrn_of_nothing(device: str) -> None:
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
        (lambda x: dnn.lcn_backward(x, x, 5, means=p(x, 3, "float16")), dnn.DTypeError, "means is float16"),
    ],
)  # fmt: skip
def test_local_norm_errors(
    call: Callable[[dnn.DeviceTensor], object], kind: type[Exception], text: str, device: str
) -> None:
    with pytest.raises(kind) as caught:
        call(tensor(np.ones((2, 3, 4)), "float32", device))
    assert text in str(caught.value)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 6, 7), (1, 2, 4, 5, 6)])
def test_lcn_is_torchs_pooling(shape: tuple[int, ...], size: int, centered: bool, device: str) -> None:
    """sum((x_j - m_i)^2) = sum(x_j^2) - 2 m_i sum(x_j) + m_i^2 n_i, each sum an average pooling with its padding."""
    torch = pytest.importorskip("torch")
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
    """The variance about a mean that is far away costs no digits: differences are squared, not subtracted squares."""
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
