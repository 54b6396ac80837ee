# SPDX-License-Identifier: Apache-2.0
"""Norms against torch: batch norm, plain and fused, group norm in both layouts, layer and RMS norm of rows from 256 to
262144, local response and contrast norm. Torch's batch norm is its own or cuDNN's, in NCHW or NHWC, whichever is
fastest. Bytes: each input is read once, each output is written once; batch and group norm also include the second
reading, which two passes need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from report import Target
from runner import Row, Run, Seen, in_orders, listed, main
from torch.nn import functional

import pyminidnn as dnn

TARGETS = {
    "batch norm": Target(1.2, 1.0, 0.85),
    "group norm": Target(1.2, 1.0, 0.85),
    "rows": Target(1.3, 1.0, 0.9),
    "short rows": Target(1.3, 1.0, 0.8),
    "local response norm": Target(share=0.7),
    "local contrast norm": Target(share=0.7),
}


def torch_group_backward(dy: torch.Tensor, x: torch.Tensor, *rest: object) -> object:  # as autograd calls it
    return torch.ops.aten.native_group_norm_backward(dy.contiguous(), x.contiguous(), *rest)


aten, EPS = torch.ops.aten, 1e-5


def torch_batch_norm(
    theirs: dict[str, list[torch.Tensor]], scale: torch.Tensor, bias: torch.Tensor
) -> tuple[dict[str, Run], dict[str, Run]]:
    """Variants of training, forward and backward, from x and dy: torch's own kernels, and cuDNN's where torch calls
    them."""
    forward, backward, none = {}, {}, (None, None)
    for order, (x, dy) in theirs.items():
        train = x, scale, bias, *none, True, 0.1, EPS
        forward[f"native {order}"] = partial(aten.native_batch_norm, *train)
        _, *saved = aten.native_batch_norm(*train)
        backward[f"native {order}"] = partial(
            aten.native_batch_norm_backward, dy, x, scale, *none, *saved, True, EPS, [True] * 3
        )
        if x.is_cuda and x.dtype == torch.float32:
            forward[f"cudnn {order}"] = partial(aten.cudnn_batch_norm, *train)
            _, *saved, reserve = aten.cudnn_batch_norm(*train)
            backward[f"cudnn {order}"] = partial(
                aten.cudnn_batch_norm_backward, x, dy, scale, *none, *saved, EPS, reserve
            )
    return forward, backward


def torch_add_relu(train: Run, residual: torch.Tensor) -> torch.Tensor:
    return torch.relu_(train()[0].add_(residual))


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
            s, b = scale.to(x.dtype), bias.to(x.dtype)  # torch requires parameters of x's dtype
            t, g, p = dnn.from_dlpack(x), dnn.from_dlpack(dy), [dnn.from_dlpack(v) for v in (scale, bias)]
            _, *saved = dnn.layer_norm_forward(t, *p)
            _, inv_rms = dnn.rms_norm_forward(t, p[0])
            torch_saved = aten.native_layer_norm(x, (columns,), s, b, EPS)[1:]
            leaf, weight = x.clone().requires_grad_(), s.clone().requires_grad_()
            graph = functional.rms_norm(leaf, (columns,), weight, 1e-5)
            line, name = f"{dtype} x={shape[0]}x{columns} axis=1", "rows" if columns > 512 else "short rows"
            yield Row(f"norm layer_forward {line}", partial(dnn.layer_norm_forward, t, *p),
                      partial(functional.layer_norm, x, (columns,), s, b),
                      bytes=2 * x.nbytes, dtype=dtype, list=name, terms=columns)  # fmt: skip
            yield Row(f"norm layer_backward {line}", partial(dnn.layer_norm_backward, g, t, p[0], *saved),
                      partial(aten.native_layer_norm_backward, dy, x, (columns,), *torch_saved, s, b, [True] * 3),
                      bytes=3 * x.nbytes, dtype=dtype, list=name, terms=max(shape),
                      seen=seen_of_layer_backward(x))  # fmt: skip
            yield Row(f"norm rms_forward {line}", partial(dnn.rms_norm_forward, t, p[0]),
                      partial(functional.rms_norm, x, (columns,), s, 1e-5),
                      bytes=2 * x.nbytes, dtype=dtype, list=name, terms=columns)  # fmt: skip
            yield Row(f"norm rms_backward {line}", partial(dnn.rms_norm_backward, g, t, p[0], inv_rms),
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
                # NCHW: rows fit the registers of a cluster, so the forward call reads x once.
                forward_bytes = 2 if not layout else 3
                yield Row(f"norm group_forward {line}", partial(dnn.group_norm_forward, t, groups, *p),
                          partial(functional.group_norm, x, groups, s, b), bytes=forward_bytes * x.nbytes,
                          dtype=dtype, terms=n * space)  # fmt: skip
                yield Row(f"norm group_backward {line}", partial(dnn.group_norm_backward, g, t, groups, p[0], *saved),
                          partial(torch_group_backward, dy, x, mean, inv_std, s, n, c, space, groups, [True] * 3),
                          bytes=5 * x.nbytes, dtype=dtype, terms=n * space)  # fmt: skip


def local_norms(device: str) -> Iterator[Row]:
    # Layers of GoogLeNet and AlexNet, whose planes have odd sizes.
    shapes = [(128, 64, 56, 56), (128, 192, 56, 56), (256, 96, 55, 55)] if device != "cpu" else [(8, 64, 28, 28)]
    for shape in shapes:
        # torch's CPU supports no other dtype
        for dtype in ("float32", "bfloat16") if device != "cpu" else ("float32",):
            for layout, memory in (("", torch.contiguous_format), (":nhwc", torch.channels_last)):
                x, dy = (
                    torch.randn(shape, device=device).to(getattr(torch, dtype)).to(memory_format=memory)
                    for _ in range(2)
                )
                t, g = dnn.from_dlpack(x), dnn.from_dlpack(dy)
                leaf = x.clone().requires_grad_()
                graph = functional.local_response_norm(leaf, 5)
                line = f"{dtype} x={'x'.join(map(str, shape))}{layout} size=5"
                yield Row(f"norm lrn_forward {line}", partial(dnn.lrn_forward, t, 5),
                          partial(functional.local_response_norm, x, 5), bytes=2 * x.nbytes, dtype=dtype,
                          terms=5)  # fmt: skip
                yield Row(f"norm lrn_backward {line}", partial(dnn.lrn_backward, g, t, 5),
                          partial(torch.autograd.grad, graph, leaf, dy, retain_graph=True),
                          bytes=3 * x.nbytes, dtype=dtype, terms=5)  # fmt: skip


def inside(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Leaves out the edges, where torch_lcn is a different function: 2 elements for windows of 5, and
    2 more for backward, which adds up the windows of neighbours."""
    return [y[..., 4:-4, 4:-4] for y in results]


