# SPDX-License-Identifier: Apache-2.0
"""Regions of graphs: which calls run together, by which engine, why others do not, and what they compute.

test_graph.py has the tests of recordings. The engines of the family `graph` are tested here, because no case line
describes a region.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import values_of
from test_graph import mlp, mlp_arguments, on, random_function, same

import pyminidnn as dnn
from pyminidnn import _C

DTYPES = ("float32", "float64", "float16", "bfloat16")
EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def engines_of(graph: dnn.Graph) -> list[str]:
    """The last word of the engine of each region; for a node that runs alone, its family."""
    return [r.chosen.rsplit(".", 1)[1] if r.family == "graph" else r.family for r in graph.explain()]


@contextmanager
def forced(graph: dnn.Graph, engine: str) -> Iterator[int]:
    """Tuning records that select an engine for each region that it supports. Yields the number of these regions."""
    before = _C.tuning_text()
    model = _C.device_info(graph._ended().device)["model"]
    count = 0
    for report in graph.explain():
        for e in report.engines:
            if report.family == "graph" and e.name.endswith(f".{engine}") and not e.why_not:
                _C.import_tuning(f"{model}\t{report.problem}\t{e.name}\t{e.revision}\t{e.config}\t1\n", True)
                count += 1
    try:
        yield count
    finally:
        _C.clear_tuning()
        _C.import_tuning(before, True)


# ---- calls that become options of another call

# In each case: a function of x, r, s and parameters, the shape of x, and the number of nodes of the region.
Case = tuple[Callable[..., Any], tuple[int, ...], int]


def activated(mode: str) -> Callable[..., Any]:
    return lambda x, r, p: dnn.activation_forward(dnn.matmul(x, p["w"]), mode)


def conv(x: Any, p: dict[str, Any]) -> Any:
    return dnn.conv_forward(x, p["filters"], padding=1)


def inference(x: Any, p: dict[str, Any]) -> Any:
    return dnn.batch_norm_forward_inference(x, p["scale"], p["bias"], p["mean"], p["var"])


def training(x: Any, p: dict[str, Any]) -> Any:
    return dnn.batch_norm_forward_training(x, p["scale"], p["bias"])


def relu(x: Any) -> Any:
    return dnn.activation_forward(x, "relu")


MATRIX, IMAGES = (9, 12), (2, 5, 6, 7)
ABSORBED: dict[str, Case] = {
    **{f"matmul + {mode}": (activated(mode), MATRIX, 2) for mode in
       ("relu", "clipped_relu", "leaky_relu", "tanh", "sigmoid", "elu", "gelu", "gelu_tanh", "softplus", "silu")},
    "matmul + bias": (lambda x, r, p: dnn.matmul(x, p["w"]) + p["row"], MATRIX, 2),
    "bias + matmul": (lambda x, r, p: p["row"] + dnn.matmul(x, p["w"]), MATRIX, 2),
    "matmul + c": (lambda x, r, p: dnn.matmul(x, p["w"]) + r, MATRIX, 2),
    "matmul + column": (lambda x, r, p: dnn.matmul(x, p["w"]) + r[:, :1], MATRIX, 2),
    "matmul + bias + c + silu": (
        lambda x, r, p: dnn.activation_forward(dnn.matmul(x, p["w"]) + p["row"] + r, "silu"), MATRIX, 4),
    "matmul + bias + bias + gelu": (
        lambda x, r, p: dnn.activation_forward(dnn.matmul(x, p["w"], bias=p["row"]) + p["row"], "gelu"), MATRIX, 3),
    "alpha matmul + c": (lambda x, r, p: dnn.matmul(x, p["w"], alpha=0.5) + r, MATRIX, 2),
    "batched matmul + bias + relu": (
        lambda x, r, p: relu(dnn.matmul(x.reshape((3, 3, 12)), p["w"]) + p["row"]), MATRIX, 3),
    "conv + relu": (lambda x, r, p: relu(conv(x, p)), IMAGES, 2),
    "conv + bias + relu": (lambda x, r, p: relu(conv(x, p) + p["channels"]), IMAGES, 3),
    "conv + bias + residual + silu": (
        lambda x, r, p: dnn.activation_forward(conv(x, p) + p["channels"] + r, "silu"), IMAGES, 4),
    "conv + residual + bias": (lambda x, r, p: (r + conv(x, p)) + p["channels"], IMAGES, 3),
    "inference + relu": (lambda x, r, p: relu(inference(x, p)), IMAGES, 2),
    "inference + residual + relu": (lambda x, r, p: relu(inference(x, p) + r), IMAGES, 3),
    "training + relu": (lambda x, r, p: [relu((t := training(x, p))[0]), t[1], t[2]], IMAGES, 2),
    "training + residual + relu": (lambda x, r, p: [relu((t := training(x, p))[0] + r), t[1]], IMAGES, 3),
    "scaled matmul + bias + relu": (lambda x, r, p: relu(dnn.matmul(x, p["w"]) * 0.3 + p["row"]), MATRIX, 4),
    "scaled softmax": (lambda x, r, p: dnn.softmax_forward(0.3 * x, axis=1), MATRIX, 2),
    "scale + mask + softmax": (
        lambda x, r, p: dnn.softmax_forward(p["row12"] + x * 0.3, axis=1), MATRIX, 3),
    "scale + scaled softmax": (lambda x, r, p: dnn.softmax_forward(x * 0.3, axis=1, scale=2), MATRIX, 2),
    "mask + softmax": (lambda x, r, p: dnn.softmax_forward(x + p["row12"], axis=1), MATRIX, 2),
    "mask + log softmax": (lambda x, r, p: dnn.softmax_forward(p["row12"] + x, axis=1, log=True), MATRIX, 2),
}  # fmt: skip


def arguments_of(shape: tuple[int, ...], dtype: str, device: str) -> tuple[Any, Any, dict[str, Any]]:
    rng = np.random.default_rng(7)

    def drawn(*size: int, kind: str = dtype) -> dnn.DeviceTensor:
        return dnn.asarray(rng.standard_normal(size).astype("float32"), dtype=kind, device=device)

    parameter = "float64" if dtype == "float64" else "float32"
    channels = {name: drawn(5, kind=parameter) for name in ("scale", "bias", "mean")}
    p = {
        "w": drawn(12, 8), "row": drawn(8), "row12": drawn(12), "filters": drawn(5, 5, 3, 3),
        "channels": drawn(1, 5, 1, 1), **channels, "var": drawn(5, kind=parameter) ** 2 + 1,
    }  # fmt: skip
    return drawn(*shape), drawn(9, 8) if len(shape) == 2 else drawn(*shape), p


def listed(value: Any) -> list[dnn.DeviceTensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ABSORBED)
def test_absorbed(name: str, dtype: str, device: str) -> None:
    function, shape, nodes = ABSORBED[name]
    x, r, p = arguments_of(shape, dtype, device)
    if name.startswith("batched"):
        x = x.contiguous()
    fused = dnn.fuse(function)
    graph = fused.graph(x, r, p)
    if dtype == "float64" and engines_of(graph) != ["library_op"]:
        pytest.skip("the estimate of the reference engine grows with its options")
    # A softmax of short rows takes about as long in row_reduction, which the estimates may choose.
    assert "softmax" in name or engines_of(graph) == ["library_op"], graph.why()
    assert len(graph._ended().nodes) == nodes
    with forced(graph, "library_op") as count:
        assert count == 1, graph.why()
        got = listed(fused(x, r, p))
    apart = listed(function(x, r, p))
    precise = [t.to(dtype="float64") if isinstance(t, dnn.DeviceTensor) else t for t in (x, r)]
    exact = listed(function(*precise, {k: v.to(dtype="float64") for k, v in p.items()}))
    for g, a, e in zip(got, apart, exact, strict=True):
        assert (g.shape, g.dtype, g.strides) == (a.shape, a.dtype, a.strides)
        want = values_of(e)
        # Fused, the result is no further from the exact one than apart, but for one rounding of the result.
        scale = EPS[str(g.dtype)] * np.abs(want).max()
        if dtype == "float64":
            # The calls apart are as inexact. Those of matmul and convolution take their functions from libm (1 ulp), others
            # from elementary_double.h (2.4 ulp).
            scale *= 1 + 1 + 2.4
        apart_error = np.abs(values_of(a) - want).max()
        assert np.abs(values_of(g) - want).max() <= 1.1 * apart_error + scale
    with forced(graph, "unfused") as count:
        assert count == 1
        for g, a in zip(listed(fused(x, r, p)), apart, strict=True):
            assert bytes(values_of(g)) == bytes(values_of(a)), "node by node, results have the bits of the calls"


def widened(x: Any) -> Any:
    return x.to(dtype="float32")


def wide(x: Any, w: Any, p: dict[str, Any]) -> Any:
    """A product of 16-bit operands in float32."""
    if len(x.shape) == 4:
        return dnn.conv_forward(x, w, padding=1, out=dnn.empty(x.shape, device=x.device))
    return dnn.matmul(x, w, out=dnn.empty((x.shape[0], w.shape[1]), device=x.device))


CASTS: dict[str, Case] = {
    "bias": (lambda x, r, p: (wide(x, p["w"], p) + widened(p["row"])).to(dtype=x.dtype), MATRIX, 4),
    "bias and relu": (lambda x, r, p: relu(wide(x, p["w"], p) + widened(p["row"])).to(dtype=x.dtype), MATRIX, 5),
    "residual": (
        lambda x, r, p: dnn.tanh(relu(wide(x, p["w"], p) + widened(r)).to(dtype=x.dtype)), MATRIX, 6),
    "late residual": (
        lambda x, r, p: relu(wide(x, p["w"], p) + widened(p["row"]) + widened(r)).to(dtype=x.dtype), MATRIX, 7),
    "conv": (
        lambda x, r, p: relu(wide(x, p["filters"], p) + widened(p["channels"]) + widened(r)).to(dtype=x.dtype),
        IMAGES, 7),
    "float32 result": (lambda x, r, p: relu(wide(x, p["w"], p) + widened(p["row"])), MATRIX, 4),
    "to float32": (lambda x, r, p: relu(widened(dnn.matmul(x, p["w"]))), MATRIX, 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASTS)
def test_casts_of_operands_and_results_are_left_out(name: str, dtype: str, device: str) -> None:
    function, shape, nodes = CASTS[name]
    x, r, p = arguments_of(shape, dtype, device)
    fused = dnn.fuse(function)
    graph = fused.graph(x, r, p)
    assert len(graph._ended().nodes) == nodes
    assert engines_of(graph) == ["library_op"] + ["pointwise"] * (name == "residual"), graph.why()
    got, apart = fused(x, r, p), function(x, r, p)
    assert got.dtype == apart.dtype
    # A float32 result of "to float32" is more precise, because the product is not rounded to 16 bits.
    bound = EPS[dtype] * np.abs(values_of(apart)).max()
    assert np.abs(values_of(got) - values_of(apart)).max() <= bound
    with forced(graph, "unfused"):
        assert bytes(values_of(fused(x, r, p))) == bytes(values_of(apart))


def test_a_cast_of_the_result_rounds_before_later_calls(device: str) -> None:
    x, _, p = arguments_of(MATRIX, "float16", device)
    f = dnn.fuse(lambda x, p: dnn.activation_forward(wide(x, p["w"], p).to(dtype="float16"), "silu"))
    assert engines_of(f.graph(x, p)) == ["library_op", "activation"]
    assert "activation forward f16 silu follows a cast, which rounds" in f.why(x, p)
    assert bytes(values_of(f(x, p))) == bytes(values_of(f.__wrapped__(x, p)))


@pytest.mark.parametrize("name", ["conv + bias + residual + silu", "training + residual + relu"])
def test_absorbed_in_nhwc(name: str, device: str) -> None:
    function, shape, _ = ABSORBED[name]
    x, r, p = arguments_of(shape, "float32", device)
    x, r = (dnn.asarray(t, layout="NHWC") for t in (x, r))
    fused = dnn.fuse(function)
    assert engines_of(fused.graph(x, r, p)) == ["library_op"]
    for g, a in zip(listed(fused(x, r, p)), listed(function(x, r, p)), strict=True):
        assert g.strides == a.strides and np.allclose(values_of(g), values_of(a), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 0.0])
@pytest.mark.parametrize("name", ["matmul + relu", "conv + relu", "inference + relu", "mask + softmax", "matmul + c"])
def test_special_values_pass_through_a_region(name: str, value: float, device: str) -> None:
    function, shape, _ = ABSORBED[name]
    x, r, p = arguments_of(shape, "float32", device)
    for t in (x, r):
        t[0] = value
    got, want = values_of(dnn.fuse(function)(x, r, p)), values_of(function(x, r, p))
    assert np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


# ---- what stays apart, and the sentence that says why

REFUSED: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "residual after activation": (
        lambda x, r, p: dnn.activation_forward(dnn.matmul(x, p["w"]), "gelu_tanh") + r, MATRIX,
        "library_op: adds c and its bias before the activation; here add follows gelu_tanh"),
    "residual after relu of conv": (
        lambda x, r, p: relu(conv(x, p)) + r, IMAGES, "adds its residual before the activation; here add follows relu"),
    "two activations": (
        lambda x, r, p: dnn.activation_forward(relu(dnn.matmul(x, p["w"])), "tanh"), MATRIX,
        "has one activation, relu"),
    "three summands": (
        lambda x, r, p: dnn.matmul(x, p["w"]) + r + p["row"] + r, MATRIX,
        "adds one c and one bias; here another tensor is added"),
    "small residual": (
        lambda x, r, p: conv(x, p) + p["channels"] + r[:, :1], IMAGES,
        "supports a residual of the shape of y; here a smaller tensor is added"),
    "two readers": (
        lambda x, r, p: (lambda y: relu(y) + dnn.tanh(y))(dnn.matmul(x, p["w"])), MATRIX,
        "%0 is read by 2 nodes; supports one"),
    "an output": (
        lambda x, r, p: (lambda y: [y, relu(y)])(dnn.matmul(x, p["w"])), MATRIX,
        "y0 is used outside of the region, too"),
    "doubled": (lambda x, r, p: (lambda y: y + y)(dnn.matmul(x, p["w"])), MATRIX, "%0 is read twice by pointwise add"),
    "another shape": (
        lambda x, r, p: relu(dnn.matmul(x, p["w"]).reshape((3, 24))), MATRIX,
        "activation forward f32 relu reads %0 with another shape or other strides"),
    "transposed": (
        lambda x, r, p: relu(dnn.matmul(x, p["w"]).T), MATRIX, "reads %0 with another shape or other strides"),
    "a part": (lambda x, r, p: relu(dnn.matmul(x, p["w"])[:4]), MATRIX, "another shape or other strides"),
    "no option": (lambda x, r, p: dnn.matmul(x, p["w"]) * r, MATRIX, "pointwise mul f32 is no option of matmul"),
    "no options": (lambda x, r, p: relu(dnn.layer_norm_forward(x)[0]), MATRIX,
                   "layer_norm layer_forward f32 has no options for the calls behind it"),
    "pinned": (
        lambda x, r, p: relu(dnn.matmul(x, p["w"], algo="reference" if x.device == "cpu" else "generic")), MATRIX,
        "selects the engine of matmul"),
    "checks": (
        lambda x, r, p: dnn.gather(dnn.matmul(x, p["w"]), p["index"]), MATRIX,
        "gather checks the elements of an input before it runs"),
    "scaled sum": (
        lambda x, r, p: dnn.softmax_forward((x + p["row12"]) * 0.5, axis=1), MATRIX,
        "multiplies x by its scale before it adds the mask; here the sum is scaled"),
    "scaled by a tensor": (
        lambda x, r, p: dnn.softmax_forward(x * p["row12"], axis=1), MATRIX,
        "supports a scale that is a number; here it is a tensor"),
    "scaled twice": (
        lambda x, r, p: dnn.matmul(x, p["w"]) * 2 * 3, MATRIX, "has one alpha; here the product is scaled twice"),
    "scaled after the bias": (
        lambda x, r, p: (dnn.matmul(x, p["w"]) + p["row"]) * 2, MATRIX,
        "multiplies by alpha before it adds c and its bias; here the sum is scaled"),
    "scaled conv": (lambda x, r, p: conv(x, p) * 2, IMAGES, "pointwise mul is no option of conv"),
    "subtraction": (
        lambda x, r, p: dnn.softmax_forward(x - p["row12"], axis=1), MATRIX,
        "pointwise sub f32 is no option of softmax"),
    "scaled softmax": (
        lambda x, r, p: dnn.softmax_forward(x + p["row12"], axis=1, scale=0.5), MATRIX,
        "multiplies x by its scale before it adds the mask; here the sum is scaled"),
    "masked softmax": (
        lambda x, r, p: dnn.softmax_forward(x + p["row12"], axis=1, mask=x), MATRIX,
        "has one mask; here another tensor is added"),
    "gelu of batch norm": (
        lambda x, r, p: dnn.activation_forward(inference(x, p), "gelu"), IMAGES,
        "supports the activation relu; here it is gelu"),
    "written twice": (
        lambda x, r, p: (lambda y: relu(dnn.add(y, r, out=y)))(dnn.matmul(x, p["w"])), MATRIX, "%0 is written twice"),
    "overwritten": (
        lambda x, r, p: dnn.activation_forward(dnn.matmul(x, p["square"]), "relu", out=x), MATRIX,
        "the result overwrites x0, which matmul still reads"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_sentences(name: str, device: str) -> None:
    function, shape, sentence = REFUSED[name]
    x, r, p = arguments_of(shape, "float32", device)
    p["index"] = dnn.asarray(np.array([3, 0]), device=device)
    p["square"] = on(device, 12, 12)
    a, b = x.copy(), x.copy()
    fused = dnn.fuse(function)
    why = fused.why(a, r, p)
    # If row_reduction runs the nodes together, the reason is in the lines of their region.
    edge = r"not fused: \S+ from node \d+ \(\w+\) to node \d+ \(\w+\)"
    assert re.search(rf"^({edge}|  \w+\.graph\.library_op): .*{re.escape(sentence)}", why, re.M), why
    for got, wanted in zip(listed(fused(a, r, p)), listed(function(b, r, p)), strict=True):
        assert np.allclose(values_of(got), values_of(wanted), rtol=1e-4, atol=1e-5)
    assert np.allclose(values_of(a), values_of(b), rtol=1e-4, atol=1e-5)


def test_a_call_with_a_handle_runs_alone() -> None:
    h = dnn.Handle("cpu", deterministic=True)
    x, w = on("cpu", 4, 5), on("cpu", 5, 6)
    f = dnn.fuse(lambda x: dnn.relu(dnn.matmul(x, w, handle=h)))
    assert "names a handle of its own" in f.why(x) and same(f(x), f.__wrapped__(x))


def test_numbers_are_no_part_of_a_region(device: str) -> None:
    """Graphs that differ in a number have one region, and one plan."""
    x = on(device, 9, 12)
    texts = set()
    for number in (0.5, 3.0):
        f = dnn.fuse(lambda x, n=number: dnn.softmax_forward(x * n, axis=1))
        assert np.allclose(f(x).numpy(), dnn.softmax_forward(x, axis=1, scale=number).numpy(), rtol=1e-5)
        (report,) = f.graph(x).explain()
        texts.add(report.problem)
        by_name = dnn.fuse(lambda x, n=number: dnn.softmax_forward(dnn.mul(n, x), axis=1))
        assert same(by_name(x), f(x)) and engines_of(by_name.graph(x)) == ["library_op"]
    assert len(texts) == 1 and " b=n0 " in texts.pop()
    tensor = dnn.asarray(np.float32(3), device=device)  # may change from run to run
    f = dnn.fuse(lambda x: dnn.softmax_forward(x * tensor, axis=1))
    assert "here it is a tensor" in f.why(x)


def test_rounding_each_keeps_the_bits(device: str) -> None:
    x, w, b, r = (t.to(dtype="float16") for t in mlp_arguments(device))
    apart = dnn.relu(dnn.matmul(x, w) + b + r)
    each = dnn.fuse(lambda *a: dnn.relu(dnn.matmul(a[0], a[1]) + a[2] + a[3]), rounding="each")
    assert same(each(x, w, b, r), apart)
    assert "rounding='each'" in each.why(x, w, b, r)
    with dnn.record(device=device, rounding="each") as g:
        g.output("y", dnn.relu(dnn.matmul(g.input("x", (8, 16), "float16"), w)))
    assert same(g.run(x=x)["y"], dnn.relu(dnn.matmul(x, w))) and "library_op" not in engines_of(g)
    for call in (lambda: dnn.record(rounding="up"), lambda: dnn.fuse(mlp, rounding=3)):
        with pytest.raises(dnn.ShapeError, match="rounding must be 'fused' or 'each'"):
            call()


# ---- the partition


def test_in_place_residual(device: str) -> None:
    """The result may have the memory of the residual, which the call adds element by element."""
    x, w, _, r = mlp_arguments(device)
    f = dnn.fuse(lambda x, w, r: dnn.activation_forward(dnn.matmul(x, w) + r, "relu", out=r))
    assert engines_of(f.graph(x, w, r)) == ["library_op"]
    wanted = dnn.relu(dnn.matmul(x, w) + r)
    f(x, w, r)
    assert np.allclose(r.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_running_statistics_change_once_in_a_run(device: str) -> None:
    x, r, p = arguments_of(IMAGES, "float32", device)
    results = []
    for fused in (True, False):
        mean, var = dnn.zeros((5,), device=device), dnn.ones((5,), device=device)

        def f(x: Any, r: Any, mean: Any = mean, var: Any = var) -> Any:
            return relu(
                dnn.batch_norm_forward_training(x, p["scale"], p["bias"], running_mean=mean, running_var=var)[0] + r
            )

        g = dnn.fuse(f) if fused else f
        outputs = [g(x, r), g(r, x)]
        results.append([*outputs, mean, var])
        if fused:
            assert engines_of(g.graph(x, r)) == ["library_op"]
    for got, wanted in zip(*results, strict=True):
        assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_a_step_of_training(device: str) -> None:
    """Forward and backward calls in one graph: statistics and results of the forward calls are read later."""

    def step(x: Any, r: Any, p: dict[str, Any]) -> list[Any]:
        y = dnn.conv_forward(x, p["filters"], padding=1) + p["channels"]
        z, mean, inv_std = dnn.batch_norm_forward_training(y, p["scale"], p["bias"])
        out = relu(z)
        dz = dnn.activation_backward(out * r, z, out, "relu")
        dy, dscale, dbias = dnn.batch_norm_backward(dz, y, p["scale"], mean, inv_std)[:3]
        dx = dnn.conv_backward_data(dy, p["filters"], x.shape, padding=1)
        return [out, dscale, dbias, dx, dnn.conv_backward_filter(dy, x, p["filters"].shape, padding=1)]

    x, r, p = arguments_of(IMAGES, "float32", device)
    fused = dnn.fuse(step)
    assert engines_of(fused.graph(x, r, p)).count("library_op") == 1, fused.why(x, r, p)  # the convolution and its bias
    for got, wanted in zip(fused(x, r, p), step(x, r, p), strict=True):
        scale = np.abs(wanted.numpy()).max()
        assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-3, atol=1e-4 * scale)


def test_nodes_between_two_nodes_of_a_region_are_respected(device: str) -> None:
    """The residual is computed after the matmul was recorded, by another call: the region runs behind that call."""
    x, w, _, r = mlp_arguments(device)

    def f(x: Any, w: Any, r: Any) -> Any:
        y = dnn.matmul(x, w)
        z = dnn.tanh(r)
        return dnn.relu(y + z), z

    fused = dnn.fuse(f)
    assert engines_of(fused.graph(x, w, r)) == ["pointwise", "library_op"]
    for got, wanted in zip(fused(x, w, r), f(x, w, r), strict=True):
        assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    cycle = dnn.fuse(lambda x, w: (lambda y: dnn.matmul(x, w) + dnn.tanh(y) + y)(dnn.matmul(x, w)))
    assert np.allclose(cycle(x, w).numpy(), cycle.__wrapped__(x, w).numpy(), rtol=1e-4, atol=1e-5)


def test_a_call_that_must_run_between_keeps_nodes_apart(device: str) -> None:
    """The residual is computed from the statistics of the batch norm, so the norm cannot add it."""

    def f(x: Any, p: dict[str, Any]) -> Any:
        y, mean, _ = training(x, p)
        return relu(y + x * mean.reshape((1, 5, 1, 1)))

    x, _, p = arguments_of(IMAGES, "float32", device)
    fused = dnn.fuse(f)
    assert sorted(i for nodes in fused.graph(x, p)._ended().regions(None) for i in nodes) == [0, 1, 2, 3]
    first, second, *_ = engines_of(fused.graph(x, p))
    assert first == "batch_norm" and second in ("pointwise", "elementwise")
    assert np.allclose(fused(x, p).numpy(), f(x, p).numpy(), rtol=1e-5, atol=1e-6)


def test_writes_keep_their_order(device: str) -> None:
    """A node reads an input before a later one overwrites it, whatever regions they are in."""

    def f(x: Any, w: Any, r: Any) -> Any:
        first = dnn.matmul(x, w)
        copy = x * 2
        dnn.mul(x, x, out=x)
        second = dnn.matmul(x, w)
        return dnn.relu(first + r), copy, dnn.relu(second)

    x, w, _, r = mlp_arguments(device)
    a, b = x.copy(), x.copy()
    for got, wanted in zip(dnn.fuse(f)(a, w, r), f(b, w, r), strict=True):
        assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert same(a, b)


def test_a_constant_of_a_region_is_read_in_each_run(device: str) -> None:
    x, w, b, _ = mlp_arguments(device)
    f = dnn.fuse(lambda x: dnn.relu(dnn.matmul(x, w) + b))
    first = f(x)
    assert engines_of(f.graph(x)) == ["library_op"]
    b[...] = 1e6
    assert float(f(x).min()) > 9e5 > float(first.max())


def test_options_of_the_handle_apply(device: str) -> None:
    x, w, b, r = mlp_arguments(device)
    f = dnn.fuse(mlp)
    for options in ({"deterministic": True}, {"max_workspace": 0}, {"math": "ieee"}):
        with dnn.Handle(device, **options):
            got, why = f(x, w, b, r), f.why(x, w, b, r)
            assert np.allclose(got.numpy(), mlp(x, w, b, r).numpy(), rtol=1e-3, atol=1e-3)
            assert why.startswith("region 1: ")
            assert all(e.workspace_bytes == 0 for rep in dnn.explain(f, x, w, b, r) for e in rep.engines
                       if e.name == rep.chosen) or "max_workspace" not in options  # fmt: skip


def test_the_partition_is_the_same_in_other_processes() -> None:
    code = """
