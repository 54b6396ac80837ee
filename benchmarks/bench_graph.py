# SPDX-License-Identifier: Apache-2.0
"""Fused functions of recorded calls against torch. Each chain of functions of elements has two rows: against eager
torch and against torch.compile. In a chain, each operand is read once and the result is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from report import Target
from runner import Row, main
from torch.nn import functional

import pyminidnn as dnn

BYTES = 16 << 20  # of each tensor on the CPU; on a GPU, each has 16 times as many
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


def rows(device: str) -> Iterator[Row]:
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


if __name__ == "__main__":
    targets = {"element chains, eager": Target(mean=2.0), "element chains, compiled": Target(mean=1.0)}
    main(rows, __doc__, targets)
