# SPDX-License-Identifier: Apache-2.0
"""Convolution: samples for the case lines, adjoints, comparison with torch, empty and special values, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, Operand, generator
from support import Result, Sample, assert_close, out_for, outputs_by_threads, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
TF32 = 2.0**-10  # relative error of a TF32 product: each of its two operands is rounded by at most 2^-11 of its value


def draw(rng: np.random.Generator, operand: Operand, dtype: str) -> np.ndarray:
    """Normal values, one per distinct element, since strides of zero repeat them."""
    strides = operand.strides or operand.shape
    distinct = [1 if operand.strides and s == 0 else n for n, s in zip(operand.shape, strides, strict=True)]
    return np.broadcast_to(reference.rounded(rng.normal(0, 1, distinct), dtype), operand.shape)


def attributes_of(case: Case) -> dict[str, Any]:
    spatial = len(case.operands["dy" if "dy" in case.operands else "x"].shape) - 2
    return {
        "stride": case.integers("stride", 1),
        "padding": case.padding(spatial),
        "dilation": case.integers("dilation", 1),
        "groups": case.integers("groups", 1),
        "mode": case.attributes.get("mode", "cross_correlation"),
    }


def handle_of(t: dnn.DeviceTensor, case: Case) -> dnn.Handle | None:
    return dnn.Handle(device=t.device, math="ieee") if case.attributes.get("math") == "ieee" else None


def sum_tolerance(case: Case, terms: float, scale: np.ndarray) -> np.ndarray:
    """The tolerance of sums with `terms` products each, whose magnitudes add up to `scale`."""
    tolerance = reference.tolerance(case.out_dtype, terms, scale)
    if case.dtype == "float32" and case.attributes.get("math") != "ieee":
        tolerance = tolerance + TF32 * scale
    return tolerance


def sample(case: Case) -> Sample:
    rng = generator(case)
    if case.direction == "backward_bias":
        dy = draw(rng, case.operands["dy"], case.dtype)
        tolerance = reference.tolerance(case.dtype, dy.size / dy.shape[1], reference.conv_backward_bias(np.abs(dy)))
        call = lambda t, algo, out=None: [dnn.conv_backward_bias(t["dy"], algo=algo, out=out)]
        return Sample({"dy": dy}, call, [Result(reference.conv_backward_bias(dy), tolerance)])

    attributes = attributes_of(case)
    if case.direction == "backward_data":
        dy, w = (draw(rng, case.operands[name], case.dtype) for name in ("dy", "w"))
        shape = case.operands["dx"].shape
        want = reference.conv_backward_data(dy, w, shape, **attributes)
        scale = reference.conv_backward_data(np.abs(dy), np.abs(w), shape, **attributes)
        terms = w.size / w.shape[1] / attributes["groups"]
        call = lambda t, algo, out=None: [
            dnn.conv_backward_data(
                t["dy"],
                t["w"],
                shape,
                **attributes,
                algo=algo,
                out=out_for(case, out, shape, t["dy"]),
                handle=handle_of(t["dy"], case),
            )
        ]
        return Sample({"dy": dy, "w": w}, call, [Result(want, sum_tolerance(case, terms, scale))])
    if case.direction == "backward_filter":
        dy, x = (draw(rng, case.operands[name], case.dtype) for name in ("dy", "x"))
        shape = case.operands["dw"].shape
        want = reference.conv_backward_filter(dy, x, shape, **attributes)
        scale = reference.conv_backward_filter(np.abs(dy), np.abs(x), shape, **attributes)
        call = lambda t, algo, out=None: [
            dnn.conv_backward_filter(
                t["dy"],
                t["x"],
                shape,
                **attributes,
                algo=algo,
                out=out_for(case, out, shape, t["x"]),
                handle=handle_of(t["dy"], case),
            )
        ]
        return Sample({"dy": dy, "x": x}, call, [Result(want, sum_tolerance(case, dy.size / dy.shape[1], scale))])

    x, w = (draw(rng, case.operands[name], case.dtype) for name in ("x", "w"))
    activation = case.attributes.get("activation")
    bias, filters, step = None, w.shape[0], case.integers("bias_stride", 1)
    bias_memory = reference.rounded(rng.normal(0, 1, (filters - 1) * step + 1), case.dtype)
    if "bias" in case.words:
        bias = np.lib.stride_tricks.as_strided(bias_memory, (filters,), (8 * step,))
    residual = draw(rng, case.operands["residual"], case.out_dtype) if "residual" in case.operands else None
    before = reference.conv_forward(x, w, bias, residual, **attributes)
    want = reference.activation_forward(before, activation or "identity")
    sizes = (None if v is None else np.abs(v) for v in (x, w, bias, residual))
    scale = reference.conv_forward(*sizes, **attributes)
    # The slope of the tested activations is at most 1.13. So an activation multiplies the error of its argument,
    # `before`, by at most 1.13. It also rounds intermediate values, which are below 1 + |before|.
    tolerance = 1.13 * sum_tolerance(case, w.size / w.shape[0] + 2, scale)
    if activation:
        tolerance = (
            tolerance + reference.tolerance(case.out_dtype, 8, np.abs(want)) + reference.EPS[case.out_dtype] / 64
        )

    statistics = case.direction == "forward_statistics"

    def call(t: dict[str, dnn.DeviceTensor], algo: str | None, out: Any = None) -> list[dnn.DeviceTensor]:
        b = None if bias is None else t["bias"].as_strided((filters,), (step,), 0)
        function = dnn.conv_forward_statistics if statistics else dnn.conv_forward
        result = function(
            t["x"],
            t["w"],
            b,
            t.get("residual"),
            **attributes,
            activation=activation,
            algo=algo,
            out=out_for(case, out, want.shape, t["x"]),
            handle=handle_of(t["x"], case),
        )
        return list(result) if statistics else [result]

    inputs = {"x": x, "w": w} | ({} if bias is None else {"bias": bias_memory})
    inputs |= {} if residual is None else {"residual": residual}
    results = [Result(want, tolerance)]
    if statistics:
        # An element's error e changes its square by up to e (2 |element| + e). The sums are also rounded.
        over, count = (0, *range(2, want.ndim)), want.size / want.shape[1]
        dtype = "float64" if case.out_dtype == "float64" else "float32"
        for values, error in ((want, tolerance), (want**2, (2 * np.abs(want) + tolerance) * tolerance)):
            rounding = reference.tolerance(dtype, count, (np.abs(values) + error).sum(over))
            results.append(Result(values.sum(over), np.broadcast_to(error, want.shape).sum(over) + rounding))
    return Sample(inputs, call, results, {"residual": case.out_dtype})


# Settings whose stride, padding and dilation differ from the defaults. Each setting has the shape of x, the shape of w,
# and the attributes.
SETTINGS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4, 13), (6, 2, 4), {"stride": 2, "padding": ((3, 1),), "dilation": 2, "groups": 2}),
    ((2, 6, 9, 8), (9, 2, 3, 2), {"stride": (2, 3), "padding": (1, (0, 2)), "dilation": (2, 1), "groups": 3}),
    ((2, 3, 5, 6, 4), (4, 3, 2, 3, 3), {"stride": (2, 1, 2), "padding": ((0, 1), 2, (1, 0)), "dilation": (1, 2, 1)}),
]


def engines(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    (report,) = dnn.explain(call, *args, **kwargs)
    return [e.name for e in report.engines if not e.why_not]


@pytest.mark.parametrize("mode", ["cross_correlation", "convolution"])
@pytest.mark.parametrize("x_shape, w_shape, attributes", SETTINGS)
def test_adjoints(x_shape: Any, w_shape: Any, attributes: dict[str, Any], mode: str, device: str) -> None:
    """<conv(x, w), dy> = <x, backward_data(dy, w)> = <w, backward_filter(dy, x)>, by every engine."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=x_shape), rng.normal(size=w_shape)
    dy = rng.normal(size=reference.conv_forward(x, w, **attributes).shape)
    tx, tw, tdy = (tensor(v, "float64", device) for v in (x, w, dy))
    attributes = attributes | {"mode": mode}
    products = []
    for algo in engines(dnn.conv_forward, tx, tw, **attributes):
        products.append((values_of(dnn.conv_forward(tx, tw, **attributes, algo=algo)) * dy).sum())
    for algo in engines(dnn.conv_backward_data, tdy, tw, x_shape, **attributes):
        dx = values_of(dnn.conv_backward_data(tdy, tw, x_shape, **attributes, algo=algo))
        products.append((dx * x).sum())
    for algo in engines(dnn.conv_backward_filter, tdy, tx, w_shape, **attributes):
        dw = values_of(dnn.conv_backward_filter(tdy, tx, w_shape, **attributes, algo=algo))
        products.append((dw * w).sum())
    assert len(products) >= 3
    # `products` are equal inner products. Each is a sum with one term per multiplication of the convolution, and no
    # term exceeds the product of the norms of dy, x and w.
    terms = dy.size * math.prod(w_shape[1:])
    scale = np.linalg.norm(dy) * np.linalg.norm(x) * np.linalg.norm(w)
    np.testing.assert_allclose(products, products[0], rtol=0, atol=reference.tolerance("float64", terms, scale))


