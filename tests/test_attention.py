# SPDX-License-Identifier: Apache-2.0
"""Attention: masked rows, properties, comparison with torch, special values and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import reference
from attention_problems import DTYPES, Problem, problem
from attention_problems import sample as sample  # of the case lines
from conftest import EXACT, set_checks
from reference import EPS
from reference.attention import part
from support import Result, assert_close, framed, outputs_by_threads, tensor, values_of

import pyminidnn as dnn
from pyminidnn import _C

# ---- The oracle itself


ALL_OPTIONS: dict[str, Any] = {
    "causal": True, "align": "bottom_right", "window": (30, None), "softcap": 1.5, "dropout": 0.25, "seed": 3,
    "bias": np.random.default_rng(1).normal(size=(1, 4, 40, 50)), "sink": np.linspace(-1, 1, 4),
    "alibi": np.random.default_rng(2).random((2, 4)) / 4,
}  # fmt: skip


@pytest.mark.torch
def test_the_oracle_agrees_with_torch() -> None:
    import torch

    p = problem("float64", (2, 4, 40, 12), (2, 2, 50, 12), (2, 2, 50, 9), **ALL_OPTIONS)
    t = {n: torch.from_numpy(a.copy()).requires_grad_(n in (*"qkv", "bias", "sink")) for n, a in p.arrays.items()}
    keep = torch.from_numpy(p.oracle_options()["keep"])
    k, v = (t[n].repeat_interleave(2, 1) for n in "kv")
    z = 1.5 * torch.tanh(t["q"] @ k.mT / 12**0.5 / 1.5) + t["bias"]
    distance = torch.arange(50) - torch.arange(40)[:, None] - 10
    z = z - t["alibi"][..., None, None] * distance.abs()
    z = z.masked_fill((distance > 0) | (distance < -30), -torch.inf)
    z = torch.cat([z, t["sink"][:, None, None].expand(2, 4, 40, 1)], -1)
    o = (torch.softmax(z, -1)[..., :-1] * keep / 0.75) @ v
    got, lse = reference.attention_forward(*(p.arrays[n] for n in "qkv"), **p.oracle_options())
    np.testing.assert_allclose(got, o.detach(), atol=1e-14)
    np.testing.assert_allclose(lse, torch.logsumexp(z, -1).detach(), atol=1e-14)
    do = torch.randn(o.shape, dtype=torch.float64)
    o.backward(do)
    options = p.oracle_options() | {"bias_gradient": True}
    gradients = reference.attention_backward(do.numpy(), *(p.arrays[n] for n in "qkv"), **options)
    for gradient, name in zip(gradients, (*"qkv", "bias", "sink"), strict=True):
        np.testing.assert_allclose(gradient, t[name].grad, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, ALL_OPTIONS], ids=["plain", "causal", "all"])
def test_tolerances_are_those_of_rounding(options: dict[str, Any], dtype: str) -> None:
    """The oracle, with P, dS and the results rounded to the dtype, stays within half the tolerance. The tolerance is at
    most a few times its error."""
    forward = problem(dtype, (2, 4, 40, 32), (2, 2, 50, 32), **options)
    backward = forward.backward("bias" in options)
    for p in (forward, backward):
        q, k, v = (p.arrays[n] for n in "qkv")
        if p is forward:
            rounded = reference.attention_forward(q, k, v, dtype=dtype, **p.oracle_options())
        else:
            given = [p.arrays[n] for n in ("do", "q", "k", "v", "o", "lse")]
            rounded = reference.attention_backward(*given, dtype=dtype, **p.oracle_options())
        for got, result in zip(rounded[: 1 if p is forward else 3], p.results(), strict=False):
            shares = np.abs(got - result.want) / (result.tolerance + 1e-30)
            assert 0.15 < shares.max() < 0.6
            assert np.sqrt((shares**2).mean()) > 0.04


# ---- Models, and rows that see nothing


@pytest.fixture(autouse=True)
def poisoned_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """New memory holds NaN, so an element that an engine does not write is found. float32 is computed as float32."""
    if "device" not in request.fixturenames:
        yield
        return
    _C.set_allocator_checks(exact=EXACT, poison=255)
    with dnn.Handle(device=request.getfixturevalue("device"), math="ieee"):
        yield
    set_checks()


def is_fast(engine: str) -> bool:
    return not engine.endswith(("reference", "generic"))


MODELS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "encoder": ((2, 8, 512, 64), (2, 8, 512, 64), {}),
    "vit": ((1, 16, 197, 64), (1, 16, 197, 64), {}),
    "gpt": ((1, 12, 1024, 64), (1, 12, 1024, 64), {"causal": True}),
    "grouped": ((1, 8, 300, 128), (1, 2, 300, 128), {"causal": True, "window": (100, None)}),
    "unet": ((1, 5, 1024, 64), (1, 5, 77, 64), {}),
    "llama": ((1, 4, 1500, 128), (1, 1, 1500, 128), {"causal": True}),
    "gemma": ((1, 4, 1500, 256), (1, 2, 1500, 256), {"causal": True, "softcap": 30.0}),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_sizes_of_models(model: str, dtype: str, device: str) -> None:
    """On all engines but those that exist to compute every problem, which are slow: they have smaller tests."""
    q, k, options = MODELS[model]
    forward = problem(dtype, q, k, **options)
    if not any(map(is_fast, forward.engines(forward.tensors(device)))):
        pytest.skip("no fast engine runs this call")
    forward.check(device, is_fast)
    if model in ("vit", "grouped", "unet"):
        forward.backward().check(device, is_fast)


# For each: q, k and the options. Some rows of each see nothing. Sizes are around tiles of 64.
MASKED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "more rows than columns": ((2, 2, 70, 8), (2, 1, 33, 8), {"causal": True, "align": "bottom_right"}),
    "a window that misses": ((1, 2, 150, 8), (1, 2, 40, 8), {"window": (5, 3)}),
    "the diagonal": ((1, 1, 70, 8), (1, 1, 65, 8), {"window": (0, 0)}),
    "lengths of k": ((4, 2, 66, 8), (4, 1, 70, 8), {"kv_lengths": [70, 0, 1, 64]}),
    "lengths of q": ((4, 2, 66, 8), (4, 1, 70, 8), {"q_lengths": [66, 0, 1, 64], "causal": True}),
    "both, from the end": ((5, 2, 20, 8), (5, 2, 24, 8), {"q_lengths": [20, 0, 7, 5, 3], "align": "bottom_right",
                                                         "kv_lengths": [3, 9, 0, 24, 5], "causal": True}),
    "packed": ((70, 2, 8), (80, 2, 8), {"cu_q": [0, 0, 33, 33, 40, 66, 66], "cu_kv": [2, 12, 12, 20, 20, 75, 75],
                                        "max_q": 33, "max_kv": 55}),
    "packed, from the end": ((40, 2, 8), (30, 1, 8), {"cu_q": [0, 25, 40, 40], "cu_kv": [0, 10, 10, 30], "max_q": 25,
                                                      "max_kv": 20, "align": "bottom_right", "causal": True}),
    "bool": ((1, 2, 70, 8), (1, 2, 70, 8), {"bias": np.arange(70)[:, None] % 3 > np.arange(70) // 69}),
    "all of minus infinity": ((1, 2, 66, 8), (1, 2, 66, 8), {"bias": np.where(np.arange(66) % 5, 0, -np.inf)[:, None]}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sink", [False, True], ids=["", "sink"])
@pytest.mark.parametrize("name", MASKED)
def test_rows_that_see_nothing(name: str, sink: bool, dtype: str, device: str) -> None:
    """o is 0, lse is -inf, or the sink for a row within the length, and gradients are 0."""
    q, k, options = MASKED[name]
    forward = problem(
        dtype, q, k, **options, **({"sink": np.linspace(-1, 2, q[-3 if len(q) == 4 else 1])} if sink else {})
    )
    (o, lse), backward = forward.results(), forward.backward()
    nothing = (o.want == 0).all(-1)
    assert nothing.any() and (sink or (lse.want == -np.inf).any())
    for outputs in forward.check(device).values():
        assert (outputs[0][nothing] == 0).all()
    for outputs in backward.check(device).values():
        assert (outputs[0][nothing] == 0).all()
    # In the columns that no row sees, the gradients of k and v are 0.
    unseen = (backward.results()[2].want == 0).all(-1)
    for outputs in backward.check(device).values():
        assert (outputs[1][unseen] == 0).all() and (outputs[2][unseen] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lowest", ["-1e9", "finfo.min"])
def test_a_bias_that_absorbs_the_scores(lowest: str, dtype: str, device: str) -> None:
    """Users write -1e9 and finfo.min. Rows that have no other bias are uniform, because the sum of score and bias is
    that bias in float32. In other rows such a bias hides a column."""
    value, rows = -1e9 if lowest == "-1e9" else -float(np.finfo("float32").max), [0, 64, 69]
    bias = np.where(np.random.default_rng(0).random((70, 100)) < 0.3, value, 0.0)
    bias[rows] = value
    p, acc = problem(dtype, (1, 2, 70, 16), (1, 2, 100, 16), bias=bias), reference.accumulator(dtype)
    want, sums = reference.attention_forward(*(p.arrays[n] for n in "qkv"), **p.oracle_options(), precision=acc)
    if acc == "float32" or lowest == "finfo.min":
        np.testing.assert_allclose(
            want[:, :, rows], np.repeat(p.arrays["v"].mean(2, keepdims=True), 3, axis=2), atol=1e-15
        )
    allowed, of_sums = (np.array(r.tolerance) for r in p.results())
    # Each element of P is 1 before the division, so only sums and the result are rounded. In float64, -1e9 leaves some
    # bits of the scores.
    rest = 100 * EPS[acc] + (4e9 * EPS[acc] if acc == "float64" and lowest == "-1e9" else 0)
    allowed[:, :, rows] = EPS[dtype] * np.abs(want[:, :, rows]) + rest
    of_sums[:, :, rows] = 4 * EPS[acc] * np.abs(value)
    for engine, results in every_engine(p, device):
        for got, result in zip(results, (Result(want, allowed), Result(sums, of_sums)), strict=True):
            assert_close(got, result, engine)


# ---- NaN and infinity


def spoiled(p: Problem, value: float) -> Problem:
    """The call with `value` in all rows of q, k, v, do and o that are padding, or in no sequence."""
    arrays = dict(p.arrays)
    sequences = reference.attention_sequences(
        *(p.arrays[n] for n in "qkv"), **_without(p.oracle_options(), "bias_gradient")
    )
    for name in {"q", "k", "v", "do", "o", "lse"} & set(arrays):
        a = np.full(arrays[name].shape, float(value))
        lse = name == "lse" and "cu_q" in arrays
        to, of = (a.T, arrays[name].T) if lse else (a, arrays[name])
        for s in sequences:
            at = s.columns if name in "kv" else s.rows
            part(to, at)[...] = part(of, at)
        arrays[name] = a
    return Problem(p.direction, p.dtype, arrays, p.numbers, p.bias_dtype)


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {n: v for n, v in options.items() if n != name}


def assert_equal_results(p: Problem, other: Problem, device: str) -> None:
    """Each engine gives the same bits for both calls."""
    first, second = p.tensors(device), other.tensors(device)
    engines = p.engines(first)
    assert engines and engines == other.engines(second)
    for engine in engines:
        for a, b in zip(p.call(first, algo=engine), other.call(second, algo=engine), strict=True):
            np.testing.assert_array_equal(values_of(a), values_of(b), err_msg=engine)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["lengths of k", "lengths of q", "both, from the end", "packed"])
def test_padding_is_not_read(name: str, value: float, dtype: str, device: str) -> None:
    q, k, options = MASKED[name]
    forward = problem(dtype, q, k, **options)
    for p in (forward, forward.backward()):
        assert_equal_results(spoiled(p, 0), spoiled(p, value), device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_in_a_packed_neighbour(dtype: str, device: str) -> None:
    cu = [0, 20, 45, 70]
    forward = problem(dtype, (70, 2, 8), (70, 2, 8), cu_q=cu, cu_kv=cu, max_q=30, max_kv=30, causal=True)
    for p in (forward, forward.backward()):
        t, bad = p.tensors(device), Problem(p.direction, p.dtype, {n: a.copy() for n, a in p.arrays.items()}, p.numbers)
        for name in {"q", "k", "v", "do", "o"} & set(p.arrays):
            bad.arrays[name][20:45] = np.nan
        others = np.r_[:20, 45:70]
        spoilt = bad.tensors(device)
        for engine in p.engines(t):
            for a, b in zip(p.call(t, algo=engine), p.call(spoilt, algo=engine), strict=True):
                pair = (values_of(a), values_of(b)) if a.ndim == 3 else (values_of(a).T, values_of(b).T)
                np.testing.assert_array_equal(pair[0][others], pair[1][others], err_msg=engine)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pages", [False, True], ids=["", "pages"])
def test_the_end_of_a_cache_is_not_read(pages: bool, dtype: str, device: str) -> None:
    counts = [5, 0, 64]
    k = (12, 16, 2, 8) if pages else (3, 64, 2, 8)
    more = {"pages": np.arange(12).reshape(3, 4)} if pages else {}
    p = problem(dtype, (3, 2, 4, 8), k, direction="decode", lengths=counts, **more)
    bad = Problem(p.direction, p.dtype, dict(p.arrays), p.numbers)
    for name in "kv":
        whole = p.arrays[name].copy().reshape(3, 64, 2, 8)
        for b, n in enumerate(counts):
            whole[b, n:] = np.nan
        bad.arrays[name] = whole.reshape(k)
    assert_equal_results(p, bad, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden_by", ["causal", "window", "bool"])
def test_nan_in_one_key(hidden_by: str, dtype: str, device: str) -> None:
    """The rows that see the column are NaN. No other row changes."""
    column, keep = 37, np.random.default_rng(0).random((90, 80)) < 0.5
    options = {"causal": {"causal": True}, "window": {"window": (10, 20)}, "bool": {"bias": keep}}[hidden_by]
    p = problem(dtype, (1, 2, 90, 16), (1, 2, 80, 16), **options)
    (s,) = reference.attention_sequences(*(p.arrays[n] for n in "qkv"), **p.oracle_options())
    seeing = s.scores[0, :, column] > -np.inf
    bad = Problem(p.direction, p.dtype, dict(p.arrays), p.numbers)
    bad.arrays["k"] = p.arrays["k"].copy()
    bad.arrays["k"][:, :, column, 3] = np.nan
    t, spoilt = p.tensors(device), bad.tensors(device)
    for engine in p.engines(t):
        for a, b in zip(p.call(t, algo=engine), p.call(spoilt, algo=engine), strict=True):
            assert np.isnan(values_of(b)[:, :, seeing]).all(), engine
            np.testing.assert_array_equal(values_of(b)[:, :, ~seeing], values_of(a)[:, :, ~seeing], err_msg=engine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinite_bias(dtype: str, device: str) -> None:
    """-inf hides a column, and +inf makes the row NaN."""
    keep = np.random.default_rng(1).random((70, 75)) < 0.5
    bias = np.where(keep, 0.5, -np.inf)
    p = problem(dtype, (1, 2, 70, 16), (1, 2, 75, 16), bias=bias)
    p.check(device)
    p.backward().check(device)
    p.arrays["bias"][[3, 64], 70] = np.inf
    t = p.tensors(device)
    for engine in p.engines(t):
        for r in map(values_of, p.call(t, algo=engine)):
            assert np.isnan(r[:, :, [3, 64]]).all() and np.isfinite(np.delete(r, [3, 64], axis=2)).all(), engine


# ---- Magnitudes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("softcap", [0.0, 20.0])
def test_scores_of_large_magnitude(softcap: float, dtype: str, device: str) -> None:
    """Scores of 1e4, with which P has a single 1 in each row, and scores of 65504 and more."""
    for size in (100.0, 250.0):
        p = problem(dtype, (1, 2, 70, 64), (1, 2, 130, 64), softcap=softcap, scale=1.0 if size < 200 else None)
        p.numbers = {n: v for n, v in p.numbers.items() if v is not None}
        for name in "qk":
            p.arrays[name] = reference.rounded(size / 8 * p.arrays[name], dtype)
        p.check(device)
        p.backward().check(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0, 1e-3])
def test_scales(scale: float, dtype: str, device: str) -> None:
    p = problem(dtype, (1, 2, 70, 16), (1, 2, 67, 16), scale=scale)
    p.check(device)
    p.backward().check(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["rising", "falling", "both"])
def test_maxima_that_rise_and_fall(order: str, dtype: str, device: str) -> None:
    """A row's maximum is in the last tile, in the first, or in the middle."""
    ramp = {"rising": np.arange(300), "falling": -np.arange(300), "both": -np.abs(np.arange(300) - 130)}[order]
    p = problem(dtype, (1, 1, 70, 8), (1, 1, 300, 8), scale=1.0)
    p.arrays["q"] = reference.rounded(np.abs(p.arrays["q"]) + 0.5, dtype)
    p.arrays["k"] = reference.rounded(p.arrays["k"] / 4 + ramp[:, None] / 8, dtype)
    p.check(device)
    p.backward().check(device)


