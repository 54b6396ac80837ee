# SPDX-License-Identifier: Apache-2.0
"""Attention against torch's scaled_dot_product_attention: forward, backward and decode.

The peer is the fastest of torch's backends that accept the call: cuDNN, FlashAttention and, with a mask, the memory-
efficient one. Its backward call is that of autograd. Rows of one list have 16384 tokens and 2048 channels of q in all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from report import Target
from runner import Row, main
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

import pyminidnn as dnn

TOKENS, CHANNELS = 16384, 2048
# Torch's switches. The context manager sdpa_kernel() takes so long that a GPU would wait for the host.
BACKENDS: dict[str, Callable[[bool], None]] = {
    "cudnn": torch.backends.cuda.enable_cudnn_sdp, "flash": torch.backends.cuda.enable_flash_sdp,
    "efficient": torch.backends.cuda.enable_mem_efficient_sdp, "math": torch.backends.cuda.enable_math_sdp,
}  # fmt: skip


def peer(backend: str, *operands: torch.Tensor, **options: Any) -> torch.Tensor:
    for name, enable in BACKENDS.items():
        enable(name == backend)
    return scaled_dot_product_attention(*operands, **options)


def ways(operands: list[torch.Tensor], **options: Any) -> dict[str, partial[torch.Tensor]]:
    """Torch's call by each backend that accepts it."""
    found = {}
    for name in ("cudnn", "flash", "efficient"):
        call = partial(peer, name, *operands, **options)
        try:
            call()
        except RuntimeError:
            continue
        found[name] = call
    return found


