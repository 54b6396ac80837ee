# SPDX-License-Identifier: Apache-2.0
"""Softmax against torch: the last axis of matrices, the channels of images in both layouts, and one long row."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, listed, main

import pyminidnn as dnn

# Matrices of 64 MB and more. All except the last two have rows of 256 to 262144 elements. Rows of 16 elements are
# short. Rows of 2^20 elements do not fit in a thread block cluster.
MATRICES = (
    (131072, 256), (65536, 512), (65536, 1000), (32768, 1024), (8192, 4096), (2048, 16384), (1024, 50257),
    (1024, 65536), (512, 131072), (256, 262144), (1 << 21, 16), (64, 1 << 20),
)  # fmt: skip
TARGETS = {"rows": Target(1.3, 1.0, 0.9), "short rows": Target(1.3, 1.0, 0.8), "others": Target(1.3, 1.0)}
IMAGES = ((16, 64, 112, 112), (64, 21, 56, 56))


def rows(device: str) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        for n, *rest in MATRICES + IMAGES:
            x = torch.randn(n if device != "cpu" else max(n // 16, 1), *rest, device=device).to(dtype)
            long = 1 << 18 >= rest[0] >= 256
            name = "others" if x.ndim == 4 or not long else "rows" if rest[0] > 512 else "short rows"
            yield from listed(name, pair(x))
            if x.ndim == 4:
                yield from listed(name, pair(x.to(memory_format=torch.channels_last)))


def pair(x: torch.Tensor) -> Iterator[Row]:
    """Forward, and backward with the result as its gradient."""
    dtype = str(x.dtype).removeprefix("torch.")
    last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    name = f"{dtype} x={'x'.join(map(str, x.shape))}{':nhwc' if last else ''} axis=1"
    t, y = dnn.from_dlpack(x), torch.empty_like(x).copy_(torch.softmax(x, 1))
    u = dnn.from_dlpack(y)
    yield Row(f"softmax forward {name}", lambda: dnn.softmax_forward(t), lambda: torch.softmax(x, 1),
              bytes=2 * x.nbytes, dtype=dtype, terms=x.shape[1])  # fmt: skip
    yield Row(f"softmax backward {name}", lambda: dnn.softmax_backward(t, u),
              lambda: torch._softmax_backward_data(x, y, 1, x.dtype), bytes=3 * x.nbytes, dtype=dtype,
              terms=x.shape[1])  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