# ---- Properties


def every_engine(p: Problem, device: str) -> Iterator[tuple[str, list[np.ndarray]]]:
    t = p.tensors(device)
    engines = p.engines(t)
    assert engines
    for engine in engines:
        yield engine, [values_of(r) for r in p.call(t, algo=engine)]


def changed(p: Problem, **arrays: np.ndarray) -> Problem:
    return Problem(p.direction, p.dtype, p.arrays | arrays, p.numbers, p.bias_dtype)


def tolerance_of(p: Problem, i: int = 0) -> np.ndarray:
    return np.asarray(p.results()[i].tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_p_sum_to_one(dtype: str, device: str) -> None:
    p = problem(dtype, (2, 2, 70, 16), (2, 1, 150, 16), causal=True)
    p.arrays["v"] = np.ones_like(p.arrays["v"])
    for engine, (o, _) in every_engine(p, device):
        assert_close(o, Result(np.ones(o.shape), tolerance_of(p)), engine)


def test_o_is_linear_in_v(device: str) -> None:
    p = problem("float64", (1, 2, 70, 16), (1, 2, 65, 16), softcap=2.0)
    other = changed(p, v=np.random.default_rng(5).normal(size=p.arrays["v"].shape))
    both = changed(p, v=2 * p.arrays["v"] - 3 * other.arrays["v"])
    results = zip(every_engine(p, device), every_engine(other, device), every_engine(both, device), strict=True)
    for (engine, (a, _)), (_, (b, _)), (_, (c, _)) in results:
        np.testing.assert_allclose(c, 2 * a - 3 * b, atol=1e-14, err_msg=engine)


def test_the_order_of_columns_does_not_matter(device: str) -> None:
    p = problem("float64", (1, 2, 70, 16), (1, 2, 150, 16), bias=np.random.default_rng(1).normal(size=(2, 70, 150)))
    order = np.random.default_rng(0).permutation(150)
    other = changed(p, **{n: p.arrays[n][:, :, order] for n in "kv"}, bias=p.arrays["bias"][:, :, order])
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(other, device), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-14, err_msg=engine)