def torch_lcn(x: torch.Tensor, means: torch.Tensor | None = None) -> torch.Tensor:  # torch has no function for it
    s = functional.avg_pool2d(x * x, 5, 1, 2)
    if means is not None:
        s = s - 2 * means * functional.avg_pool2d(x, 5, 1, 2) + means * means  # differs at the edges
    return x * s.mul(1e-4).add(1).pow(-0.75)


def contrast_norms(device: str) -> Iterator[Row]:
    shape = (128, 64, 56, 56) if device != "cpu" else (8, 32, 28, 28)
    for dtype in ("float32", "bfloat16"):
        for layout, memory in (("", torch.contiguous_format), (":nhwc", torch.channels_last)):
            x, dy, m = (
                torch.randn(shape, device=device).to(getattr(torch, dtype)).to(memory_format=memory) for _ in range(3)
            )
            t, g, means = (dnn.from_dlpack(v) for v in (x, dy, m))
            # Torch's gradients are computed in NCHW: those of padded averages in NHWC are wrong on CUDA in torch 2.11
            # (pytorch issue 188344).
            leaf, center, gradient = (v.clone(memory_format=torch.contiguous_format) for v in (x, m, dy))
            leaf.requires_grad_(), center.requires_grad_()
            graph, centered = torch_lcn(leaf), torch_lcn(leaf, center)
            head, line = f"{dtype} x={'x'.join(map(str, shape))}{layout}", "size=5"
            yield Row(f"norm lcn_forward {head} {line}", partial(dnn.lcn_forward, t, 5), partial(torch_lcn, x),
                      bytes=2 * x.nbytes, dtype=dtype, terms=25)  # fmt: skip
            yield Row(f"norm lcn_forward {head} centered {line}", partial(dnn.lcn_forward, t, 5, means=means),
                      partial(torch_lcn, x, m),
                      bytes=3 * x.nbytes, dtype=dtype, terms=25, seen=(inside, inside))  # fmt: skip
            yield Row(f"norm lcn_backward {head} {line}", partial(dnn.lcn_backward, g, t, 5),
                      partial(torch.autograd.grad, graph, leaf, gradient, retain_graph=True),
                      bytes=3 * x.nbytes, dtype=dtype, terms=25)  # fmt: skip
            yield Row(f"norm lcn_backward {head} centered {line}", partial(dnn.lcn_backward, g, t, 5, means=means),
                      partial(torch.autograd.grad, centered, [leaf, center], gradient, retain_graph=True),
                      bytes=5 * x.nbytes, dtype=dtype, terms=25, seen=(inside, inside))  # fmt: skip


