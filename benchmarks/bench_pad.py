# SPDX-License-Identifier: Apache-2.0
"""Padding against torch, on images much larger than caches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, main

import pyminidnn as dnn

TARGETS = {"pad": Target(2.0, 1.0, 0.85)}


def rows(device: str) -> Iterator[Row]:
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 64, 56, 56)
    for dtype, short in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        x = torch.randn(shape, device=device).to(dtype)
        for last, layout in ((torch.contiguous_format, ""), (torch.channels_last, ":nhwc")):
            yield from padded(x.contiguous(memory_format=last), f"{short} x={'x'.join(map(str, shape))}{layout}")


def padded(x: torch.Tensor, name: str) -> Iterator[Row]:
    t = dnn.from_dlpack(x)
    for mode in ("constant", "reflect", "replicate"):
        yield Row(f"pad forward {name} {mode}", lambda mode=mode: dnn.pad(t, [0, 0, 1, 1], mode=mode),
                  lambda mode=mode: torch.nn.functional.pad(x, (1, 1, 1, 1), mode), bytes=2 * x.nbytes,
                  terms=0, list="pad")  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
