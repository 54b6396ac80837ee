# SPDX-License-Identifier: Apache-2.0
"""Layer and RMS norm of rows from 256 to 262144, and group norm in both layouts, against torch. Bytes: each input is
read once, each output is written once; group norm also includes the second reading, which two passes need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from report import Target
from runner import Row, Seen, listed, main
from torch.nn import functional

import pyminidnn as dnn

TARGETS = {
    "group norm": Target(1.2, 1.0, 0.85),
    "rows": Target(1.3, 1.0, 0.9),
    "short rows": Target(1.3, 1.0, 0.8),
}

aten, EPS = torch.ops.aten, 1e-5


def torch_group_backward(dy: torch.Tensor, x: torch.Tensor, *rest: object) -> object:
    return torch.ops.aten.native_group_norm_backward(dy.contiguous(), x.contiguous(), *rest)


def seen_of_layer_backward(x: torch.Tensor) -> tuple[Seen, Seen]:
    """Compares dx only where torch's CPU sums the gradients of parameters in bfloat16: those are 5 % off for 4096
    rows."""
    seen: Seen = list if x.is_cuda or x.dtype == torch.float32 else lambda results: results[:1]
    return seen, seen


def row_norms(device: str) -> Iterator[Row]:
    elements = 1 << 25 if device != "cpu" else 1 << 20
    for columns in (256, 512, 1024, 4096, 16384, 65536, 262144):
        shape = (elements // columns, columns)
        for dtype in ("float32", "bfloat16"):
            x, dy = (torch.randn(shape, device=device).to(getattr(torch, dtype)) for _ in range(2))
            scale, bias = (torch.rand(columns, device=device) + 0.5 for _ in range(2))
            # Torch requires that scale and bias have the dtype of x.
            s, b = scale.to(x.dtype), bias.to(x.dtype)
            t, g, p = dnn.from_dlpack(x), dnn.from_dlpack(dy), [dnn.from_dlpack(v) for v in (scale, bias)]
            _, *saved = dnn.layer_norm_forward(t, *p)
            _, inv_rms = dnn.rms_norm_forward(t, p[0])
            torch_saved = aten.native_layer_norm(x, (columns,), s, b, EPS)[1:]
            leaf, weight = x.clone().requires_grad_(), s.clone().requires_grad_()
            graph = functional.rms_norm(leaf, (columns,), weight, 1e-5)
            line, name = f"{dtype} x={shape[0]}x{columns} axis=1", "rows" if columns > 512 else "short rows"
            yield Row(f"layer_norm layer_forward {line}", partial(dnn.layer_norm_forward, t, *p),
                      partial(functional.layer_norm, x, (columns,), s, b),
                      bytes=2 * x.nbytes, dtype=dtype, list=name, terms=columns)  # fmt: skip
            yield Row(f"layer_norm layer_backward {line}", partial(dnn.layer_norm_backward, g, t, p[0], *saved),
                      partial(aten.native_layer_norm_backward, dy, x, (columns,), *torch_saved, s, b, [True] * 3),
                      bytes=3 * x.nbytes, dtype=dtype, list=name, terms=max(shape),
                      seen=seen_of_layer_backward(x))  # fmt: skip
            yield Row(f"layer_norm rms_forward {line}", partial(dnn.rms_norm_forward, t, p[0]),
                      partial(functional.rms_norm, x, (columns,), s, 1e-5),
                      bytes=2 * x.nbytes, dtype=dtype, list=name, terms=columns)  # fmt: skip
            yield Row(f"layer_norm rms_backward {line}", partial(dnn.rms_norm_backward, g, t, p[0], inv_rms),
                      partial(torch.autograd.grad, graph, [leaf, weight], dy, retain_graph=True),
                      bytes=3 * x.nbytes, dtype=dtype, list=name, terms=max(shape))  # fmt: skip


def group_norms(device: str) -> Iterator[Row]:
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 32, 28, 28)
    n, c, space = shape[0], shape[1], shape[2] * shape[3]
    for dtype in ("float32", "bfloat16"):
        for layout, memory in (("", torch.contiguous_format), (":nhwc", torch.channels_last)):
            x, dy = (
                torch.randn(shape, device=device).to(getattr(torch, dtype)).to(memory_format=memory) for _ in range(2)
            )
            scale, bias = (torch.rand(c, device=device) + 0.5 for _ in range(2))
            s, b = scale.to(x.dtype), bias.to(x.dtype)
            t, g, p = dnn.from_dlpack(x), dnn.from_dlpack(dy), [dnn.from_dlpack(v) for v in (scale, bias)]
            for groups in (32, c):
                _, *saved = dnn.group_norm_forward(t, groups, *p)
                mean, inv_std = (torch.from_dlpack(v).to(x.dtype) for v in saved)
                line = f"{dtype} x={'x'.join(map(str, shape))}{layout} groups={groups}"
                # The forward call reads x once in NCHW, where rows fit in registers, and twice in NHWC.
                forward_bytes = 2 if not layout else 3
                yield Row(f"layer_norm group_forward {line}", partial(dnn.group_norm_forward, t, groups, *p),
                          partial(functional.group_norm, x, groups, s, b), bytes=forward_bytes * x.nbytes,
                          dtype=dtype, terms=n * space)  # fmt: skip
                yield Row(f"layer_norm group_backward {line}",
                          partial(dnn.group_norm_backward, g, t, groups, p[0], *saved),
                          partial(torch_group_backward, dy, x, mean, inv_std, s, n, c, space, groups, [True] * 3),
                          bytes=5 * x.nbytes, dtype=dtype, terms=n * space)  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    yield from listed("group norm", group_norms(device))
    yield from row_norms(device)


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