def gradients(y: torch.Tensor, operands: list[torch.Tensor], do: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(y, operands, do, retain_graph=True)


class Problem:
    """Operands of attention: q, k and v of torch, and ours, which share the memory."""

    def __init__(self, batch: int, heads: tuple[int, int], rows: int, columns: int, size: int, device: str) -> None:
        def random(count: int, n: int) -> torch.Tensor:
            return torch.randn(batch, count, n, size, device=device, dtype=torch.bfloat16, requires_grad=True)

        self.operands = [random(heads[0], rows), random(heads[1], columns), random(heads[1], columns)]
        self.ours = [dnn.from_dlpack(t.detach()) for t in self.operands]
        self.gqa = heads[0] != heads[1]
        self.bytes = sum(t.nbytes for t in (*self.operands, self.operands[0]))

    def forward(self, name: str, list_: str, seen: float, theirs: dict[str, Any], **options: Any) -> Row:
        """`seen` is the part of all scores that is computed."""
        b, h, n, d = self.operands[0].shape
        flop = 4.0 * b * h * n * self.operands[1].shape[2] * d * seen
        operands = [t.detach() for t in self.operands]
        return Row(name, lambda: dnn.attention_forward(*self.ours, **options),
                   ways(operands, enable_gqa=self.gqa, **theirs), bytes=self.bytes, flop=flop, dtype="bfloat16",
                   list=list_, tolerance=0.02, seen=(lambda r: r[:1], list))  # fmt: skip

    def backward(self, name: str, list_: str, seen: float, causal: bool) -> Row:
        b, h, n, d = self.operands[0].shape
        y, lse = dnn.attention_forward(*self.ours, causal=causal)
        do = torch.randn_like(self.operands[0])
        ours = dnn.from_dlpack(do.detach())
        theirs = ways(self.operands, is_causal=causal, enable_gqa=self.gqa)
        return Row(name, partial(dnn.attention_backward, ours, *self.ours, y, lse, causal=causal),
                   {way: partial(gradients, call(), self.operands, do) for way, call in theirs.items()},
                   bytes=2 * self.bytes, flop=10.0 * b * h * n * n * d * seen, dtype="bfloat16", list=list_,
                   tolerance=0.03)  # fmt: skip


def lengths_rows(device: str) -> Iterator[Row]:
    for size in (64, 128, 256):
        for n in (1024, 2048, 4096, 8192, 16384):
            p = Problem(TOKENS // n, (CHANNELS // size,) * 2, n, n, size, device)
            for causal in (False, True):
                name, seen = f"bf16 d{size} {n}{', causal' if causal else ''}", 0.5 if causal else 1
                yield p.forward(f"forward {name}", f"forward d{size}", seen, {"is_causal": causal}, causal=causal)
                yield p.backward(f"backward {name}", f"backward d{size}", seen, causal)


def option_rows(device: str) -> Iterator[Row]:
    p = Problem(2, (64, 8), 8192, 8192, 128, device)
    yield p.forward("forward bf16 d128 8192, 64 heads of 8, causal", "gqa", 0.5, {"is_causal": True}, causal=True)
    yield p.backward("backward bf16 d128 8192, 64 heads of 8, causal", "gqa", 0.5, True)
    n = 4096
    p = Problem(TOKENS // n, (16, 16), n, n, 128, device)
    mask = torch.randn(1, 1, n, n, device=device, dtype=torch.bfloat16)
    yield p.forward("forward bf16 d128 4096, bias", "options", 1, {"attn_mask": mask}, bias=dnn.from_dlpack(mask))
    slopes = 2.0 ** -torch.arange(1, 17, device=device) * 0.1
    far = (torch.arange(n, device=device)[:, None] - torch.arange(n, device=device)).abs()
    bias = (-slopes[:, None, None] * far).bfloat16()[None]
    yield p.forward("forward bf16 d128 4096, ALiBi", "options", 1, {"attn_mask": bias}, alibi=dnn.from_dlpack(slopes))
    row = p.forward("forward bf16 d128 4096, dropout", "options", 1, {"dropout_p": 0.1}, dropout=0.1, seed=1)
    row.seen = (lambda _: [], lambda _: [])  # torch draws other random numbers
    yield row
    n = 8192
    p = Problem(1, (16, 16), n, n, 128, device)
    at = torch.arange(n, device=device)
    window = ((at[:, None] >= at) & (at[:, None] - at <= 1024))[None, None]  # torch has no other way
    yield p.forward("forward bf16 d128 8192, window of 1024", "window", 1025 / n, {"attn_mask": window},
                    causal=True, window=(1024, None))  # fmt: skip


def packed_rows(device: str) -> Iterator[Row]:
    """Sequences of random lengths (lognormal, at most 4096) in one tensor."""
    lengths = np.random.default_rng(0).lognormal(6.5, 1, 32).astype(int).clip(1, 4096)
    ends, most, heads, size = np.cumsum([0, *lengths]), int(lengths.max()), 16, 128
    operands = [torch.randn(int(ends[-1]), heads, size, device=device, dtype=torch.bfloat16) for _ in range(3)]
    ours, cu = [dnn.from_dlpack(t) for t in operands], torch.tensor(ends, dtype=torch.int32, device=device)
    yield Row(f"forward bf16 d128, packed {len(lengths)} sequences of 1 to {most} rows",
              partial(dnn.attention_forward, *ours, cu_q=cu, cu_kv=cu, max_q=most, max_kv=most),
              partial(varlen_attn, *operands, cu, cu, most, most), bytes=4.0 * operands[0].nbytes,
              flop=4.0 * heads * size * float((lengths.astype(float) ** 2).sum()), dtype="bfloat16", list="packed",
              tolerance=0.02, seen=(lambda r: r[:1], list))  # fmt: skip


def ordered_rows(device: str) -> Iterator[Row]:
    """The engine that repeats its bits against the default."""
    for size, n, causal in itertools.product((64, 128), (4096,), (False, True)):
        p = Problem(TOKENS // n, (CHANNELS // size,) * 2, n, n, size, device)
        row = p.backward(f"backward bf16 d{size} {n}{', causal' if causal else ''}, ordered", "ordered",
                         0.5 if causal else 1, causal)  # fmt: skip
        default = row.ours
        row.ours = partial(default, algo="cuda.attention.wgmma_ordered")
        row.peer = {"our default": default}
        row.seen = (list, lambda r: [torch.from_dlpack(t) for t in r])
        yield row


def decode_rows(device: str) -> Iterator[Row]:
    for batch, columns in ((8, 4096), (8, 32768), (64, 4096), (1, 1024), (1, 131072)):
        p = Problem(batch, (32, 8), 1, columns, 128, device)
        q, k, v = (t.permute((0, 2, 1, 3)) for t in p.ours)
        lengths = dnn.full((batch,), columns, dtype="int32", device=device)
        theirs = ways([t.detach() for t in p.operands], enable_gqa=True)
        common: dict[str, Any] = {"bytes": p.bytes, "dtype": "bfloat16", "list": "decode", "tolerance": 0.02}
        first = (lambda r: [r[0].transpose(1, 2)], list)
        yield Row(f"decode bf16 d128 batch {batch}, {columns}", partial(dnn.attention_decode, q, k, v, lengths=lengths),
                  theirs, seen=first, **common)  # fmt: skip
        if (batch, columns) == (8, 4096):
            pages = [t.reshape((-1, 64, 8, 128)) for t in (t.contiguous() for t in (k, v))]
            table = dnn.arange(batch * columns // 64, dtype="int32", device=device).reshape((batch, -1))
            yield Row(f"decode bf16 d128 batch {batch}, {columns}, pages of 64",
                      partial(dnn.attention_decode, q, *pages, lengths=lengths, pages=table), theirs, seen=first,
                      **common)  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    yield from lengths_rows(device)
    yield from option_rows(device)
    yield from packed_rows(device)
    yield from ordered_rows(device)
    yield from decode_rows(device)


if __name__ == "__main__":
    forward, backward = {f"forward d{d}": Target(mean=1.0) for d in (64, 128)}, {"backward d64": Target(mean=0.97)}
    main(rows, __doc__, {**forward, "forward d256": Target(mean=1.2), **backward, "backward d128": Target(mean=0.97),
                         "backward d256": Target(mean=0.9), "options": Target(mean=1.5), "gqa": Target(mean=1.05),
                         "window": Target(mean=1.05), "packed": Target(mean=1.05), "ordered": Target(mean=0.82),
                         "decode": Target(mean=1.0)})  # fmt: skip
