# SPDX-License-Identifier: Apache-2.0
"""Embeddings and their gradients against torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from runner import Row, listed, main

import pyminidnn as dnn


def rows(device: str) -> Iterator[Row]:
    for dtype, short in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        yield from listed("gather", embeddings(dtype, short, device))


def embeddings(dtype: torch.dtype, short: str, device: str) -> Iterator[Row]:
    words, indices = (50257, 65536) if device != "cpu" else (5000, 8192)
    index = torch.randint(0, words, (indices,), device=device)
    at = dnn.from_dlpack(index)
    for columns in (128, 1024, 4096):
        if columns * indices * dtype.itemsize > 1 << 29:
            continue
        x = torch.randn(words, columns, device=device).to(dtype)
        dy = torch.randn(indices, columns, device=device).to(dtype)
        t, d = dnn.from_dlpack(x), dnn.from_dlpack(dy)
        name = f"{short} x={words}x{columns} index={indices} axis=0"
        read = index.unique().numel() * columns * dtype.itemsize
        yield Row(f"gather forward {name}", lambda t=t: dnn.gather(t, at),
                  lambda x=x: torch.nn.functional.embedding(index, x), bytes=read + dy.nbytes, terms=0)  # fmt: skip
        yield Row(f"gather backward {name}", lambda d=d, x=x: dnn.gather_backward(d, at, x.shape),
                  lambda dy=dy: torch.ops.aten.embedding_dense_backward(dy, index, words, -1, False),
                  bytes=x.nbytes + dy.nbytes)  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__)
