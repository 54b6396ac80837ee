# SPDX-License-Identifier: Apache-2.0
"""Layer, RMS, group and instance norm: samples for the case lines, properties, special values and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, tensor, values_of, zeros

import pyminidnn as dnn


def sample(case: Case) -> Sample:
    """layer, rms and group norm. x is viewed with its channels split into groups: (N, G, C / G, spatial)."""
    rng = generator(case)
    kind, _, direction = case.direction.partition("_")
    acc = reference.accumulator(case.dtype)
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
        # The tolerance is computed as in training_results() of test_batch_norm.py. The mean has the rounding error of
        # its terms, and the deviation has the rounding error of its squares.
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


ROW_NORMS: dict[str, Callable[..., Sequence[dnn.DeviceTensor]]] = {
    "layer": lambda x, s, b, **options: dnn.layer_norm_forward(x, s, b, **options),
    "rms": lambda x, s, b, **options: dnn.rms_norm_forward(x, s, **options),
    "group": lambda x, s, b, **options: dnn.group_norm_forward(x, 2, s, b, **options),
    "instance": lambda x, s, b, **options: dnn.instance_norm_forward(x, s, b, **options),
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


def test_row_norms_agree_with_each_other(device: str) -> None:
    """One group is layer norm of a sample, and one group per channel is instance norm. Absent parameters are ones and
    zeros."""
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


# For each norm, a view of x as a matrix. The elements of a row of this matrix share a mean and a variance.
AS_ROWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "layer": lambda x: x.reshape(-1, x.shape[-1]),
    "rms": lambda x: x.reshape(-1, x.shape[-1]),
    "group": lambda x: x.reshape(2 * x.shape[0], -1),
    "instance": lambda x: x.reshape(x.shape[0] * x.shape[1], -1),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ROW_NORMS)
@pytest.mark.parametrize("start", ["like the rest", "misleading"])
@pytest.mark.parametrize("mean, std", [(1e4, 1e-2), (-3e5, 1.0)])
def test_row_norms_far_from_zero(mean: float, std: float, start: str, kind: str, layout: str, device: str) -> None:
    """The statistics are those of the stored numbers, to a few units of float32, on every engine. This also holds if
    the first elements of a row are far from its mean."""
    shape = (2, 6, 9, 1000) if kind in ("layer", "rms") else (2, 6, 40, 50)
    x = reference.rounded(np.random.default_rng(22).normal(mean, std, shape), "float32")
    if start == "misleading":
        AS_ROWS[kind](x)[:, :64] = 0
        assert (x == 0).any()
    t = dnn.asarray(x, dtype="float32", layout=layout).to(device=device)
    rows = AS_ROWS[kind](x)
    centered = kind != "rms"
    want_mean = rows.mean(axis=1) if centered else np.zeros(len(rows))
    want = 1 / np.sqrt(((rows - want_mean[:, None]) ** 2).mean(axis=1) + 1e-5)
    want_y = (rows - want_mean[:, None]) * want[:, None]
    unit = reference.EPS["float32"]
    parameters = [None, None]
    (report,) = dnn.explain(lambda: ROW_NORMS[kind](t, *parameters))
    for engine in (e.name for e in report.engines if not e.why_not):
        y, *saved = ROW_NORMS[kind](t, *parameters, algo=engine)
        if centered:
            assert_close(values_of(saved[0]).ravel(), Result(want_mean, 2 * unit * np.abs(want_mean)), f"{engine} mean")
        # The variance is a sum of squared distances from the mean. `unit` is the distance from 1 to the next
        # float32 number. The rounding error of each distance is `unit` times the largest distance in its row.
        deviation = unit * np.abs(rows - want_mean[:, None]).max(axis=1)
        error = reference.tolerance("float32", rows.shape[1], 2 * want) + want**3 * deviation**2
        assert_close(values_of(saved[-1]).ravel(), Result(want, error), f"{engine} inv_std")
        of_mean = unit * np.abs(want_mean) * want
        if start == "like the rest" and engine in ("cpu.layer_norm.contiguous_rows", "cpu.layer_norm.strided_axis"):
            # The CPU engines contiguous_rows and strided_axis also subtract the rounding error of the mean. So they are
            # more accurate than documented.
            of_mean[:] = 0
        rounding = of_mean[:, None] + 4 * unit * np.abs(want_y) + error[:, None] / want[:, None] * np.abs(want_y)
        assert_close(AS_ROWS[kind](values_of(y)), Result(want_y, rounding), f"{engine} y")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["layer", "group", "instance"])
def test_long_rows_with_unrepresentative_first_elements(kind: str, layout: str, device: str) -> None:
    """64 zeros, then numbers near 1e4, in a row so long that these determine its deviation. Errors are a few units of
    float32."""
    shape = (1, 2, 1, 65536) if kind == "layer" else (1, 4, 128, 256)
    x = reference.rounded(np.random.default_rng(24).normal(1e4, 1, shape), "float32")
    rows = x.reshape(4 if kind == "instance" else 2, -1)
    rows[:, :64] = 0
    t = dnn.asarray(x, dtype="float32", layout=layout).to(device=device)
    call = {"layer": dnn.layer_norm_forward, "group": lambda t, **o: dnn.group_norm_forward(t, 2, **o), "instance": dnn.instance_norm_forward}[kind]  # fmt: skip
    want = 1 / np.sqrt(rows.var(axis=1) + 1e-5)
    for engine in dnn.explain(call, t)[0].engines:
        if not engine.why_not:
            _, mean, inv_std = call(t, algo=engine.name)
            few = 4 * reference.EPS["float32"]
            np.testing.assert_allclose(values_of(mean).ravel(), rows.mean(axis=1), rtol=few, err_msg=engine.name)
            np.testing.assert_allclose(values_of(inv_std).ravel(), want, rtol=few, err_msg=engine.name)


@pytest.mark.parametrize("kind", ROW_NORMS)
def test_row_norms_keep_nan_in_its_row(kind: str, device: str) -> None:
    x = np.random.default_rng(23).normal(0, 1, (3, 4, 2, 6))
    n = 6 if kind in ("layer", "rms") else 4
    one, zero = (dnn.full((n,), v, device=device) for v in (1.0, 0.0))
    clean = values_of(ROW_NORMS[kind](tensor(x, "float32", device), one, zero)[0])
    x[1, 1, 1, 3] = np.nan
    y = values_of(ROW_NORMS[kind](tensor(x, "float32", device), one, zero)[0])
    row = {"layer": np.s_[1, 1, 1], "rms": np.s_[1, 1, 1], "group": np.s_[1, :2], "instance": np.s_[1, 1]}[kind]
    assert np.isnan(y[row]).all()
    y[row] = clean[row]
    np.testing.assert_array_equal(y, clean)


def test_row_norms_of_empty_tensors(device: str) -> None:
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
        (lambda x: dnn.layer_norm_forward(x, zeros(x)), dnn.ShapeError,
         "layer_norm_forward: scale must be [4] for the rows of x; got [3]"),
        (lambda x: dnn.layer_norm_forward(x, axis=3), dnn.ShapeError, "axis must be from -3 to 2 for x [2, 3, 4]; got 3"),
        (lambda x: dnn.layer_norm_forward(x, eps=-1), dnn.ShapeError, "eps must be 0 or a positive number; got -1"),
        (lambda x: dnn.rms_norm_forward(x, zeros(x, 4, "float16")), dnn.DTypeError,
         "rms_norm_forward: scale must be float32 for x of float32; got float16"),
        (lambda x: dnn.layer_norm_forward(dnn.empty((2, 0), device=x.device)), dnn.ShapeError,
         "a row of x [2, 0] has no elements"),
        (lambda x: dnn.group_norm_forward(x, 2), dnn.ShapeError, "groups must divide the 3 channels of x; got 2"),
        (lambda x: dnn.group_norm_forward(x, 0), dnn.ShapeError, "groups must be 1 or more; got 0"),
        (lambda x: dnn.group_norm_forward(x, 3, zeros(x), zeros(x, 1)), dnn.ShapeError,
         "bias must be [3] for the channels of x; got [1]"),
        (lambda x: dnn.layer_norm_backward(x, x, None, zeros(x), zeros(x)), dnn.ShapeError,
         "layer_norm_backward: mean must be [2, 3] of the rows of x; got [3]"),
        (lambda x: dnn.layer_norm_backward(x, x, None, None, dnn.zeros((2, 3), device=x.device)), dnn.ShapeError,
         "layer_norm_backward: mean is None; pass the mean that the forward call returned"),
        (lambda x: dnn.group_norm_backward(x, x, 3, None, None, dnn.zeros((2, 3), device=x.device)), dnn.ShapeError,
         "group_norm_backward: mean is None"),
        (lambda x: dnn.instance_norm_backward(x, x, None, None, dnn.zeros((2, 3), device=x.device)), dnn.ShapeError,
         "instance_norm_backward: mean is None"),
        (lambda x: dnn.layer_norm_backward(x.reshape((3, 2, 4)), x, None, zeros(x), zeros(x)), dnn.ShapeError,
         "dy must be [2, 3, 4] like x; got [3, 2, 4]"),
    ],
)  # fmt: skip
def test_row_norm_errors(
    call: Callable[[dnn.DeviceTensor], object], kind: type[Exception], text: str, device: str
) -> None:
    with pytest.raises(kind) as caught:
        call(tensor(np.ones((2, 3, 4)), "float32", device))
    assert text in str(caught.value)
