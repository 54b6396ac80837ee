# SPDX-License-Identifier: Apache-2.0
"""The engine folded_conv of the family `graph`: a convolution and the batch norm behind it as one convolution."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from support import values_of
from test_graph import same
from test_regions import DTYPES, EPS, engines_of, forced, relu

import pyminidnn as dnn
from pyminidnn import _C

# The folded parameters cost three launches, for which only large results pay. A launch of a GPU takes more time.
SHAPES = {"cpu": (2, 16, 24, 24), "cuda": (8, 32, 192, 128)}
Tensors = dict[str, dnn.DeviceTensor]


def tensors_of(dtype: str, device: str, mean: float = 0.0) -> Tensors:
    """The operands of a convolution and a batch norm. The bias of the convolution and the mean are around `mean`."""
    rng = np.random.default_rng(3)
    shape = SHAPES[device.partition(":")[0]]
    n = shape[1]
    accumulator = "float64" if dtype == "float64" else "float32"

    def drawn(*size: int, scale: float = 1.0, shift: float = 0.0, kind: str = dtype) -> dnn.DeviceTensor:
        values = rng.standard_normal(size).astype("float32") * scale + shift
        return dnn.asarray(values, device=device).to(dtype=kind)

    wide = drawn(n, n, 3, 6, scale=(9 * n) ** -0.5)
    return {
        "x": drawn(*shape), "r": drawn(*shape), "dense": drawn(n, n, 3, 3, scale=(9 * n) ** -0.5),
        "grouped": drawn(n, n // 4, 3, 3, scale=0.2), "small": drawn(n, n, 1, 1, scale=0.2), "strided": wide[..., ::2],
        "packed": drawn(n, shift=mean), "apart": drawn(n, 3, shift=mean)[:, 1],
        "scale": drawn(n, kind=accumulator), "bias": drawn(n, kind=accumulator),
        "mean": drawn(n, kind=accumulator, shift=mean), "var": drawn(n, kind=accumulator) ** 2 + 0.5,
    }  # fmt: skip


def norm(y: Any, p: Tensors, **options: Any) -> Any:
    return dnn.batch_norm_forward_inference(y, p["scale"], p["bias"], p["mean"], p["var"], eps=1e-3, **options)


def channel(v: Any) -> Any:
    return v.reshape((1, -1, 1, 1))


@dataclass
class Layer:
    """A convolution, a batch norm, and the calls around them. Operands are named by the keys of tensors_of()."""

    w: str = "dense"
    conv: dict[str, Any] = field(default_factory=dict)
    bias: str = ""  # of the convolution
    added_bias: str = ""
    norm: dict[str, str] = field(default_factory=dict)
    residual: str = ""
    activation: str = "identity"

    def convolved(self, x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
        return dnn.conv_forward(x, w, bias=bias, padding=0 if self.w == "small" else 1, **self.conv, **options)

    def __call__(self, p: Tensors, out: Any = None) -> Any:
        y = self.convolved(p["x"], p[self.w], p.get(self.bias))
        if self.added_bias:
            y = y + channel(p[self.added_bias])
        y = norm(y, p, **{k: p.get(v, v) for k, v in self.norm.items()})
        if self.residual:
            y = dnn.add(y, p[self.residual], out=out)
        return y if self.activation == "identity" else dnn.activation_forward(y, self.activation)

    def bound(self, p: Tensors, exact: np.ndarray) -> np.ndarray:
        """The largest error that roundings explain, for each element.

        y = sum(s w x) + (s (b - mean) + bias) + residual, s = scale / sqrt(var + eps). The products s w, the second term,
        and y are rounded to the dtype. All else is computed in float32 (float64 for float64) and rounded there, at most
        once for each term, and 8 times for s. In float16, the distance between numbers is at least 2^-24.
        """
        dtype = str(p["x"].dtype)
        precise = {k: t.to(dtype="float64") for k, t in p.items()}
        s = dnn.abs(precise["scale"] / dnn.sqrt(precise["var"] + 1e-3))
        b = precise.get(self.bias or self.added_bias, precise["mean"] * 0)
        x, w = dnn.abs(precise["x"]), dnn.abs(precise[self.w])
        terms, sums = self.convolved(x, w) * channel(s), self.convolved(x, w * 0 + 1.0)
        bias = dnn.abs((b - precise["mean"]) * s) + dnn.abs(precise["bias"])
        parts = (dnn.abs(b) + dnn.abs(precise["mean"])) * s + dnn.abs(precise["bias"])
        rounded = values_of(terms + channel(bias)) + np.abs(exact)
        computed = values_of(terms + channel(parts) + dnn.abs(precise["r"]))
        roundings = int(np.prod(p[self.w].shape[1:])) + 12
        unit = 2.0**-53 if dtype == "float64" else 2.0**-24
        least = 2.0**-25 * values_of(sums) if dtype == "float16" else 0.0
        return EPS[dtype] / 2 * rounded + least + roundings * unit * computed


LAYERS: dict[str, Layer] = {
    "norm": Layer(),
    "bias of the convolution": Layer(bias="packed"),
    "added bias, relu": Layer(added_bias="packed", activation="relu"),
    "options of the norm": Layer(bias="packed", norm={"residual": "r", "activation": "relu"}),
    "residual, silu": Layer(residual="r", activation="silu"),
    "groups": Layer(w="grouped", conv={"groups": 4}, activation="relu"),
    "1x1": Layer(w="small"),
    "reversed window": Layer(conv={"mode": "convolution"}),
    "strided weights": Layer(w="strided"),
    "strided bias": Layer(bias="apart"),
}


def channels_last(p: Tensors) -> Tensors:
    return {k: dnn.asarray(t, layout="NHWC") if len(t.shape) == 4 else t for k, t in p.items()}


def check(layer: Layer, p: Tensors) -> None:
    with dnn.Handle(p["x"].device, math="ieee"):  # TF32 would round the operands of products
        fused = dnn.fuse(layer.__call__)
        # On a GPU, the estimates of some 16-bit problems differ by less than a launch.
        folds = engines_of(fused.graph(p)) == ["folded_conv"]
        assert folds or (p["x"].device != "cpu" and p["x"].dtype != "float32"), fused.why(p)
        got, apart = fused(p), layer(p)
        assert (got.shape, got.dtype, got.strides) == (apart.shape, apart.dtype, apart.strides)
        exact = values_of(layer({k: t.to(dtype="float64") for k, t in p.items()})).astype("float64")
        bound = 1.1 * layer.bound(p, exact)  # silu has a slope of at most 1.1
        assert (np.abs(values_of(got) - exact) <= bound).all()
        with forced(fused.graph(p), "unfused") as count:
            assert count == folds and bytes(values_of(fused(p))) == bytes(values_of(apart))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_folded(name: str, dtype: str, device: str) -> None:
    check(LAYERS[name], tensors_of(dtype, device))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mean", [30.0, -1000.0])
def test_a_mean_far_from_zero(mean: float, dtype: str, device: str) -> None:
    """The bias and the mean cancel each other before they are rounded to the dtype."""
    for layer in (LAYERS["bias of the convolution"], LAYERS["added bias, relu"], LAYERS["norm"]):
        p = tensors_of(dtype, device, mean)
        if layer is LAYERS["norm"]:  # the input has the mean
            p["x"] = p["x"] + mean / 10
            y = layer.convolved(p["x"], p["dense"]).to(dtype="float64")
            p["mean"] = y.mean(axis=(0, 2, 3)).to(dtype=p["mean"].dtype)
        check(layer, p)


@pytest.mark.parametrize("name", ["norm", "options of the norm", "residual, silu"])
def test_folded_in_nhwc(name: str, device: str) -> None:
    check(LAYERS[name], channels_last(tensors_of("float32", device)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_float32_result_of_16_bit_operands(dtype: str, device: str) -> None:
    p = tensors_of(dtype, device)

    def f(p: Tensors) -> Any:
        y = dnn.conv_forward(p["x"], p["dense"], padding=1, out=dnn.empty(p["x"].shape, device=device))
        return relu(norm(y, p))

    fused = dnn.fuse(f)
    assert engines_of(fused.graph(p)) == ["folded_conv"] and fused(p).dtype == "float32"
    bound = 2 * Layer().bound(p, values_of(f(p)))
    assert (np.abs(values_of(fused(p)) - values_of(f(p))) <= bound).all()


def test_parameters_are_read_in_each_run(device: str) -> None:
    p = tensors_of("float32", device)
    layer = LAYERS["bias of the convolution"]
    handle = dnn.Handle(device, math="ieee")
    with dnn.record(handle=handle) as g:
        g.output("y", layer(p | {"x": g.input("x", p["x"].shape)}))
    out = dnn.empty(p["x"].shape, device=device)
    call = g.bind(x=p["x"], y=out, handle=handle)
    call()
    for name in ("x", "dense", "packed", "scale", "bias", "mean", "var"):
        p[name][...] = p[name] * 0.5 + 0.25
        before = dnn.memory_stats(device)["allocations"]
        call()
        assert dnn.memory_stats(device)["allocations"] == before, "a bound call allocates"
        with handle:
            assert np.allclose(values_of(out), values_of(layer(p)), rtol=1e-3, atol=1e-3), name


@pytest.mark.gpu
@pytest.mark.torch
def test_a_cuda_graph_captures_the_folding() -> None:
    import torch

    p = tensors_of("float16", "cuda:0")
    layer = LAYERS["residual, silu"]
    with dnn.record(device="cuda:0") as g:
        g.output("y", layer(p | {"x": g.input("x", p["x"].shape, "float16")}))
    assert engines_of(g) == ["folded_conv"]
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    out = dnn.empty(p["x"].shape, dtype="float16", device="cuda:0")
    torch.cuda.synchronize()
    call = g.bind(x=p["x"], y=out, handle=dnn.Handle("cuda:0", stream=stream))
    call()  # compiles and loads the kernels
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        call()
    p["scale"][...] = p["scale"] * 2.0
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    assert np.allclose(values_of(out), values_of(layer(p)), rtol=0.02, atol=0.05)


def test_the_result_may_have_the_memory_of_the_residual(device: str) -> None:
    p = tensors_of("float32", device)
    with dnn.Handle(device, math="ieee"):
        wanted, r = Layer(residual="r")(p), p["r"]
        fused = dnn.fuse(lambda p: Layer(residual="r")(p, out=p["r"]))
        assert engines_of(fused.graph(p)) == ["folded_conv"]
        assert fused(p).data_ptr == r.data_ptr and np.allclose(values_of(r), values_of(wanted), rtol=1e-3, atol=1e-3)


def test_memory_that_is_not_written_is_poisoned(device: str) -> None:
    """New memory has NaN in it, also the workspace in which the parameters are folded."""
    _C.set_allocator_checks(exact=False, poison=255)
    try:
        for name in ("norm", "options of the norm", "strided weights"):
            check(LAYERS[name], tensors_of("float32", device))
    finally:
        from conftest import set_checks

        set_checks()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
@pytest.mark.parametrize("name", ["norm", "added bias, relu", "options of the norm"])
def test_special_values(name: str, value: float, device: str) -> None:
    """In x, in the residual, and in each parameter of a channel."""
    layer = LAYERS[name]
    for changed in ("x", "r", "packed", "bias", "mean"):
        p = tensors_of("float32", device)
        p[changed][:1] = value
        fused = dnn.fuse(layer.__call__)
        with dnn.Handle(device, math="ieee"):
            got, want = values_of(fused(p)), values_of(layer(p))
            assert engines_of(fused.graph(p)) == ["folded_conv"]
        if changed == "x" and np.isinf(value):  # Inf - Inf is NaN in either, by engines whose sums differ in order
            assert np.array_equal(np.isfinite(got), np.isfinite(want))
            got, want = (np.where(np.isfinite(want), v, 0) for v in (got, want))
        assert np.allclose(got, want, rtol=1e-3, atol=1e-3, equal_nan=True), changed


REFUSED: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "relu before the norm": (
        lambda p: norm(relu(Layer().convolved(p["x"], p["dense"])), p),
        "folded_conv: normalizes before the activation; here batch_norm follows relu"),
    "residual before the norm": (
        lambda p: norm(Layer().convolved(p["x"], p["dense"]) + p["r"], p),
        "folded_conv: adds its residual behind the batch norm; here it is added before"),
    "two norms": (lambda p: norm(norm(Layer().convolved(p["x"], p["dense"]), p), p),
                  "folded_conv: folds one batch norm; here another one follows"),
    "statistics of activations": (
        lambda p: dnn.batch_norm_forward_inference(
            Layer().convolved(p["x"], p["dense"]), p["r"][0], p["r"][1], p["r"][0], p["r"][1], per_activation=True),
        "folded_conv: folds one mean for each channel; here each activation has a mean"),
    "the residual of the norm": (
        lambda p: norm(p["x"], p, residual=Layer().convolved(p["x"], p["dense"])),
        "folded_conv: batch_norm inference f32 adds %0"),
    "training": (
        lambda p: dnn.batch_norm_forward_training(Layer().convolved(p["x"], p["dense"]), p["scale"], p["bias"])[0],
        "folded_conv: no batch_norm_forward_inference follows a convolution"),
    "an output": (lambda p: [y := Layer().convolved(p["x"], p["dense"]), norm(y, p)],
                  "folded_conv: y0 is used outside of the region, too"),
    "two residuals": (lambda p: norm(Layer().convolved(p["x"], p["dense"]), p, residual=p["r"]) + p["r"],
                      "folded_conv: adds one bias and one residual; here another tensor is added"),
    "bias behind the norm": (lambda p: norm(Layer().convolved(p["x"], p["dense"]), p) + channel(p["packed"]),
                             "folded_conv: supports a residual of the shape of y; here a smaller tensor is added"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_sentences(name: str, device: str) -> None:
    function, sentence = REFUSED[name]
    p = tensors_of("float32", device)
    fused = dnn.fuse(function)
    assert re.search(rf"^not fused: \S+ from node \d+ .*{re.escape(sentence)}", fused.why(p), re.M), fused.why(p)


def test_rounding_each_keeps_the_bits(device: str) -> None:
    p = tensors_of("float16", device)
    layer = LAYERS["added bias, relu"]
    each = dnn.fuse(layer.__call__, rounding="each")
    assert "folded_conv: rounds the folded weights, which rounding='each' excludes" in each.why(p)
    assert same(each(p), layer(p)) and "folded_conv" not in engines_of(each.graph(p))


def test_a_small_result_is_not_worth_the_folding(device: str) -> None:
    p = tensors_of("float32", device) | {"x": dnn.ones((1, SHAPES[device[:4].rstrip(":")][1], 1, 1), device=device)}
    fused = dnn.fuse(LAYERS["norm"].__call__)
    assert re.search(r"not fused: .*: together they take an estimated [\d.]+ us, apart [\d.]+ us", fused.why(p))


def test_find_measures_the_engines_of_the_convolution(device: str) -> None:
    p = tensors_of("float32", device)
    fused = dnn.fuse(LAYERS["norm"].__call__)
    before = values_of(p["dense"])
    with dnn.Handle(device, max_workspace=2**40):  # other tests have other limits, so they do not use the result
        (report,) = dnn.find(fused, p)
        (folded,) = (e for e in report.engines if e.name.endswith("folded_conv"))
        assert folded.measured_us > 0 and ".conv." in folded.config
    assert np.array_equal(before, values_of(p["dense"]))
