# SPDX-License-Identifier: Apache-2.0
"""Rewrites of graphs, which run when a recording ends; regions of calls that read the same tensor; and cheap values, which
several regions compute."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from support import values_of
from test_graph import on, same
from test_regions import ALL_DTYPES, DTYPES, EPS, bits, elements, engines_of, forced, listed, random_elements

import pyminidnn as dnn
from pyminidnn import _C

REAL = DTYPES
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-40, 1.5, -1.5, 6e4, -6e4, 3e38, -90.0, 90.0, 1e-8, -11.0]


def rewrites(graph: dnn.Graph) -> list[str]:
    """For each node, its family and the names of its rewrites. text() and why() agree about them."""
    lines = [line.partition("; rewritten: ")[2] for line in str(graph).splitlines() if "  # " in line]
    assert sorted(lines) == sorted(
        line.partition("; rewritten: ")[2] for line in graph.why().splitlines() if line.startswith("  node ")
    )
    return [f"{family} {name}".strip() for (family, *_), name in zip(graph._ended().nodes, lines, strict=True)]


def special(dtype: str, device: str) -> dnn.DeviceTensor:
    """Special values, and random ones."""
    with np.errstate(over="ignore"):
        values = np.concatenate([SPECIAL, np.random.default_rng(0).standard_normal(301 - len(SPECIAL)) * 5])
    return dnn.asarray(np.broadcast_to(values, (7, 301)), device=device).to(dtype=dtype)


def sigmoid(x: Any) -> Any:
    return dnn.activation_forward(x, "sigmoid")


# ---- rewrites of formulas: a function of x, the name of the rewrite, and whether it keeps the bits

FORMULAS: dict[str, tuple[Callable[[Any], Any], str, bool]] = {
    "maximum": (lambda x: dnn.maximum(x, 0), "relu", True),
    "maximum in place": (lambda x: dnn.maximum(x, 0.0, out=x), "relu", True),
    "where gt": (lambda x: dnn.where(x > 0, x, 0.1 * x), "leaky_relu", True),
    "where lt": (lambda x: dnn.where(dnn.lt(0.0, x), x, x * 0.1), "leaky_relu", True),
    "where with a negative slope": (lambda x: dnn.where(x > -0.0, x, -2.0 * x), "leaky_relu", True),
    "where with an infinite slope": (lambda x: dnn.where(x > 0, x, x * float("inf")), "leaky_relu", True),
    "sigmoid first": (lambda x: sigmoid(x) * x, "silu", False),
    "sigmoid second": (lambda x: x * sigmoid(x), "silu", False),
}


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_agrees_for_special_values(name: str, dtype: str, device: str) -> None:
    f, rewrite, keeps_bits = FORMULAS[name]
    x = special(dtype, device)
    for view in (x, x[:, ::2], x.T):
        a, b, c, d = (view.copy() for _ in range(4))
        fused, each = dnn.fuse(f), dnn.fuse(f, rounding="each")
        assert rewrites(fused.graph(a)) == [f"activation {rewrite}"]
        got, want = fused(a), f(b)
        assert (got.dtype, got.shape, got.strides) == (want.dtype, want.shape, want.strides)
        assert bits(each(c)) == bits(f(d)) and bits(c) == bits(d)
        if keeps_bits:
            assert rewrites(each.graph(view.copy())) == [f"activation {rewrite}"]
            assert bits(got) == bits(want)
        else:
            assert rewrites(each.graph(view.copy())) == ["activation", "pointwise"]
            check_close(f, view, got, want, dtype)


def check_close(f: Callable[[Any], Any], x: Any, got: Any, want: Any, dtype: str) -> None:
    """Two formulas in two roundings at most. NaN, infinities and the signs of zeros agree. A result of at most 1.2e-36
    may be zero, because short formulas flush small numbers."""
    g, w = (values_of(t).astype("float64") for t in (got, want))
    exact = values_of(f(x.to(dtype="float64"))).astype("float64")
    assert np.array_equal(np.isnan(g), np.isnan(w)) and np.array_equal(np.isinf(g), np.isinf(w))
    number, finite = ~np.isnan(g), np.isfinite(g)
    assert np.array_equal(np.signbit(g[number]), np.signbit(w[number]))
    g, exact = g[finite], exact[finite]
    least = 2.0**-24 if dtype == "float16" else 1.2e-36
    assert (np.abs(g - exact) <= 4 * EPS[dtype] * np.abs(exact) + least).all()


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "the first operand is the number": lambda x, y: dnn.maximum(0, x),
    "-0": lambda x, y: dnn.maximum(x, -0.0),
    "another number": lambda x, y: dnn.maximum(x, 1.0),
    "a tensor": lambda x, y: dnn.maximum(x, y * 0.0),
    "a broadcast operand": lambda x, y: dnn.maximum(x[:, :1] + y * 0.0, 0.5),
    "ge": lambda x, y: dnn.where(dnn.ge(x, 0.0), x, x * 0.1),
    "a threshold": lambda x, y: dnn.where(x > 1.0, x, x * 0.1),
    "other branches": lambda x, y: dnn.where(x > 0, x * 0.1, x),
    "another value": lambda x, y: dnn.where(x > 0, x, y * 0.1),
    "a slope that is a tensor": lambda x, y: dnn.where(x > 0, x, x * y),
    "another sigmoid": lambda x, y: sigmoid(y) * x,
    "a derivative": lambda x, y: dnn.activation_backward(x, x, x, "sigmoid") * x,
    "an engine": lambda x, y: dnn.maximum(x, 0, algo="vectorized"),
    "an engine of the sigmoid": lambda x, y: x * dnn.activation_forward(
        x, "sigmoid", algo="vectorized"),
    "a handle": lambda x, y: dnn.maximum(x, 0, handle=dnn.Handle(x.device)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_formulas_that_stay(name: str, device: str) -> None:
    f, x, y = KEPT[name], special("float32", device), elements("float32", (7, 301), device, 1)
    if name == "a handle" and device != "cpu":
        pytest.skip("a recording has one stream")
    for rounding in ("fused", "each"):
        fused = dnn.fuse(f, rounding=rounding)
        assert not any(node.partition(" ")[2] for node in rewrites(fused.graph(x, y)))
        assert bits(fused(x, y)) == bits(f(x, y)) or rounding == "fused"


def test_a_number_that_is_an_integer_stays(device: str) -> None:
    x = elements("int32", (7, 301), device, 0)
    assert rewrites(dnn.fuse(lambda x: dnn.maximum(x, 0)).graph(x))[-1] == "pointwise"


def test_a_value_that_is_used_elsewhere_stays(device: str) -> None:
    x = on(device, 8, 9)
    f = dnn.fuse(lambda x: [s := sigmoid(x), s * x])
    assert rewrites(f.graph(x)) == ["activation", "pointwise"]
    g = dnn.fuse(lambda x: [p := x * 0.1, dnn.where(x > 0, x, p)])
    assert "leaky_relu" not in str(g.graph(x))


def test_x_must_not_change_in_between(device: str) -> None:
    """The product reads other elements than the sigmoid."""

    def f(x: Any) -> Any:
        s = sigmoid(x)
        dnn.add(x, 1.0, out=x)
        return s * x

    def g(x: Any) -> Any:
        t = x.to(dtype="float64")
        dnn.add(x, 1.0, out=x)
        return t.to(dtype="float16")

    def h(x: Any) -> Any:
        test, slope = x > 0, x * 0.1
        dnn.neg(x, out=x)
        return dnn.where(test, x, slope)

    for function in (f, g, h):
        a, b = on(device, 5, 6), on(device, 5, 6)
        fused = dnn.fuse(function, rounding="each")
        assert bits(fused(a)) == bits(function(b)) and bits(a) == bits(b)
        for rounding in ("fused", "each"):
            graph = dnn.fuse(function, rounding=rounding).graph(on(device, 5, 6))
            assert not any(node.partition(" ")[2] for node in rewrites(graph))


# ---- casts

INTEGERS = ("int8", "uint8", "int32", "int64")
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def all_kinds(dtype: str, device: str) -> dnn.DeviceTensor:
    if dtype in REAL:
        return special(dtype, device)
    if dtype == "bool":
        return elements("bool", (7, 301), device, 0)
    low, high = LIMITS[dtype]
    values = np.random.default_rng(0).integers(low, high, (7, 301), dtype="int64", endpoint=True)
    values[0, :6] = [low, high, 0, 1, max(low, -1), high // 2]
    return dnn.asarray(values, device=device).to(dtype=dtype)


@pytest.mark.parametrize("middle", ALL_DTYPES)
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_a_cast_of_a_cast(dtype: str, middle: str, device: str) -> None:
    """Each pair of casts gives the bits of the calls. Pairs become one if the first one loses nothing."""
    x = all_kinds(dtype, device)
    joined = 0
    for last in ALL_DTYPES:
        f = dnn.fuse(lambda x, last=last: x.to(dtype=middle).to(dtype=last) if middle != dtype else x.to(dtype=last))
        g = f.graph(x)
        assert bits(f(x)) == bits(f.__wrapped__(x)), (dtype, middle, last)
        joined += rewrites(g) == ["transform cast of a cast"]
    wider = {"float16": ("float32", "float64"), "bfloat16": ("float32", "float64"), "float32": ("float64",),
             "bool": ALL_DTYPES, "int8": (*REAL, "int32", "int64"), "uint8": (*REAL, "int32", "int64"),
             "int32": ("float64", "int64")}  # fmt: skip
    assert (joined > 0) == (middle != dtype and middle in wider.get(dtype, ()))


def test_casts_with_other_readers_and_strides(device: str) -> None:
    x = on(device, 6, 8).to(dtype="float16")
    f = dnn.fuse(lambda x: [w := x.to(dtype="float32"), w.to(dtype="bfloat16"), w.T.to(dtype="float64")])
    assert rewrites(f.graph(x)) == ["transform", "transform cast of a cast", "transform"]
    for got, want in zip(f(x), f.__wrapped__(x), strict=True):
        assert bits(got) == bits(want) and got.strides == want.strides
    back = dnn.fuse(lambda x: x.T.to(dtype="float32").to(dtype="float16"))
    assert rewrites(back.graph(x)) == ["transform cast of a cast"]
    assert bits(back(x)) == bits(x.T) and back(x).strides == back.__wrapped__(x).strides
    scaled = dnn.fuse(lambda x: dnn.transform(x.to(dtype="float32"), alpha=0.3, dtype="float16"))
    assert rewrites(scaled.graph(x)) == ["transform", "transform"]
    over = dnn.fuse(lambda x: dnn.transform(x.to(dtype="float32"), out=x))
    assert rewrites(over.graph(x)) == ["transform", "transform"]


# ---- equal calls


def test_equal_calls_become_one(device: str) -> None:
    x, w = on(device, 8, 8), on(device, 8, 8, seed=1)

    def f(x: Any, w: Any) -> Any:
        a = dnn.tanh(dnn.matmul(x, w) * 0.5)
        b = dnn.tanh(dnn.matmul(x, w) * 0.5)
        return a + b, dnn.dropout_forward(a, 0.5, seed=3) - dnn.dropout_forward(b, 0.5, seed=3)

    for rounding in ("fused", "each"):
        fused = dnn.fuse(f, rounding=rounding)
        assert sorted(rewrites(fused.graph(x, w))) == [
            "matmul equal calls", "pointwise", "pointwise", "pointwise equal calls", "pointwise equal calls",
            "random equal calls",
        ]  # fmt: skip
        for got, want in zip(fused(x, w), f(x, w), strict=True):
            assert np.allclose(values_of(got), values_of(want), rtol=1e-5, atol=1e-6)
            assert bits(got) == bits(want) or rounding == "fused"


@pytest.mark.parametrize("which", range(3))
def test_one_of_two_equal_results_may_be_an_output(which: int, device: str) -> None:
    x = on(device, 4, 6)

    def f(x: Any) -> list[Any]:
        a, b = dnn.tanh(x), dnn.tanh(x)
        return [dnn.exp(a) - b, *[[a], [b], [a, b]][which]]

    fused = dnn.fuse(f, rounding="each")
    assert rewrites(fused.graph(x)).count("pointwise equal calls") == (which < 2)
    for got, want in zip(fused(x), f(x), strict=True):
        assert bits(got) == bits(want)


DIFFERENT: dict[str, Callable[[Any, Any], Any]] = {
    "x is written in between": lambda x, w: [dnn.tanh(x) - 1.0, dnn.add(x, w, out=x), dnn.tanh(x)],
    "a part of x is written in between": lambda x, w: [dnn.tanh(x) - 1.0, dnn.neg(w[:2], out=x[1:3]), dnn.tanh(x)],
    "another seed": lambda x, w: dnn.dropout_forward(x, 0.5, seed=1) - dnn.dropout_forward(x, 0.5, seed=2),
    "another number": lambda x, w: x * 0.5 - x * 0.25,
    "the signs of zeros": lambda x, w: x * 0.0 + dnn.reciprocal(x * -0.0),
    "another alpha": lambda x, w: dnn.activation_forward(x, "elu", alpha=1) - dnn.activation_forward(x, "elu", alpha=2),
    "another part": lambda x, w: dnn.tanh(x[:4]) - dnn.tanh(x[4:]),
    "the first result is written": lambda x, w: [a := dnn.tanh(x), dnn.add(a, 1.0, out=a), dnn.tanh(x) * 2.0],
    "the second result is written": lambda x, w: [a := dnn.tanh(x), b := dnn.tanh(x), dnn.add(b, a, out=b)][0] * 1.0,
    "an engine": lambda x, w: dnn.tanh(x) - dnn.tanh(x, algo="vectorized"),
    "in place": lambda x, w: [dnn.tanh(x, out=x), dnn.tanh(x, out=x)],
    "two sums": lambda x, w: [a := dnn.zeros(x.shape, device=x.device), dnn.add(a, x, out=a), dnn.add(a, x, out=a)][0],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_calls_stay(name: str, device: str) -> None:
    f, w = DIFFERENT[name], on(device, 8, 8, seed=1)
    fused = dnn.fuse(f, rounding="each")
    a, b = on(device, 8, 8), on(device, 8, 8)
    graph = fused.graph(on(device, 8, 8), w)
    assert not any("equal" in node for node in rewrites(graph)), graph
    for got, want in zip(listed(fused(a, w)), listed(f(b, w)), strict=True):
        assert bits(got) == bits(want)
    assert bits(a) == bits(b)


def test_constants_may_be_views_of_one_array(device: str) -> None:
    """A write to one constant may change another one."""
    memory = on(device, 9, 8)
    x, y = memory[:8], memory[1:]

    def f() -> Any:
        a = dnn.tanh(x)
        dnn.neg(y, out=y)
        return a - dnn.tanh(x)

    before = memory.copy()
    with dnn.Handle(device):
        got = dnn.fuse(f, rounding="each")()
    memory[...] = before
    assert bits(got) == bits(f())


def test_dynamic_numbers_are_respected(device: str) -> None:
    x = on(device, 50, 50)

    def f(x: Any, offset: int) -> Any:
        drop = [dnn.dropout_forward(x, 0.5, seed=1, offset=o) for o in (offset, offset, offset + 1)]
        return drop[0] + drop[1] - drop[2]

    fused = dnn.fuse(f, dynamic=("offset",), rounding="each")
    assert not any("equal" in node for node in rewrites(fused.graph(x, 0)))
    for offset in (0, 9):
        assert bits(fused(x, offset)) == bits(f(x, offset))


def test_running_statistics_are_updated_twice(device: str) -> None:
    x = on(device, 2, 3, 4, 4)
    scale, bias = dnn.ones((3,), device=device), dnn.zeros((3,), device=device)

    def f(x: Any, mean: Any, var: Any) -> Any:
        return [dnn.batch_norm_forward_training(x, scale, bias, running_mean=mean, running_var=var)[0] for _ in "12"]

    def run(call: Callable[..., Any]) -> list[Any]:
        mean, var = dnn.zeros((3,), device=device), dnn.ones((3,), device=device)
        return [*call(x, mean, var), mean, var]

    for got, want in zip(run(dnn.fuse(f)), run(f), strict=True):
        assert same(got, want)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_random_functions_with_equal_calls(first: int, device: str) -> None:
    """Each call is recorded twice. Results have the bits of the calls."""
    for seed in range(first, first + 20):
        f = random_elements(seed)
        x = [elements(ALL_DTYPES[(seed + i) % 9], (5, 33), device, seed + i) for i in range(3)]
        twice = dnn.fuse(lambda *a, f=f: [*f(*a), *f(*a)], rounding="each")
        graph = twice.graph(*x)
        for got, want in zip(twice(*x), [*f(*x), *f(*x)], strict=True):
            assert bits(got) == bits(want), f"seed {seed}:\n{graph}"


# ---- siblings


def regions(graph: dnn.Graph) -> list[list[int]]:
    return sorted(sorted(nodes) for nodes in graph._ended().regions(None))


SIBLINGS: dict[str, tuple[Callable[[Any, Any], list[Any]], list[int]]] = {
    # the function, and the sizes of its regions
    "two results": (lambda x, y: [x * 2.0, x + y], [2]),
    "a gradient with two readers": (
        lambda x, y: [(d := dnn.activation_backward(x, y, y, "silu")) * 2.0, d + x], [3]),
    "four chains": (lambda x, y: [dnn.tanh(x * 2.0), dnn.exp(x) + y, x - y, dnn.abs(x)], [6]),
    "five results": (lambda x, y: [dnn.tanh(x), dnn.exp(x), x - y, dnn.abs(x), dnn.neg(x)], [1, 4]),
    "another shape": (lambda x, y: [dnn.tanh(x), x[:2] * 2.0], [1, 1]),
    "another view": (lambda x, y: [dnn.tanh(x), dnn.exp(x.T)], [1, 1]),
    "a row": (lambda x, y: [dnn.tanh(x) + y[0], dnn.exp(y) + y[0]], [2, 2]),
    "a path between": (lambda x, y: [dnn.tanh(x) + dnn.softmax_forward(dnn.exp(x), axis=0)], [1, 1, 2]),
    "a product": (lambda x, y: [dnn.tanh(x), dnn.matmul(x, x, transpose_b=True)], [1, 1]),
    "casts": (lambda x, y: [x.to(dtype="float16"), x.to(dtype="bfloat16"), x * y], [3]),
    "x is written": (lambda x, y: [dnn.tanh(x), dnn.add(x, y, out=x)], [2]),
}  # fmt: skip


@pytest.mark.parametrize("name", SIBLINGS)
def test_siblings(name: str, device: str) -> None:
    f, sizes = SIBLINGS[name]
    shape = (7, 301)
    a, b, y = (elements("float32", shape, device, seed) for seed in (0, 0, 1))
    _C.set_allocator_checks(exact=False, poison=255)
    try:
        for rounding in ("fused", "each"):
            fused = dnn.fuse(f, rounding=rounding)
            graph = fused.graph(a, y)
            # On CUDA, rounding="each" excludes some formulas and mixes of dtypes.
            assert sorted(map(len, regions(graph))) == sizes or (rounding, device) == ("each", "cuda:0"), graph.why()
            x, x2 = a.copy(), b.copy()
            for got, want in zip(fused(x, y), f(x2, y), strict=True):
                assert np.allclose(values_of(got), values_of(want), rtol=1e-5, atol=1e-5)
                assert bits(got) == bits(want) or rounding == "fused"
            assert bits(x) == bits(x2)
    finally:
        from conftest import set_checks

        set_checks()


def test_siblings_do_not_depend_on_the_order_of_calls(device: str) -> None:
    x, y, w = (on(device, 8, 8, seed=seed) for seed in range(3))
    calls: dict[str, Callable[[], Any]] = {
        "a": lambda: dnn.tanh(x * 2.0), "b": lambda: dnn.exp(x) + y, "c": lambda: dnn.relu(dnn.matmul(x, w)),
        "d": lambda: dnn.softmax_forward(dnn.matmul(x, w) + y, axis=0),
    }  # fmt: skip
    found = set()
    for order in permutations(calls):

        def f(order: tuple[str, ...] = order) -> dict[str, Any]:
            made = {name: calls[name]() for name in order}
            return {name: made[name] for name in sorted(made)}

        with dnn.Handle(device):
            graph = dnn.fuse(f).graph()
        nodes = graph._ended().nodes
        found.add(tuple(sorted(tuple(sorted(nodes[i][1] for i in region)) for region in regions(graph))))
    assert len(found) == 1 and max(map(len, found.pop())) >= 4


def test_many_siblings_are_partitioned_fast() -> None:
    """200 readers of one tensor. The bound is for slow machines, and finds quadratic work."""
    import time

    x = on("cpu", 8, 8)

    def seconds(count: int) -> float:
        f = dnn.fuse(lambda x: [dnn.tanh(x * (i + 1.0)) for i in range(count)])
        graph = f.graph(x)._ended()
        start = time.perf_counter()
        assert len(graph.regions(None)) == count // 4
        return time.perf_counter() - start

    few, many = (min(seconds(count) for _ in range(4)) for count in (100, 400))
    assert few < 0.25 and many < 16 * few


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_random_siblings_give_the_bits_of_the_calls(first: int, device: str) -> None:
    """Functions of the same operands are recorded together, so their calls are siblings."""
    joined = 0
    for seed in range(first, first + 20):
        f, g = random_elements(seed), random_elements(seed + 1000)
        x = [elements(ALL_DTYPES[(seed + i) % 9], (5, 133), device, seed + i) for i in range(3)]
        both = dnn.fuse(lambda *a, f=f, g=g: [*f(*a), *g(*a)], rounding="each")
        graph = both.graph(*x)
        joined += max(map(len, regions(graph)))
        with forced(graph, "elementwise"):
            for got, want in zip(both(*x), [*f(*x), *g(*x)], strict=True):
                assert bits(got) == bits(want), f"seed {seed}:\n{graph}"
    assert joined > 40 and engines_of(graph)


# ---- cheap values, which each region computes for itself


def copies(graph: dnn.Graph) -> list[int]:
    """For each node, the number of regions that compute it."""
    every = [i for region in graph._ended().regions(None) for i in region]
    return [every.count(i) for i in range(len(graph._ended().nodes))]


def large(device: str) -> tuple[int, int]:
    """A shape for which loads and stores cost more than launches."""
    return (70, 301) if device == "cpu" else (2048, 2049)


def check_fused(f: Callable[..., Any], arguments: list[Any], tolerance: float = 1e-5) -> None:
    """Results with either rounding, in memory that is poisoned before."""
    _C.set_allocator_checks(exact=False, poison=255)
    try:
        for rounding in ("fused", "each"):
            got = listed(dnn.fuse(f, rounding=rounding)(*arguments))
            for g, w in zip(got, listed(f(*arguments)), strict=True):
                assert np.allclose(values_of(g), values_of(w), rtol=tolerance, atol=tolerance)
                assert bits(g) == bits(w) or rounding == "fused"
    finally:
        from conftest import set_checks

        set_checks()


RECOMPUTED: dict[str, tuple[Callable[[Any, Any], Any], list[int]]] = {
    # the function, and the number of regions that compute each of its nodes
    "a scaling": (lambda x, y: dnn.softmax_forward(dnn.tanh(p := x * 0.5), axis=0) - p, [2, 1, 1, 1]),
    "a cast, three regions": (
        lambda x, y: dnn.softmax_forward(dnn.softmax_forward(dnn.tanh(p := x.to(dtype="float64")), axis=0) * p, axis=0)
        - p, [3, 1, 1, 1, 1, 1]),
    "a value that costs another operand": (
        lambda x, y: dnn.softmax_forward(dnn.tanh(p := x * y), axis=0) - p, [1, 1, 1, 1]),
    "operands that are read anyway": (
        lambda x, y: (dnn.softmax_forward(dnn.tanh(p := x * y), axis=0) - p) * x * y, [2, 1, 1, 1, 1, 1]),
    "a value that a plain call reads": (lambda x, y: [dnn.softmax_forward(p := x * y, axis=0), dnn.tanh(p)], [1, 1, 1]),
    "maths": (lambda x, y: dnn.softmax_forward(dnn.tanh(p := dnn.exp(x)), axis=0) + p, [1, 1, 1, 1]),
    "an output": (lambda x, y: [dnn.softmax_forward(dnn.tanh(p := x * y), axis=0) + p, p], [1, 1, 1, 1]),
    "an operand that is on chip": (
        lambda x, y: dnn.softmax_forward(dnn.tanh(p := dnn.exp(x) * y), axis=0) + p, [1, 1, 1, 1, 1]),
    "an operand that is written": (
        lambda x, y: [z := dnn.softmax_forward(x, axis=0), p := z * 0.5, s := dnn.softmax_forward(dnn.tanh(p), axis=0),
                      dnn.softmax_forward(z, axis=0, out=z), s - p][-2:], []),
}  # fmt: skip


@pytest.mark.parametrize("name", RECOMPUTED)
def test_recomputed(name: str, device: str) -> None:
    f, counts = RECOMPUTED[name]
    x, y = (elements("float32", large(device), device, seed) for seed in range(2))
    fused = dnn.fuse(f)
    graph = fused.graph(x, y)
    if counts:
        assert copies(graph) == counts, graph.why()
    else:
        assert max(copies(graph)) == 1
    assert ("; recomputed" in graph.why()) == (max(copies(graph)) > 1)
    if device == "cpu":  # the product of a GPU may use TF32, and engines of softmax differ in rounding
        check_fused(f, [x, y], 1e-4)
    for got, want in zip(listed(fused(x, y)), listed(f(x, y)), strict=True):
        assert np.allclose(values_of(got), values_of(want), rtol=1e-2, atol=1e-2)


def test_a_recomputed_value_has_no_memory(device: str) -> None:
    x, y = (elements("float32", large(device), device, seed) for seed in range(2))
    fused = dnn.fuse(RECOMPUTED["a scaling"][0])
    # What softmax reads, and what it writes.
    assert fused.graph(x, y)._ended().bytes_of_temporaries(None) <= 2 * (x.nbytes + 512)


def test_a_cast_of_a_bias_is_recomputed_for_each_product(device: str) -> None:
    x, w, b = (on(device, *s).to(dtype="float16") for s in ((64, 64), (64, 64), (64,)))

    def f(x: Any, shared: bool) -> Any:
        bias = b.to(dtype="float32")
        for _ in range(3):
            y = dnn.matmul(x, w, alpha=0.125, out=dnn.empty(x.shape, device=x.device))
            x = dnn.relu(y + (bias if shared else b.to(dtype="float32"))).to(dtype="float16")
        return x

    for shared in (True, False):
        fused = dnn.fuse(f)
        graph = fused.graph(x, shared)
        assert engines_of(graph) == ["library_op"] * 3, graph.why()
        assert max(copies(graph)) == 3 and graph._ended().bytes_of_temporaries(None) <= 2 * x.nbytes
        assert np.allclose(values_of(fused(x, shared)), values_of(f(x, shared)), rtol=1e-2, atol=2e-2)
        with forced(graph, "unfused"):
            assert engines_of(graph) == ["unfused"] * 3 and bits(fused(x, shared)) == bits(f(x, shared))


def test_a_recomputed_dropout_has_the_same_numbers(device: str) -> None:
    x, y = (elements("float32", large(device), device, seed) for seed in range(2))

    def f(x: Any, y: Any, offset: int) -> Any:
        d = dnn.dropout_forward(x, 0.5, seed=3, offset=offset)
        return dnn.softmax_forward(dnn.tanh(d), axis=0) * d * y

    fused = dnn.fuse(f, dynamic=("offset",), rounding="each")
    for offset in (0, 5):
        assert np.allclose(values_of(fused(x, y, offset)), values_of(f(x, y, offset)), rtol=1e-5, atol=1e-6)


def random_reuse(seed: int) -> Callable[..., list[Any]]:
    """A function of cheap calls, softmaxes of columns and products, whose results are read several times."""

    def f(x: Any, w: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        made = [x, dnn.relu(x)]
        for _ in range(rng.integers(4, 25)):
            a, b = made[-1], made[rng.integers(len(made))]
            kind = rng.integers(8)
            if kind == 0:
                made.append(dnn.softmax_forward(a, axis=0))
            elif kind == 1:
                made.append(dnn.matmul(dnn.tanh(a), w))
            elif kind == 2:
                made.append(dnn.relu(b))
            elif kind == 3:
                made.append(dnn.tanh(a) + b)
            elif kind == 4:
                made.append(b.to(dtype="float16").to(dtype="float32"))
            elif kind == 5:
                made.append(dnn.dropout_forward(b, 0.25, seed=seed))
            elif kind == 6 and a is not x and len(made) > 4:
                dnn.mul(a, 0.5, out=a)
            else:
                made.append(dnn.minimum(a, 2.0) - b * 0.5)
        return [made[-1], made[int(rng.integers(1, len(made)))]]

    return f


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_random_functions_with_recomputed_values(first: int, device: str) -> None:
    _C.set_allocator_checks(exact=False, poison=255)
    again = 0
    try:
        for seed in range(first, first + 40):
            x, w = on(device, 40, 24, seed=seed), on(device, 24, 24) / 8.0
            f = random_reuse(seed)
            for rounding in ("fused", "each"):
                fused = dnn.fuse(f, rounding=rounding)
                graph = fused.graph(x, w)
                again += max(copies(graph)) > 1
                assert min(copies(graph)) == 1
                for got, want in zip(fused(x, w), f(x, w), strict=True):
                    assert bits(got) == bits(want) or rounding == "fused", f"seed {seed}:\n{graph}\n{graph.why()}"
                    # A value may be rounded to the other side of a float16.
                    assert np.allclose(values_of(got), values_of(want), rtol=5e-3, atol=5e-3), f"seed {seed}"
    finally:
        from conftest import set_checks

        set_checks()
    assert again >= 2 or device != "cpu"
