# SPDX-License-Identifier: Apache-2.0
"""Matrix products against torch (cuBLAS on a GPU): the host's time for a tiny call, nine shapes in every arithmetic,
and some unusual products. Lists: matmul {bf16,fp16,tf32,ieee,3xtf32,f64}, others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from report import Target
from runner import ARITHMETIC, Row, main

import pyminidnn as dnn

SHAPES = [  # M, N, K of the product [M, K] @ [K, N]
    (512, 512, 512),
    (1024, 1024, 1024),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (64, 4096, 4096),
    (16, 8192, 8192),
    (2048, 8192, 512),
    (512, 512, 65536),
    (4096, 14336, 4096),
]
TARGETS = {
    "matmul bf16": Target(1.0, 0.85),
    "matmul fp16": Target(1.0, 0.85),
    "matmul tf32": Target(1.0, 0.8),
    "matmul ieee": Target(0.9, 0.8),
}


def product(
    name: str,
    arithmetic: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    device: str,
    transpose: bool = False,
    algo: str | None = None,
) -> Row:
    """a @ b; with `transpose`, the columns of b are contiguous. The tensors are made when they are first needed."""
    how = ARITHMETIC[arithmetic]
    dtype = getattr(torch, how.dtype)
    if device == "cpu":
        a, b = (tuple(min(n, 512) for n in shape) for shape in (a, b))
    handle = dnn.Handle(device, math="tf32" if algo else how.math)

    @cache
    def tensors() -> tuple[torch.Tensor, torch.Tensor, dnn.DeviceTensor, dnn.DeviceTensor]:
        x, y = (torch.randn(shape, device=device).to(dtype) for shape in (a, b))
        y = y.mT.contiguous().mT if transpose else y
        return x, y, dnn.from_dlpack(x), dnn.from_dlpack(y)

    result = (*a[:-1], b[-1])
    line = f"matmul forward {how.short} a={'x'.join(map(str, a))} b={'x'.join(map(str, b))}"
    line += f":s1,{b[-2]}" if transpose else ""
    return Row(line + (f" ({algo})" if algo else how.suffix),
               lambda: dnn.matmul(*tensors()[2:], algo=algo, handle=handle),
               lambda: torch.matmul(*tensors()[:2]), sum(map(math.prod, (a, b, result))) * dtype.itemsize,
               2.0 * math.prod(result) * a[-1], how.ceiling, terms=a[-1],
               list=name,
               label="x".join(map(str, (*result, a[-1]))))  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    tiny = torch.randn(8, 8, device=device)
    ours = dnn.from_dlpack(tiny)
    yield Row("host: matmul forward f32 a=8x8 b=8x8", lambda: dnn.matmul(ours, ours), lambda: tiny @ tiny, host=True)
    for arithmetic in ("bf16", "fp16", "tf32", "ieee"):
        for m, n, k in SHAPES:
            yield product(f"matmul {arithmetic}", arithmetic, (m, k), (k, n), device)
    if device != "cpu":  # compares float32 products by three TF32 products with cuBLAS's float32 products
        for m, n, k in SHAPES:
            yield product("matmul 3xtf32", "ieee", (m, k), (k, n), device, algo="wgmma_3xtf32")
    for arithmetic in ("bf16", "ieee"):
        yield product("others", arithmetic, (4096, 4096), (4096, 4096), device, transpose=True)
        # A product with a single row is limited by the memory bandwidth at which b is read.
        yield product("others", arithmetic, (1, 4096), (4096, 4096), device)
        yield product("others", arithmetic, (16384, 64), (64, 64), device)
        yield product("others", arithmetic, (256, 64, 64), (256, 64, 64), device)
        # Here M, N and K are not multiples of the size of any tile.
        yield product("others", arithmetic, (4097, 4095), (4095, 4097), device)
    for m, n, k in SHAPES:
        if m * n * k <= 4096**3:  # larger products in float64 take more than a tenth of a second
            yield product("matmul f64", "f64", (m, k), (k, n), device)


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
