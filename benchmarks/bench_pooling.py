# SPDX-License-Identifier: Apache-2.0
"""Pooling against torch: the windows of ResNet, VGG and the global average, in both layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from report import Target
from runner import Row, listed, main
from torch.nn import functional

import pyminidnn as dnn

# Shape, window, stride, padding.
CASES = (
    ("max", (64, 64, 112, 112), 3, 2, 1),  # ResNet's first
    ("max", (64, 64, 112, 112), 2, 2, 0),  # VGG's
    ("avg", (64, 256, 56, 56), 2, 2, 0),  # DenseNet's transitions
    ("avg", (64, 192, 56, 56), 3, 1, 1),  # Inception's
    ("max", (64, 192, 56, 56), 3, 1, 1),
    ("max", (64, 256, 56, 56), 5, 1, 2),  # spatial pyramids
    ("avg", (512, 2048, 7, 7), 7, 7, 0),  # the global average
)


def rows(device: str) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        for mode, (n, *image), window, stride, padding in CASES:
            x = torch.randn(n if device != "cpu" else n // 16, *image, device=device).to(dtype)
            for layout in (torch.contiguous_format, torch.channels_last):
                yield from pair(mode, x.to(memory_format=layout), window, stride, padding)


def pair(mode: str, x: torch.Tensor, window: int, stride: int, padding: int) -> Iterator[Row]:
    dtype = str(x.dtype).removeprefix("torch.")
    layout = "" if x.is_contiguous() else ":nhwc"
    name = f"{dtype} {mode} x={'x'.join(map(str, x.shape))}{layout} window={window} stride={stride} pad={padding}"
    keywords: dict[str, Any] = {"stride": stride, "padding": padding}
    pool = functional.max_pool2d if mode == "max" else functional.avg_pool2d
    t = dnn.from_dlpack(x)
    yield Row(f"pooling forward {name}", lambda: dnn.pool_forward(t, window, mode=mode, **keywords),
              lambda: pool(x, window, **keywords), bytes=x.nbytes * (1 + 1 / stride**2), dtype=dtype)  # fmt: skip
    leaf = x.detach().requires_grad_()
    y = pool(leaf, window, **keywords)
    dy = torch.randn_like(y)
    u, du = dnn.from_dlpack(y.detach()), dnn.from_dlpack(dy)
    moved = x.nbytes * ((2 if mode == "max" else 1) + 1 / stride**2)
    if mode == "max":
        # torch always saves indices, and reads 8 bytes for each y.
        yield from with_indices(name, x, t, leaf, window, keywords)
    yield Row(f"pooling backward {name}", lambda: dnn.pool_backward(du, t, u, window, mode=mode, **keywords),
              lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True), bytes=moved, dtype=dtype)  # fmt: skip


def with_indices(
    name: str, x: torch.Tensor, t: dnn.DeviceTensor, leaf: torch.Tensor, window: int, keywords: dict[str, Any]
) -> Iterator[Row]:
    """The same maxima, found once: forward writes where they are, backward does not read x."""
    dtype = str(x.dtype).removeprefix("torch.")
    y, index = functional.max_pool2d(leaf, window, return_indices=True, **keywords)
    dy = torch.randn_like(y)
    u, du, where = dnn.from_dlpack(y.detach()), dnn.from_dlpack(dy), dnn.from_dlpack(index)
    yield Row(f"pooling forward {name} indices=i64",
              lambda: dnn.pool_forward_with_indices(t, window, **keywords),
              lambda: functional.max_pool2d(x, window, return_indices=True, **keywords),
              bytes=x.nbytes + y.nbytes + 8 * y.numel(), dtype=dtype)  # fmt: skip
    yield Row(f"pooling backward {name} indices=i64",
              lambda: dnn.pool_backward(du, t, u, window, indices=where, **keywords),
              lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True),
              bytes=x.nbytes + y.nbytes + 8 * y.numel(), dtype=dtype)  # fmt: skip


if __name__ == "__main__":
    main(lambda device: listed("pooling", rows(device)), __doc__, {"pooling": Target(2.0, 1.0, 0.85)})