@pytest.mark.parametrize("x_shape, w_shape, attributes", SETTINGS)
def test_convolution_flips_the_window(x_shape: Any, w_shape: Any, attributes: dict[str, Any], device: str) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=x_shape), rng.normal(size=w_shape)
    # The flipped window is a view with negative strides. The library reads it without a copy.
    flipped = np.flip(w, axis=tuple(range(2, w.ndim)))
    t = tensor(x, "float64", device)
    for algo in ("direct", None):
        convolved = dnn.conv_forward(t, tensor(w, "float64", device), **attributes, mode="convolution", algo=algo)
        correlated = dnn.conv_forward(t, dnn.asarray(flipped).to(device=device), **attributes, algo=algo)
        np.testing.assert_allclose(values_of(convolved), values_of(correlated), rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", range(1, 18))
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_channels(channels: int, layout: str, device: str) -> None:
    """Every number of channels and filters around the widths of vectors and tiles, on every engine."""
    rng = np.random.default_rng(channels)
    filters = 18 - channels
    x, w = rng.normal(size=(2, channels, 5, 4)), rng.normal(size=(filters, channels, 3, 2))
    dy = rng.normal(size=(2, filters, 5, 5))
    tx, tw, tdy = (tensor(v, "float64", device).to(layout=layout) for v in (x, w, dy))
    calls = [
        (dnn.conv_forward, (tx, tw), reference.conv_forward(x, w, padding=1)),
        (dnn.conv_backward_data, (tdy, tw, x.shape), reference.conv_backward_data(dy, w, x.shape, padding=1)),
        (dnn.conv_backward_filter, (tdy, tx, w.shape), reference.conv_backward_filter(dy, x, w.shape, padding=1)),
    ]
    for call, args, want in calls:
        for algo in engines(call, *args, padding=1):
            got = call(*args, padding=1, algo=algo)
            assert_close(got, Result(want, reference.tolerance("float64", 200, 100.0)), f"{call.__name__} by {algo}")


def test_result_layouts(device: str) -> None:
    x = dnn.zeros((2, 3, 6, 5), device=device)
    w = dnn.zeros((4, 3, 3, 3), device=device)
    assert dnn.conv_forward(x, w).layout == "NCHW"
    assert dnn.conv_forward(x, w.to(layout="NHWC")).layout == "NCHW"
    last = x.to(layout="NHWC")
    y = dnn.conv_forward(last, w)
    assert y.layout == "NHWC"
    assert dnn.conv_backward_data(y, w, x.shape).layout == "NHWC"
    assert dnn.conv_backward_filter(y, last, w.shape).layout == "NHWC"
    assert dnn.conv_backward_filter(y, x, w.shape).layout == "NCHW"
    assert dnn.conv_forward(dnn.zeros((2, 3, 4, 6, 5), layout="NDHWC", device=device), dnn.zeros((4, 3, 1, 1, 1), device=device)).layout == "NDHWC"  # fmt: skip


# Convolutions whose groups have few channels: one channel, four channels, or one group with all three channels. Each
# setting has the shape of x, the shape of w, and the attributes.
FEW: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 16, 9, 12), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    ((2, 16, 9, 12), (16, 4, 3, 3), {"padding": 1, "groups": 4}),
    ((2, 3, 9, 12), (16, 3, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize("offset", [1, 2, 4, 8])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("x_shape, w_shape, attributes", FEW)
def test_any_alignment(
    x_shape: Any, w_shape: Any, attributes: dict[str, Any], dtype: str, layout: str, offset: int, device: str
) -> None:
    """Operands and results that start `offset` elements into their memory: wide loads and stores must take that into
    account."""
    rng = np.random.default_rng(7)
    x, w = (reference.rounded(rng.normal(size=s), dtype) for s in (x_shape, w_shape))
    dy = reference.rounded(rng.normal(size=reference.conv_forward(x, w, **attributes).shape), dtype)

    def shifted(values: np.ndarray, by: int) -> dnn.DeviceTensor:
        dense = dnn.asarray(values, dtype=dtype, layout=layout)
        memory = np.full(values.size + by, np.nan)
        memory[by:] = np.lib.stride_tricks.as_strided(dense.to(dtype="float64").numpy(), (values.size,), (8,))
        return dnn.asarray(memory, dtype=dtype).to(device=device).as_strided(values.shape, dense.strides, by)

    handle = dnn.Handle(device, math="ieee")
    passes = [
        (dnn.conv_forward, (x, w), (), reference.conv_forward),
        (dnn.conv_backward_data, (dy, w), (x_shape,), reference.conv_backward_data),
        (dnn.conv_backward_filter, (dy, x), (w_shape,), reference.conv_backward_filter),
    ]
    for call, operands, shape, want_of in passes:
        want = want_of(*operands, *shape, **attributes)
        scale = want_of(*(np.abs(v) for v in operands), *shape, **attributes)
        result = Result(want, reference.tolerance(dtype, dy.size, scale))
        for shifts in ((offset, 0, 0), (0, offset, 0), (0, 0, offset)):
            args = [shifted(v, by) for v, by in zip(operands, shifts, strict=False)]
            out = shifted(np.full(want.shape, np.nan), shifts[2])
            for algo in engines(call, *args, *shape, **attributes, out=out, handle=handle):
                out = shifted(np.full(want.shape, np.nan), shifts[2])
                call(*args, *shape, **attributes, out=out, algo=algo, handle=handle)
                assert_close(out, result, f"{call.__name__} by {algo}, shifts {shifts}")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("x_shape, w_shape, attributes", FEW)
def test_every_activation_in_float32(
    x_shape: Any, w_shape: Any, attributes: dict[str, Any], layout: str, device: str
) -> None:
    rng = np.random.default_rng(8)
    x, w, bias = (reference.rounded(rng.normal(size=s), "float32") for s in (x_shape, w_shape, w_shape[:1]))
    tx, tw, tb = (tensor(v, "float32", device) for v in (x, w, bias))
    handle = dnn.Handle(device, math="ieee")
    for mode in reference.activation.MODES:
        want = reference.conv_forward(x, w, bias, activation=mode, **attributes)
        keywords = {"activation": mode, "handle": handle, **attributes}
        for algo in engines(dnn.conv_forward, tx.to(layout=layout), tw, tb, **keywords):
            got = dnn.conv_forward(tx.to(layout=layout), tw, tb, algo=algo, **keywords)
            assert_close(got, Result(want, reference.tolerance("float32", 64, 60.0)), f"{mode} by {algo}")


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride", [1, 2])
def test_three_tf32_products_have_float32_accuracy(layout: str, stride: int) -> None:
    """As in test_matmul.py: the sums have three times the terms, and each product has an error of at most 3 * 2^-22."""
    rng = np.random.default_rng(9)
    attributes = {"padding": 1, "stride": stride}
    x, w = (reference.rounded(rng.normal(size=s), "float32") for s in ((2, 40, 10, 12), (24, 40, 3, 3)))
    dy = reference.rounded(rng.normal(size=reference.conv_forward(x, w, **attributes).shape), "float32")
    passes = [
        (dnn.conv_forward, (x, w), (), reference.conv_forward),
        (dnn.conv_backward_data, (dy, w), (x.shape,), reference.conv_backward_data),
        (dnn.conv_backward_filter, (dy, x), (w.shape,), reference.conv_backward_filter),
    ]
    for call, operands, shape, want_of in passes:
        tensors = [tensor(v, "float32", "cuda:0").to(layout=layout) for v in operands]
        scale = want_of(*(np.abs(v) for v in operands), *shape, **attributes)
        allowed = reference.tolerance("float32", 3 * 9 * 40, scale) + 3 * 2.0**-22 * scale
        able = [e for e in engines(call, *tensors, *shape, **attributes) if e.endswith("3xtf32")]
        assert "cuda.conv.mma_3xtf32" in able
        for algo in able:
            got = call(*tensors, *shape, **attributes, algo=algo)
            assert_close(got, Result(want_of(*operands, *shape, **attributes), allowed), f"{call.__name__} by {algo}")


@pytest.mark.gpu
def test_engines_for_few_channels_say_why_not() -> None:
    def why_not(engine: str, x_shape: Any, w_shape: Any, dtype: str = "float32", **attributes: Any) -> str:
        x, w = (dnn.zeros(s, dtype=dtype, device="cuda:0") for s in (x_shape, w_shape))
        (report,) = dnn.explain(dnn.conv_forward, x, w, **attributes)
        return next(e.why_not for e in report.engines if e.name == f"cuda.conv.{engine}")

    x, w = (2, 4, 5, 5), (4, 2, 3, 3)
    assert why_not("depthwise", x, w, groups=2) == "needs a group for each channel of x; got groups=2 for 4 channels"
    assert why_not("grouped", x, w, groups=2) == ""
    assert why_not("grouped", x, (4, 4, 3, 3)) == "needs groups > 1; got 1"
    assert why_not("direct_nchw", x, w, groups=2) == "supports groups=1 only; got 2"
    assert why_not("direct_nchw", x, (4, 4, 3, 3)) == ""
    assert why_not("direct_nchw", x, (4, 4, 3, 3), "float16") == "supports float32 only; got float16"
    for engine in ("depthwise", "grouped"):
        assert why_not(engine, x, w, "float64", groups=2) == "float64 is not supported"
    assert "bytes of shared memory for w and a tile of data" in why_not("depthwise", (1, 1, 70000), (1, 1, 60001))
    assert why_not("depthwise", (1, 2, 0), (2, 1, 3), groups=2, padding=2) == "x, w or y is empty"
    dy = dnn.zeros((1, 2, 3), device="cuda:0")
    (report,) = dnn.explain(dnn.conv_backward_bias, dy)
    reasons = {e.why_not for e in report.engines if e.name.rsplit(".", 1)[1] in ("depthwise", "grouped", "direct_nchw")}
    assert reasons == {"backward_bias is not supported"}


def test_winograd_on_the_cpu_says_why_not() -> None:
    def why_not(x: Any, w: Any, dtype: str = "float32", **attributes: Any) -> str:
        tensors = (dnn.zeros(s, dtype=dtype) for s in (x, w))
        (report,) = dnn.explain(dnn.conv_forward, *tensors, **attributes)
        return next(e.why_not for e in report.engines if e.name == "cpu.conv.winograd")

    x, w = (1, 32, 5, 5), (4, 32, 3, 3)
    assert why_not(x, w) == ""
    assert why_not(x, w, "bfloat16") == "supports float32 only; got bfloat16"
    assert why_not((1, 32, 5), (4, 32, 3)) == "supports two spatial dimensions only; got 1"
    assert why_not(x, (4, 32, 3, 1)) == "supports 3 x 3 windows only; got 3 x 1"
    assert why_not(x, w, stride=2) == why_not(x, w, dilation=2) == "needs stride 1 and dilation 1"
    assert why_not((1, 64, 5, 5), w, groups=2) == "supports groups=1 only; got 2"
    assert why_not((1, 0, 5, 5), (4, 0, 3, 3)) == "x, w or y is empty"
    shortest = "needs at least 128 products and 32 channels in each sum for the accuracy of float32; got "
    assert why_not((1, 31, 5, 5), (4, 31, 3, 3)) == shortest + "279 and 31"
    assert why_not(x, w, padding=2) == shortest + "32 and 32"


def test_winograd_does_not_depend_on_threads() -> None:
    """With few tiles, all threads share one block, if it has enough panels for them."""
    code = """if True:
        import hashlib, numpy as np, pyminidnn as dnn
        rng, digest = np.random.default_rng(0), hashlib.sha256()
        for n, c, k, size in ((1, 200, 70, 14), (2, 72, 40, 37)):
            x, w = (dnn.asarray(rng.standard_normal(s), dtype="float32") for s in ((n, c, size, size), (k, c, 3, 3)))
            digest.update(bytes(dnn.conv_forward(x, w, padding=1, algo="winograd").numpy()))
        print(digest.hexdigest())"""
    assert len(outputs_by_threads(code)) == 1


def test_statistics_are_sums_of_the_stored_y(device: str) -> None:
    """Statistics are the sums of the stored values: after the activation, and rounded to 16 bits. For every engine."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(2, 16, 9, 7)), rng.normal(size=(24, 16, 3, 3))
    tx, tw = tensor(x, "bfloat16", device).to(layout="NHWC"), tensor(w, "bfloat16", device).to(layout="NHWC")
    keywords = {"padding": 1, "activation": "relu"}
    for algo in engines(dnn.conv_forward_statistics, tx, tw, **keywords):
        y, total, squares = dnn.conv_forward_statistics(tx, tw, **keywords, algo=algo)
        values = values_of(y)
        assert total.dtype == squares.dtype == "float32" and total.shape == squares.shape == (24,)
        count = values.size / 24
        for got, terms in ((total, values), (squares, values**2)):
            sums = terms.sum((0, 2, 3))
            assert_close(got, Result(sums, reference.tolerance("float32", count, sums)), algo)


def test_statistics_of_an_empty_batch(device: str) -> None:
    w = dnn.full((4, 3, 3, 3), 1.0, device=device)
    y, total, squares = dnn.conv_forward_statistics(dnn.zeros((0, 3, 5, 5), device=device), w)
    assert y.shape == (0, 4, 3, 3)
    assert (values_of(total) == 0).all() and (values_of(squares) == 0).all()
    _, none, _ = dnn.conv_forward_statistics(dnn.zeros((2, 3, 5, 5), device=device), dnn.zeros((0, 3, 3, 3), device=device))  # fmt: skip
    assert none.shape == (0,)


def test_empty(device: str) -> None:
    """No images or no filters: nothing to compute. No channels: zeros, or the activated bias."""
    none, some = dnn.zeros((0, 3, 5, 5), device=device), dnn.full((2, 3, 5, 5), 1.0, device=device)
    w, dy = dnn.full((4, 3, 3, 3), 1.0, device=device), dnn.zeros((2, 4, 3, 3), device=device)
    bias = tensor(np.array([-1.0, 0.5, 2.0, 0.0]), "float32", device)
    assert dnn.conv_forward(none, w, bias).shape == (0, 4, 3, 3)
    assert dnn.conv_forward(some, dnn.zeros((0, 3, 3, 3), device=device)).shape == (2, 0, 3, 3)
    assert dnn.conv_backward_data(dnn.zeros((0, 4, 3, 3), device=device), w, (0, 3, 5, 5)).shape == (0, 3, 5, 5)

    def check(got: dnn.DeviceTensor, want: np.ndarray) -> None:
        np.testing.assert_array_equal(values_of(got), want)

    check(dnn.conv_backward_filter(dnn.zeros((0, 4, 3, 3), device=device), none, w.shape), np.zeros(w.shape))
    check(dnn.conv_backward_bias(dnn.zeros((0, 4, 3, 3), device=device)), np.zeros(4))
    no_filters = dnn.zeros((2, 0, 3, 3), device=device)
    check(dnn.conv_backward_data(no_filters, dnn.zeros((0, 3, 3, 3), device=device), some.shape), np.zeros(some.shape))
    assert dnn.conv_backward_bias(no_filters).shape == (0,)
    no_channels = dnn.zeros((2, 0, 5, 5), device=device), dnn.zeros((4, 0, 3, 3), device=device)
    activated = np.maximum(values_of(bias), 0).reshape(1, 4, 1, 1)
    check(dnn.conv_forward(*no_channels), np.zeros(dy.shape))
    check(dnn.conv_forward(*no_channels, bias, activation="relu"), np.broadcast_to(activated, dy.shape))
    check(dnn.conv_forward(*no_channels, None, dnn.full(dy.shape, 2.5, device=device)), np.full(dy.shape, 2.5))
    assert dnn.conv_backward_data(dy, no_channels[1], (2, 0, 5, 5)).shape == (2, 0, 5, 5)
    assert dnn.conv_backward_filter(dy, no_channels[0], (4, 0, 3, 3)).shape == (4, 0, 3, 3)
    # Here x has no elements, so its padded form consists of padding only.
    flat = dnn.zeros((1, 2, 0), device=device)
    check(dnn.conv_forward(flat, dnn.full((3, 2, 2), 1.0, device=device), padding=1), np.zeros((1, 3, 1)))
    check(dnn.conv_backward_filter(dnn.full((1, 3, 1), 1.0, device=device), flat, (3, 2, 2), padding=1), np.zeros((3, 2, 2)))  # fmt: skip


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_stay_in_their_windows(value: float, device: str) -> None:
    x, w = np.ones((1, 2, 6, 7)), np.ones((3, 2, 3, 2))
    x[0, 1, 2, 3] = value
    tx, tw = tensor(x, "float32", device), tensor(w, "float32", device)
    for algo in engines(dnn.conv_forward, tx, tw):
        y = values_of(dnn.conv_forward(tx, tw, algo=algo))
        touched = np.zeros(y.shape, bool)
        touched[:, :, 0:3, 2:4] = True
        assert (np.isfinite(y) == ~touched).all(), algo
        assert ((y == value) | np.isnan(y))[touched].all(), algo
    dy = np.ones((1, 3, 4, 6))
    dy[0, 2, 1, 4] = value
    tdy = tensor(dy, "float32", device)
    for algo in engines(dnn.conv_backward_data, tdy, tw, x.shape):
        dx = values_of(dnn.conv_backward_data(tdy, tw, x.shape, algo=algo))
        touched = np.zeros(dx.shape, bool)
        touched[:, :, 1:4, 4:6] = True
        assert (np.isfinite(dx) == ~touched).all(), algo
    assert np.isfinite(values_of(dnn.conv_backward_bias(tdy))).tolist() == [True, True, False]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("side, stride, padding", [(7, 2, 3), (3, 1, 1), (5, 1, 0), (1, 2, 0)])
def test_nan_and_infinity_stay_in_windows_of_images(
    side: int, stride: int, padding: int, dtype: str, value: float, device: str
) -> None:
    """First layers: engines that round a line of a window up to whole vectors also read the adjacent pixels."""
    rng = np.random.default_rng(8)
    x, w = (reference.rounded(rng.normal(size=s), dtype) for s in ((2, 3, 24, 70), (16, 3, side, side)))
    attributes = {"stride": stride, "padding": padding}
    finite, scale = (reference.conv_forward(f(x), f(w), **attributes) for f in (np.asarray, np.abs))
    tolerance = reference.tolerance(dtype, w[0].size, scale)
    if dtype == "float32":
        tolerance = tolerance + 2.0**-10 * scale  # the error of products in TF32
    bad = np.zeros(x.shape)
    for at in ((0, 1, 9, 30), (0, 2, 9, 31), (1, 0, 23, 69), (1, 0, 0, 0)):
        x[at], bad[at] = value, 1
    touched = reference.conv_forward(bad, np.ones(w.shape), **attributes) > 0
    tx, tw = dnn.asarray(x, dtype=dtype, layout="NHWC", device=device), tensor(w, dtype, device)
    for algo in engines(dnn.conv_forward, tx, tw, **attributes):
        if algo.endswith("winograd"):  # Winograd's transforms spread an infinity over a whole tile.
            continue
        y = values_of(dnn.conv_forward(tx, tw, **attributes, algo=algo))
        assert (np.isfinite(y) == ~touched).all(), algo
        assert (np.abs(y - finite) <= tolerance)[~touched].all(), algo


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_reach_only_weights_that_read_them(value: float) -> None:
    """On the CPU. docs/ops/conv.md names the CUDA engines that multiply the element by zero."""
    x, dy, w_shape = np.ones((1, 2, 6, 7)), np.ones((1, 3, 4, 6)), (3, 2, 3, 2)
    x[0, 1, 2, 6] = value  # only the weights in the last column of the window read this element
    tx, tdy = tensor(x, "float32", "cpu"), tensor(dy, "float32", "cpu")
    for algo in engines(dnn.conv_backward_filter, tdy, tx, w_shape):
        dw = values_of(dnn.conv_backward_filter(tdy, tx, w_shape, algo=algo))
        touched = np.zeros(dw.shape, bool)
        touched[:, 1, :, 1] = True
        assert (np.isfinite(dw) == ~touched).all(), algo


def test_every_activation(device: str) -> None:
    rng = np.random.default_rng(3)
    x, w, bias = rng.normal(size=(2, 3, 5, 4)), rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4)
    tx, tw, tb = (tensor(v, "float64", device) for v in (x, w, bias))
    for mode in reference.activation.MODES:
        want = reference.conv_forward(x, w, bias, activation=mode)
        for algo in engines(dnn.conv_forward, tx, tw, tb, activation=mode):
            got = dnn.conv_forward(tx, tw, tb, activation=mode, algo=algo)
            assert_close(got, Result(want, reference.tolerance("float64", 64, 60.0)), f"{mode} by {algo}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x_shape, w_shape, attributes", SETTINGS)
def test_adds_to_out(x_shape: Any, w_shape: Any, attributes: dict[str, Any], dtype: str, device: str) -> None:
    """The residual may be the output itself: y = conv(x, w) + y, on every engine."""
    rng = np.random.default_rng(5)
    x, w = (reference.rounded(rng.normal(size=s), dtype) for s in (x_shape, w_shape))
    plain = reference.conv_forward(x, w, **attributes)
    y = reference.rounded(rng.normal(size=plain.shape), dtype)
    scale = reference.conv_forward(np.abs(x), np.abs(w), None, np.abs(y), **attributes)
    tolerance = reference.tolerance(dtype, w[0].size + 1, scale)
    handle = dnn.Handle(device, math="ieee")
    tx, tw = tensor(x, dtype, device), tensor(w, dtype, device)
    for algo in engines(dnn.conv_forward, tx, tw, None, tensor(y, dtype, device), **attributes, handle=handle):
        ty = tensor(y.copy(), dtype, device)
        got = dnn.conv_forward(tx, tw, None, ty, **attributes, out=ty, algo=algo, handle=handle)
        assert got.data_ptr == ty.data_ptr
        assert_close(ty, Result(plain + y, tolerance), algo)


def test_residual_of_a_batch_in_chunks(device: str) -> None:
    """The workspace is too small for five images: each chunk reads its own part of the residual and y, whose element
    size is not x's."""
    rng = np.random.default_rng(6)
    x, w, r = rng.normal(size=(5, 3, 6, 7)), rng.normal(size=(4, 3, 3, 2)), rng.normal(size=(5, 4, 4, 6))
    x, w = reference.rounded(x, "float16"), reference.rounded(w, "float16")
    tx, tw, tr = tensor(x, "float16", device), tensor(w, "float16", device), tensor(r, "float32", device)
    y = dnn.empty(r.shape, device=device)
    (report,) = dnn.explain(dnn.conv_forward, tx, tw, None, tr, algo="im2col_gemm", out=y)
    (engine,) = (e for e in report.engines if not e.why_not)
    handle = dnn.Handle(device, max_workspace=engine.workspace_bytes - 1)
    (report,) = dnn.explain(dnn.conv_forward, tx, tw, None, tr, algo="im2col_gemm", out=y, handle=handle)
    assert [e.config for e in report.engines if not e.why_not] != [engine.config] == ["images=5"]
    dnn.conv_forward(tx, tw, None, tr, algo="im2col_gemm", out=y, handle=handle)
    r = reference.rounded(r, "float32")
    scale = reference.conv_forward(np.abs(x), np.abs(w), None, np.abs(r))
    assert_close(y, Result(reference.conv_forward(x, w, None, r), reference.tolerance("float32", 19, scale)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float32_results_are_not_rounded(dtype: str, device: str) -> None:
    """4097 needs 13 significant bits; float16 has 11, bfloat16 has 8."""
    x = dnn.full((1, 4097, 2, 2), 1.0, dtype=dtype, device=device)
    w = dnn.full((3, 4097, 1, 1), 1.0, dtype=dtype, device=device)
    y = dnn.empty((1, 3, 2, 2), device=device)
    for algo in engines(dnn.conv_forward, x, w, out=y):
        np.testing.assert_array_equal(values_of(dnn.conv_forward(x, w, out=y, algo=algo)), 4097)
    dy = dnn.full((1, 4097, 1, 1), 1.0, dtype=dtype, device=device)
    v = dnn.full((4097, 2, 1, 1), 1.0, dtype=dtype, device=device)
    dx = dnn.empty((1, 2, 1, 1), device=device)
    for algo in engines(dnn.conv_backward_data, dy, v, dx.shape, out=dx):
        np.testing.assert_array_equal(values_of(dnn.conv_backward_data(dy, v, dx.shape, out=dx, algo=algo)), 4097)
    rows = dnn.full((4097, 1, 1, 1), 1.0, dtype=dtype, device=device)
    dw = dnn.empty((1, 1, 1, 1), device=device)
    for algo in engines(dnn.conv_backward_filter, rows, rows, dw.shape, out=dw):
        got = dnn.conv_backward_filter(rows, rows, dw.shape, out=dw, algo=algo)
        np.testing.assert_array_equal(values_of(got), 4097)


def test_bias_gradient_of_a_long_sum(device: str) -> None:
    """A million equal terms: a plain float32 sum would have a relative error of 1e-3."""
    dy = dnn.full((4, 1, 512, 512), 0.1, device=device)
    want = 4 * 512 * 512 * float(np.float32(0.1))
    assert abs(float(values_of(dnn.conv_backward_bias(dy))[0]) / want - 1) < 4 * reference.EPS["float32"]


TORCH_MODES = {3: "conv1d", 4: "conv2d", 5: "conv3d"}


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("x_shape, w_shape, attributes", SETTINGS)
def test_agrees_with_torch(
    x_shape: Any, w_shape: Any, attributes: dict[str, Any], channels_last: bool, dtype: str, device: str
) -> None:
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    generator = torch.Generator().manual_seed(4)
    make = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))
    x, w, bias = make(*x_shape), make(*w_shape), make(w_shape[0])
    if channels_last and x.ndim > 3:
        order = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        x, w = x.to(memory_format=order), w.to(memory_format=order)
    # torch pads both sides of a dimension equally. So x is padded before torch is called, and the padding is cut off
    # from the gradient of x.
    rank = x.ndim - 2
    sides = reference.conv.sides(attributes["padding"], rank)
    padded = torch.nn.functional.pad(x.double(), [s for pair in reversed(sides) for s in pair]).requires_grad_()
    w64, b64 = (t.double().clone().requires_grad_() for t in (w, bias))
    keywords = {k: attributes.get(k, 1) for k in ("stride", "dilation", "groups")}
    y = getattr(torch.nn.functional, TORCH_MODES[x.ndim])(padded, w64, b64, **keywords)
    dy = make(*y.shape)
    y.backward(dy.double())
    cut = tuple(slice(before, before + n) for (before, _), n in zip(sides, x_shape[2:], strict=True))

    handle = dnn.Handle(device=device, math="ieee")
    tx, tw, tb, tdy = (dnn.from_dlpack(t.to(device)) for t in (x, w, bias, dy))
    results = {
        "y": (dnn.conv_forward(tx, tw, tb, **attributes, handle=handle), y),
        "dx": (dnn.conv_backward_data(tdy, tw, x_shape, **attributes, handle=handle), padded.grad[(..., *cut)]),
        "dw": (dnn.conv_backward_filter(tdy, tx, w_shape, **attributes, handle=handle), w64.grad),
        "db": (dnn.conv_backward_bias(tdy, handle=handle), b64.grad),
    }
    for name, (got, want) in results.items():
        want = want.detach().numpy()
        # The longest sum has about 200 terms of variance one. With high probability, its magnitude is below six
        # standard deviations.
        assert_close(got, Result(want, reference.tolerance(dtype, 200, 6 * math.sqrt(200))), name)


def test_accepts_host_arrays_and_numpy_integers(device: str) -> None:
    x, w = np.ones((1, 2, 4, 4), "float32"), np.ones((3, 2, 3, 3), "float32")
    y = dnn.conv_forward(x, w, stride=np.int64(1), padding=np.array([1, 1]))
    assert y.device == "cpu"
    assert y.shape == (1, 3, 4, 4)
    on_device = dnn.conv_forward(dnn.asarray(x).to(device=device), w, padding=[(1, 1), 1])
    assert on_device.device == device
    np.testing.assert_array_equal(values_of(y), values_of(on_device))


Call = Callable[[dnn.DeviceTensor, dnn.DeviceTensor, dnn.DeviceTensor], object]
ERRORS: list[tuple[Call, type[Exception], str]] = [
    (lambda x, w, dy: dnn.conv_forward(x.reshape((2, 4, 30)), w), dnn.ShapeError,
     "conv_forward: x has 4 channels and groups=1, so w must be [K, 4, S]; got [6, 4, 3, 3]"),
    (lambda x, w, dy: dnn.conv_forward(x.reshape((8, 30)), w), dnn.ShapeError, "x must have 3 to 5 dimensions; got [8, 30]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, groups=2), dnn.ShapeError,
     "conv_forward: x has 4 channels and groups=2, so w must be [K, 2, R, S]; got [6, 4, 3, 3]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, groups=3), dnn.ShapeError, "groups=3 must divide the 4 channels of x [2, 4, 6, 5]"),
    (lambda x, w, dy: dnn.conv_forward(x, w.reshape((9, 1, 4, 6)), groups=4), dnn.ShapeError,
     "groups=4 must divide the 9 filters of w [9, 1, 4, 6]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, groups=0), dnn.ShapeError, "groups must be positive; got 0"),
    (lambda x, w, dy: dnn.conv_forward(x, w, stride=0), dnn.ShapeError, "stride must be from 1 to 2147483647; got [0]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, dilation=(1, -2)), dnn.ShapeError, "dilation must be from 1 to 2147483647; got [1, -2]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, padding=((0, -1), 0)), dnn.ShapeError, "padding must be from 0 to 2147483647"),
    (lambda x, w, dy: dnn.conv_forward(x, w, stride=(1, 1, 1)), dnn.ShapeError,
     "stride must be one value or one for each of 2 spatial dimensions; got [1, 1, 1]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, padding="same"), dnn.ShapeError, "padding must be an int of at most 64 bits, or one or a pair (before, after) for each spatial dimension"),
    (lambda x, w, dy: dnn.conv_forward(x, w, stride=1.5), dnn.ShapeError, "stride must be an int of at most 64 bits, or one for each spatial dimension; got 1.5"),
    (lambda x, w, dy: dnn.conv_forward(x, w, dilation=3), dnn.ShapeError,
     "a window of 3 with dilation 3 does not fit in spatial dimension 0 of x; got 6 elements, 6 with padding"),
    (lambda x, w, dy: dnn.conv_forward(x, dnn.empty((6, 4, 0, 3), device=x.device)), dnn.ShapeError, "w [6, 4, 0, 3] has an empty window"),
    (lambda x, w, dy: dnn.conv_forward(x, w, x.reshape((240,))), dnn.ShapeError,
     "conv_forward: bias must be [6] for the filters of w; got [240]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, None, x), dnn.ShapeError,
     "conv_forward: residual must be [2, 6, 4, 3] to be added to y; got [2, 4, 6, 5]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, residual=dy.to(dtype="float16")), dnn.DTypeError, "x is float32, residual is float16; cast one"),
    (lambda x, w, dy: dnn.conv_forward(x, w, residual=dy, out=dy.as_strided((2, 6, 4, 3), (1, 2, 36, 12), 0)), dnn.ShapeError,
     "conv_forward: out overlaps residual without being the same elements"),
    (lambda x, w, dy: dnn.conv_forward(x.to(dtype="float16"), w.to(dtype="float16"), residual=dy.to(dtype="float16"), out=dnn.empty(dy.shape, device=x.device)),
     dnn.DTypeError, "conv_forward: out is float32, residual is float16; cast one"),
    (lambda x, w, dy: dnn.conv_forward(x, w, out=dnn.empty(dy.shape, dtype="float16", device=x.device)), dnn.DTypeError,
     "conv_forward: out must be float32; got float16"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, x.shape, out=dnn.empty(x.shape, dtype="float64", device=x.device)), dnn.DTypeError,
     "conv_backward_data: out must be float32; got float64"),
    (lambda x, w, dy: dnn.conv_forward(x, w, mode="correlation"), dnn.ShapeError,
     "mode must be 'cross_correlation' or 'convolution'; got 'correlation'"),
    (lambda x, w, dy: dnn.conv_forward(x, w, activation="rely"), dnn.ShapeError, "activation must be one of identity, "),
    (lambda x, w, dy: dnn.conv_forward(x, w.to(dtype="float16")), dnn.DTypeError, "x is float32, w is float16; cast one"),
    (lambda x, w, dy: dnn.conv_forward(x.to(dtype="int8"), w), dnn.DTypeError, "x is int8; supported are"),
    (lambda x, w, dy: dnn.conv_forward(x, w, out=x), dnn.ShapeError, "out must be [2, 6, 4, 3]; got [2, 4, 6, 5]"),
    (lambda x, w, dy: dnn.conv_forward(x, w, out=w.as_strided((2, 6, 4, 3), (72, 12, 3, 1), 0)), dnn.ShapeError, "out shares memory with w"),
    (lambda x, w, dy: dnn.conv_forward(x.as_strided((2, 4, 2**40, 2**40), (0, 0, 0, 0), 0), w), dnn.ShapeError,
     "is larger than 2^63 bytes"),
    (lambda x, w, dy: dnn.conv_forward(x, w, padding=2**70), dnn.ShapeError, "padding must be an int of at most 64 bits, or one or a pair"),
    (lambda x, w, dy: dnn.conv_forward(x, w, algo="winograd"), dnn.NotSupported, "algo='winograd' selects another engine"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, (2, 4, 6)), dnn.ShapeError,
     "x_shape must have 4 sizes of 0 or more for dy [2, 6, 4, 3]; got [2, 4, 6]"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, (2, 3, 6, 5)), dnn.ShapeError,
     "conv_backward_data: x_shape has 3 channels and groups=1, so w must be [K, 3, R, S]; got [6, 4, 3, 3]"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, (1, 4, 6, 5)), dnn.ShapeError, "so dy must be [1, 6, ...]; got [2, 6, 4, 3]"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, (2, 4, 6, 6)), dnn.ShapeError,
     "conv_backward_data: dy [2, 6, 4, 3] with a window of 3, stride 1, padding 0 + 0 and dilation 1 in dimension 3 matches "
     "an x_shape of 5 in that dimension; got [2, 4, 6, 6]"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, (2, 4, 6, 5), stride=2, padding=1), dnn.ShapeError, "an x_shape of 7 to 8 in that dimension"),
    (lambda x, w, dy: dnn.conv_backward_data(dy, w, (2, 4, 0, 0), padding=9), dnn.ShapeError, "matches no x_shape"),
    (lambda x, w, dy: dnn.conv_backward_filter(dy, x, (6, 4, 3)), dnn.ShapeError, "so w_shape must be [K, 4, R, S]; got [6, 4, 3]"),
    (lambda x, w, dy: dnn.conv_backward_filter(dy, x, (6, 4, 2, 3)), dnn.ShapeError,
     "conv_backward_filter: dy must be [2, 6, 5, 3] for x [2, 4, 6, 5] and w_shape [6, 4, 2, 3]; got [2, 6, 4, 3]"),
    (lambda x, w, dy: dnn.conv_backward_bias(dy.reshape((12, 12))), dnn.ShapeError, "dy must have 3 to 5 dimensions; got [12, 12]"),
    (lambda x, w, dy: dnn.conv_backward_bias(dy, out=dnn.empty((3,), device=dy.device)), dnn.ShapeError, "out must be [6]; got [3]"),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, text", ERRORS)
def test_errors(call: Call, kind: type[Exception], text: str, device: str) -> None:
    x, w, dy = (tensor(np.ones(shape), "float32", device) for shape in ((2, 4, 6, 5), (6, 4, 3, 3), (2, 6, 4, 3)))
    with pytest.raises(kind) as caught:
        call(x, w, dy)
    assert text in str(caught.value)
    for t in (x, w, dy):
        np.testing.assert_array_equal(values_of(t), 1)  # the failed call has not changed its inputs