def batch_norms(device: str) -> Iterator[Row]:
    shapes = [(64, 64, 112, 112), (64, 256, 56, 56), (64, 2048, 7, 7)] if device != "cpu" else [(64, 16, 28, 28)]
    for shape in shapes:
        scale, bias, mean, var = (torch.rand(shape[1], device=device) + 0.5 for _ in range(4))
        p = [dnn.from_dlpack(t) for t in (scale, bias, mean, var)]
        for dtype in ("float32", "bfloat16"):
            theirs = in_orders(*(torch.randn(shape, device=device).to(getattr(torch, dtype)) for _ in range(2)))
            training, backward = torch_batch_norm(theirs, scale, bias)
            for order, (x, dy) in theirs.items():
                t, g = dnn.from_dlpack(x), dnn.from_dlpack(dy)
                saved = dnn.batch_norm_forward_training(t, *p[:2])[1:]
                line = f"{dtype} x={'x'.join(map(str, shape))}{':nhwc' if order == 'nhwc' else ''}"
                in_sums = {"dtype": dtype, "terms": x.numel() / shape[1]}
                yield Row(f"norm training {line}", partial(dnn.batch_norm_forward_training, t, *p[:2]),
                          training, bytes=3 * x.nbytes, **in_sums)  # fmt: skip
                yield Row(f"norm training {line} add relu",
                          partial(dnn.batch_norm_forward_training, t, *p[:2], residual=g, activation="relu"),
                          {way: partial(torch_add_relu, train, theirs[way.split()[1]][1])
                           for way, train in training.items()},
                          bytes=4 * x.nbytes, **in_sums)  # fmt: skip
                yield Row(f"norm inference {line}", partial(dnn.batch_norm_forward_inference, t, *p),
                          {o: partial(functional.batch_norm, image, mean, var, scale, bias)
                           for o, (image, _) in theirs.items()}, bytes=2 * x.nbytes, dtype=dtype)  # fmt: skip
                yield Row(f"norm backward {line}", partial(dnn.batch_norm_backward, g, t, p[0], *saved),
                          backward, bytes=5 * x.nbytes, **in_sums)  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    yield from listed("batch norm", batch_norms(device))
    yield from listed("group norm", group_norms(device))
    yield from row_norms(device)
    yield from listed("local response norm", local_norms(device))
    yield from listed("local contrast norm", contrast_norms(device))


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
