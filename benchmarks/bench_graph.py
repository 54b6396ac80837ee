# SPDX-License-Identifier: Apache-2.0
"""Fused functions of recorded calls against torch. Each chain of functions of elements has two rows: against eager
torch and against torch.compile. In a chain, each operand is read once and the result is written once. Norms and softmax
with functions of elements before and behind them have the same two rows. On a GPU, linear layers with bias and
activation have two rows, too: against torch, and against cuBLAS's product alone, which shows what bias and activation
cost.

The rows `regret` compare random graphs with themselves: "ours" has the engines with the lowest estimates, and in the
place of torch's call is the graph with the engines that find() has measured as the fastest. Their partition is the
same. 1 / (torch/ours) is the regret."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import Target
from runner import Row, main
from torch.nn import functional

import pyminidnn as dnn

BYTES = 16 << 20  # the size of each tensor on the CPU; tensors on a GPU are 16 times as large
SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
Chain = Callable[[Any, Any, Any], Any]


def ours(mode: str, x: Any) -> Any:
    return dnn.activation_forward(x, mode)


# The formula, ours and torch's. All have three operands.
CHAINS: dict[str, tuple[Chain, Chain]] = {
    "a * b + c": (lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "relu(a * b + c) * 0.5": (
        lambda a, b, c: ours("relu", a * b + c) * 0.5, lambda a, b, c: torch.relu(a * b + c) * 0.5),
    "sigmoid(a + b * c) - a": (
        lambda a, b, c: ours("sigmoid", a + b * c) - a, lambda a, b, c: torch.sigmoid(a + b * c) - a),
    "gelu(a * 0.5 + b) * c": (
        lambda a, b, c: ours("gelu", a * 0.5 + b) * c, lambda a, b, c: functional.gelu(a * 0.5 + b) * c),
    "silu(a) * b + c": (lambda a, b, c: ours("silu", a) * b + c, lambda a, b, c: functional.silu(a) * b + c),
    "where(a > b, 2 a, c)": (
        lambda a, b, c: dnn.where(dnn.gt(a, b), a * 2, c), lambda a, b, c: torch.where(a > b, a * 2, c)),
    "eight nodes": (
        lambda a, b, c: dnn.tanh(dnn.maximum(ours("relu", a * b - c) * 0.5 + b, c)) * a,
        lambda a, b, c: torch.tanh(torch.maximum(torch.relu(a * b - c) * 0.5 + b, c)) * a),
}  # fmt: skip


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda y: y,
    "relu": torch.relu,
    "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
    "gelu": functional.gelu,
    "silu": functional.silu,
}


def linear(mode: str, x: Any, w: Any, b: Any) -> Any:
    return ours(mode, dnn.matmul(x, w) + b)


def two_kernels(activation: Callable[[torch.Tensor], torch.Tensor], *operands: torch.Tensor) -> torch.Tensor:
    return activation(torch.addmm(*operands))


def linear_rows(device: str) -> Iterator[Row]:
    """activation(x @ w + b) in bfloat16, as calls that a user records."""
    m, n = 8192, 4096
    for k in (512, 1024, 4096):
        x, w, b = (torch.randn(shape, device=device).bfloat16() for shape in ((m, k), (k, n), (n,)))
        w = w / k**0.5
        tensors = [dnn.from_dlpack(t) for t in (x, w, b)]
        common: dict[str, Any] = {"bytes": 2 * (m * k + k * n + m * n), "flop": 2.0 * m * n * k,
                                  "dtype": "bfloat16", "terms": k}  # fmt: skip
        for mode, peer in ACTIVATIONS.items():
            layer: Chain = partial(linear, mode)
            call = partial(dnn.fuse(layer), *tensors)
            ways = {"two kernels": partial(two_kernels, peer, b, x, w)}
            if mode in ("relu", "gelu_tanh"):  # cuBLAS's epilogues
                ways["one"] = partial(torch._addmm_activation, b, x, w, use_gelu=mode != "relu")
            name = f"linear bf16 {m}x{n}x{k}, {mode}"
            yield Row(name, call, ways, list="linear", **common)
            yield Row(f"{name}, product alone", call, partial(torch.matmul, x, w), list="linear, product alone",
                      seen=(lambda _: [], lambda _: []), **common)  # fmt: skip


# The shapes of the inputs of random graphs.
SHAPES = {"cpu": ((64, 512), (256, 256), (1024, 768)), "cuda": ((512, 4096), (2048, 768), (8192, 1024))}


class Regret:
    """A random graph of the tests, at a size of real nets: bound before find() and after it."""

    def __init__(self, seed: int, device: str) -> None:
        kind = device.partition(":")[0]
        self.seed, self.device = seed, device
        self.shape = SHAPES[kind][seed % 3]
        self.dtype = "bfloat16" if kind == "cuda" and seed % 2 else "float32"

    @cached_property
    def tensor(self) -> dnn.DeviceTensor:
        values = np.random.default_rng(self.seed).standard_normal(self.shape).astype("float32")
        return dnn.asarray(values, dtype=self.dtype, device=self.device)

    @cached_property
    def graph(self) -> dnn.Graph:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from test_regions import random_elements, random_layers

        make = random_elements if self.seed % 4 == 3 else random_layers
        with dnn.record(device=self.device) as g:
            for i, y in enumerate(make(self.seed)(g.input("x", self.shape, self.dtype))):
                g.output(f"y{i}", y)
        return g

    @cached_property
    def estimated(self) -> dnn.BoundGraph:
        return self.graph.bind(x=self.tensor)

    @cached_property
    def found(self) -> dnn.BoundGraph:
        """Calls that run alone keep their engines, because their choice is not that of the partition."""
        records = dnn._C.tuning_text()
        dnn.find(self.graph._ended().choose_plans, None, only_regions=True)
        bound = self.graph.bind(x=self.tensor)
        dnn._C.clear_tuning()
        dnn._C.import_tuning(records, True)
        return bound


def regret_rows(device: str) -> Iterator[Row]:
    for seed in range(20 if device == "cpu" else 60):
        r = Regret(seed, device)
        name = f"regret of graph {seed}, x {r.dtype} {r.shape[0]}x{r.shape[1]}"
        # Engines round otherwise; the tests compare their results.
        yield Row(name, lambda r=r: list(r.estimated().values()), lambda r=r: r.found(), list="regret",
                  seen=(lambda _: [], lambda _: []))  # fmt: skip


# Ours and torch's, and the number of tensors of the size of x that are read or written. The operands are x, r, w and b;
# w and b have one element for each column. Scale and bias of our norms are float32, torch's have the dtype of x.
OF_ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "norm + gelu + dropout": (
        lambda x, r, w, b: dnn.dropout_forward(ours("gelu", dnn.layer_norm_forward(x, w, b)[0]), 0.1, seed=1),
        lambda x, r, w, b: functional.dropout(functional.gelu(functional.layer_norm(x, w.shape, w, b)), 0.1), 2),
    "norm + gelu_tanh + dropout": (
        lambda x, r, w, b: dnn.dropout_forward(ours("gelu_tanh", dnn.layer_norm_forward(x, w, b)[0]), 0.1, seed=1),
        lambda x, r, w, b: functional.dropout(
            functional.gelu(functional.layer_norm(x, w.shape, w, b), approximate="tanh"), 0.1), 2),
    "softmax(x * s + mask)": (
        lambda x, r, w, b: dnn.softmax_forward(x * 0.125 + r, axis=1),
        lambda x, r, w, b: torch.softmax(x * 0.125 + r, 1), 3),
    "silu(rms_norm(x)) * gate": (
        lambda x, r, w, b: ours("silu", dnn.rms_norm_forward(x, w)[0]) * r,
        lambda x, r, w, b: functional.silu(functional.rms_norm(x, w.shape, w, 1e-5)) * r, 3),
}  # fmt: skip


def rows_of_rows(device: str) -> Iterator[Row]:
    """Statistics of rows with functions of elements, in one region."""
    for dtype in (torch.float32, torch.bfloat16):
        for cols in (1024, 2048, 4096, 8192):
            n = BYTES * (1 if device == "cpu" else 4) // dtype.itemsize // cols
            x, r = (torch.randn((n, cols), device=device).to(dtype) for _ in range(2))
            w, b = (torch.randn(cols, device=device) for _ in range(2))
            tensors = [dnn.from_dlpack(t) for t in (x, r, w, b)]
            operands = [x, r, w.to(dtype), b.to(dtype)]
            for formula, (mine, peer, count) in OF_ROWS.items():
                fused, compiled = dnn.fuse(mine), torch.compile(peer, dynamic=False)
                name = f"rows {SHORT[dtype]} {n}x{cols}: {formula}"
                common: dict[str, Any] = {"bytes": count * x.nbytes, "dtype": str(dtype).split(".")[1], "terms": cols}
                if "dropout" in formula:  # torch draws other random numbers
                    common["seen"] = (lambda _: [], lambda _: [])
                yield Row(f"{name}, eager", partial(fused, *tensors), partial(peer, *operands), list="rows, eager",
                          **common)  # fmt: skip
                yield Row(f"{name}, compiled", partial(fused, *tensors), partial(compiled, *operands),
                          list="rows, compiled", **common)  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    if device != "cpu":
        yield from linear_rows(device)
    yield from rows_of_rows(device)
    for dtype in SHORT:
        n = BYTES * (1 if device == "cpu" else 16) // dtype.itemsize
        operands = [(torch.rand(n, device=device) * 2 - 1).to(dtype) for _ in range(3)]
        tensors = [dnn.from_dlpack(t) for t in operands]
        for formula, (mine, peer) in CHAINS.items():
            fused, compiled = dnn.fuse(mine), torch.compile(peer, dynamic=False)
            name = f"graph {SHORT[dtype]} {n}: {formula}"
            common: dict[str, Any] = {"bytes": 4 * operands[0].nbytes, "dtype": str(dtype).split(".")[1], "terms": 8}
            yield Row(f"{name}, eager", lambda f=fused, x=tensors: f(*x), lambda f=peer, x=operands: f(*x),
                      list="element chains, eager", **common)  # fmt: skip
            yield Row(f"{name}, compiled", lambda f=fused, x=tensors: f(*x), lambda f=compiled, x=operands: f(*x),
                      list="element chains, compiled", **common)  # fmt: skip
    yield from regret_rows(device)


if __name__ == "__main__":
    targets = {"element chains, eager": Target(mean=2.0), "element chains, compiled": Target(mean=1.0),
               "linear": Target(mean=1.0), "linear, product alone": Target(mean=0.94),
               "rows, eager": Target(mean=1.5), "rows, compiled": Target(mean=1.0),
               "regret": Target(mean=1 / 1.05, worst=1 / 1.3)}  # fmt: skip
    main(rows, __doc__, targets)
