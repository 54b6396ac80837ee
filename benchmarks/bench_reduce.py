# SPDX-License-Identifier: Apache-2.0
"""Reductions against torch: over everything, rows, columns and channels, on tensors much larger than any cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from report import Target
from runner import Row, main

import pyminidnn as dnn

# The function of torch for each mode of our reduce(). The mode "amax", the largest |x|, is not measured.
PEERS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "norm2": lambda x, axis: torch.linalg.vector_norm(x, 2, axis),
    "argmax": lambda x, axis: torch.argmax(x, axis if isinstance(axis, int) else None),
}
# Shapes and reduced axes. The cases reduce over all elements, over long and short rows, over columns, over the axes of
# batch norm, over the pixels of each channel, and over the channels of each pixel. Images are measured in NCHW and in
# NHWC.
CASES = (
    ((1 << 27,), (0,)),
    ((32768, 4096), (1,)),
    ((1 << 20, 128), (1,)),
    ((512, 1 << 18), (1,)),
    ((32768, 4096), (0,)),
    ((1 << 20, 64), (0,)),
    ((4097, 32001), (0,)),
    ((64, 256, 56, 56), (0, 2, 3)),
    ((64, 256, 56, 56), (2, 3)),
    ((64, 256, 56, 56), (1,)),
)


def rows(device: str) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        for (n, *rest), axes in CASES:
            x = torch.randn(n if device != "cpu" else max(n // 32, 1), *rest, device=device).to(dtype)
            yield from of(x, axes, name, "")
            if x.ndim == 4:
                yield from of(x.to(memory_format=torch.channels_last), axes, name, ":nhwc")


def of(x: torch.Tensor, axes: tuple[int, ...], dtype: str, layout: str) -> Iterator[Row]:
    t = dnn.from_dlpack(x)
    for mode, peer in PEERS.items():
        if (mode == "argmax" and len(axes) > 1) or (mode in ("mean", "norm2") and x.ndim != 2):
            continue
        axis = axes[0] if len(axes) == 1 else axes
        text = f"reduce {mode} {dtype} x={'x'.join(map(str, x.shape))}{layout} axes={','.join(map(str, axes))}"
        yield Row(text, lambda mode=mode: dnn.reduce(t, mode, axis=axes),
                  lambda peer=peer, axis=axis: peer(x, axis), bytes=x.nbytes, dtype=dtype,
                  terms=math.prod(x.shape[i] for i in axes), list="reduce")  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, {"reduce": Target(1.0, 1.0, 0.92)})
