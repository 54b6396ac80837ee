# SPDX-License-Identifier: Apache-2.0
"""Results of torch for a case's inputs in float64, to check the oracle. None where torch has no such function, or
defines it differently."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import Case
from support import Sample

Results = list[np.ndarray] | None


def torch_results(case: Case, sample: Sample) -> Results:
    import torch

    function = FAMILIES.get(case.family)
    if function is None:
        return None
    inputs = {
        name: torch.from_numpy(np.array(v, "int64" if name == "target" else "float64"))
        for name, v in sample.inputs.items()
    }
    found = function(case, inputs, torch)
    return None if found is None else [t.detach().numpy() for t in found]


def conv(case: Case, t: dict[str, Any], torch: Any) -> Any:
    if case.attributes.get("mode") or case.direction == "backward_bias":
        return None
    of = "dy" if "dy" in t else "x"
    rank = t[of].ndim - 2
    pads = case.padding(rank)
    if any(before != after for before, after in pads):
        return None
    options = {"stride": case.integers("stride", 1), "padding": [p for p, _ in pads], "dilation": case.integers("dilation", 1),
               "groups": case.integers("groups", 1)}  # fmt: skip
    f = getattr(torch.nn.functional, f"conv{rank}d")
    if case.direction.startswith("backward"):
        x = t["x"] if "x" in t else torch.zeros(case.operands["dx"].shape, dtype=torch.float64)
        w = t["w"] if "w" in t else torch.zeros(case.operands["dw"].shape, dtype=torch.float64)
        x, w = x.requires_grad_(), w.requires_grad_()
        return torch.autograd.grad(f(x, w, **options), w if "dw" in case.operands else x, t["dy"])
    if "bias_stride" in case.attributes or case.attributes.get("activation", "relu") != "relu":
        return None
    y = f(t["x"], t["w"], t.get("bias"), **options)
    y = y + t["residual"] if "residual" in t else y
    y = torch.relu(y) if "activation" in case.attributes else y
    if case.direction == "forward_statistics":
        return [y, *((y**n).sum((0, *range(2, y.ndim))) for n in (1, 2))]
    return [y]


def matmul(case: Case, t: dict[str, Any], torch: Any) -> Any:
    if set(case.attributes) - {"math", "to"} or "c" in t:
        return None
    y = t["a"] @ t["b"]
    return [y + t["bias"] if "bias" in t else y]


def pooling(case: Case, t: dict[str, Any], torch: Any) -> Any:
    mode = case.words[0]
    rank = t["x"].ndim - 2
    if "size" in case.attributes or "indices" in case.attributes or "ceil" in case.words or mode == "lp":
        return None
    window = list(np.broadcast_to(case.integers("window", 1), rank))
    pads, dilation = case.padding(rank), case.integers("dilation", 1)
    if any(a != b or a > w // 2 for (a, b), w in zip(pads, window, strict=True)) or (mode != "max" and dilation != 1):
        return None
    if rank == 3 and mode != "max" and any(w > n for w, n in zip(window, t["x"].shape[2:], strict=True)):
        return None  # torch refuses windows that are larger than x, even if padding makes them fit
    options = {"stride": case.integers("stride", tuple(window)), "padding": [p for p, _ in pads]}
    options |= {"dilation": dilation} if mode == "max" else {"count_include_pad": mode == "avg"}
    f = getattr(torch.nn.functional, f"{'max' if mode == 'max' else 'avg'}_pool{rank}d")
    if case.direction == "forward":
        return [f(t["x"], list(map(int, window)), **options)]
    x = t["x"].requires_grad_()
    y = f(x, list(map(int, window)), **options)
    # If a maximum is -inf, its window contains only padding. For such a window, torch adds the gradient outside of x's
    # plane (the pixels of a channel).
    return None if y.isinf().any() else torch.autograd.grad(y, x, t["dy"])


def softmax(case: Case, t: dict[str, Any], torch: Any) -> Any:
    if case.direction != "forward" or "scaled" in case.words or "keep" in t or "mask" in t:
        return None
    f = torch.log_softmax if "log" in case.words else torch.softmax
    return [f(t["x"], int(case.attributes["axis"]))]


def loss(case: Case, t: dict[str, Any], torch: Any) -> Any:
    if "smoothed" in case.words or case.attributes["axis"] != "1" or case.attributes["reduction"] == "mean":
        return None  # if all rows are ignored, torch's mean loss is NaN
    x = t["x"].requires_grad_()
    options = {"reduction": case.attributes["reduction"], "ignore_index": int(case.attributes.get("ignore", -100))}
    y = torch.nn.functional.cross_entropy(x, t["target"], **options)
    if case.direction == "forward":
        return [y, torch.logsumexp(x, 1)]
    return torch.autograd.grad(y, x, t["dy"].reshape(y.shape))


def activation(case: Case, t: dict[str, Any], torch: Any) -> Any:
    f: dict[str, Callable[[Any], Any]] = {
        "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "elu": torch.nn.functional.elu,
        "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu, "mish": torch.nn.functional.mish,
    }  # fmt: skip
    if case.words[0] not in f:
        return None
    x = t["x"].requires_grad_()
    y = f[case.words[0]](x)
    return [y] if case.direction == "forward" else torch.autograd.grad(y, x, t["dy"])


def reduce(case: Case, t: dict[str, Any], torch: Any) -> Any:
    f = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}
    if case.direction not in f or case.dtype.startswith(("int", "uint", "bool")):
        return None
    return [f[case.direction](t["x"], tuple(map(int, case.attributes["axes"].split(","))))]


FAMILIES: dict[str, Callable[[Case, dict[str, Any], Any], Any]] = {
    "activation": activation, "conv": conv, "loss": loss, "matmul": matmul, "pooling": pooling, "reduce": reduce,
    "softmax": softmax,
}  # fmt: skip


def largest_difference(case: Case, sample: Sample) -> float:
    """The largest difference between torch and the oracle, as a fraction of the tolerance. Both compute in float64, so
    it is far below 1. 0 if torch has no result."""
    worst = 0.0
    for got, result in zip(torch_results(case, sample) or [], sample.results, strict=False):
        want = np.asarray(result.want, "float64")
        assert got.shape == want.shape, f"torch has {got.shape}, the oracle {want.shape}"
        with np.errstate(invalid="ignore"):
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            difference = np.where(same, 0, np.abs(got - want)) / (
                np.asarray(result.tolerance) + 1e-9 * np.abs(want) + 1e-12
            )
        worst = max(
            worst, float(np.nanmax(difference, initial=0.0)) if not np.isnan(difference[~same]).any() else math.inf
        )
    return worst
