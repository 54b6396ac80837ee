# SPDX-License-Identifier: Apache-2.0
"""The engines row_reduction: regions of statistics of rows (norms, softmax, reduce) and functions of elements.

A function of a test calls OURS, for which the arguments are tensors, or EXACT, for which they are float64 arrays. So
each function is its own oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
from conftest import set_checks
from support import outputs_by_threads, values_of
from test_regions import bits, engines_of, forced, listed

import pyminidnn as dnn
from pyminidnn import _C

DTYPES = ("float32", "float16", "bfloat16")
MODES = ("sum", "mean", "max", "min", "prod", "norm1", "norm2", "sumsq", "amax")
EPS = 1e-5


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """New memory has NaN in it, so results that are not written, and reads of such memory, are seen."""
    _C.set_allocator_checks(exact=False, poison=255)
    yield
    set_checks()


# ---- one function for tensors and for the oracle


def exact_norm(x: Any, scale: Any, bias: Any, axis: int, centered: bool) -> tuple[Any, Any, Any]:
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, inv_std = reference.row_norm_forward(
        x, 1, 0, rows=tuple(i for i in range(x.ndim) if i not in axes), parameters=(1,) * x.ndim, centered=centered,
        eps=EPS)  # fmt: skip
    y = y * (1 if scale is None else scale) + (0 if bias is None else bias)
    return y, mean.squeeze(axes), inv_std.squeeze(axes)


def exact_instance_norm(x: Any, scale: Any, bias: Any) -> tuple[Any, Any, Any]:
    channels = (1, -1) + (1,) * (x.ndim - 2)
    y, mean, inv_std = exact_norm(x, None, None, 2, True)
    return y * np.reshape(scale, channels) + np.reshape(bias, channels), mean, inv_std


def exact_reduce(x: Any, mode: str, axis: Any, keepdims: bool = False) -> Any:
    functions: dict[str, Callable[..., Any]] = {
        "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
        "norm1": lambda x, **k: np.sum(np.abs(x), **k), "norm2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
        "sumsq": lambda x, **k: np.sum(x * x, **k), "amax": lambda x, **k: np.max(np.abs(x), **k)}  # fmt: skip
    return functions[mode](x, axis=axis, keepdims=keepdims)


OURS = SimpleNamespace(
    layer_norm=lambda x, scale=None, bias=None, axis=-1: dnn.layer_norm_forward(x, scale, bias, axis=axis, eps=EPS),
    rms_norm=lambda x, scale=None, axis=-1: dnn.rms_norm_forward(x, scale, axis=axis, eps=EPS),
    instance_norm=lambda x, scale, bias: dnn.instance_norm_forward(x, scale, bias, eps=EPS),
    softmax=lambda x, **k: dnn.softmax_forward(x, **{"axis": -1, **k}),
    softmax_backward=lambda dy, y, **k: dnn.softmax_backward(dy, y, **{"axis": -1, **k}),
    reduce=lambda x, mode, axis=-1, keepdims=False: dnn.reduce(x, mode, axis=axis, keepdims=keepdims),
    act=dnn.activation_forward,
    act_backward=lambda dy, x, mode: dnn.activation_backward(dy, x, x, mode),
    op=dnn.pointwise,
)
EXACT = SimpleNamespace(
    layer_norm=lambda x, scale=None, bias=None, axis=-1: exact_norm(x, scale, bias, axis, True),
    rms_norm=lambda x, scale=None, axis=-1: exact_norm(x, scale, None, axis, False)[::2],
    instance_norm=exact_instance_norm,
    softmax=lambda x, **k: reference.softmax_forward(x, **{"axis": -1, **k}),
    softmax_backward=lambda dy, y, **k: reference.softmax_backward(dy, y, **{"axis": -1, **k}),
    reduce=lambda x, mode, axis=-1, keepdims=False: exact_reduce(x, mode, axis, keepdims),
    act=reference.activation_forward,
    act_backward=lambda dy, x, mode: reference.activation_backward(dy, x, x, mode),
    op=reference.pointwise,
)

Function = Callable[..., Any]


def drawn(shape: tuple[int, ...], dtype: str, device: str, seed: int, mean: float = 0.0) -> dnn.DeviceTensor:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return dnn.asarray(rng.random(shape) < 0.7, device=device)
    return dnn.asarray(rng.normal(mean, 1, shape), dtype=dtype, device=device)


def run(f: Function, arguments: list[Any], regions: int = 1, nodes: int | None = None) -> list[dnn.DeviceTensor]:
    """Results with row_reduction, which must run all regions of the graph."""
    fused = dnn.fuse(lambda *a: f(OURS, *a))
    graph = fused.graph(*arguments)
    with forced(graph, "row_reduction") as count:
        assert count == regions and engines_of(graph) == ["row_reduction"] * regions, graph.why()
        assert nodes is None or len(graph._ended().nodes) == nodes
        return listed(fused(*arguments))


def exact_arguments(arguments: list[Any]) -> list[Any]:
    return [values_of(t) if t.dtype != "bool" else t.to(device="cpu").numpy() for t in arguments]


def check(f: Function, arguments: list[Any], cols: int, scale: float | None = None) -> list[dnn.DeviceTensor]:
    """Compares with the oracle. Sums have `cols` terms. `scale`: the magnitude of sums, if results are smaller."""
    want = listed(f(EXACT, *exact_arguments(arguments)))
    got = run(f, arguments)
    for g, w in zip(got, want, strict=True):
        assert g.shape == np.shape(w)
        magnitude = max(np.abs(w).max(), scale or 0)
        tolerance = reference.tolerance(str(g.dtype), cols, magnitude)
        assert np.abs(values_of(g) - w).max() <= tolerance, (np.abs(values_of(g) - w).max(), tolerance)
    return got


# ---- every statistic, with functions before and behind it

# In each case: a function of x and r [rows, cols], row [cols] of the same dtype, and float32 scale and bias [cols].
STATISTICS: dict[str, Function] = {
    "layer_norm": lambda m, x, r, row, scale, bias: m.act(m.layer_norm(x + r, scale, bias)[0], "gelu") * row,
    "layer_norm, plain": lambda m, x, r, row, scale, bias: m.layer_norm(x + r)[0] + r,
    "layer_norm, results": lambda m, x, r, row, scale, bias: list(m.layer_norm(x * row, scale, bias)),
    "rms_norm": lambda m, x, r, row, scale, bias: m.act(m.rms_norm(x * row, scale)[0], "silu") * r,
    "rms_norm, results": lambda m, x, r, row, scale, bias: list(m.rms_norm(x + r)),
    "softmax": lambda m, x, r, row, scale, bias: m.softmax(x * 2.0 + row) * r,
    "log_softmax": lambda m, x, r, row, scale, bias: m.softmax(x * r, log=True) + row,
    "scaled softmax": lambda m, x, r, row, scale, bias: m.softmax(x + r, scale=0.3) + 1.0,
    "negative scale": lambda m, x, r, row, scale, bias: m.softmax(x + r, scale=-0.7, log=True) * row,
    "scale 0": lambda m, x, r, row, scale, bias: m.softmax(x + r, scale=0.0) + row,
    "softmax_backward": lambda m, x, r, row, scale, bias: m.softmax_backward(x * row, m.act(r, "sigmoid")) + x,
    "log_softmax_backward": lambda m, x, r, row, scale, bias: m.softmax_backward(x, m.op("tanh", r), log=True, scale=0.5) * r,
    **{mode: lambda m, x, r, row, scale, bias, mode=mode: m.reduce(x * r, mode) for mode in MODES if mode != "prod"},
    "prod": lambda m, x, r, row, scale, bias: m.reduce(m.op("tanh", x) * 0.01 + 1.0, "prod"),
    **{f"{mode}, used": lambda m, x, r, row, scale, bias, mode=mode:
       x - m.reduce(m.act(x + row, "tanh"), mode, keepdims=True) for mode in ("sum", "mean", "max", "min", "norm2")},
}  # fmt: skip


def statistic_arguments(rows: int, cols: int, dtype: str, device: str) -> list[Any]:
    full, row = (rows, cols), (cols,)
    return [drawn(full, dtype, device, 0), drawn(full, dtype, device, 1), drawn(row, dtype, device, 2),
            drawn(row, "float32", device, 3), drawn(row, "float32", device, 4)]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic(name: str, dtype: str, device: str) -> None:
    for rows, cols in ((37, 200), (5, 1024)):
        arguments = statistic_arguments(rows, cols, dtype, device)
        scale = np.sqrt(cols) * 4 if name in ("sum", "log_softmax_backward", "sum, used") else None
        check(STATISTICS[name], arguments, cols, scale)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cols", [2, 3, 7, 17, 31, 64, 129, 255, 257, 511, 512, 513, 1001, 2047, 4096, 8190, 20000])
def test_lengths_of_rows(cols: int, dtype: str, device: str) -> None:
    for rows in (1, 6, 131) if cols < 1000 else (2, 3):  # on a CPU, threads share the elements of one long row
        arguments = statistic_arguments(rows, cols, dtype, device)
        for name in ("layer_norm", "softmax", "mean, used"):
            # Terms of a mean may cancel.
            check(STATISTICS[name], arguments, cols, 1.0 if name == "layer_norm" else None)


def test_rows_of_one_element_are_left_to_others(device: str) -> None:
    x = drawn((9, 1), "float32", device, 0)
    f = dnn.fuse(lambda x: dnn.softmax_forward(x + 1.0, axis=1) * 2.0)
    assert "row_reduction: rows have one element" in f.why(x)
    assert np.allclose(values_of(f(x)), 2)


def test_very_long_rows(device: str) -> None:
    cols = 70001 if device == "cpu" else 40000
    x, r, row, scale, bias = statistic_arguments(2, cols, "float32", device)
    check(STATISTICS["layer_norm"], [x, r, row, scale, bias], cols)
    check(STATISTICS["softmax"], [x, r, row, scale, bias], cols)


# ---- shapes, axes, layouts


def test_axes_and_kept_dimensions(device: str) -> None:
    x = drawn((6, 5, 77), "float32", device, 0)
    for axis, keep in (
        ((1, 2), True),
        (2, True),
        ((2,), False),
        ((1, 2), False),
        ((0, 1, 2), True),
        ((0, 1, 2), False),
    ):
        cols = int(np.prod([x.shape[i] for i in np.atleast_1d(axis)]))
        check(lambda m, x, a=axis, k=keep: m.reduce(m.act(x, "relu") + x, "mean", axis=a, keepdims=k), [x], cols)
        if keep:
            check(lambda m, x, a=axis: x - m.reduce(x * x, "mean", axis=a, keepdims=True), [x], cols)
    check(lambda m, x: m.layer_norm(x * 2.0, axis=1)[0] + x, [x], 385)
    check(lambda m, x: m.layer_norm(x * 2.0, axis=0)[0] + x, [x], 6 * 385)
    check(lambda m, x: [m.reduce(t := x * x, "sum", axis=2), m.reduce(t, "max", axis=2, keepdims=True)], [x], 77)


def test_parameters_of_several_dimensions(device: str) -> None:
    x, scale, bias = (drawn(s, "float32", device, i) for i, s in enumerate([(6, 5, 77), (5, 77), (5, 77)]))
    check(lambda m, x, s, b: m.act(m.layer_norm(x, s, b, axis=1)[0], "relu") + x, [x, scale, bias], 385)


@pytest.mark.parametrize("dtype", DTYPES)
def test_instance_norm(dtype: str, device: str) -> None:
    x = drawn((3, 5, 9, 11), dtype, device, 0)
    scale, bias = (drawn((5,), "float32", device, i) for i in (1, 2))
    f = lambda m, x, s, b: [m.act(t := m.instance_norm(x, s, b)[0], "relu"), t + x]
    check(f, [x, scale, bias], 99)
    nhwc = dnn.asarray(x, layout="NHWC")
    fused = dnn.fuse(lambda *a: f(OURS, *a))
    assert "rows are not contiguous in" in fused.why(nhwc, scale, bias)
    for got, want in zip(fused(nhwc, scale, bias), f(EXACT, *exact_arguments([x, scale, bias])), strict=True):
        assert np.allclose(values_of(got), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_over_the_channels_of_nhwc(dtype: str, device: str) -> None:
    for channels in (21, 64, 300):
        x = dnn.asarray(drawn((2, channels, 7, 9), dtype, device, 0), layout="NHWC")
        (y,) = check(lambda m, x: m.softmax(x * 2.0 + 1.0, axis=1) * 3.0, [x], channels)
        assert y.strides == x.strides
        check(lambda m, x: x - m.reduce(x * x, "mean", axis=1, keepdims=True), [x], channels)


def test_rows_that_are_not_contiguous_are_refused(device: str) -> None:
    x = drawn((40, 60), "float32", device, 0)
    f = dnn.fuse(lambda x: dnn.exp(dnn.softmax_forward(x, axis=0)))
    assert "row_reduction: rows are not contiguous in" in f.why(x)
    assert np.allclose(values_of(f(x)), np.exp(reference.softmax_forward(values_of(x), axis=0)), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_with_broadcasting_and_strides(dtype: str, device: str) -> None:
    cols = 130
    x = drawn((9, 4, cols), dtype, device, 0)
    column, plane, samples, one = (
        drawn(s, dtype, device, i) for i, s in enumerate([(4, 1), (4, cols), (9, 1, 1), ()], 1))  # fmt: skip
    turned = drawn((cols, 4, 9), dtype, device, 6).transpose((2, 1, 0))
    part = drawn((9, 8, 2 * cols), dtype, device, 7)[:, ::2, 1 : 2 * cols : 2]
    reverse = drawn((9, 4, cols), dtype, device, 8)[:, ::-1, ::-1]
    arguments = [x, column, plane, samples, one]
    check(lambda m, x, c, p, s, o: m.softmax(x * c + p) * s + o, arguments, cols)
    check(lambda m, x, c, p, s, o: m.layer_norm(x + s)[0] * c - p + o, arguments, cols)
    check(lambda m, x, t, p, r: m.rms_norm(t + p)[0] * r + x, [x, turned, part, reverse], cols)
    check(lambda m, x, t, p, r: m.softmax(x, scale=0.5) + t * p - r, [x, turned, part, reverse], cols)


@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_views(dtype: str, device: str) -> None:
    base = [drawn((6 * 201 + 1,), dtype, device, i) for i in range(2)]
    x, r = (t[1:].reshape((6, 201)) for t in base)
    check(lambda m, x, r: m.layer_norm(x * r)[0] + r, [x, r], 201)
    out = dnn.empty((6 * 201 + 1,), dtype=dtype, device=device)
    y = out[1:].reshape((6, 201))
    f = dnn.fuse(lambda x, r, y: dnn.add(dnn.softmax_forward(x * r, axis=1), r, out=y))
    with forced(f.graph(x, r, y), "row_reduction") as count:
        assert count == 1
        f(x, r, y)
    want = reference.softmax_forward(values_of(x) * values_of(r), axis=1) + values_of(r)
    assert np.abs(values_of(y) - want).max() <= reference.tolerance(dtype, 201, 4)
    assert np.isnan(values_of(out)[0])


@pytest.mark.parametrize("cols", [40, 1100])
def test_statistics_of_broadcast_operands(cols: int, device: str) -> None:
    """A row may be one number, or all rows may be the same."""
    x, r = (drawn((6, cols), "float32", device, i) for i in range(2))
    numbers = drawn((6,), "float32", device, 2).as_strided((6, cols), (1, 0))
    row = drawn((cols,), "float32", device, 3).as_strided((6, cols), (0, 1))
    one = drawn((1,), "float32", device, 4).as_strided((6, cols), (0, 0))
    for t in (numbers, row, one):
        check(lambda m, x, t: x - m.reduce(t, "sum", keepdims=True), [x, t], cols, cols)
        check(lambda m, x, t: m.softmax(t) * x, [x, t], cols)
        check(lambda m, x, t: m.softmax(t, log=True, scale=0.5) + x, [x, t], cols)
        check(lambda m, x, r, t: m.softmax_backward(t, r) * x, [x, r, t], cols, np.sqrt(cols))


# ---- masks


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4, 5, 96), (4, 5, 96), (1, 5, 96), (96,), (3, 1, 1, 96), (3, 4, 5, 1), (5, 1)])
def test_masks(shape: tuple[int, ...], dtype: str, device: str) -> None:
    x = drawn((3, 4, 5, 96), dtype, device, 0)
    add, keep = drawn(shape, dtype, device, 1), drawn(shape, "bool", device, 2)
    check(lambda m, x, a: m.softmax(x * x, scale=0.3, mask=a) * 2.0, [x, add], 96)
    check(lambda m, x, a: m.softmax(x + 1.0, log=True, mask=a) + x, [x, add], 96)
    if shape[-1] > 1:  # a row without elements gives NaN
        check(lambda m, x, k: m.softmax(x * x, scale=0.3, mask=k) * 2.0, [x, keep], 96)
        check(lambda m, x, k: m.softmax(m.act(x, "tanh"), mask=k) + x, [x, keep], 96)


def test_rows_that_a_mask_leaves_empty_are_nan(device: str) -> None:
    x, keep = drawn((6, 70), "float32", device, 0), drawn((6, 70), "bool", device, 1)
    keep[2] = False
    (y,) = run(lambda m, x, k: m.softmax(x * 2.0, mask=k) + 1.0, [x, keep])
    assert np.array_equal(np.isnan(values_of(y)).all(axis=1), np.arange(6) == 2)
    assert np.isnan(values_of(y)).sum() == 70


# ---- numbers of rows, several statistics


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_of_numbers_of_rows(dtype: str, device: str) -> None:
    arguments = statistic_arguments(19, 260, dtype, device)
    x, r = arguments[:2]
    rms = lambda m, x: x * m.op("rsqrt", m.reduce(x * x, "mean", keepdims=True) + 1e-5)
    check(lambda m, x, r: rms(m, x) + r, [x, r], 260)
    check(lambda m, x, r: m.act(rms(m, x + r), "silu"), [x, r], 260)
    column = drawn((19, 1), dtype, device, 9)
    check(lambda m, x, c: x * m.act(m.reduce(x, "max", keepdims=True) * c, "sigmoid") + c, [x, column], 260)
    check(lambda m, x, c: [m.op("sqrt", m.reduce(t := x * x, "sum", keepdims=True) + 1.0) * c, t * c], [x, column], 260)


THREE: dict[str, Function] = {
    "two norms": lambda m, x, r, row, s, b: m.rms_norm(m.layer_norm(x, s, b)[0] + r)[0],
    "norm and softmax": lambda m, x, r, row, s, b: m.softmax(m.rms_norm(x, s)[0] * 2.0) * row,
    "softmax and sum": lambda m, x, r, row, s, b: (y := m.softmax(x + row)) * r - m.reduce(y * r, "sum", keepdims=True),
    "softmax by hand": lambda m, x, r, row, s, b: (
        e := m.op("exp", x - m.reduce(x, "max", keepdims=True))) / m.reduce(e, "sum", keepdims=True),
    "mean and variance": lambda m, x, r, row, s, b: (
        d := x - m.reduce(x, "mean", keepdims=True)) * m.op("rsqrt", m.reduce(d * d, "mean", keepdims=True) + 1e-3),
    "three": lambda m, x, r, row, s, b: m.softmax(m.layer_norm(x - m.reduce(x, "mean", keepdims=True), s)[0] * 0.5),
    "two results": lambda m, x, r, row, s, b: [m.layer_norm(t := x + r)[0], m.reduce(t, "amax")],
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", THREE)
def test_several_statistics(name: str, dtype: str, device: str) -> None:
    for rows, cols in ((23, 96), (4, 1500)):
        check(THREE[name], statistic_arguments(rows, cols, dtype, device), cols, 4)


def test_four_statistics_are_two_regions(device: str) -> None:
    (x,) = [drawn((40, 256), "float32", device, 0)]

    def f(m: Any, x: Any) -> Any:
        for _ in range(4):
            x = m.rms_norm(x + 1.0)[0]
        return x

    fused = dnn.fuse(lambda x: f(OURS, x))
    assert engines_of(fused.graph(x)) == ["row_reduction", "layer_norm"]
    assert "has 4 statistics of rows; supported are at most 3" in fused.why(x)
    assert np.abs(values_of(fused(x)) - f(EXACT, values_of(x))).max() < 1e-5


# ---- dropout, casts, integers, in place


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_has_the_bits_of_the_call(dtype: str, device: str) -> None:
    for rows, cols in ((11, 1001), (130, 6), (40, 512), (7, 4)):
        x = drawn((rows, cols), dtype, device, 0, mean=9)
        ones = dnn.full_like(x, 1)
        dropped = values_of(dnn.dropout_forward(ones, 0.3, seed=7, offset=5)) == 0
        f = lambda m, x: dnn.dropout_forward(m.softmax(x) + 1.0, 0.3, seed=7, offset=5)
        (y,) = run(f, [x])
        want = (reference.softmax_forward(values_of(x), axis=1) + 1) * ~dropped / 0.7
        assert np.array_equal(values_of(y) == 0, dropped)
        assert np.abs(values_of(y) - want).max() <= reference.tolerance(dtype, cols, 4)
    early = lambda m, x: m.rms_norm(dnn.dropout_forward(x, 0.3, seed=7, offset=5))[0]
    (y,) = run(early, [x], 1)
    assert np.array_equal(values_of(y) == 0, dropped)


def test_dynamic_seeds(device: str) -> None:
    x = drawn((33, 300), "float32", device, 0)
    f = dnn.fuse(lambda x, seed: dnn.dropout_forward(dnn.rms_norm_forward(x)[0], 0.5, seed=seed), dynamic=("seed",))
    for seed in (1, 2):
        assert engines_of(f.graph(x, seed)) == ["row_reduction"]
        assert np.allclose(values_of(f(x, seed)), values_of(f.__wrapped__(x, seed)), rtol=1e-5, atol=1e-6)
    assert bits(f(x, 1)) != bits(f(x, 2))


def test_eps_and_numbers_are_read_when_a_region_runs(device: str) -> None:
    x = drawn((33, 300), "float32", device, 0)
    problems = set()
    for number in (0.5, 2.0):
        f = dnn.fuse(lambda x, n=number: dnn.softmax_forward(dnn.layer_norm_forward(x * n, eps=n)[0] + n, scale=n))
        assert np.allclose(values_of(f(x)), values_of(f.__wrapped__(x)), rtol=1e-5, atol=1e-6)
        problems |= {r.problem for r in f.graph(x).explain()}
        assert engines_of(f.graph(x)) == ["row_reduction"]
    assert len(problems) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_are_rounded_by_casts_alone(dtype: str, device: str) -> None:
    x = dnn.asarray(np.full((9, 128), 300.0), dtype=dtype, device=device)
    # x * x overflows float16, and the mean does not fit it.
    (y,) = run(lambda m, x: x * m.op("rsqrt", m.reduce(x * x, "mean", keepdims=True)), [x])
    assert np.allclose(values_of(y), 1, rtol=1e-2)
    t = drawn((9, 128), "float32", device, 0)
    rounds = lambda m, t: m.softmax((t * 3.0).to(dtype=dtype).to(dtype="float32"))
    (y,) = run(rounds, [t])
    rounded = values_of(dnn.asarray(values_of(t * 3.0), dtype=dtype))
    assert np.abs(values_of(y) - reference.softmax_forward(rounded, axis=1)).max() < 1e-6
    mixed = lambda m, x, t: m.rms_norm(x.to(dtype="float32") + t)[0].to(dtype=dtype)
    (y,) = run(mixed, [x, t])
    want = exact_norm(values_of(x) + values_of(t), None, None, -1, False)[0]
    assert y.dtype == dtype and np.abs(values_of(y) - want).max() <= reference.tolerance(dtype, 128, 2)


def test_tests_and_integers_beside_statistics(device: str) -> None:
    x, r = (drawn((21, 300), "float32", device, i) for i in range(2))
    k, n = (
        dnn.asarray(np.random.default_rng(i).integers(-3, 4, (21, 300)), dtype="int32", device=device) for i in range(2)
    )

    def f(m: Any, x: Any, r: Any, k: Any, n: Any) -> Any:
        y = m.rms_norm(x)[0]
        larger = dnn.gt(y, r)
        return [larger, dnn.where(dnn.eq(t := k + n, k), y, m.softmax(x + r)), dnn.where(larger, x, r), t]

    larger, chosen, largest, sums = run(f, [x, r, k, n])
    y = exact_norm(values_of(x), None, None, -1, False)[0]
    sure = np.abs(y - values_of(r)) > 1e-5
    assert larger.dtype == "bool" and np.array_equal(values_of(larger)[sure], (y > values_of(r))[sure])
    want = np.where(values_of(n) == 0, y, reference.softmax_forward(values_of(x) + values_of(r), axis=1))
    assert np.abs(values_of(chosen) - want).max() < 1e-5
    assert np.array_equal(values_of(largest), np.where(values_of(larger) == 1, values_of(x), values_of(r)))
    assert sums.dtype == "int32" and np.array_equal(values_of(sums), values_of(k) + values_of(n))


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place(dtype: str, device: str) -> None:
    def f(m: Any, x: Any, r: Any) -> Any:
        t = m.layer_norm(x + r)[0]
        return [dnn.add(t, x, out=x), dnn.mul(t, r, out=r)]

    for cols in (100, 1030):
        x, r = (drawn((7, cols), dtype, device, i) for i in range(2))
        a, b = values_of(x), values_of(r)
        y, z = run(f, [x, r])
        t = exact_norm(a + b, None, None, -1, True)[0]
        for got, memory, want in ((y, x, t + a), (z, r, t * b)):
            assert bits(got) == bits(memory)
            assert np.abs(values_of(got) - want).max() <= reference.tolerance(dtype, cols, np.abs(want).max())


def test_an_operand_is_overwritten_after_all_have_read_it(device: str) -> None:
    """The residual is overwritten before the statistic, and its former elements are used behind the statistic."""

    def f(m: Any, x: Any, r: Any) -> Any:
        later = r * m.reduce(x, "mean", keepdims=True)
        y = dnn.add(x, r, out=r)
        return [y, m.softmax(y + 1.0) + later]

    for dtype in ("float32", "bfloat16"):
        x, r = (drawn((7, 1030), dtype, device, i, mean=1) for i in range(2))
        a, b = values_of(x), values_of(r)
        y, z = run(f, [x, r])
        want = reference.softmax_forward(a + b + 1, axis=1) + b * a.mean(axis=1, keepdims=True)
        assert np.abs(values_of(y) - (a + b)).max() <= reference.tolerance(dtype, 1, 8)
        assert np.abs(values_of(z) - want).max() <= reference.tolerance(dtype, 1030, np.abs(want).max())


def test_results_that_are_read_outside(device: str) -> None:
    x, r = (drawn((12, 256), "float32", device, i) for i in range(2))

    def f(m: Any, x: Any, r: Any) -> Any:
        t = x + r
        y, mean, inv_std = m.layer_norm(t)
        return [t, y, mean, inv_std, m.act(y, "gelu_tanh")]

    check(f, [x, r], 256)


# ---- special values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_rows(value: float, device: str) -> None:
    """A NaN or Inf stays in its row."""
    x = drawn((6, 600), "float32", device, 0)
    x[2, 77] = value
    x[4] = -np.inf if value == -np.inf else x[4]
    for name in (
        "layer_norm, plain",
        "rms_norm",
        "softmax",
        "log_softmax",
        "scaled softmax",
        "max, used",
        "mean, used",
    ):
        _, r, row, scale, bias = statistic_arguments(6, 600, "float32", device)
        with np.errstate(all="ignore"):
            (want,) = listed(STATISTICS[name](EXACT, *exact_arguments([x, r, row, scale, bias])))
            apart = values_of(STATISTICS[name](OURS, x, r, row, scale, bias))
        (y,) = run(STATISTICS[name], [x, r, row, scale, bias])
        got = values_of(y)
        assert np.array_equal(np.isnan(got), np.isnan(apart)), name
        finite = np.isfinite(want)
        assert np.array_equal(np.isnan(got).any(axis=1), np.isnan(want).any(axis=1)), name
        assert np.abs(got[finite] - want[finite]).max() < 1e-4, name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_means(dtype: str, device: str) -> None:
    """The variance is the mean of squared deviations: the mean may be much larger than the standard deviation."""
    mean = 1e4 if dtype == "float32" else 64.0
    x = drawn((5, 3000), dtype, device, 0, mean)
    check(lambda m, x: m.act(m.layer_norm(x)[0], "relu") * 0.5, [x], 3000)
    far = dnn.asarray(np.where(np.arange(3000) < 70, 1e5, 0) + values_of(x), dtype=dtype, device=device)
    check(lambda m, x: m.act(m.layer_norm(x)[0], "relu") * 0.5, [far], 3000)
    check(lambda m, x: m.softmax(x * 1.0) * 2.0, [x], 3000)


def test_sums_of_many_elements_are_accurate(device: str) -> None:
    cols = 100003 if device == "cpu" else 40003
    x = dnn.asarray(np.full((2, cols), 0.1, "float32"), device=device)
    (y,) = run(lambda m, x: m.reduce(x * 1.0, "sum"), [x])
    assert np.allclose(values_of(y), cols * float(np.float32(0.1)), rtol=1e-6)


# ---- threads, the partition, refusals


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    code = """
import sys; sys.path[:0] = ["tests", "benchmarks"]
import hashlib
from test_row_regions import *
for name in STATISTICS:
    for y in run(STATISTICS[name], statistic_arguments(301, 200, "float32", "cpu")):
        print(name, hashlib.sha256(y.numpy().tobytes()).hexdigest())
