# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy against torch: classifiers, vocabularies, and classes of pixels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, listed, main

import pyminidnn as dnn

TARGETS = {"vocabularies": Target(1.3, 1.0, 0.9), "few classes": Target(1.3, 1.0, 0.8)}
SHAPES = ((65536, 1000), (8192, 32000), (4096, 50257), (2048, 128256), (1 << 20, 64), (16, 21, 512, 512))


def rows(device: str) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        for n, *rest in SHAPES:
            x = torch.randn(n if device != "cpu" else max(n // 64, 1), *rest, device=device).to(dtype)
            yield from listed("vocabularies" if x.ndim == 2 and rest[0] > 512 else "few classes", pair(x))


def pair(x: torch.Tensor) -> Iterator[Row]:
    """Forward, and backward alone. Torch's backward is the gradient of its log-softmax and of its selection of
    classes."""
    dtype = str(x.dtype).removeprefix("torch.")
    name = f"{dtype} x={'x'.join(map(str, x.shape))} axis=1 reduction=mean"
    target = torch.randint(0, x.shape[1], (x.shape[0], *x.shape[2:]), device=x.device)
    t, c = dnn.from_dlpack(x), dnn.from_dlpack(target)
    loss, lse = dnn.cross_entropy_forward(t, c)
    bytes_by_row = target.nbytes + lse.nbytes
    one = dnn.full((), 1, dtype=loss.dtype, device=loss.device)
    yield Row(f"loss forward {name}", lambda: dnn.cross_entropy_forward(t, c),
              lambda: torch.nn.functional.cross_entropy(x, target),
              bytes=x.nbytes + bytes_by_row, dtype=dtype, terms=max(x.shape[1], target.numel()))  # fmt: skip
    leaf = x.detach().requires_grad_()
    total = torch.nn.functional.cross_entropy(leaf, target)
    yield Row(f"loss backward {name}", lambda: dnn.cross_entropy_backward(one, t, c, lse),
              lambda: torch.autograd.grad(total, leaf, retain_graph=True),
              bytes=2 * x.nbytes + bytes_by_row, dtype=dtype, terms=x.shape[1])  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
