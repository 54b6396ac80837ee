# SPDX-License-Identifier: Apache-2.0
"""Batch norm against torch, plain and fused. Torch's is its own or cuDNN's, in NCHW or NHWC, whichever is fastest.
Bytes: each input is read once, each output is written once; training and backward also include the second reading,
which two passes need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from report import Target
from runner import Row, Run, in_orders, listed, main
from torch.nn import functional

import pyminidnn as dnn

TARGETS = {
    "batch norm": Target(1.2, 1.0, 0.85),
}

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
                yield Row(f"batch_norm training {line}", partial(dnn.batch_norm_forward_training, t, *p[:2]),
                          training, bytes=3 * x.nbytes, **in_sums)  # fmt: skip
                yield Row(f"batch_norm training {line} add relu",
                          partial(dnn.batch_norm_forward_training, t, *p[:2], residual=g, activation="relu"),
                          {way: partial(torch_add_relu, train, theirs[way.split()[1]][1])
                           for way, train in training.items()},
                          bytes=4 * x.nbytes, **in_sums)  # fmt: skip
                yield Row(f"batch_norm inference {line}", partial(dnn.batch_norm_forward_inference, t, *p),
                          {o: partial(functional.batch_norm, image, mean, var, scale, bias)
                           for o, (image, _) in theirs.items()}, bytes=2 * x.nbytes, dtype=dtype)  # fmt: skip
                yield Row(f"batch_norm backward {line}", partial(dnn.batch_norm_backward, g, t, p[0], *saved),
                          backward, bytes=5 * x.nbytes, **in_sums)  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    yield from listed("batch norm", batch_norms(device))


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