def test_a_constant_in_the_bias_of_a_row(device: str) -> None:
    """It changes lse alone."""
    constant = np.linspace(-40, 40, 70)[:, None]
    p = problem("float64", (1, 2, 70, 16), (1, 2, 65, 16), bias=np.random.default_rng(1).normal(size=(70, 65)))
    other = changed(p, bias=p.arrays["bias"] + constant)
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(other, device), strict=True):
        np.testing.assert_allclose(b[0], a[0], atol=1e-13, err_msg=engine)
        np.testing.assert_allclose(b[1], a[1] + constant[:, 0], atol=1e-13, err_msg=engine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_halves_are_joined_by_lse(dtype: str, device: str) -> None:
    p = problem(dtype, (1, 2, 70, 16), (1, 1, 150, 16))
    halves = [changed(p, **{n: p.arrays[n][:, :, part] for n in "kv"}) for part in (slice(90), slice(90, None))]
    o, lse = p.results()
    allowed = [o.tolerance + tolerance_of(halves[0]) + tolerance_of(halves[1]), 3 * np.asarray(lse.tolerance)]
    for (engine, (a, x)), (_, (b, y)) in zip(*(every_engine(half, device) for half in halves), strict=True):
        total = np.logaddexp(x, y)
        joined = a * np.exp(x - total)[..., None] + b * np.exp(y - total)[..., None]
        assert_close(joined, Result(o.want, allowed[0]), engine)
        assert_close(total, Result(lse.want, allowed[1]), engine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_grouped_heads_are_repeated_heads(dtype: str, device: str) -> None:
    p = problem(dtype, (2, 6, 70, 16), (2, 2, 65, 16), causal=True)
    repeated = changed(p, **{n: np.repeat(p.arrays[n], 3, axis=1) for n in "kv"})
    results = p.results()
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(repeated, device), strict=True):
        for x, y, result in zip(a, b, results, strict=True):
            assert_close(x, Result(y, 2 * np.asarray(result.tolerance)), engine)
    p, repeated = p.backward(), repeated.backward()
    results = p.results()
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(repeated, device), strict=True):
        sums = [b[0], *(g.reshape(2, 2, 3, 65, 16).sum(2) for g in b[1:])]
        rounded = [0, *(EPS[dtype] * np.abs(g).reshape(2, 2, 3, 65, 16).sum(2) for g in b[1:])]
        for x, y, result, more in zip(a, sums, results, rounded, strict=True):
            assert_close(x, Result(y, 2 * np.asarray(result.tolerance) + more), engine)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_packed_is_a_loop_over_sequences(align: str, dtype: str, device: str) -> None:
    cu_q, cu_kv = [0, 33, 33, 98, 100], [0, 70, 75, 75, 130]
    p = problem(
        dtype, (100, 4, 16), (130, 2, 16), cu_q=cu_q, cu_kv=cu_kv, max_q=65, max_kv=70, causal=True, align=align
    )
    p.check(device)
    backward = p.backward()
    backward.check(device)
    t, g = p.tensors(device), backward.tensors(device)
    (o, lse), gradients = (values_of(r) for r in p.call(t)), [values_of(r) for r in backward.call(g)]
    tolerances = [tolerance_of(p), *(np.asarray(r.tolerance) for r in backward.results())]
    for b in range(4):
        rows, columns = (slice(cu[b], cu[b + 1]) for cu in (cu_q, cu_kv))
        part = {
            n: a[rows if n in ("q", "o", "do") else columns][None] for n, a in backward.arrays.items() if a.ndim == 3
        }
        one = Problem("forward", dtype, part, {"causal": True, "align": align, "layout": "bshd"})
        alone, lse_alone = (values_of(r) for r in one.call(one.tensors(device)))
        assert_close(o[rows], Result(alone[0], 2 * tolerances[0][rows]))
        assert_close(lse[:, rows], Result(lse_alone[0], 2 * np.asarray(p.results()[1].tolerance)[:, rows]))
        part["lse"] = backward.arrays["lse"][None, :, rows].copy()
        one = Problem("backward", dtype, part, one.numbers)
        for got, want, allowed, at in zip(gradients, one.call(one.tensors(device)), tolerances[1:], (rows, columns, columns),
                                          strict=True):  # fmt: skip
            assert_close(got[at], Result(values_of(want)[0], 2 * allowed[at]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"window": 20, "softcap": 2.0}], ids=["", "window"])
@pytest.mark.parametrize("page", [16, 48])
def test_paged_is_unpaged(page: int, options: dict[str, Any], dtype: str, device: str) -> None:
    """Pages in any order give the same bits as one cache without pages."""
    rng = np.random.default_rng(0)
    pages = rng.permutation(12)[:9].reshape(3, 3)
    common = {"lengths": [2 * page + 5, 0, 3 * page], "direction": "decode"} | options
    p = problem(dtype, (3, 2, 4, 16), (12, page, 2, 16), pages=pages, **common)
    p.check(device)
    caches = {n: reference.attention_cache(p.arrays[n], pages) for n in "kv"}
    other = Problem("decode", dtype, _without(p.arrays | caches, "pages"), p.numbers)
    unpaged = dict(every_engine(other, device))  # more engines, because some support no pages
    for engine, a in every_engine(p, device):
        for x, y in zip(a, unpaged[engine], strict=True):
            np.testing.assert_array_equal(x, y, err_msg=engine)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 20])
