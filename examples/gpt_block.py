# SPDX-License-Identifier: Apache-2.0
"""A transformer block with grouped heads that reads a prompt at once, then continues token by token with a cache.

    x = x + attention(rms_norm(x)) wo;  x = x + gelu(rms_norm(x) w1) w2

The prompt is one call of attention_forward() for each block. Each later token is a call of attention_decode(), which
reads keys and values of all tokens before it from a cache, here also from a cache that is divided into pages. The rows
must equal those that the block computes for the whole sequence at once.

    python examples/gpt_block.py [--device cuda] [--dtype bfloat16]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import pyminidnn as dnn
from pyminidnn import DeviceTensor
from pyminidnn import functional as F

BATCH, PROMPT, NEW = 2, 50, 14
HEADS, KV_HEADS, SIZE = 8, 2, 32
WIDTH, HIDDEN = HEADS * SIZE, 4 * HEADS * SIZE
PAGE = 16  # rows of a page
Attend = Callable[[DeviceTensor, DeviceTensor, DeviceTensor], DeviceTensor]


class Block:
    """One layer, with the weights of its four products."""

    def __init__(self, rng: np.random.Generator, dtype: Any, device: str) -> None:
        def weight(rows: int, columns: int) -> DeviceTensor:
            return dnn.asarray(rng.normal(size=(rows, columns)) / columns**0.5, dtype=dtype, device=device)

        self.qkv = weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH)
        self.out, self.up, self.down = weight(WIDTH, WIDTH), weight(HIDDEN, WIDTH), weight(WIDTH, HIDDEN)

    def __call__(self, x: DeviceTensor, attend: Attend) -> DeviceTensor:
        """x [B, S, WIDTH]; attend(q, k, v) computes attention of tensors [B, S, heads, SIZE]."""
        heads = F.linear(F.rms_norm(x, WIDTH), self.qkv).reshape((*x.shape[:2], -1, SIZE))
        # Slices of a packed tensor are read in place.
        q, k, v = heads[:, :, :HEADS], heads[:, :, HEADS : HEADS + KV_HEADS], heads[:, :, HEADS + KV_HEADS :]
        x = x + F.linear(attend(q, k, v).reshape(x.shape), self.out)
        return x + F.linear(F.gelu(F.linear(F.rms_norm(x, WIDTH), self.up)), self.down)


class Cache:
    """Keys and values of all tokens so far: [B, S, KV_HEADS, SIZE]."""

    def __init__(self, rows: int, dtype: Any, device: str) -> None:
        self.k, self.v = (dnn.zeros((BATCH, rows, KV_HEADS, SIZE), dtype=dtype, device=device) for _ in range(2))
        self.length = 0

    def add(self, k: DeviceTensor, v: DeviceTensor) -> DeviceTensor:
        """Stores new rows. Returns the lengths of the sequences."""
        rows = slice(self.length, self.length + k.shape[1])
        self.k[:, rows], self.v[:, rows] = k, v
        self.length = rows.stop
        return dnn.full((BATCH,), self.length, dtype="int32", device=k.device)

    def prefill(self, q: DeviceTensor, k: DeviceTensor, v: DeviceTensor) -> DeviceTensor:
        """Attention of all tokens of a sequence at once."""
        self.add(k, v)
        return dnn.attention_forward(q, k, v, causal=True, layout="bshd")[0]

    def decode(self, q: DeviceTensor, k: DeviceTensor, v: DeviceTensor) -> DeviceTensor:
        """Attention of the newest tokens."""
        return dnn.attention_decode(q, self.k, self.v, lengths=self.add(k, v))[0]

    def decode_by_pages(self, q: DeviceTensor, k: DeviceTensor, v: DeviceTensor) -> DeviceTensor:
        """The same cache as pages. A server gives pages to sequences in any order; here they have an order."""
        lengths = self.add(k, v)
        k_pages, v_pages = (t.reshape((-1, PAGE, KV_HEADS, SIZE)) for t in (self.k, self.v))
        table = np.arange(k_pages.shape[0], dtype="int32").reshape(BATCH, -1)
        return dnn.attention_decode(q, k_pages, v_pages, lengths=lengths, pages=dnn.asarray(table, device=q.device))[0]


def main() -> None:
    """Compares the three ways."""
    parser = argparse.ArgumentParser(description="A transformer block that decodes with a cache.")
    parser.add_argument("--device", default="cuda" if dnn.device_count() else "cpu", help="'cpu' or 'cuda'")
    parser.add_argument("--dtype", default="float32", help="'float32', 'bfloat16' or 'float16'")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    block = Block(rng, options.dtype, options.device)
    x = dnn.asarray(rng.normal(size=(BATCH, PROMPT + NEW, WIDTH)), dtype=options.dtype, device=options.device)

    whole = block(x, Cache(PROMPT + NEW, options.dtype, options.device).prefill).astype("float32").numpy()
    bound = {"float32": 2e-4, "float16": 0.02, "bfloat16": 0.15}[options.dtype]
    if options.device != "cpu" and options.dtype == "float32":
        bound = 0.02  # products of tensor cores, in TF32
    for name, way in (("a cache", Cache.decode), ("a cache of pages", Cache.decode_by_pages)):
        cache = Cache(PROMPT + NEW, options.dtype, options.device)
        rows = [block(x[:, :PROMPT], cache.prefill)]
        for i in range(PROMPT, PROMPT + NEW):
            rows.append(block(x[:, i : i + 1], partial(way, cache)))
        error = abs(dnn.concat(rows, axis=1).astype("float32").numpy() - whole).max()
        print(f"{PROMPT} tokens at once, then {NEW} by {name}: the largest difference is {error:.2g}")
        if not error < bound:
            raise SystemExit(f"the rows differ by more than {bound}")
    q = dnn.zeros((BATCH, 1, HEADS, SIZE), dtype=options.dtype, device=options.device)
    lengths = dnn.full((BATCH,), cache.length, dtype="int32", device=options.device)
    print(dnn.explain(dnn.attention_decode, q, cache.k, cache.v, lengths=lengths))


if __name__ == "__main__":
    main()
