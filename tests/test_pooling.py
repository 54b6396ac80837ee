# SPDX-License-Identifier: Apache-2.0
"""Pooling: samples for the case lines, properties, comparison with torch, special values and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

MODES = ["max", "avg", "avg_exclude_padding"]


def sample(case: Case) -> Sample:
    rng = generator(case)
    mode, *flags = case.words
    shape = case.operands["x"].shape
    norm = int(case.attributes.get("norm", 2))
    keywords: dict[str, Any] = {"mode": mode, "norm": norm}
    x = reference.rounded(rng.normal(0, 1, shape), case.dtype)
    if mode == "max":
        x = np.round(2 * x) / 2  # multiples of 1/2, so that windows have several equal maxima
    if "size" in case.attributes:
        return adaptive_sample(case, x, case.integers("size", 1), keywords)
    window = case.integers("window", 1)
    keywords |= {"ceil_mode": "ceil" in flags, "dilation": case.integers("dilation", 1)}
    keywords |= {"stride": case.integers("stride", window), "padding": case.padding(len(shape) - 2)}
    y = reference.pool_forward(x, window, **keywords)
    indices = None
    if "indices" in case.attributes:
        plain = {k: v for k, v in keywords.items() if k not in ("mode", "norm")}
        indices = reference.pool_indices(x, window, **plain)
        index_dtype = {"i32": "int32", "i64": "int64"}[case.attributes["indices"]]
    if case.direction == "forward":
        if indices is not None:
            return Sample(
                {"x": x},
                lambda t, algo, out=None: dnn.pool_forward_with_indices(
                    t["x"], window, **plain, index_dtype=index_dtype, algo=algo, out=out
                ),
                [Result(y, 0), Result(indices, 0)],
            )
        # A maximum is exact. A mean is a sum over the window, and a division with an error of half an ulp.
        terms = np.prod(np.broadcast_to(window, len(shape) - 2))
        scale = 0 if mode == "max" else reference.pool_forward(np.abs(x), window, **keywords)
        return Sample(
            {"x": x},
            lambda t, algo, out=None: [dnn.pool_forward(t["x"], window, **keywords, algo=algo, out=out)],
            [Result(y, reference.tolerance(case.dtype, norm * terms, scale))],
        )
    dy = reference.rounded(rng.normal(0, 1, y.shape), case.dtype)
    y = reference.rounded(y, case.dtype)
    want = reference.pool_backward(dy, x, y, window, **keywords)
    # The gradient of an element is a sum over the windows that contain the element. For averages, each term is a
    # quotient with an error of half an ulp.
    terms = np.prod(-(-np.broadcast_to(window, len(shape) - 2) // np.broadcast_to(keywords["stride"], len(shape) - 2)))
    scale = reference.pool_backward(np.abs(dy), np.abs(x) if mode == "lp" else x, y, window, **keywords)
    inputs = {"x": x, "dy": dy, "y": y} | ({} if indices is None else {"indices": indices})
    return Sample(
        inputs,
        lambda t, algo, out=None: [
            dnn.pool_backward(t["dy"], t["x"], t["y"], window, **keywords, indices=t.get("indices"), algo=algo, out=out)
        ],
        [Result(want, reference.tolerance(case.dtype, norm * terms, scale))],
        {} if indices is None else {"indices": index_dtype},
    )


def adaptive_sample(case: Case, x: np.ndarray, size: Any, keywords: dict[str, Any]) -> Sample:
    y = reference.adaptive_pool_forward(x, size, **keywords)
    sizes = np.broadcast_to(size, x.ndim - 2)
    if case.direction == "forward":
        terms = np.prod([-(-n // s) + 1 for n, s in zip(x.shape[2:], sizes, strict=True)])
        scale = 0 if keywords["mode"] == "max" else reference.adaptive_pool_forward(np.abs(x), size, **keywords)
        return Sample(
            {"x": x},
            lambda t, algo, out=None: [dnn.adaptive_pool_forward(t["x"], size, **keywords, algo=algo, out=out)],
            [Result(y, reference.tolerance(case.dtype, keywords["norm"] * terms, scale))],
        )
    dy = reference.rounded(generator(case).normal(0, 1, y.shape), case.dtype)
    y = reference.rounded(y, case.dtype)
    terms = np.prod([-(-s // n) + 1 for n, s in zip(x.shape[2:], sizes, strict=True)])
    scale = reference.adaptive_pool_backward(np.abs(dy), np.abs(x) if keywords["mode"] == "lp" else x, y, **keywords)
    return Sample(
        {"x": x, "dy": dy, "y": y},
        lambda t, algo, out=None: [dnn.adaptive_pool_backward(t["dy"], t["x"], t["y"], **keywords, algo=algo, out=out)],
        [
            Result(
                reference.adaptive_pool_backward(dy, x, y, **keywords),
                reference.tolerance(case.dtype, keywords["norm"] * terms, scale),
            )
        ],
    )


def random_problem(rng: np.random.Generator) -> tuple[tuple[int, ...], list[int], dict[str, Any]]:
    """A shape, a window and keywords that fit together, with 1 to 3 spatial dimensions."""
    while True:
        rank = int(rng.integers(1, 4))
        shape = (2, 3, *map(int, rng.integers(1, 9, rank)))
        window = list(map(int, rng.integers(1, 5, rank)))
        keywords = {
            "mode": str(rng.choice(MODES)),
            "stride": list(map(int, rng.integers(1, 5, rank))),
            "padding": [tuple(map(int, p)) for p in rng.integers(0, 3, (rank, 2))],
            "dilation": list(map(int, rng.choice([1, 1, 2, 3], rank))),
            "ceil_mode": bool(rng.integers(2)),
        }
        try:
            reference.pool_forward(np.zeros(shape), window, **keywords)
        except ValueError:
            continue
        return shape, window, keywords


@pytest.mark.parametrize("seed", range(100))
def test_random_problems(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    shape, window, keywords = random_problem(rng)
    what = f"{shape} {window} {keywords}"
    x = np.round(rng.normal(0, 1, shape), 1)
    t = tensor(x, "float64", device)
    y = dnn.pool_forward(t, window, **keywords)
    assert_close(y, Result(reference.pool_forward(x, window, **keywords), 1e-14), what)
    dy = rng.normal(0, 1, y.shape)
    dx = dnn.pool_backward(tensor(dy, "float64", device), t, y, window, **keywords)
    assert_close(dx, Result(reference.pool_backward(dy, x, None, window, **keywords), 1e-13), what)
    # An average is a linear function of x, and its backward pass is the adjoint. A maximum is the sum of the elements
    # that it selects. So the inner products <y, dy> and <x, dx> must be equal.
    seen = np.where(np.isfinite(values_of(y)), values_of(y), 0)
    assert abs((seen * dy).sum() - (x * values_of(dx)).sum()) < 1e-11, what


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_is_conserved(mode: str, device: str) -> None:
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 9, 8))
    t = tensor(x, "float64", device)
    y = dnn.pool_forward(t, 3, mode=mode, stride=(2, 1))
    dy = np.random.default_rng(1).normal(0, 1, y.shape)
    dx = dnn.pool_backward(tensor(dy, "float64", device), t, y, 3, mode=mode, stride=(2, 1))
    np.testing.assert_allclose(values_of(dx).sum(axis=(2, 3)), dy.sum(axis=(2, 3)), atol=1e-12)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_layout_is_kept(layout: str, device: str) -> None:
    x = dnn.zeros((2, 3, 8, 6), layout=layout, device=device)
    y = dnn.pool_forward(x, 2)
    assert y.shape == (2, 3, 4, 3) and y.layout == layout
    assert dnn.pool_backward(y, x, y, 2).layout == layout


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nan_and_infinity(dtype: str, device: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[1, 2, nan, 3], [nan, nan, 5, 1], [-inf] * 4, [inf, 1, inf, 2], [-inf, inf, -inf, 1]])[:, None]
    t = tensor(x, dtype, device)
    keywords: dict[str, Any] = {"stride": 1, "padding": 1}
    dy = np.arange(1.0, 26).reshape(5, 1, 5)  # each row of x has 5 windows of width 2
    for mode in MODES:
        with np.errstate(invalid="ignore"):
            want = reference.pool_forward(x, 2, mode=mode, **keywords)
        y = dnn.pool_forward(t, 2, mode=mode, **keywords)
        # The results are exact, because they are sums of small integers, divided by powers of two.
        assert_close(y, Result(want, 0), mode)
        dx = dnn.pool_backward(tensor(dy, dtype, device), t, y, 2, mode=mode, **keywords)
        assert_close(dx, Result(reference.pool_backward(dy, x, want, 2, mode=mode, **keywords), 0), mode)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("window, stride", [(2, 2), (3, 2), (3, 1), (5, 1), (9, 2)])
def test_first_of_equal_maxima_among_nan_and_zeros(
    window: int, stride: int, layout: str, dtype: str, device: str
) -> None:
    rng = np.random.default_rng(0)
    some = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]
    x = rng.choice(some, (6, 8, 11, 13), p=[0.03, 0.03, 0.04, 0.5, 0.15, 0.15, 0.1])
    x[0], x[1] = -np.inf, rng.choice([0.0, -0.0], x[1].shape)
    t = dnn.asarray(x, dtype=dtype, layout=layout).to(device=device)
    keywords: dict[str, Any] = {"stride": stride, "padding": window // 2}
    want, want_indices = reference.pool_forward(x, window, **keywords), reference.pool_indices(x, window, **keywords)
    y, where = dnn.pool_forward_with_indices(t, window, **keywords)
    assert_close(dnn.pool_forward(t, window, **keywords), Result(want, 0))
    assert_close(y, Result(want, 0))
    np.testing.assert_array_equal(values_of(where), want_indices)
    dy = rng.integers(-3, 4, want.shape).astype(np.float64)
    g = dnn.asarray(dy, dtype=dtype, layout=layout).to(device=device)
    for indices in (None, where):
        dx = dnn.pool_backward(g, t, y, window, **keywords, indices=indices)
        assert_close(dx, Result(reference.pool_backward(dy, x, want, window, **keywords), 0))


def test_the_first_maximum_takes_the_gradient(device: str) -> None:
    x = tensor(np.full((1, 1, 3, 3), 7.0), "float32", device)
    y = dnn.pool_forward(x, 2, stride=1)
    dy = tensor(np.array([[[[1.0, 2], [3, 4]]]]), "float32", device)
    want = [[1, 2, 0], [3, 4, 0], [0, 0, 0]]
    np.testing.assert_array_equal(values_of(dnn.pool_backward(dy, x, y, 2, stride=1))[0, 0], want)
    # The gradient stays the same if all elements of a row are one element in memory, which a stride of zero repeats.
    x = tensor(np.full((1, 1, 3, 1), 7.0), "float32", device).as_strided((1, 1, 3, 3), (3, 3, 1, 0))
    np.testing.assert_array_equal(values_of(dnn.pool_backward(dy, x, y, 2, stride=1))[0, 0], want)


def test_adaptive_and_global(device: str) -> None:
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 12, 10))
    t = tensor(x, "float64", device)
    for mode in (*MODES, "lp"):
        # With these output sizes, in this order, x has one window, equal windows, overlapping windows, and repeated
        # windows.
        for size in (1, (4, 5), (5, 3), (24, 7)):
            y = dnn.adaptive_pool_forward(t, size, mode=mode, norm=3)
            assert_close(
                y, Result(reference.adaptive_pool_forward(x, size, mode=mode, norm=3), 1e-13), f"{mode} {size}"
            )
            dy = np.random.default_rng(1).normal(0, 1, y.shape)
            dx = dnn.adaptive_pool_backward(tensor(dy, "float64", device), t, y, mode=mode, norm=3)
            want = reference.adaptive_pool_backward(dy, x, values_of(y), mode=mode, norm=3)
            assert_close(dx, Result(want, 1e-13), f"{mode} {size}")
        y = dnn.global_pool_forward(t, mode=mode)
        assert y.shape == (2, 3, 1, 1)
        dx = dnn.global_pool_backward(y, t, y, mode=mode)
        assert_close(dx, Result(values_of(dnn.adaptive_pool_backward(y, t, y, mode=mode)), 0), mode)


def test_indices(device: str) -> None:
    x = np.round(np.random.default_rng(0).normal(0, 1, (2, 3, 9, 8)), 1)
    x[0, 0, 3, 3] = np.nan
    # With a padding of 2 and a stride of 2, the first window of each row and column contains only padding.
    keywords: dict[str, Any] = {"stride": 2, "padding": 2}
    for layout in ("NCHW", "NHWC"):
        t = dnn.asarray(x, dtype="float32", layout=layout).to(device=device)
        y, where = dnn.pool_forward_with_indices(t, 2, **keywords)
        assert where.dtype == "int64" and where.layout == y.layout == layout
        np.testing.assert_array_equal(values_of(y), values_of(dnn.pool_forward(t, 2, **keywords)))
        np.testing.assert_array_equal(values_of(where), reference.pool_indices(x, 2, **keywords))
        dx = dnn.pool_backward(y, t, y, 2, **keywords, indices=where)
        np.testing.assert_array_equal(values_of(dx), values_of(dnn.pool_backward(y, t, y, 2, **keywords)))
        other = where.to(layout="NHWC" if layout == "NCHW" else "NCHW")
        again = dnn.pool_backward(y, t, y, 2, **keywords, indices=other)
        assert bytes(values_of(again)) == bytes(values_of(dx))
        # If an index is outside of its window, the gradient of that window is dropped. Nothing is written outside of
        # dx.
        wrong = dnn.full(where.shape, 10**6, dtype="int32", device=device)
        assert not values_of(dnn.pool_backward(y, t, y, 2, **keywords, indices=wrong)).any()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_indices_outside_of_their_window_take_no_gradient(dtype: str, layout: str, device: str) -> None:
    """On every engine: indices anywhere in the plane and around it, a few of which are inside their window."""
    rng = np.random.default_rng(0)
    shape, window = (2, 8, 9, 11), (3, 2)
    keywords: dict[str, Any] = {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2)}
    x = dnn.zeros(shape, dtype=dtype, layout=layout, device=device)
    y = dnn.pool_forward(x, window, **keywords)
    dy = rng.integers(-3, 4, y.shape).astype(np.float64)
    indices = rng.integers(-3, 9 * 11 + 3, y.shape)
    want = np.zeros((*shape[:2], 9 * 11))
    for n, c, p, q in np.ndindex(*y.shape):
        in_window = {i * 11 + j for i in (2 * p - 1, 2 * p, 2 * p + 1) for j in (3 * q, 3 * q + 2) if 0 <= i < 9}
        if (at := indices[n, c, p, q]) in in_window:
            want[n, c, at] += dy[n, c, p, q]
    assert want.any()
    g = dnn.asarray(dy, dtype=dtype, layout=layout).to(device=device)
    for index_dtype in ("int32", "int64"):
        where = dnn.asarray(indices, dtype=index_dtype, layout=layout).to(device=device)
        (report,) = dnn.explain(dnn.pool_backward, g, x, y, window, **keywords, indices=where)
        for engine in (e.name for e in report.engines if not e.why_not):
            dx = dnn.pool_backward(g, x, y, window, **keywords, indices=where, algo=engine)
            np.testing.assert_array_equal(values_of(dx).reshape(want.shape), want, err_msg=engine)


def test_a_window_far_larger_than_x_has_an_index(device: str) -> None:
    x = tensor(np.arange(12.0).reshape(1, 3, 4), "float32", device)
    # This call must return at once. It must not loop over the whole window.
    y, where = dnn.pool_forward_with_indices(x, 2**31 - 1, padding=1, ceil_mode=True)
    np.testing.assert_array_equal(values_of(y)[0, :, 0], [3, 7, 11])
    np.testing.assert_array_equal(values_of(where)[0, :, 0], [3, 3, 3])


def test_sums_of_many_equal_elements(device: str) -> None:
    # A million equal terms have rounding errors of the same sign. So a plain float32 sum would have an error of several
    # percent.
    value = float(np.float32(0.7))
    x = dnn.full((1, 1, 1000, 1000), value, device=device)
    y = dnn.pool_forward(x, 1000, mode="avg")
    assert abs(values_of(y).item() - value) <= reference.tolerance("float32", 1, value)
    ones = dnn.full((1, 1, 1, 1), 1, device=device)
    dx = values_of(dnn.pool_backward(ones, x, y, 1000, mode="avg"))
    np.testing.assert_array_equal(dx, values_of(dnn.full(x.shape, 1e-6, device=device)))


def test_forms_of_attributes(device: str) -> None:
    x = dnn.zeros((2, 3, 9, 8), device=device)
    two = np.int64(2)
    for window, padding in [
        (2, 1),
        ((2, 2), (1, 1)),
        ([2, 2], ((1, 1), 1)),
        (two, [(1, 1), [1, 1]]),
        (np.array([2, 2]), np.ones((2, 2), int)),
    ]:
        assert dnn.pool_forward(x, window, padding=padding).shape == (2, 3, 5, 5)
    assert dnn.pool_forward(x, 2, padding=((0, 1), 0)).shape == (2, 3, 5, 4)


def test_empty(device: str) -> None:
    for shape in ((0, 3, 4, 4), (2, 0, 4, 4)):
        x = dnn.empty(shape, device=device)
        y = dnn.pool_forward(x, 2)
        assert y.shape == (*shape[:2], 2, 2)
        assert dnn.pool_backward(y, x, y, 2).shape == shape
    # x has no elements, so its windows contain only padding.
    x = dnn.empty((2, 3, 0, 4), device=device)
    y = dnn.pool_forward(x, 2, mode="avg", padding=1)
    assert y.shape == (2, 3, 1, 3) and not values_of(y).any()
    assert dnn.pool_backward(y, x, y, 2, mode="avg", padding=1).shape == x.shape


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_torch(seed: int) -> None:
    import torch

    rng = np.random.default_rng(seed)
    shape, window, keywords = random_problem(rng)
    mode, rank = keywords["mode"], len(window)
    # Keeps only what torch supports: equal padding on both sides, padding of at most half a window, and dilation only
    # for maxima.
    keywords["padding"] = [min(p, w // 2) for (p, _), w in zip(keywords["padding"], window, strict=True)]
    if mode != "max":
        keywords["dilation"] = 1
    reach = [d * (w - 1) + 1 for d, w in zip(np.broadcast_to(keywords["dilation"], rank), window, strict=True)]
    paddings = [0 if mode != "max" and rank == 3 else 2 * p for p in keywords["padding"]]
    if any(r > size + p for r, size, p in zip(reach, shape[2:], paddings, strict=True)):
        pytest.skip("torch refuses a window larger than the padded input, and avg_pool3d one larger than the input")
    x = torch.from_numpy(np.round(rng.normal(0, 1, shape), 1)).requires_grad_()
    common = {"stride": keywords["stride"], "padding": keywords["padding"], "ceil_mode": keywords["ceil_mode"]}
    if mode == "max":
        pool = getattr(torch.nn.functional, f"max_pool{rank}d")
        want = pool(x, window, dilation=keywords["dilation"], **common)
    else:
        pool = getattr(torch.nn.functional, f"avg_pool{rank}d")
        want = pool(x, window, count_include_pad=mode == "avg", **common)
    if want.isinf().any():
        pytest.skip("a window that sees only padding: torch sends its gradient out of the plane")
    y = dnn.pool_forward(x.detach(), window, **keywords)
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), atol=1e-14)
    dy = torch.from_numpy(rng.normal(0, 1, want.shape))
    want.backward(dy)
    dx = dnn.pool_backward(dy, x.detach(), y, window, **keywords)
    np.testing.assert_allclose(dx.numpy(), x.grad.numpy(), atol=1e-13)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x, y: dnn.pool_forward(x.reshape((2, 48)), 2), dnn.ShapeError,
         "pool_forward: x must have 3 to 5 dimensions; got [2, 48]"),
        (lambda x, y: dnn.pool_forward(x, 0), dnn.ShapeError, "window must be from 1 to 2147483647; got [0]"),
        (lambda x, y: dnn.pool_forward(x, (2, 2, 2)), dnn.ShapeError,
         "window must be one value or one for each of 2 spatial dimensions; got [2, 2, 2]"),
        (lambda x, y: dnn.pool_forward(x, ()), dnn.ShapeError, "one for each of 2 spatial dimensions; got []"),
        (lambda x, y: dnn.pool_forward(x, 2.0), dnn.ShapeError,
         "window must be an int of at most 64 bits, or one for each spatial dimension; got 2.0"),
        (lambda x, y: dnn.pool_forward(x, "22"), dnn.ShapeError, "one for each spatial dimension; got '22'"),
        (lambda x, y: dnn.pool_forward(x, 2, stride=(1, 0)), dnn.ShapeError,
         "stride must be from 1 to 2147483647; got [1, 0]"),
        (lambda x, y: dnn.pool_forward(x, 2, stride=10**30), dnn.ShapeError, "stride must be an int of at most 64 bits, or one for each spatial dimension; got 1000"),
        (lambda x, y: dnn.pool_forward(x, 2, padding=-1), dnn.ShapeError,
         "padding must be from 0 to 2147483647; got [-1]"),
        (lambda x, y: dnn.pool_forward(x, 2, padding=((0, 1, 2), 1)), dnn.ShapeError,
         "one or a pair (before, after) for each spatial dimension; got ((0, 1, 2), 1)"),
        (lambda x, y: dnn.pool_forward(x, 2, dilation=0), dnn.ShapeError, "dilation must be from 1 to"),
        (lambda x, y: dnn.pool_forward(x, 2, mode="min"), dnn.ShapeError,
         "mode must be one of max, avg, avg_exclude_padding, lp; got 'min'"),
        (lambda x, y: dnn.pool_forward(x, 5), dnn.ShapeError,
         "pool_forward: a window of 5 with dilation 1 does not fit in spatial dimension 0 of x; got 4 elements, 4 with"),
        (lambda x, y: dnn.pool_forward(x, (4, 3), dilation=(1, 2**31 - 1)), dnn.ShapeError,
         "a window of 3 with dilation 2147483647 does not fit in spatial dimension 1"),
        (lambda x, y: dnn.pool_forward(x.to(dtype="int32"), 2), dnn.DTypeError, "x is int32; supported are"),
        (lambda x, y: dnn.pool_forward(x, 2, out=dnn.empty((2, 3, 4, 4), device=x.device)), dnn.ShapeError,
         "out must be [2, 3, 2, 2]; got [2, 3, 4, 4]"),
        (lambda x, y: dnn.pool_forward(x, 1, out=x), dnn.ShapeError, "out shares memory with x"),
        (lambda x, y: dnn.pool_backward(x, x, y, 2), dnn.ShapeError,
         "pool_backward: dy must be [2, 3, 2, 2] like pool_forward's result for this x; got [2, 3, 4, 4]"),
        (lambda x, y: dnn.pool_backward(y, x, x, 2), dnn.ShapeError, "pool_backward: y must be [2, 3, 2, 2]"),
        (lambda x, y: dnn.pool_backward(y, x, y.to(dtype="float16"), 2), dnn.DTypeError, "y is float16"),
        (lambda x, y: dnn.pool_forward(x, 2, mode="lp", norm=0), dnn.ShapeError,
         "pool_forward: norm must be from 1 to 64; got 0"),
        (lambda x, y: dnn.pool_forward_with_indices(x, 2, index_dtype="int8"), dnn.DTypeError,
         "pool_forward_with_indices: index_dtype must be int32 or int64; got int8"),
        (lambda x, y: dnn.pool_backward(y, x, y, 2, indices=y), dnn.DTypeError,
         "pool_backward: indices must be int32 or int64; got float32"),
        (lambda x, y: dnn.pool_backward(y, x, y, 2, indices=x.to(dtype="int32")), dnn.ShapeError,
         "pool_backward: indices must be [2, 3, 2, 2] like pool_forward's result"),
        (lambda x, y: dnn.pool_backward(y, x, y, 2, mode="avg", indices=y.to(dtype="int32")), dnn.ShapeError,
         "pool_backward: indices need mode 'max'; got 'avg'"),
        (lambda x, y: dnn.pool_forward_with_indices(x.as_strided((1, 1, 2**31, 1), (0, 0, 0, 0)), (2**30, 1), index_dtype="int32"),
         dnn.ShapeError, "has 2147483648 elements, and int32 indices support at most 2^31 - 1; index_dtype must be int64"),
        (lambda x, y: dnn.adaptive_pool_forward(x, 0), dnn.ShapeError, "adaptive_pool_forward: size must be from 1"),
        (lambda x, y: dnn.adaptive_pool_forward(x, (2, 2, 2)), dnn.ShapeError,
         "size must be one value or one for each of 2 spatial dimensions; got [2, 2, 2]"),
        (lambda x, y: dnn.pool_forward(x, 2, algo="shared"), dnn.NotSupported, "algo='shared' names no engine for "),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x, y = (tensor(np.ones(shape), "float32", device) for shape in ((2, 3, 4, 4), (2, 3, 2, 2)))
    with pytest.raises(kind) as caught:
        call(x, y)
    assert text in str(caught.value)
    for t in (x, y):
        np.testing.assert_array_equal(values_of(t), 1)  # the failed call has not changed its inputs