"""
    texts = outputs_by_threads(code)
    assert len(texts) == 1 and "log_softmax_backward" in texts.pop()


def test_handles_with_one_thread() -> None:
    x = drawn((301, 700), "float32", "cpu", 0)
    f = dnn.fuse(lambda x: dnn.dropout_forward(dnn.softmax_forward(x * 2.0), 0.1, seed=1) + x)
    many = f(x)
    with dnn.Handle("cpu", threads=1):
        assert bits(f(x)) == bits(many)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [64, 256, 1024, 4096, 8192])
def test_the_partition_joins_norm_gelu_and_dropout(cols: int, dtype: str, device: str) -> None:
    x, _, _, scale, bias = statistic_arguments(256, cols, dtype, device)
    for mode in ("gelu", "gelu_tanh"):
        f = dnn.fuse(lambda x, s, b, mode=mode: dnn.dropout_forward(
            dnn.activation_forward(dnn.layer_norm_forward(x, s, b)[0], mode), 0.1, seed=7))  # fmt: skip
        assert engines_of(f.graph(x, scale, bias)) == ["row_reduction"], f.why(x, scale, bias)


PARTITIONS: dict[str, Function] = {
    "masked attention": lambda m, x, r, row, s, b: m.softmax(x * 0.125 + r) * 1.5,
    "rms norm and gate": lambda m, x, r, row, s, b: m.act(m.rms_norm(x, s)[0], "silu") * r,
    "residual and norm": lambda m, x, r, row, s, b: m.layer_norm(x + r, s, b)[0],
    "norm by hand": lambda m, x, r, row, s, b: x * m.op("rsqrt", m.reduce(x * x, "mean", keepdims=True) + 1e-5) * row,
    "log softmax": lambda m, x, r, row, s, b: m.softmax(x + row, log=True) * -1.0,
    "loss": lambda m, x, r, row, s, b: m.reduce((x - r) * (x - r), "mean", axis=-1),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_partition_joins_usual_functions(name: str, device: str) -> None:
    for rows, cols in ((64, 128), (512, 1024)):
        arguments = statistic_arguments(rows, cols, "float32", device)
        f = dnn.fuse(lambda *a: PARTITIONS[name](OURS, *a))
        assert len(engines_of(f.graph(*arguments))) == 1, f.why(*arguments)


REFUSED: dict[str, tuple[Function, str]] = {
    "another axis": (
        lambda x, r, s: dnn.softmax_forward(dnn.rms_norm_forward(x)[0] + 1.0, axis=0),
        "softmax has rows in other dimensions than an earlier node"),
    "gradient of a norm": (
        lambda x, r, s: dnn.rms_norm_backward(x * 2.0, r, s, dnn.reduce(x, "mean", axis=1))[0] + 1.0,
        "the gradient of a norm has sums over rows"),
    "group norm": (
        lambda x, r, s: dnn.group_norm_forward((x * 2.0).reshape((8, 4, 64)), 2)[0],
        "a row of group norm is a part of dimension 1"),
    "argmax": (lambda x, r, s: dnn.argmax(x * 2.0, axis=1), "reduce has a result of another dtype"),
    "float64": (lambda x, r, s: dnn.softmax_forward(x.to(dtype="float64") * 2.0), "float64"),
    "product": (lambda x, r, s: dnn.matmul(dnn.softmax_forward(x), r), "matmul is no function of single rows"),
    "dropout of numbers": (
        lambda x, r, s: dnn.dropout_forward(dnn.reduce(x, "mean", axis=1, keepdims=True), 0.5, seed=1),
        "dropout of one number for each row"),
    "overwritten elsewhere": (
        lambda x, r, s: dnn.add(dnn.softmax_forward(x.T * r), r, out=x),
        "is overwritten, and read at other elements"),
    "no dense tensor": (
        lambda x, r, s: dnn.reduce(x[:, ::2] + 1.0, "sum", axis=1), "no tensor has all elements without gaps"),
    "dropout of a transposed tensor": (
        lambda x, r, s: dnn.dropout_forward(dnn.softmax_forward(x.T, axis=0), 0.5, seed=1),
        "dropout numbers elements in row-major order"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_sentences(name: str, device: str) -> None:
    f, sentence = REFUSED[name]
    x, r = (drawn((32, 64) if name == "group norm" else (64, 64), "float32", device, i) for i in range(2))
    scale = drawn((64,), "float32", device, 2)
    fused = dnn.fuse(f)
    a, b = x.copy(), x.copy()
    why = fused.why(a, r, scale)
    assert f"row_reduction: {sentence}" in why or (sentence in why and "row_reduction: " in why), why
    got, want = listed(fused(a, r, scale))[0], listed(f(b, r, scale))[0]
    assert np.allclose(values_of(got), values_of(want), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_limits_of_the_cpu() -> None:
    with dnn.record(device="cpu") as g:
        x = g.input("x", (2, 2**27), "bfloat16")
        g.output("y", dnn.rms_norm_forward(x + 1.0)[0])
    assert "row_reduction: keeps 512 MB of values of a row; supported are at most 256 MB" in g.why()
    with dnn.record(device="cpu") as g:
        x = g.input("x", (64, 256))
        y = dnn.rms_norm_forward(x)[0]
        powers = [y * float(i) for i in range(30)]
        for p in powers:
            y = y + p
        g.output("y", y)
    assert "spans of values at the same time; supported are at most 24" in g.why()


def test_rounding_each_is_refused(device: str) -> None:
    x = drawn((64, 64), "float16", device, 0)
    f = dnn.fuse(lambda x: dnn.softmax_forward(x * 2.0) + 1.0, rounding="each")
    assert "row_reduction: rounding='each' is not supported" in f.why(x)
    assert bits(f(x)) == bits(f.__wrapped__(x))


def test_random_functions(device: str) -> None:
    """Functions of rows in random order are as close to the exact results as separate calls."""
    regions = 0
    for seed in range(60 if device == "cpu" else 15):
        rng = np.random.default_rng(seed)
        rows, cols = int(rng.integers(1, 40)), int(rng.integers(2, 700))
        arguments = statistic_arguments(rows, cols, "float32", device)

        def f(m: Any, x: Any, r: Any, row: Any, s: Any, b: Any, seed: int = seed) -> Any:
            rng = np.random.default_rng(seed)
            made = [x, x + r]
            for _ in range(rng.integers(2, 9)):
                a, other, kind = made[-1], made[rng.integers(len(made))], rng.integers(9)
                if kind == 0:
                    made.append(m.layer_norm(a, s, b)[0])
                elif kind == 1:
                    made.append(m.rms_norm(a)[0])
                elif kind == 2:
                    made.append(m.softmax(a, scale=0.5))
                elif kind == 3:
                    made.append(a - m.reduce(a, ("mean", "max", "min")[rng.integers(3)], keepdims=True))
                elif kind == 4:
                    made.append(m.op("tanh", a * row))
                elif kind == 5:
                    made.append(m.act(a, ("relu", "silu", "gelu")[rng.integers(3)]) + other)
                elif kind == 6:
                    made.append(a * m.op("rsqrt", m.reduce(a * a, "mean", keepdims=True) + 1.0))
                elif kind == 7:
                    made.append(m.op("tanh", a) * other)
                else:
                    made.append(a + row)
            return [made[-1], made[int(rng.integers(1, len(made)))]]

        fused = dnn.fuse(lambda *a, f=f: f(OURS, *a))
        graph = fused.graph(*arguments)
        with forced(graph, "row_reduction"):
            regions += engines_of(graph).count("row_reduction")
            got = fused(*arguments)
        want = f(EXACT, *exact_arguments(arguments))
        for g, w, a in zip(got, want, f(OURS, *arguments), strict=True):
            bound = 4 * np.abs(values_of(a) - w).max() + 1e-5 * max(np.abs(w).max(), 1)
            assert np.abs(values_of(g) - w).max() <= bound, f"seed {seed}"
    assert regions >= (40 if device == "cpu" else 8)


def test_large_results_bypass_the_caches() -> None:
    """On the CPU, results of 4 MB and more are stored by non-temporal stores."""
    for dtype in ("float32", "bfloat16"):
        x, r = statistic_arguments(1031, 2053, dtype, "cpu")[:2]
        check(lambda m, x, r: m.rms_norm(x + r)[0] * r, [x, r], 2053)
