# SPDX-License-Identifier: Apache-2.0
"""Matrix products against torch: the host's cost of a tiny call, squares, flat ones, rows, batches. True float32."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from runner import Row, main

import pyminidnn as dnn

SHORT = {"float32": "f32", "float64": "f64", "bfloat16": "bf16"}


def rows(device: str) -> Iterator[Row]:
    handle = dnn.Handle(device=device, math="ieee")
    tiny = torch.randn(8, 8, device=device)
    ours = dnn.from_dlpack(tiny)
    yield Row("host: matmul forward f32 a=8x8 b=8x8", lambda: dnn.matmul(ours, ours), lambda: tiny @ tiny, host=True)

    large = device != "cpu"
    n = 4096 if large else 1024
    shapes = [
        ((n, n), (n, n), False),
        ((n, n), (n, n), True),
        ((512, 512), (512, 512), False),
        ((n * 4, 64), (64, 64), False),  # short sums
        ((64, n * 4), (n * 4, 64), False),  # long ones
        ((1, n), (n, n), False),  # a row: as fast as b can be read
        ((256, 64, 64), (256, 64, 64), False),
        ((n + 1, n - 1), (n - 1, n + 1), False),  # no multiple of anything
    ]
    # torch takes seconds for bfloat16 on a CPU without instructions for it.
    for dtype in ("float32", "float64", "bfloat16") if large else ("float32", "float64"):
        for a_shape, b_shape, transpose in shapes:
            a, b = (torch.randn(s, device=device).to(getattr(torch, dtype)) for s in (a_shape, b_shape))
            b = b.mT.contiguous().mT if transpose else b
            ta, tb = dnn.from_dlpack(a), dnn.from_dlpack(b)
            y = a @ b
            line = f"matmul forward {SHORT[dtype]} a={'x'.join(map(str, a_shape))} b={'x'.join(map(str, b_shape))}"
            yield Row(line + (f":s1,{b_shape[-2]}" if transpose else ""),
                      lambda a=ta, b=tb: dnn.matmul(a, b, handle=handle), lambda a=a, b=b: a @ b,
                      bytes=a.nbytes + b.nbytes + y.nbytes, flop=2 * y.numel() * a_shape[-1], dtype=dtype)  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__)
