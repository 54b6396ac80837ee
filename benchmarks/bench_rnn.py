# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers against torch: several layers, one wide layer, both directions with lengths, and streaming. FLOP are
those of the products. backward is all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from report import Target
from runner import Row, main
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import pyminidnn as dnn

TARGETS = {
    "two layers": Target(8, 2),
    "two layers, backward": Target(5, 2),
    "one layer": Target(1.3, 1.1),
    "one layer, backward": Target(1.1, 1),
    "lengths": Target(10, 2),
    "lengths, backward": Target(6, 2),
    "streaming": Target(3, 2),
}
MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "tanh": torch.nn.RNN}
GATES = {"lstm": 4, "gru": 3, "tanh": 1}


@dataclass
class Problem:
    """Layers with as many inputs as units."""

    mode: str
    hidden: int
    layers: int
    steps: int
    batch: int
    dtype: str
    device: str
    bidirectional: bool = False
    lengths: np.ndarray | None = None

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        kind = getattr(torch, self.dtype)
        self.net = MODULES[self.mode](self.hidden, self.hidden, self.layers, bidirectional=self.bidirectional)
        self.net = self.net.to(self.device, kind)
        self.x = torch.randn(self.steps, self.batch, self.hidden, device=self.device).to(kind)
        self.theirs: torch.Tensor | PackedSequence = self.x
        self.options: dict[str, Any] = {"mode": self.mode, "hidden_size": self.hidden, "layers": self.layers}
        self.options["bidirectional"] = self.bidirectional
        if self.lengths is not None:
            self.theirs = pack_padded_sequence(self.x, torch.from_numpy(self.lengths), enforce_sorted=False)
            self.options["lengths"] = dnn.asarray(self.lengths.astype("int32"), device=self.device)
        self.weights = [dnn.from_dlpack(p.detach()) for p in self.net.parameters()]
        directions = 1 + self.bidirectional
        inputs = [self.hidden, *[directions * self.hidden] * (self.layers - 1)]
        rows = self.steps * self.batch if self.lengths is None else int(self.lengths.sum())
        self.flop = 2.0 * rows * directions * GATES[self.mode] * self.hidden * sum(i + self.hidden for i in inputs)
        self.bytes = 2.0 * self.x.nbytes + sum(p.nbytes for p in self.net.parameters())

    def row(self, direction: str, list_: str, ours: Callable[[], Any], peer: Callable[[], Any], times: int) -> Row:
        shape = f"{self.dtype} {self.mode} h{self.hidden} l{self.layers} t{self.steps} n{self.batch}"
        name = f"{direction} {shape}{' bidirectional' * self.bidirectional}{' lengths' * (self.lengths is not None)}"
        # Errors of the state pass from step to step, and torch's products of float32 may be TF32.
        return Row(name, ours, peer, bytes=times * self.bytes, flop=times * self.flop,
                   dtype="tf32" if self.dtype == "float32" else self.dtype, list=list_, tolerance=0.05,
                   seen=(lambda r: r[:1], lambda r: r[:1]))  # fmt: skip

    def forward(self, list_: str) -> Row:
        """torch's y of packed sequences has other rows than ours, so hn is compared for them."""
        ours = partial(dnn.rnn_forward, dnn.from_dlpack(self.x), self.weights, **self.options)
        with_lengths = self.lengths is not None

        @torch.no_grad()
        def peer() -> torch.Tensor:
            y, state = self.net(self.theirs)
            hn = state[0] if isinstance(state, tuple) else state
            return hn if with_lengths else y

        return self.row("forward", list_, lambda: ours()[1] if with_lengths else ours()[0], peer, 1)

    def backward(self, list_: str) -> Row:
        x, dy = dnn.from_dlpack(self.x), torch.randn_like(self.net(self.x)[0])
        y, _, _, reserve = dnn.rnn_forward(x, self.weights, training=True, **self.options)
        ours_dy = dnn.from_dlpack(dy)
        leaf = self.x.clone().requires_grad_()
        if self.lengths is None:
            result = self.net(leaf)[0]
        else:  # the packed rows of y and dy
            lengths = torch.from_numpy(self.lengths)
            result = self.net(pack_padded_sequence(leaf, lengths, enforce_sorted=False))[0].data
            dy = pack_padded_sequence(dy, lengths, enforce_sorted=False).data

        def ours() -> Any:
            dx, _, _, dgates = dnn.rnn_backward_data(ours_dy, None, None, y, self.weights, reserve, **self.options)
            dnn.rnn_backward_weights(x, None, y, dgates, reserve, flat=True, **self.options)
            return dx

        operands = [leaf, *self.net.parameters()]
        peer = partial(torch.autograd.grad, result, operands, dy, retain_graph=True)
        return self.row("backward", list_, ours, peer, 2)


def rows(device: str) -> Iterator[Row]:
    small = device == "cpu"
    sizes = (64, 2, 20, 8) if small else (512, 2, 100, 64)
    for dtype in ("float32",) if small else ("float16", "bfloat16", "float32"):
        for mode in ("lstm", "gru", "tanh"):
            p = Problem(mode, *sizes, dtype, device)
            yield p.forward("two layers")
            yield p.backward("two layers, backward")
    dtype = "float32" if small else "float16"  # for float16, torch uses cuDNN's persistent kernel
    for hidden, layers, steps, batch in ((96, 1, 20, 8),) if small else ((128, 1, 200, 64), (1024, 1, 200, 64)):
        p = Problem("lstm", hidden, layers, steps, batch, dtype, device)
        yield p.forward("one layer")
        yield p.backward("one layer, backward")
    if not small:
        yield Problem("lstm", 2048, 1, 100, 128, "bfloat16", device).forward("one layer")
    hidden, layers, steps, batch = (64, 2, 30, 8) if small else (512, 2, 200, 32)
    lengths = np.random.default_rng(0).lognormal(np.log(steps / 3), 0.7, batch).astype("int64").clip(1, steps)
    lengths[0] = steps
    dtype = "float32" if small else "bfloat16"
    p = Problem("lstm", hidden, layers, steps, batch, dtype, device, True, lengths)
    yield p.forward("lengths")
    yield p.backward("lengths, backward")
    yield Problem("lstm", 64 if small else 512, 1, 50 if small else 1000, 1, dtype, device).forward("streaming")


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