def test_decode_is_the_last_rows_of_causal(window: int | None, dtype: str, device: str) -> None:
    options = {} if window is None else {"window": (window, None)}
    whole = problem(dtype, (2, 4, 90, 16), (2, 2, 90, 16), causal=True, sink=[0, 1, -1, 2], **options)
    results = whole.results()
    rows = {n: whole.arrays[n].swapaxes(1, 2) for n in "qkv"}
    arrays = rows | {"q": rows["q"][:, 60:65], "sink": whole.arrays["sink"], "lengths": np.array([65, 65])}
    decode = Problem("decode", dtype, arrays, {} if window is None else {"window": window})
    decode.check(device)
    for engine, (o, lse) in every_engine(decode, device):
        assert_close(o.swapaxes(1, 2), Result(results[0].want[:, :, 60:65], tolerance_of(whole)[:, :, 60:65]), engine)
        assert_close(lse, Result(results[1].want[:, :, 60:65], tolerance_of(whole, 1)[:, :, 60:65]), engine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_size_of_a_cache_does_not_matter(dtype: str, device: str) -> None:
    p = problem(dtype, (2, 1, 4, 16), (2, 200, 2, 16), direction="decode", lengths=[130, 7])
    other = changed(p, **{n: p.arrays[n][:, :130] for n in "kv"})
    assert_equal_results(p, other, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_a_large_window_is_none(align: str, dtype: str, device: str) -> None:
    p = problem(dtype, (1, 2, 70, 16), (1, 2, 130, 16))
    for window in ((200, 200), (130, 200), (2**62, 2**63 - 1)):
        other = Problem("forward", dtype, p.arrays, {"window": window, "align": align})
        assert_equal_results(p, other, device)
        assert_equal_results(p.backward(), other.backward(), device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows, columns", [(5, 7), (70, 130)])
def test_the_mask_of_dropout(rows: int, columns: int, dtype: str, device: str) -> None:
    """With q = 0, P is uniform, and v = identity shows it: dropout_forward of ones has dropped the same elements. The
    gradient of v, for do = identity, shows the mask of backward."""
    ones = dnn.full((2, 3, rows, -(-columns // 4) * 4), 1.0, dtype="float64", device=device)
    for p, seed, offset in ((0.5, 7, 0), (0.1, 2**40 + 5, 2**33 + 1)):
        kept = values_of(dnn.dropout_forward(ones, p, seed=seed, offset=offset))[..., :columns]
        options = {"dropout": p, "seed": seed, "offset": offset}
        forward = problem(dtype, (2, 3, rows, 8), (2, 3, columns, 8), (2, 3, columns, columns), **options)
        forward.arrays |= {"q": np.zeros_like(forward.arrays["q"]), "v": np.zeros(forward.arrays["v"].shape)}
        forward.arrays["v"][:] = np.eye(columns)
        for engine, (o, lse) in every_engine(forward, device):
            assert_close(o, Result(kept / columns, 2 * EPS[dtype] * kept / columns), engine)
            np.testing.assert_allclose(lse, np.log(columns), rtol=1e-6, err_msg=engine)
        backward = problem(dtype, (2, 3, rows, 8), (2, 3, columns, 8), (2, 3, columns, rows), **options)
        backward.arrays["q"] = np.zeros_like(backward.arrays["q"])
        backward = changed(backward.backward(), do=np.broadcast_to(np.eye(rows), (2, 3, rows, rows)))
        want = kept.swapaxes(2, 3) / columns
        for engine, (_, _, dv) in every_engine(backward, device):
            # lse is rounded, so exp(z - lse) has a relative error of |lse| eps.
            assert_close(dv, Result(want, (2 + np.log(columns)) * EPS[dtype] * want), engine)


def test_the_mean_of_dropout(device: str) -> None:
    p = problem("float64", (1, 1, 6, 4), (1, 1, 12, 4))
    t, want = p.tensors(device), p.results()[0].want
    results = np.stack([values_of(p.call(t, dropout=0.3, seed=1, offset=i)[0]) for i in range(400)])
    spread = results.std(0) / 20
    assert (np.abs(results.mean(0) - want) < 5 * spread).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sink_is_a_column_without_value(dtype: str, device: str) -> None:
    """A further column with k = 0, v = 0 and the sink as its bias has the same results."""
    sink = np.array([0.5, -2.0, 3.0])
    p = problem(dtype, (1, 3, 70, 16), (1, 3, 65, 16), sink=sink)
    bias = np.zeros((3, 1, 66))
    bias[:, 0, 65] = sink
    wider = {n: np.pad(p.arrays[n], ((0, 0), (0, 0), (0, 1), (0, 0))) for n in "kv"}
    other = Problem("forward", dtype, _without(p.arrays | wider | {"bias": bias}, "sink"), {}, p.bias_dtype)
    results = p.results()
    wide = dict(every_engine(other, device))
    for engine, a in every_engine(p, device):
        if engine not in wide:  # the rows of the bias are not aligned
            continue
        for x, y, result in zip(a, wide[engine], results, strict=True):
            assert_close(x, Result(y, 2 * np.asarray(result.tolerance)), engine)
    p, other = p.backward(), other.backward(bias_gradient=True)
    results = p.results()
    wide = dict(every_engine(other, device))
    for engine, a in every_engine(p, device):
        if (b := wide.get(engine)) is None:  # the bias is not aligned, or its gradient is a sum
            continue
        same = [b[0], b[1][:, :, :65], b[2][:, :, :65], b[3][:, 0, 65]]
        for x, y, result in zip(a, same, results, strict=True):
            assert_close(x, Result(y, 2 * np.asarray(result.tolerance)), engine)


def test_the_gradients_of_a_row_of_scores_cancel(device: str) -> None:
    """A constant in the bias of a row changes nothing, so the gradient of the row's bias sums to 0. With a sink, its
    gradient is part of the sum."""
    zero = np.zeros((2, 3, 20, 30))
    p = problem("float64", (2, 3, 20, 8), (2, 3, 30, 8), bias=zero, causal=True).backward(bias_gradient=True)
    for engine, (*_, dbias) in every_engine(p, device):
        assert np.abs(dbias.sum(-1)).max() < 1e-13, engine
    sink = np.array([1.0, -1, 0])
    p = problem("float64", (2, 3, 20, 8), (2, 3, 30, 8), bias=zero, causal=True, sink=sink).backward(bias_gradient=True)
    for engine, (*_, dbias, dsink) in every_engine(p, device):
        np.testing.assert_allclose(dbias.sum((0, 2, 3)), -dsink, atol=1e-13, err_msg=engine)


@pytest.mark.parametrize("name", ["all options", "lengths", "packed"])
def test_gradients_are_limits_of_differences(name: str, device: str) -> None:
    options = {"all options": ALL_OPTIONS, "lengths": {"kv_lengths": [30, 50], "q_lengths": [40, 11]},
               "packed": {"cu_q": [0, 30, 40], "cu_kv": [0, 35, 50], "max_q": 30, "max_kv": 40}}[name]  # fmt: skip
    batch = () if name == "packed" else (2,)
    q, k, v = ((*batch, *(s if batch else s[::-1]), n) for s, n in (((4, 40), 6), ((2, 50), 6), ((2, 50), 5)))
    p = problem("float64", q, k, v, **options)
    rng, h = np.random.default_rng(3), 1e-5
    names = [n for n in ("q", "k", "v", "bias", "sink") if n in p.arrays]
    directions = {n: rng.normal(size=p.arrays[n].shape) for n in names}
    up, down = (changed(p, **{n: p.arrays[n] + s * d for n, d in directions.items()}) for s in (h, -h))
    backward = p.backward("bias" in p.arrays)
    do = backward.arrays["do"]
    results = (every_engine(x, device) for x in (up, down))
    differences = {e: (do * (a - b)).sum() / (2 * h) for (e, (a, _)), (_, (b, _)) in zip(*results, strict=True)}
    for engine, gradients in every_engine(backward, device):
        product = sum((g * directions[n]).sum() for g, n in zip(gradients, names, strict=True))
        for difference in differences.values():
            assert abs(difference - product) < 1e-7, engine


# ---- Comparison with torch


@pytest.mark.torch
@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
def test_agrees_with_torch(mask: str | None) -> None:
    import torch

    torch.manual_seed(0)
    shapes = ((2, 6, 33, 16), (2, 2, 40, 16), (2, 2, 40, 12))
    q, k, v = (torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes)
    bias = {"bool": torch.rand(33, 40) < 0.7, "float": torch.randn(2, 1, 33, 40, dtype=torch.float64)}.get(mask or "")
    if mask == "float":
        bias.requires_grad_()
    attend = torch.nn.functional.scaled_dot_product_attention
    want = attend(q, k, v, attn_mask=bias, is_causal=mask == "causal", enable_gqa=True)
    do = torch.randn_like(want)
    want.backward(do)
    options: dict[str, Any] = {"causal": mask == "causal"} | ({} if bias is None else {"bias": bias.detach()})
    given = [t.detach() for t in (q, k, v)]
    o, lse = dnn.attention_forward(*given, **options)
    np.testing.assert_allclose(o.numpy(), want.detach(), atol=1e-14)
    gradients = dnn.attention_backward(do, *given, o, lse, **options, bias_gradient=mask == "float")
    for got, t in zip(gradients, (q, k, v, bias), strict=False):
        np.testing.assert_allclose(got.numpy(), t.grad, atol=1e-13)


# ---- Memory: strides, layouts, out, empty tensors


STRIDED_VIEWS = ("bshd", "slices of packed q, k, v", "unaligned", "reversed rows", "one head for all", "one batch for all",
                 "gaps", "strided heads", "transposed heads")  # fmt: skip


def strided_views(dtype: str, device: str) -> dict[str, dict[str, dnn.DeviceTensor]]:
    """q, k and v as views of other memory: for each, of the logical dimensions [2, 4, 70, 16], [2, 2, 65, 16]."""
    rng = np.random.default_rng(0)

    def memory(*shape: int) -> dnn.DeviceTensor:
        return tensor(reference.rounded(rng.normal(size=shape), dtype), dtype, device)

    bshd = [memory(2, s, h, 16).permute((0, 2, 1, 3)) for s, h in ((70, 4), (65, 2), (65, 2))]
    packed = memory(2, 70, 8, 16).permute((0, 2, 1, 3))
    flat = [memory(2 * h * s * 16 + 3) for h, s in ((4, 70), (2, 65), (2, 65))]
    sizes = [(2, 4, 70, 16), (2, 2, 65, 16), (2, 2, 65, 16)]
    strides = [(h * s * 16, s * 16, 16, 1) for _, h, s, _ in sizes]
    views = {
        "bshd": bshd,
        "slices of packed q, k, v": [packed[:, :4], packed[:, 4:6, :65], packed[:, 6:, :65]],
        "unaligned": [f.as_strided(s, t, 3) for f, s, t in zip(flat, sizes, strides, strict=True)],
        "reversed rows": [f.as_strided(s, (t[0], t[1], -16, 1), t[1] - 16) for f, s, t in zip(flat, sizes, strides, strict=True)],
        "one head for all": [flat[0].as_strided(sizes[0], strides[0], 0),
                             *(f.as_strided(sizes[1], (65 * 16, 0, 16, 1), 0) for f in flat[1:])],
        "one batch for all": [f.as_strided(s, (0, *t[1:]), 0) for f, s, t in zip(flat, sizes, strides, strict=True)],
        "gaps": [memory(2, h, s, 20)[..., :16] for _, h, s, _ in sizes],
        "strided heads": [memory(2, h, s, 33)[..., 1::2] for _, h, s, _ in sizes],
        "transposed heads": [memory(2, h, 16, s).permute((0, 1, 3, 2)) for _, h, s, _ in sizes],
    }  # fmt: skip
    assert tuple(views) == STRIDED_VIEWS
    return {name: dict(zip("qkv", ts, strict=True)) for name, ts in views.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STRIDED_VIEWS)
def test_strides(name: str, dtype: str, device: str) -> None:
    """Every engine, on views. o and dq are dense in the order of q's strides, dk and dv in that of k and v."""
    t = strided_views(dtype, device)[name]
    p = Problem("forward", dtype, {n: values_of(x) for n, x in t.items()}, {"causal": True})
    backward = p.backward()
    others = {n: x for n, x in backward.tensors(device).items() if n not in t}
    for call, tensors in ((p, t), (backward, t | others)):
        engines = call.engines(tensors)
        assert engines
        for engine in engines:
            outputs = call.call(tensors, algo=engine)
            for got, result in zip(outputs, call.results(), strict=True):
                assert_close(got, result, engine)
            for got, like in zip(outputs[:3] if call is backward else outputs[:1], t.values(), strict=False):
                order = sorted(range(4), key=lambda i: -abs(like.strides[i]))
                assert sorted(range(4), key=lambda i: -got.strides[i]) == order and np.prod(got.shape) == got.size
    if name == "bshd":  # do and o in the same memory order
        bshd = {n: tensor(backward.arrays[n].swapaxes(1, 2), dtype, device).permute((0, 2, 1, 3)) for n in ("do", "o")}
        for engine in backward.engines(t | others | bshd):
            for got, result in zip(backward.call(t | others | bshd, algo=engine), backward.results(), strict=True):
                assert_close(got, result, engine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layout_names_the_dimensions(dtype: str, device: str) -> None:
    """layout="bshd" is a permutation of the dimensions of all tensors but lse."""
    p = problem(dtype, (2, 70, 4, 16), (2, 65, 2, 16), layout="bshd", causal=True)
    for made in (p, p.backward()):
        made.check(device)
        t = made.tensors(device)
        other = Problem(made.direction, dtype, made.arrays, made.numbers | {"layout": "bhsd"})
        turned = {n: x.permute((0, 2, 1, 3)) if x.ndim == 4 else x for n, x in t.items()}
        for engine in made.engines(t):
            for a, b in zip(made.call(t, algo=engine), other.call(turned, algo=engine), strict=True):
                b = b.permute((0, 2, 1, 3)) if b.ndim == 4 else b
                assert (a.shape, a.strides) == (b.shape, b.strides)
                np.testing.assert_array_equal(values_of(a), values_of(b), err_msg=engine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out(dtype: str, device: str) -> None:
    p = problem(dtype, (2, 2, 67, 12), (2, 2, 65, 12), (2, 2, 65, 10))
    t, (o, lse) = p.tensors(device), p.results()
    dense = (2 * 67 * 10, 67 * 10, 10, 1)
    for strides in (
        dense,
        (2 * 67 * 10, 10, 20, 1),
        (67 * 40, 67 * 20, 20, 1),
        (67 * 20, 67 * 10, -10, 1),
        (5000, 2011, 29, 2),
    ):
        for engine in p.engines(t, out=framed((2, 2, 67, 10), strides, dtype, device)[0]):
            out, margins_untouched = framed((2, 2, 67, 10), strides, dtype, device)
            got, sums = p.call(t, algo=engine, out=out)
            assert got.data_ptr == out.data_ptr and got.strides == out.strides
            assert_close(out, o, engine)
            assert_close(sums, lse, engine)
            assert margins_untouched(), engine


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_of_the_bias(dtype: str, device: str) -> None:
    """A bias may be any view. Its gradient is dense, and has the shape of the view."""
    whole = np.random.default_rng(0).normal(size=(2, 70, 2, 80))
    own = "float64" if dtype == "float64" else "float32"
    t = tensor(reference.rounded(whole, own), own, device)
    views = {
        "permuted": t.permute((2, 0, 1, 3))[..., 3:68],
        "repeated": t.as_strided((2, 2, 70, 65), (0, 0, 0, 1), 5),
        "reversed": t.as_strided((70, 65), (-160, 2), 69 * 160),
        "one element": t.as_strided((1,), (1,), 1),
    }
    for name, bias in views.items():
        p = problem(dtype, (2, 2, 70, 16), (2, 2, 65, 16), causal=True, bias=values_of(bias), bias_dtype=own)
        for made in (p, p.backward(bias_gradient=True)):
            given = made.tensors(device) | {"bias": bias}
            for engine in made.engines(given):
                for got, result in zip(made.call(given, algo=engine), made.results(), strict=True):
                    assert_close(got, result, f"{engine} {name}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_is_one_number(dtype: str, device: str) -> None:
    """The gradient of a sum of o has strides of 0."""
    p = problem(dtype, (2, 4, 70, 16), (2, 2, 65, 16), causal=True).backward()
    p = changed(p, do=np.full(p.arrays["do"].shape, 0.5))
    t = p.tensors(device)
    t["do"] = dnn.full((1,), 0.5, dtype=dtype, device=device).as_strided(p.arrays["do"].shape, (0, 0, 0, 0), 0)
    for engine in p.engines(t):
        for got, result in zip(p.call(t, algo=engine), p.results(), strict=True):
            assert_close(got, result, engine)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_memory_grows_with_rows_not_with_scores(direction: str, device: str) -> None:
    """The scores would need 16 MiB. All results together need 0.2 MiB."""
    p = problem("float32", (1, 1, 2048, 8), (1, 1, 2048, 8), causal=True)
    if direction == "backward":
        o = np.zeros(p.arrays["q"].shape)
        p = Problem("backward", "float32", p.arrays | {"o": o, "do": o, "lse": o[..., 0]}, p.numbers)
    t = p.tensors(device)
    for engine in p.engines(t):
        p.call(t, algo=engine)
        dnn.synchronize(device)
        before = dnn.memory_stats(device)["allocated_bytes"]
        dnn.reset_peak_memory(device)
        p.call(t, algo=engine)
        assert dnn.memory_stats(device)["peak_allocated_bytes"] - before < 4 * 2**20, engine


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_out_in_other_forms(dtype: str, device: str) -> None:
    """The dimensions of out are those of q: in "bshd", packed, and in decode."""
    cu = [0, 10, 40]
    for p in (problem(dtype, (2, 33, 4, 16), (2, 40, 2, 16), layout="bshd"),
              problem(dtype, (40, 4, 16), (40, 2, 16), cu_q=cu, cu_kv=cu, max_q=30, max_kv=30),
              problem(dtype, (2, 3, 4, 16), (2, 40, 2, 16), direction="decode", lengths=[40, 7])):  # fmt: skip
        t, (o, lse), shape = p.tensors(device), p.results(), p.arrays["q"].shape
        strides = [1, *np.cumprod([n + 1 for n in shape[:0:-1]])][::-1]
        for engine in p.engines(t, out=framed(shape, strides, dtype, device)[0]):
            out, margins_untouched = framed(shape, strides, dtype, device)
            got, sums = p.call(t, algo=engine, out=out)
            assert got.data_ptr == out.data_ptr and margins_untouched()
            assert_close(out, o, engine)
            assert_close(sums, lse, engine)


def test_empty(device: str) -> None:
    def forward(q: tuple[int, ...], k: tuple[int, ...], **options: Any) -> list[np.ndarray]:
        p = problem("float32", q, k, **options)
        return [values_of(r) for r in p.call(p.tensors(device))]

    for q, k in (((0, 2, 5, 8), (0, 2, 6, 8)), ((2, 0, 5, 8), (2, 1, 6, 8)), ((2, 2, 0, 8), (2, 1, 6, 8))):
        o, lse = forward(q, k)
        assert o.shape == q and lse.shape == q[:3]
        p = problem("float32", q, k).backward()
        dq, dk, dv = (values_of(r) for r in p.call(p.tensors(device)))
        assert dq.shape == q and dk.shape == dv.shape == k and not dk.any() and not dv.any()
    o, lse = forward((2, 2, 5, 8), (2, 1, 0, 8))
    assert o.shape == (2, 2, 5, 8) and not o.any() and (lse == -np.inf).all()
    o, lse = forward((2, 2, 5, 8), (2, 1, 0, 8), sink=[0.5, -1.5])
    assert not o.any() and (lse[:, 0] == 0.5).all() and (lse[:, 1] == -1.5).all()
    p = problem("float32", (2, 2, 5, 8), (2, 1, 0, 8), sink=[0.5, -1.5]).backward()
    dq, dk, dv, dsink = (values_of(r) for r in p.call(p.tensors(device)))
    assert not dq.any() and dk.shape == dv.shape == (2, 1, 0, 8) and not dsink.any()
    packed = {"cu_q": [0, 0, 0], "cu_kv": [0, 0, 0], "max_q": 4, "max_kv": 4}
    o, lse = forward((0, 2, 8), (0, 2, 8), **packed)
    assert o.shape == (0, 2, 8) and lse.shape == (2, 0)
    o, lse = forward((3, 2, 8), (0, 2, 8), **packed)
    assert not o.any() and (lse == -np.inf).all()
    o, lse = forward((2, 1, 2, 8), (2, 0, 2, 8), direction="decode", lengths=[0, 0])
    assert not o.any() and (lse == -np.inf).all()
    assert forward((0, 1, 2, 8), (0, 4, 2, 8), direction="decode", lengths=np.zeros(0))[0].shape == (0, 1, 2, 8)


# ---- Contents out of range, determinism, graphs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_contents_out_of_range_are_clamped(dtype: str, device: str) -> None:
    huge = 2**31 - 1
    p = problem(dtype, (3, 2, 20, 8), (3, 2, 30, 8), q_lengths=[-5, huge, 7], kv_lengths=[9, -huge, huge], causal=True)
    p.check(device)
    p.backward().check(device)
    cu = {"cu_q": [-7, 12, huge], "cu_kv": [-huge, 30, huge], "max_q": 20, "max_kv": 25}
    p = problem(dtype, (30, 2, 8), (40, 2, 8), **cu)
    p.check(device)
    p.backward().check(device)
    pages = np.array([[-3, 2, huge], [0, 5, 4]])
    p = problem(dtype, (2, 3, 2, 8), (5, 16, 2, 8), direction="decode", lengths=[huge, -4], pages=pages)
    p.check(device)
    # Wrong numbers give wrong results only.
    p = problem(dtype, (30, 2, 8), (40, 2, 8), cu_q=[20, 5, 30, 1], cu_kv=[40, 0, 10, 50], max_q=20, max_kv=25)
    o, lse = (tensor(np.zeros(s), t, device) for s, t in (((30, 2, 8), dtype), ((2, 30), "float32")))
    t = p.tensors(device)
    for engine in p.engines(t):
        assert p.call(t, algo=engine)[0].shape == (30, 2, 8)
    backward = Problem("backward", dtype, p.arrays, p.numbers)
    for engine in backward.engines(t | {"o": o, "do": o, "lse": lse}):
        backward.call(t | {"o": o, "do": o, "lse": lse}, algo=engine)
    dnn.synchronize(device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeats_itself(dtype: str, device: str) -> None:
    forward = problem(dtype, (2, 4, 70, 16), (2, 2, 130, 16), causal=True, align="bottom_right")
    for p in (forward, forward.backward()):
        t = p.tensors(device)
        (report,) = dnn.explain(p.call, t)
        for e in report.engines:
            if e.why_not or "nondeterministic" in e.traits:
                continue
            first = [bytes(values_of(r)) for r in p.call(t, algo=e.name)]
            for _ in range(20):
                assert [bytes(values_of(r)) for r in p.call(t, algo=e.name)] == first, e.name


@pytest.mark.gpu
@pytest.mark.torch
def test_repeats_itself_under_load() -> None:
    """100 calls give the same bits, while a product on another stream takes a changing part of the device."""
    import torch

    side, x = torch.cuda.Stream(), torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    forward = problem("bfloat16", (2, 8, 700, 64), (2, 2, 900, 64), causal=True, align="bottom_right")
    decode = problem("bfloat16", (2, 1, 8, 64), (2, 2000, 2, 64), direction="decode", lengths=[2000, 700])
    for p in (forward, forward.backward(), decode):
        t = p.tensors("cuda:0")
        for e in dnn.explain(p.call, t)[0].engines:
            if e.why_not or "nondeterministic" in e.traits:
                continue
            first = [torch.from_dlpack(r).clone() for r in p.call(t, algo=e.name)]
            for n in range(100):
                with torch.cuda.stream(side):
                    for _ in range(n % 3):
                        torch.matmul(x, x)
                again = [torch.from_dlpack(r) for r in p.call(t, algo=e.name)]
                assert all(map(torch.equal, again, first)), e.name


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("size", [64, 256])
def test_64k_rows(size: int) -> None:
    """64K x 64K scores would need 8 GiB. Some rows are compared with the formulas in float64."""
    import torch

    n = 65536
    torch.manual_seed(size)
    q, k, v, do = (torch.randn(1, 1, n, size, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    rows = torch.tensor([100, 127, 4095, 40000, n - 1], device="cuda")
    z = (q[0, 0, rows].double() @ k[0, 0].double().T) * size**-0.5
    z = z.masked_fill(torch.arange(n, device="cuda") > rows[:, None], -np.inf)
    want, probabilities = z.softmax(-1) @ v[0, 0].double(), z.softmax(-1)
    of_z = probabilities * (
        do[0, 0, rows].double() @ v[0, 0].double().T - (do[0, 0, rows].double() * want).sum(-1)[:, None]
    )
    want_dq = of_z @ k[0, 0].double() * size**-0.5
    operands = [dnn.from_dlpack(t) for t in (q, k, v)]
    for direction, call in (("forward", dnn.attention_forward), ("backward", dnn.attention_backward)):
        if direction == "backward":
            operands = [dnn.from_dlpack(do), *operands, *dnn.attention_forward(*operands, causal=True)]
        for e in dnn.explain(call, *operands, causal=True)[0].engines:
            if e.why_not or not is_fast(e.name):
                continue
            call(*operands, causal=True, algo=e.name)  # compiles
            dnn.synchronize("cuda:0")
            before = dnn.memory_stats("cuda:0")["allocated_bytes"]
            dnn.reset_peak_memory("cuda:0")
            result = torch.from_dlpack(call(*operands, causal=True, algo=e.name)[0])
            assert dnn.memory_stats("cuda:0")["peak_allocated_bytes"] - before < 10 * q.nbytes, e.name
            got, right = result[0, 0, rows].double(), want if direction == "forward" else want_dq
            # Probabilities and gradients of scores are rounded to bfloat16, as are results.
            assert ((got - right).abs() <= 2.0**-6 * (right.abs() + right.abs().amax(-1, keepdim=True))).all(), e.name


def test_any_number_of_threads() -> None:
    code = """
import hashlib, numpy as np, pyminidnn as dnn
rng = np.random.default_rng(0)
q, do = rng.normal(size=(2, 2, 4, 150, 32)).astype("float32")
k, v = rng.normal(size=(2, 2, 2, 170, 32)).astype("float32")
for engine in dnn.engines("attention", "cpu"):
    try:
        o, lse = dnn.attention_forward(q, k, v, causal=True, algo=engine)
        results = [o, lse, *dnn.attention_backward(do, q, k, v, o, lse, causal=True, algo=engine)]
        cache = [dnn.asarray(x).permute((0, 2, 1, 3)) for x in (q[:, :, :1], k, v)]
        results += dnn.attention_decode(*cache, lengths=np.array([170, 33], "int32"), algo=engine)
    except dnn.NotSupported:
        continue
    print(engine, hashlib.sha256(b"".join(x.numpy().tobytes() for x in results)).hexdigest())
"""
    (output,) = outputs_by_threads(code)
    assert output.count("\n") >= 1


def test_a_graph_takes_other_lengths_and_pages(device: str) -> None:
    """The contents of lengths and pages are no part of a recorded call."""
    p = problem("float32", (2, 1, 4, 16), (8, 16, 2, 16), direction="decode", lengths=[5, 64],
                pages=np.arange(8).reshape(2, 4))  # fmt: skip
    fused = dnn.fuse(lambda q, k, v, lengths, pages: dnn.attention_decode(q, k, v, lengths=lengths, pages=pages))
    for lengths, order in (([5, 64], np.arange(8)), ([64, 1], np.arange(8)[::-1]), ([0, 33], np.arange(8) // 2)):
        other = changed(p, lengths=np.array(lengths), pages=order.reshape(2, 4))
        t = other.tensors(device)
        for got, want in zip(fused(*(t[n] for n in ("q", "k", "v", "lengths", "pages"))), other.call(t), strict=True):
            np.testing.assert_array_equal(values_of(got), values_of(want))


def test_a_graph_of_forward_and_backward(device: str) -> None:
    p = problem("float32", (2, 4, 33, 16), (2, 2, 40, 16), **{n: v for n, v in ALL_OPTIONS.items() if n != "bias"})

    def both(t: dict[str, dnn.DeviceTensor]) -> list[dnn.DeviceTensor]:
        o, lse = p.call(t)
        return [o, lse, *Problem("backward", "float32", p.arrays, p.numbers).call(t | {"do": o, "o": o, "lse": lse})]

    t = p.tensors(device)
    for got, want in zip(dnn.fuse(both)(t), both(t), strict=True):
        np.testing.assert_array_equal(values_of(got), values_of(want))


# ---- Errors


class Given:
    """q, k and v [2, 4, 5, 8] of ones on the device of a test, and other tensors of ones there."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.q, self.k, self.v = (self.ones(2, 4, 5, 8) for _ in range(3))

    def ones(self, *shape: int, dtype: str = "float32") -> dnn.DeviceTensor:
        return dnn.full(shape, 1, dtype=dtype, device=self.device)

    def ints(self, *shape: int) -> dnn.DeviceTensor:
        return self.ones(*shape, dtype="int32")

    def forward(self, q: Any = None, k: Any = None, v: Any = None, **options: Any) -> Any:
        return dnn.attention_forward(
            self.q if q is None else q, self.k if k is None else k, self.v if v is None else v, **options
        )

    def packed(self, **options: Any) -> Any:
        usual = {"cu_q": self.ints(3), "cu_kv": self.ints(3), "max_q": 4, "max_kv": 4}
        return self.forward(*(t[0] for t in (self.q, self.k, self.v)), **usual | options)

    def backward(self, do: Any = None, lse: Any = None, **options: Any) -> Any:
        lse = self.ones(2, 4, 5) if lse is None else lse
        return dnn.attention_backward(self.q if do is None else do, self.q, self.k, self.v, self.q, lse, **options)

    def decode(self, q: Any = None, **options: Any) -> Any:
        cache = self.ones(2, 16, 4, 8)
        return dnn.attention_decode(
            self.ones(2, 1, 4, 8) if q is None else q, cache, cache, **{"lengths": self.ints(2)} | options
        )


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda g: g.forward(g.ones(2, 12, 5, 8), g.ones(2, 5, 5, 8), g.ones(2, 5, 5, 8)), dnn.ShapeError,
         "attention_forward: q has 12 heads, k has 5; heads of q must be a multiple of those of k"),
        (lambda g: g.forward(g.q[0]), dnn.ShapeError, "q, k and v must have 4 dimensions; got q [4, 5, 8]"),
        (lambda g: g.forward(g.ones(2, 4, 5, 7)), dnn.ShapeError,
         "q [2, 4, 5, 7] and k [2, 4, 5, 8] must have equal head sizes; got 7 and 8"),
        (lambda g: g.forward(v=g.ones(2, 4, 6, 8)), dnn.ShapeError, "must have equal numbers of rows; got 5 and 6"),
        (lambda g: g.forward(v=g.ones(2, 2, 5, 8)), dnn.ShapeError, "must have equal numbers of heads; got 4 and 2"),
        (lambda g: g.forward(g.ones(3, 4, 5, 8)), dnn.ShapeError, "must have equal batch sizes; got 3 and 2"),
        (lambda g: g.forward(*[g.ones(1, 1, 2, 577)] * 3), dnn.ShapeError, "supported are 1 to 576"),
        (lambda g: g.forward(k=g.k.to(dtype="float16")), dnn.DTypeError, "q is float32, k is float16; cast one"),
        (lambda g: g.forward(*[g.q.to(dtype="int8")] * 3), dnn.DTypeError, "q is int8; supported are"),
        (lambda g: g.forward(scale=float("inf")), dnn.ShapeError, "scale must be finite; got inf"),
        (lambda g: g.forward(softcap=-1.0), dnn.ShapeError, "softcap must be finite and not negative; got -1"),
        (lambda g: g.forward(dropout=1.0), dnn.ShapeError, "dropout must be at least 0 and below 1; got 1"),
        (lambda g: g.forward(dropout=0.5, seed=-1), dnn.ShapeError, "seed and offset must not be negative; got -1 and 0"),
        (lambda g: g.forward(align="right"), dnn.ShapeError, "align must be 'top_left' or 'bottom_right'; got 'right'"),
        (lambda g: g.forward(layout="sbhd"), dnn.ShapeError, "layout must be 'bhsd' or 'bshd'; got 'sbhd'"),
        (lambda g: g.forward(window=5), dnn.ShapeError, "window must be (left, right) or None; got 5"),
        (lambda g: g.forward(window=(2, -1)), dnn.ShapeError, "its right size is -1"),
        (lambda g: g.forward(bias=g.ones(3, 5, 5)), dnn.ShapeError,
         "bias [3, 5, 5] does not broadcast to the scores [2, 4, 5, 5]"),
        (lambda g: g.forward(bias=g.ones(1, 1, 1, 5, 5)), dnn.ShapeError, "bias [1, 1, 1, 5, 5] does not broadcast"),
        (lambda g: g.forward(bias=g.ints(5, 5)), dnn.DTypeError, "bias must be bool (false hides)"),
        (lambda g: g.forward(alibi=g.ones(3)), dnn.ShapeError, "alibi must be [4] or [batch, heads]; got [3]"),
        (lambda g: g.forward(alibi=g.ones(3, 4)), dnn.ShapeError, "alibi must be [2, 4] or [heads]; got [3, 4]"),
        (lambda g: g.forward(sink=g.ones(4, dtype="float64")), dnn.DTypeError, "sink must be float32; got float64"),
        (lambda g: g.forward(q_lengths=g.ints(3)), dnn.ShapeError, "q_lengths must be [2] for the batch; got [3]"),
        (lambda g: g.forward(kv_lengths=g.ones(2)), dnn.DTypeError, "kv_lengths must be int32; got float32"),
        (lambda g: g.forward(max_q=3), dnn.ShapeError,
         "max_q and max_kv are for packed sequences; cu_q is not given"),
        (lambda g: g.forward(cu_q=g.ints(3), cu_kv=g.ints(3), max_q=1, max_kv=1), dnn.ShapeError,
         "cu_q is given, so q, k and v must be [rows, heads, D]; got q [2, 4, 5, 8]"),
        (lambda g: g.packed(cu_kv=None), dnn.ShapeError, "cu_q and cu_kv must be given together"),
        (lambda g: g.packed(cu_kv=g.ints(4)), dnn.ShapeError, "cu_kv must be [3] like cu_q; got [4]"),
        (lambda g: g.packed(max_kv=None), dnn.ShapeError, "cu_q is given, so max_q and max_kv must be, too"),
        (lambda g: g.packed(max_q=-1), dnn.ShapeError, "max_q and max_kv must not be negative; got -1 and 4"),
        (lambda g: g.packed(q_lengths=g.ints(2)), dnn.ShapeError, "cu_q is given, so q_lengths and kv_lengths must not be"),
        (lambda g: g.forward(out=g.ones(2, 4, 5, 9)), dnn.ShapeError, "out must be [2, 4, 5, 8]; got [2, 4, 5, 9]"),
        (lambda g: g.forward(out=g.v), dnn.ShapeError, "out shares memory with v; pass another tensor"),
        (lambda g: g.forward(algo="flush"), dnn.NotSupported, "algo='flush' names no engine for attention forward"),
        (lambda g: g.backward(do=g.ones(2, 4, 6, 8)), dnn.ShapeError, "attention_backward: do must be [2, 4, 5, 8] like o"),
        (lambda g: g.backward(lse=g.ones(2, 4, 6)), dnn.ShapeError, "lse must be [2, 4, 5] like the result of"),
        (lambda g: g.backward(lse=g.ones(2, 4, 5, dtype="float16")), dnn.DTypeError, "lse must be float32; got float16"),
        (lambda g: g.backward(bias_gradient=True), dnn.ShapeError,
         "bias_gradient needs a bias of floating-point numbers; bias is not given"),
        (lambda g: g.backward(bias=g.ones(5, 5, dtype="bool"), bias_gradient=True), dnn.ShapeError, "the bias is bool"),
        (lambda g: g.decode(g.ones(2, 17, 4, 8)), dnn.ShapeError, "at most 16 are supported"),
        (lambda g: g.decode(lengths=g.ints(3)), dnn.ShapeError, "lengths must be [2] for the batch; got [3]"),
        (lambda g: g.decode(window=-1), dnn.ShapeError, "window"),
        (lambda g: g.decode(pages=g.ints(2)), dnn.ShapeError, "pages must be [batch, pages of a sequence]; got [2]"),
        (lambda g: g.decode(pages=g.ints(3, 1)), dnn.ShapeError, "pages must be [2, 1] for the batch; got [3, 1]"),
        (lambda g: dnn.attention_decode(g.ones(2, 1, 4, 8), *[g.ones(3, 20, 4, 8)] * 2, lengths=g.ints(2),
                                        pages=g.ints(2, 1)), dnn.ShapeError,
         "k_cache has pages of 20 rows; the page size must be a multiple of 16"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[Given], Any], kind: type[Exception], text: str, device: str) -> None:
    given = Given(device)
    with pytest.raises(kind) as caught:
        call(given)
    assert text in str(caught.value) and str(caught.value).startswith("attention_")
    assert all((values_of(t) == 1).all() for t in (given.q, given.k, given.v))


@pytest.mark.gpu
def test_tensors_on_two_devices() -> None:
    here, there = Given("cuda:0"), Given("cpu")
    with pytest.raises(dnn.DeviceError, match="attention_forward: q is on cuda:0, k is on cpu"):
        here.forward(k=there.k)
    with pytest.raises(dnn.DeviceError, match="q is on cuda:0, sink is on cpu; move one"):
        here.forward(sink=there.ones(4))


def test_a_cache_without_pages(device: str) -> None:
    """No page of the cache belongs to a sequence, so no row of it is read."""
    p = problem(
        "float32", (3, 1, 2, 8), (1, 16, 2, 8), direction="decode", lengths=[16, 16, 16], pages=np.zeros((3, 0))
    )
    for engine, (o, lse) in every_engine(p, device):
        assert not o.any() and (lse == -np.inf).all(), engine


def test_sequences_longer_than_all_rows(device: str) -> None:
    """max_q and max_kv may exceed the rows. They are sizes of the bias, and number the elements of dropout."""
    bias = np.random.default_rng(0).normal(size=(2, 1, 40, 50))
    p = problem("float32", (30, 2, 8), (33, 2, 8), cu_q=[0, 20, 30], cu_kv=[0, 13, 33], max_q=40, max_kv=50, bias=bias,
                dropout=0.5, seed=1)  # fmt: skip
    p.check(device)
    p.backward(bias_gradient=True).check(device)


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_captured_calls_take_other_lengths_and_pages(dtype: str) -> None:
    """A CUDA graph of forward, backward and decode, replayed after lengths and pages were changed, and all memory that
    can be allocated was written. Workspace that a call assumes to be clear must be cleared in the graph."""
    import torch
    from test_cuda_graphs import TorchGraph, poison

    device, cu = "cuda:0", np.array([0, 70, 70, 150])
    forward = problem(dtype, (3, 4, 70, 64), (3, 2, 130, 64), causal=True, align="bottom_right", q_lengths=[70, 3, 66],
                      kv_lengths=[130, 3, 0])  # fmt: skip
    packed = problem(dtype, (150, 4, 64), (150, 2, 64), cu_q=cu, cu_kv=cu, max_q=100, max_kv=100)
    decode = problem(dtype, (3, 1, 8, 64), (24, 16, 2, 64), direction="decode", lengths=[128, 5, 0],
                     pages=np.arange(24).reshape(3, 8))  # fmt: skip
    others: dict[str, Sequence[Any]] = {
        "q_lengths": [0, 70, 20], "kv_lengths": [5, 130, 90], "cu_q": [0, 10, 80, 150], "cu_kv": [20, 20, 120, 150],
        "lengths": [0, 128, 77], "pages": np.arange(24)[::-1].reshape(3, 8),
    }  # fmt: skip
    for p in (forward, forward.backward(), packed, packed.backward(), decode):
        t = p.tensors(device)
        for engine in p.engines(t):
            graph = TorchGraph()
            handle = dnn.Handle(device, stream=graph.stream)
            p.call(t, algo=engine, handle=handle)
            with graph.capture():
                outputs = p.call(t, algo=engine, handle=handle)
            changes = {n: np.asarray(a) for n, a in others.items() if n in p.arrays}
            for arrays in (p.arrays, p.arrays | changes, p.arrays):
                kept = poison(handle)
                for name in changes:
                    dnn.transform(dnn.asarray(arrays[name].astype("int32")).to(device=device), out=t[name])
                torch.cuda.synchronize()
                graph.replay()
                for got, want in zip(outputs, p.call(t, algo=engine), strict=True):
                    np.testing.assert_array_equal(values_of(got), values_of(want), err_msg=engine)
                assert all(np.isnan(values_of(k)).all() for k in kept), "a replay wrote into another tensor"
            graph.destroy()
