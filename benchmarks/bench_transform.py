# SPDX-License-Identifier: Apache-2.0
"""Copies against torch: layouts, casts, accumulation, slices and concatenation, much larger than caches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, listed, main

import pyminidnn as dnn

TARGETS = {"layout": Target(2.0, 1.0, 0.85), "parts": Target(2.0, 1.0, 0.85), "elements": Target(worst=1.0, share=0.92)}


def rows(device: str) -> Iterator[Row]:
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 64, 56, 56)
    size = "x".join(map(str, shape))
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(shape, device=device).to(dtype)
        t = dnn.from_dlpack(x)
        short = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
        yield Row(f"transform copy {short} x={size} to nhwc", lambda t=t: t.to(layout="NHWC"),
                  lambda x=x: x.contiguous(memory_format=torch.channels_last),
                  bytes=2 * x.nbytes, terms=0, list="layout")  # fmt: skip
        y = torch.zeros_like(x)
        out = dnn.zeros(shape, dtype=t.dtype, device=t.device)
        yield Row(f"transform accumulate {short} x={size}",
                  lambda t=t, out=out: dnn.transform(t, alpha=0.5, beta=1.0, out=out),
                  lambda x=x, y=y: y.add_(x, alpha=0.5), bytes=3 * x.nbytes, list="elements")  # fmt: skip
        for last in (torch.contiguous_format, torch.channels_last):
            yield from listed("parts", parts(x.contiguous(memory_format=last), last, short))
    x = torch.randn(shape, device=device)
    t = dnn.from_dlpack(x)
    yield Row(f"transform copy f32 x={size} to=bf16", lambda: t.to(dtype="bfloat16"), lambda: x.to(torch.bfloat16),
              bytes=1.5 * x.nbytes, terms=0, list="elements")  # fmt: skip


def parts(x: torch.Tensor, last: torch.memory_format, dtype: str) -> Iterator[Row]:
    t, half = dnn.from_dlpack(x), x.shape[1] // 2
    layout = "NHWC" if last == torch.channels_last else "NCHW"
    name = f"{dtype} x={'x'.join(map(str, x.shape))}{':nhwc' if layout == 'NHWC' else ''}"
    yield Row(f"transform concat {name} twice", lambda: dnn.concat([t, t], 1), lambda: torch.cat([x, x], 1),
              bytes=4 * x.nbytes, terms=0)  # fmt: skip
    yield Row(f"transform slice {name} half the channels",
              lambda: dnn.transform(dnn.split(t, 2, 1)[1], layout=layout),
              lambda: x[:, half:].contiguous(memory_format=last), bytes=x.nbytes, terms=0)  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