import sys; sys.path.insert(0, "tests")
import pyminidnn as dnn
from test_graph import mlp, mlp_arguments, on, random_function
print(dnn.fuse(mlp).why(*mlp_arguments("cpu")))
for seed in range(20):
    print(dnn.fuse(random_function(seed)).graph(on("cpu", 5, 7), on("cpu", 5, 7))._ended().regions(None))
"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1 and "library_op" in texts.pop()


@pytest.mark.parametrize("engine", ["library_op", "unfused"])
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_graphs(first: int, engine: str, device: str) -> None:
    """With each engine, results are close to those of the calls. Temporaries have their own memory."""
    for seed in range(first, first + 50):
        f = random_layers(seed)
        x = on(device, 6, 8, seed=seed)
        fused = dnn.fuse(f)
        with forced(fused.graph(x), engine):
            for got, wanted in zip(fused(x), f(x), strict=True):
                assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-3, atol=1e-4), f"seed {seed}"


def random_layers(seed: int) -> Callable[[Any], list[Any]]:
    """A function of matmuls, biases, residuals, activations, norms and writes in place, in random order."""

    def f(x: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        n = x.shape[1]

        def drawn(*shape: int, scale: float = 1.0) -> dnn.DeviceTensor:
            values = rng.standard_normal(shape).astype("float32") * np.float32(scale)
            return dnn.asarray(values, dtype=x.dtype, device=x.device)

        w = [drawn(n, n, scale=(2 * n) ** -0.5) for _ in range(3)]
        b = drawn(n)
        made = [x, dnn.tanh(x)]
        for _ in range(rng.integers(3, 20)):
            kind = rng.integers(9)
            last, other = made[-1], made[rng.integers(len(made))]
            if kind in (0, 1):
                made.append(dnn.matmul(last, w[rng.integers(3)]))
            elif kind == 2:
                made.append(last + b)
            elif kind == 3:
                made.append(last + other)
            elif kind in (4, 5):
                made.append(dnn.activation_forward(last, ("relu", "tanh", "sigmoid", "gelu")[rng.integers(4)]))
            elif kind == 6:
                made.append(dnn.softmax_forward(last + other, axis=1))
            elif kind == 7 and last is not x:
                dnn.activation_forward(last, "tanh", out=last)
            else:
                made.append(dnn.matmul(last, w[0]) + other[:, :1])
        return [made[-1], made[int(rng.integers(1, len(made)))]]

    return f


def random_casts(seed: int) -> Callable[[Any], list[Any]]:
    """A function of products of 16-bit operands, and of casts and additions in random order."""

    def f(x: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        w = dnn.asarray(rng.standard_normal((8, 8)).astype("float32") / 4, dtype="float16", device=x.device)
        b = dnn.asarray(rng.standard_normal(8).astype("float32"), dtype="float16", device=x.device)
        made = [x]  # of dtype float16
        for _ in range(rng.integers(2, 6)):
            y = dnn.matmul(made[-1], w, out=dnn.empty(x.shape, device=x.device))
            for _ in range(rng.integers(4)):
                kind = rng.integers(5)
                if kind == 0:
                    y = y + widened(b)
                elif kind in (1, 2):
                    y = y + widened(made[rng.integers(len(made))])
                elif kind == 3:
                    y = y + dnn.tanh(widened(made[-1]))
                else:
                    y = dnn.activation_forward(y, "tanh")
            made.append(y.to(dtype="float16"))
        return [made[-1], made[len(made) // 2]]

    return f


def test_random_casts(device: str) -> None:
    regions = 0
    for seed in range(100):
        f, x = random_casts(seed), on(device, 6, 8, seed=seed).to(dtype="float16")
        fused = dnn.fuse(f)
        regions += engines_of(fused.graph(x)).count("library_op")
        for got, wanted in zip(fused(x), f(x), strict=True):
            assert np.allclose(values_of(got), values_of(wanted), rtol=1e-2, atol=2e-2), f"seed {seed}"
    assert regions > 150


def test_random_layers_have_regions() -> None:
    fused = [dnn.fuse(random_layers(seed)).graph(on("cpu", 6, 8)) for seed in range(40)]
    counts = [engines_of(g).count("library_op") for g in fused]
    assert sum(counts) > 40


def test_memory_that_is_not_written_is_poisoned(device: str) -> None:
    """New memory has NaN in it, so a region that reads an element too many, or an internal one too early, shows it."""
    _C.set_allocator_checks(exact=False, poison=255)
    try:
        for seed in range(30):
            x, f = on(device, 6, 8, seed=seed), random_layers(seed)
            fused = dnn.fuse(f)
            for engine in ("library_op", "unfused"):
                with forced(fused.graph(x), engine):
                    for got, wanted in zip(fused(x), f(x), strict=True):
                        assert np.allclose(got.numpy(), wanted.numpy(), rtol=1e-3, atol=1e-4), f"seed {seed}"
    finally:
        from conftest import set_checks

        set_checks()


def test_a_region_stores_no_internal_values(device: str) -> None:
    x, w, b, r = (on(device, *s) for s in ((512, 256), (256, 512), (512,), (512, 512)))
    f = dnn.fuse(lambda x, w, b, r: dnn.relu(dnn.matmul(x, w) + b + r))
    g = f.graph(x, w, b, r)._ended()
    assert g.bytes_of_temporaries(None) == 0 and g.arena_bytes == 2 * 512 * 512 * 4
    each = dnn.fuse(f.__wrapped__, rounding="each").graph(x, w, b, r)._ended()
    assert each.bytes_of_temporaries(None) == 512 * 512 * 4, "elementwise reads the product from memory"


def test_a_partition_is_fast() -> None:
    """200 nodes: the issue asks for 5 ms on a fast machine. The bound here is for slow ones, and finds quadratic work."""
    import time

    w = on("cpu", 8, 8)

    def f(x: Any) -> Any:
        for _ in range(50):
            x = dnn.tanh(dnn.relu(dnn.matmul(x, w) + 1.0))
        return x

    graph = dnn.fuse(f).graph(on("cpu", 8, 8))._ended()
    start = time.perf_counter()
    assert len(graph.regions(None)) == 100
    assert time.perf_counter() - start < 0.5


def test_threads_share_a_partition(device: str) -> None:
    arguments = mlp_arguments(device)
    wanted = dnn.fuse(mlp)(*arguments)
    wrong: list[int] = []
    for _ in range(10):
        f = dnn.fuse(mlp)

        def work(f: Any = f) -> None:
            for _ in range(10):
                if not same(f(*arguments), wanted):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


# ---- functions of single elements

ALL_DTYPES = (*DTYPES, "int8", "uint8", "int32", "int64", "bool")
MODES = ("identity", "relu", "clipped_relu", "leaky_relu", "tanh", "sigmoid", "elu", "gelu", "gelu_tanh", "softplus",
         "silu", "hardswish", "mish")  # fmt: skip
ODD = (7, 301)  # 2107 elements: four spans of 512 and a rest


def elements(dtype: str, shape: tuple[int, ...], device: str, seed: int) -> dnn.DeviceTensor:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return dnn.asarray(rng.random(shape) < 0.5, device=device)
    if dtype in DTYPES:
        return dnn.asarray(rng.standard_normal(shape), dtype=dtype, device=device)
    return dnn.asarray(rng.integers(0 if dtype == "uint8" else -9, 10, shape), dtype=dtype, device=device)


def bits(t: dnn.DeviceTensor) -> bytes:
    """The values of a tensor, in which all NaNs are alike, and -0 differs from 0."""
    values = values_of(t)
    return bytes(np.where(values != values, values.dtype.type(0), values)) + bytes(values != values)


def refuses_each(graph: dnn.Graph) -> bool:
    """On CUDA, a kernel may not give the bits of separate calls for some formulas and mixes of dtypes. why() says so."""
    return graph._ended().device != "cpu" and "elementwise: rounding='each'" in graph.why()


def check_bits(f: Callable[..., Any], arguments: list[Any], regions: int = 1) -> dnn.Graph:
    """With rounding="each", the engine gives the bits of the separate calls. Returns the graph."""
    fused = dnn.fuse(f, rounding="each")
    graph = fused.graph(*arguments)
    with forced(graph, "elementwise") as count:
        assert count >= regions or refuses_each(graph), graph.why()
        assert engines_of(graph).count("elementwise") == count
        got = listed(fused(*arguments))
    for g, w in zip(got, listed(f(*arguments)), strict=True):
        assert (g.dtype, g.shape, g.strides) == (w.dtype, w.shape, w.strides)
        assert bits(g) == bits(w), str(graph)
    return graph


def check_errors(f: Callable[..., Any], arguments: list[Any]) -> None:
    """With rounding="fused", results are no further from the exact ones than those of separate calls."""
    fused = dnn.fuse(f)
    graph = fused.graph(*arguments)
    with forced(graph, "elementwise") as count:
        assert count and set(engines_of(graph)) == {"elementwise"}, graph.why()
        got = listed(fused(*arguments))
    exact = listed(f(*(t.to(dtype="float64") if str(t.dtype) in DTYPES else t for t in arguments)))
    for g, w, e in zip(got, listed(f(*arguments)), exact, strict=True):
        assert g.dtype == w.dtype
        want = values_of(e)
        rounding = EPS[str(g.dtype)] * max(np.abs(want).max(), 1e-3)
        if str(g.dtype) == "float64":
            rounding *= 16  # the results that count as exact are float64, too; products and sums may be fused
        assert np.abs(values_of(g) - want).max() <= 1.1 * np.abs(values_of(w) - want).max() + rounding


def accepts(op: str, dtype: str) -> bool:
    x = elements(dtype, (3,), "cpu", 0)
    operands = [x] * (2 if op in TWO else 3 if op in THREE else 1)
    try:
        dnn.pointwise(op, *([x > 0 if dtype != "bool" else x, x, x] if op == "where" else operands))
    except dnn.DTypeError:
        return False
    return True


THREE = ("clamp", "multiply_add", "lerp", "where")
TWO = ("add", "sub", "mul", "div", "minimum", "maximum", "add_square", "copysign", "bitwise_and", "bitwise_or",
       "bitwise_xor", "left_shift", "right_shift", "pow", "mod", "floor_div", "hypot", "logaddexp", "atan2", "eq", "ne",
       "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")  # fmt: skip


@pytest.mark.parametrize("op", _C.pointwise_names())
def test_every_function_in_a_chain(op: str, device: str) -> None:
    for dtype in ALL_DTYPES:
        if not accepts(op, dtype):
            continue
        join = "logical_or" if dtype == "bool" else "maximum"

        def chain(a: Any, b: Any, c: Any, join: str = join) -> list[Any]:
            before = dnn.pointwise(join, a, b)
            if op == "where":
                y = dnn.where(dnn.gt(a, b), before, c)
            else:
                y = dnn.pointwise(op, before, *[b, c][: 1 if op in TWO else 2 if op in THREE else 0])
            kept = y if y.dtype == before.dtype else dnn.where(y, before, c)
            return [dnn.pointwise(join, kept, c), y]

        graph = check_bits(chain, [elements(dtype, ODD, device, seed) for seed in range(3)])
        assert engines_of(graph) == ["elementwise"] or refuses_each(graph)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_every_activation_in_a_chain(mode: str, dtype: str, device: str) -> None:
    x, y = (elements(dtype, ODD, device, seed) for seed in range(2))

    def chain(x: Any, y: Any) -> list[Any]:
        z = dnn.activation_forward(x * 3, mode, alpha=0.7)
        return [dnn.activation_backward(z + y, x, x, mode, alpha=0.7) * 2, dnn.activation_forward(z * y, mode)]

    graph = check_bits(chain, [x, y])
    assert engines_of(graph) == ["elementwise"] or refuses_each(graph)
    forward = check_bits(lambda x, y: dnn.activation_forward(x * 3 + y, mode, alpha=0.7) * y, [x, y])
    assert engines_of(forward) == ["elementwise"] or mode in ("gelu_tanh", "mish")
    check_errors(chain, [x, y])
    check_bits(chain, [x[:, ::2], y[:, ::2]])  # another engine computes activations of such tensors


@pytest.mark.parametrize("dtype", DTYPES)
def test_chains_of_two_to_eight_nodes(dtype: str, device: str) -> None:
    x, y, z = (elements(dtype, ODD, device, seed) for seed in range(3))
    steps = [lambda t, y, z: t * y, lambda t, y, z: t + z, lambda t, y, z: dnn.tanh(t), lambda t, y, z: t * 0.3,
             lambda t, y, z: dnn.activation_forward(t, "gelu"), lambda t, y, z: t - y,
             lambda t, y, z: dnn.maximum(t, z), lambda t, y, z: dnn.exp(t)]  # fmt: skip
    for n in range(2, 9):

        def chain(x: Any, y: Any, z: Any, n: int = n) -> Any:
            for step in steps[:n]:
                x = step(x, y, z)
            return x

        assert len(check_bits(chain, [x, y, z])._ended().nodes) == n
        check_errors(chain, [x, y, z])
        assert engines_of(dnn.fuse(chain).graph(x, y, z)) == ["elementwise"], "without a tuning record"


CASTS_OF = [(a, b) for a in ALL_DTYPES for b in ALL_DTYPES]


@pytest.mark.parametrize("dtypes", CASTS_OF, ids=lambda d: "-".join(d))
def test_casts_in_a_chain(dtypes: tuple[str, str], device: str) -> None:
    a, b = dtypes
    x, y = elements(a, ODD, device, 0), elements(b, ODD, device, 1)
    join = {t: "logical_xor" if t == "bool" else "maximum" if t == "uint8" else "mul" for t in dtypes}
    special = np.resize([1e300, -1e300, np.nan, np.inf, 65519.999, 2049.0000001, -0.0, 300.7], ODD)
    inputs = (
        [x] if a in ("bool", "int8", "uint8", "int32", "int64") else [x, dnn.asarray(special, dtype=a, device=device)]
    )
    for t in inputs:
        check_bits(lambda x, y: dnn.pointwise(join[b], dnn.pointwise(join[a], x, x).to(dtype=b), y), [t, y])
        if a in DTYPES and b in DTYPES:
            check_bits(lambda x, y: dnn.transform(x * x, alpha=0.3, dtype=b) + y, [t, y])


def test_a_cast_rounds_in_every_mode(device: str) -> None:
    x = elements("float32", ODD, device, 0)
    for dtype in ("float16", "bfloat16", "int8"):
        f = dnn.fuse(lambda x, dtype=dtype: (x * 3).to(dtype=dtype).to(dtype="float32") - x)
        with forced(f.graph(x), "elementwise") as count:
            assert count == 1 and bits(f(x)) == bits(f.__wrapped__(x))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_wrap_around_in_every_mode(dtype: str, device: str) -> None:
    x = elements(dtype, ODD, device, 0)
    f = dnn.fuse(lambda x: dnn.floor_div(x * x * x * x * x, x + 11) + 100)
    with forced(f.graph(x), "elementwise") as count:
        assert count == 1 and bits(f(x)) == bits(f.__wrapped__(x))


def test_intermediate_results_are_not_rounded(device: str) -> None:
    x = dnn.asarray(np.full(ODD, 300.0), dtype="float16", device=device)
    f = dnn.fuse(lambda x: (x * x) * 0.5 - x)
    with forced(f.graph(x), "elementwise"):
        assert values_of(f(x))[0, 0] == 44704 and np.isinf(values_of(f.__wrapped__(x))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_with_broadcasting_and_strides(dtype: str, device: str) -> None:
    full, row, column, one = (
        elements(dtype, s, device, i) for i, s in enumerate([(9, 5, 77), (77,), (5, 1), ()])
    )  # fmt: skip
    turned = elements(dtype, (77, 5, 9), device, 4).transpose((2, 1, 0))
    reverse, part = full[:, ::-1, ::-1], elements(dtype, (9, 10, 80), device, 5)[:, ::2, 3:]

    def f(full: Any, row: Any, column: Any, one: Any, turned: Any, reverse: Any, part: Any) -> Any:
        return dnn.tanh(((full * row + column) * one + turned) * reverse - part)

    for arguments in ([full, row, column, one, turned, reverse, part], [turned, row, column, one, full, part, reverse]):
        graph = check_bits(f, arguments)
        assert engines_of(graph) == ["elementwise"]
        check_errors(f, arguments)
        check_bits(lambda *a: dnn.transform(f(*a), layout="contiguous"), arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("shape", [(1,), (3,), (511,), (512,), (513,), (2, 1, 5), (1, 100003), (64, 1024)])
def test_sizes(shape: tuple[int, ...], dtype: str, device: str) -> None:
    check_bits(lambda x, y: dnn.maximum(x * y, y) - x, [elements(dtype, shape, device, i) for i in range(2)])


def test_empty_tensors_are_left_to_the_calls(device: str) -> None:
    x = dnn.empty((0, 5), device=device)
    assert dnn.fuse(lambda x: dnn.tanh(x * 2) + x)(x).shape == (0, 5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_in_place_and_several_results(dtype: str, device: str) -> None:
    def f(a: Any, b: Any, c: Any) -> list[Any]:
        join = "logical_xor" if dtype == "bool" else "maximum"
        t = dnn.pointwise(join, a, b)
        dnn.pointwise(join, t, c, out=c)
        last = dnn.pointwise(join, dnn.pointwise(join, t, c), b, out=b)
        return [t, last, dnn.eq(t, last), c]

    first = [elements(dtype, ODD, device, seed) for seed in range(3)]
    second = [t.copy() for t in first]
    fused = dnn.fuse(f, rounding="each")
    with forced(fused.graph(*[t.copy() for t in first]), "elementwise") as count:
        assert count == 1
        got = fused(*first)
    for g, w in zip([*got, *first], [*f(*second), *second], strict=True):
        assert bits(g) == bits(w)


def test_an_operand_that_is_overwritten_and_read_elsewhere_stays_apart(device: str) -> None:
    x = elements("float32", (64, 64), device, 0)
    f = dnn.fuse(lambda x: dnn.add(dnn.tanh(x.T), 1.0, out=x), rounding="each")
    a, b = x.copy(), x.copy()
    assert "is overwritten, and read at other elements" in f.why(a)
    f(a), f.__wrapped__(b)
    assert bits(a) == bits(b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_in_a_chain(dtype: str, device: str) -> None:
    x, y = (elements(dtype, ODD, device, seed) for seed in range(2))
    for seed in (0, 7):
        f = dnn.fuse(lambda x, y, seed=seed: dnn.dropout_forward(x * y, 0.3, seed=seed, offset=5) + y, rounding="each")
        assert engines_of(f.graph(x, y)) == ["elementwise"]
        assert bits(f(x, y)) == bits(f.__wrapped__(x, y))
    kept = dnn.fuse(lambda x, y: dnn.dropout_forward(x * y, 0.3, seed=7, offset=5) * 1.0)
    with forced(kept.graph(x, y), "elementwise") as count:
        zeros = values_of(dnn.dropout_forward(dnn.full_like(x, 1), 0.3, seed=7, offset=5)) == 0
        assert count == 1 and np.array_equal(values_of(kept(x, y)) == 0, zeros | (values_of(x * y) == 0))
    check_bits(lambda x: dnn.dropout_forward(x * 2, 0.0, seed=1), [x])
    turned = elements(dtype, (301, 7), device, 0).T
    f = dnn.fuse(lambda x: dnn.dropout_forward(dnn.tanh(x), 0.3, seed=1))
    assert "dropout numbers elements in row-major order" in f.why(turned)
    assert bits(f(turned)) == bits(f.__wrapped__(turned))


def test_dynamic_seeds_of_dropout(device: str) -> None:
    x = elements("float32", ODD, device, 0)
    f = dnn.fuse(lambda x, offset: dnn.dropout_forward(x * 2, 0.5, seed=1, offset=offset) + x, dynamic=("offset",))
    for offset in (3, 4):
        assert engines_of(f.graph(x, offset)) == ["elementwise"]
        assert np.allclose(values_of(f(x, offset)), values_of(f.__wrapped__(x, offset)))
    assert bits(f(x, 3)) != bits(f(x, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_of_elements(dtype: str, device: str) -> None:
    values = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 6e4, -6e4]
    x = dnn.asarray(np.resize(values, ODD), dtype=dtype, device=device)
    y = dnn.asarray(np.repeat(np.resize(values, ODD[0]), ODD[1]).reshape(ODD), dtype=dtype, device=device)
    for f in (
        lambda x, y: dnn.where(dnn.isnan(x * y), x, dnn.minimum(x, y)) + 1.0,
        lambda x, y: dnn.activation_forward(dnn.maximum(x, y), "silu") / y,
        lambda x, y: dnn.activation_backward(x, y * 2, y, "silu") * y,
        lambda x, y: dnn.copysign(dnn.reciprocal(x), y) - x,
    ):
        check_bits(f, [x, y])
        fused = dnn.fuse(f)
        with forced(fused.graph(x, y), "elementwise") as count:
            got, apart = values_of(fused(x, y)), values_of(f(x, y))
            assert count == 1
            # Separate calls round more values of 16 bits to 0 and Inf, so they have more NaNs.
            assert dtype in ("float16", "bfloat16") or np.array_equal(np.isnan(got), np.isnan(apart))


def test_numbers_are_read_when_a_region_runs(device: str) -> None:
    x = elements("float32", ODD, device, 0)
    problems = set()
    for number in (0.5, 3.0):
        f = dnn.fuse(lambda x, n=number: dnn.tanh(x * n) + n)
        assert np.allclose(values_of(f(x)), values_of(f.__wrapped__(x)), rtol=1e-6, atol=1e-6)
        problems |= {r.problem for r in f.graph(x).explain()}
    assert len(problems) == 1


def random_elements(seed: int) -> Callable[..., list[Any]]:
    """A function of 2 to 12 calls on elements: maths, tests, casts, scalings, dropout, numbers, writes in place, several results."""

    def f(*tensors: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        made = list(tensors)
        for _ in range(rng.integers(2, 13)):
            a = made[-1] if rng.random() < 0.7 else made[rng.integers(len(made))]
            real = str(a.dtype) in DTYPES
            b, c = (made[rng.integers(len(made))].to(dtype=a.dtype) for _ in range(2))
            kind = rng.integers(9)
            if kind == 0:
                made.append(a.to(dtype=ALL_DTYPES[rng.integers(9)]))
            elif kind == 1:
                made.append(dnn.where(dnn.lt(a, b), a, c))
            elif kind == 2 and real:
                made.append(dnn.activation_forward(a, MODES[rng.integers(len(MODES))]))
            elif kind == 3 and real:
                made.append(dnn.activation_backward(a, *[dnn.abs(a)] * 2, MODES[rng.integers(len(MODES))]))
            elif kind == 4 and real:
                made.append(dnn.dropout_forward(a, 0.3, seed=int(rng.integers(9)), offset=int(rng.integers(9))))
            elif kind == 5 and str(a.dtype) != "bool":
                made.append(a * (0.3 if real else 3) + c)
            elif kind == 6 and real:
                made.append(dnn.pointwise(("tanh", "abs", "sqrt", "exp", "floor", "sin")[rng.integers(6)], a))
            elif kind == 7 and real:
                made.append(dnn.transform(a, alpha=0.7, dtype=DTYPES[rng.integers(4)]))
            elif str(a.dtype) == "bool":
                made.append(dnn.pointwise(("logical_and", "bitwise_xor", "ne")[rng.integers(3)], a, b))
            else:
                made.append(dnn.pointwise(("add", "sub", "mul", "minimum", "maximum")[rng.integers(5)], a, b))
        return [made[-1], made[int(rng.integers(len(tensors), len(made)))]]

    return f


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_functions_of_elements_give_the_bits_of_the_calls(first: int, device: str) -> None:
    regions = 0
    for seed in range(first, first + 20):
        rng = np.random.default_rng(seed)
        rows, columns = int(rng.integers(1, 9)), int(rng.integers(1, 400))
        shapes = [(rows, columns), (columns,), (rows, 1), (), (rows, columns)]
        x = [elements(ALL_DTYPES[rng.integers(9)], s, device, seed + i) for i, s in enumerate(shapes)]
        x.append(elements("float32", (columns, rows), device, seed).T)
        x.append(elements(ALL_DTYPES[rng.integers(9)], (rows, 2 * columns), device, seed)[:, ::2])
        order = [x[i] for i in rng.permutation(len(x))]
        regions += engines_of(check_bits(random_elements(seed), order, 0)).count("elementwise")
    assert regions >= 20


def test_two_threads_compute_what_one_does(device: str) -> None:
    x, y = (elements("float32", (300, 1001), device, seed) for seed in range(2))
    f = dnn.fuse(lambda x, y: dnn.exp(dnn.tanh(x * y) + 0.5) - x, rounding="each")
    assert engines_of(f.graph(x, y)) == ["elementwise"]
    wanted, got = f.__wrapped__(x, y), []
    threads = [threading.Thread(target=lambda: got.extend(f(x, y) for _ in range(5))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 10 and all(bits(g) == bits(wanted) for g in got)
    if device == "cpu":
        with dnn.Handle(device, threads=1):
            assert bits(f(x, y)) == bits(wanted)


def test_large_results_bypass_the_caches(device: str) -> None:
    """On the CPU, results of 4 MB and more are stored by non-temporal stores."""
    for dtype in ("float32", "bfloat16"):
        x, y = (elements(dtype, (1031, 2053), device, seed) for seed in range(2))
        check_bits(lambda x, y: dnn.maximum(x * y, y) - x, [x, y])


# ---- reports


def test_why(device: str) -> None:
    arguments = mlp_arguments(device)
    f = dnn.fuse(mlp)
    lines = f.why(*arguments).splitlines()
    kind = device.partition(":")[0]
    assert re.fullmatch(
        rf"region 1: matmul \+ activation -> {kind}.graph.library_op {kind}.matmul.\w+.*, estimated [\d.e+-]+ us "
        r"\(one by one [\d.e+-]+ us\); saves 2\.0\d* kB of traffic",
        lines[0],
    ), lines[0]
    assert re.fullmatch(r"  node 0: matmul forward f32 a=8x16 b=16x32 bias, line \d+ of test_graph.py", lines[1])
    assert any(line.startswith("region 2: pointwise -> a plain call") for line in lines)
    assert lines[-1].startswith("not fused: %1 from node 1 (activation) to node 2 (pointwise): ")
    assert f.graph(*arguments).why() == f.why(*arguments)
    with dnn.record() as g:
        pass
    assert g.why() == ""


def test_explain_and_find_report_each_region(device: str) -> None:
    arguments = mlp_arguments(device)
    f = dnn.fuse(mlp)
    reports = dnn.explain(f, *arguments)
    assert [r.family for r in reports] == ["graph", "pointwise"]
    assert [r.problem for r in f.graph(*arguments).explain()] == [r.problem for r in reports]
    problem = reports[0].problem
    assert re.match(r"graph matmul forward f32 .* \| a=x0 b=x1 bias=x2 y=%0 ; activation .* \| x=%0 y=y0", problem)
    with dnn.Handle(device, max_workspace=2**40):  # other tests have other limits, so they do not use the result
        for found in (dnn.find(f, *arguments), f.graph(*arguments).find()):
            (region, _) = found
            measured = {e.name.rsplit(".", 1)[1]: e.measured_us for e in region.engines if not e.why_not}
            assert measured["library_op"] > 0 and measured["unfused"] > 0
            assert measured[region.chosen.rsplit(".", 1)[1]] == min(measured.values())
        assert f"\t{problem} max_workspace={2**40}\t" in _C.tuning_text()
        assert "measured" in f.why(*arguments)
        # The fastest engine may multiply in TF32, with errors of 2^-10 in each of 16 products.
        assert np.allclose(f(*arguments).numpy(), mlp(*arguments).numpy(), rtol=1e-2, atol=1e-2)


def test_a_tuning_record_selects_the_engine_of_a_region(device: str) -> None:
    arguments = mlp_arguments(device)
    f = dnn.fuse(mlp)
    f(*arguments)
    with forced(f.graph(*arguments), "unfused"):
        assert engines_of(f.graph(*arguments))[0] == "unfused"
        assert same(f(*arguments), mlp(*arguments))
    assert engines_of(f.graph(*arguments))[0] == "library_op"


def test_records_are_used_by_other_processes(tmp_path: Path) -> None:
    code = """
import sys; sys.path.insert(0, "tests")
import pyminidnn as dnn
from test_graph import mlp, mlp_arguments
(report, _) = dnn.{call}(dnn.fuse(mlp), *mlp_arguments("cpu"))
print(report.chosen)
"""

    def run(call: str) -> str:
        root = Path(__file__).parent.parent
        environment = {"PYMINIDNN_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
        return subprocess.run(
            [sys.executable, "-c", code.format(call=call)],
            capture_output=True, text=True, check=True, cwd=root, env={**os.environ, **environment},
        ).stdout.strip()  # fmt: skip

    tmp_path.chmod(0o700)
    assert run("find").startswith("cpu.graph.")
    file = tmp_path / "tuning.txt"
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    for line in lines:
        if line[1].startswith("graph "):
            line[2], line[4] = "cpu.graph.unfused", ""
    file.write_text("".join("\t".join(line) + "\n" for line in lines))
    assert run("explain") == "cpu.graph.unfused"


def test_find_writes_no_memory_of_the_caller(device: str) -> None:
    x, w, _, r = mlp_arguments(device)
    f = dnn.fuse(lambda x, w, r: dnn.activation_forward(dnn.matmul(x, w) + r, "relu", out=r))
    before = r.copy()
    with dnn.Handle(device, max_workspace=2**40):
        dnn.find(f, x, w, r)
    assert same(r, before)


def test_pictures_show_regions(device: str) -> None:
    g = dnn.fuse(mlp).graph(*mlp_arguments(device))
    (cluster,) = re.findall(r"subgraph cluster_1 \{ (.*) \}", g.dot())
    assert 'label="region 1"' in cluster and cluster.count("n") >= 2
    assert g.svg().count("<title>region 1</title>") == 2


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_every_node_is_in_one_region(seed: int) -> None:
    g = dnn.fuse(random_function(seed)).graph(on("cpu", 5, 7), on("cpu", 5, 7))._ended()
    assert sorted(i for nodes in g.regions(None) for i in nodes) == list(range(len(g.nodes)))
