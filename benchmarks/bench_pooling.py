# SPDX-License-Identifier: Apache-2.0
"""Pooling against torch, whose tensors are in NCHW or NHWC, whichever is faster: the windows of ResNet, VGG and others
and the global average, in both layouts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from report import Target
from runner import Row, in_orders, listed, main
from torch.nn import functional

import pyminidnn as dnn

# Each case has the mode, the shape of x (NCHW), the size of the window, the stride and the padding.
CASES = (
    ("max", (64, 64, 112, 112), 3, 2, 1),  # the only max pooling of ResNet, after its first layer
    ("max", (64, 64, 112, 112), 2, 2, 0),  # the pooling of VGG between blocks of layers
    ("avg", (64, 256, 56, 56), 2, 2, 0),  # the pooling of DenseNet's transition layers
    ("avg", (64, 192, 56, 56), 3, 1, 1),  # the pooling of Inception modules
    ("max", (64, 192, 56, 56), 3, 1, 1),
    ("max", (64, 256, 56, 56), 5, 1, 2),  # the spatial pyramid pooling of object detectors
    ("avg", (512, 2048, 7, 7), 7, 7, 0),  # global average pooling
)


def rows(device: str) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        for mode, (n, *image), window, stride, padding in CASES:
            x = torch.randn(n if device != "cpu" else n // 16, *image, device=device).to(dtype)
            keywords: dict[str, Any] = {"stride": stride, "padding": padding}
            for order in ("nchw", "nhwc"):
                yield from cases(mode, x, order, window, keywords)


def cases(mode: str, x: torch.Tensor, order: str, window: int, keywords: dict[str, Any]) -> Iterator[Row]:
    pool = functional.max_pool2d if mode == "max" else functional.avg_pool2d
    theirs = in_orders(x)
    (x,) = theirs[order]
    stride, dtype = keywords["stride"], str(x.dtype).removeprefix("torch.")
    name = f"{dtype} {mode} x={'x'.join(map(str, x.shape))}{':nhwc' if order == 'nhwc' else ''} window={window}"
    name += f" stride={stride} pad={keywords['padding']}"
    t, same = dnn.from_dlpack(x), {"dtype": dtype, "terms": window**2}
    yield Row(f"pooling forward {name}", partial(dnn.pool_forward, t, window, mode=mode, **keywords),
              {o: partial(pool, *image, window, **keywords) for o, image in theirs.items()},
              bytes=x.nbytes * (1 + 1 / stride**2), **same)  # fmt: skip
    gradients = in_orders(torch.randn_like(pool(x, window, **keywords)))
    leaves = {o: image.clone().requires_grad_() for o, (image,) in theirs.items()}
    if mode == "avg" and keywords["padding"]:
        # In NHWC, torch 2.11 computes wrong gradients of padded average pooling on CUDA (pytorch issue 188344).
        del leaves["nhwc"]
    backward = {
        o: partial(torch.autograd.grad, pool(leaf, window, **keywords), leaf, gradients[o], retain_graph=True)
        for o, leaf in leaves.items()
    }
    y = dnn.pool_forward(t, window, mode=mode, **keywords)
    dy = dnn.from_dlpack(*gradients[order])
    moved = x.nbytes * ((2 if mode == "max" else 1) + 1 / stride**2)
    yield Row(f"pooling backward {name}", partial(dnn.pool_backward, dy, t, y, window, mode=mode, **keywords), backward,
              bytes=moved, **same)  # fmt: skip
    if mode == "max":
        # In max pooling with indices, the forward call writes the index of each maximum, and the backward call does not
        # read x. Torch always saves the indices.
        index = dnn.pool_forward_with_indices(t, window, **keywords)[1]
        moved = x.nbytes + y.nbytes + index.nbytes
        yield Row(f"pooling forward {name} indices=i64",
                  partial(dnn.pool_forward_with_indices, t, window, **keywords),
                  {o: partial(pool, *image, window, return_indices=True, **keywords) for o, image in theirs.items()},
                  bytes=moved, **same)  # fmt: skip
        yield Row(f"pooling backward {name} indices=i64",
                  partial(dnn.pool_backward, dy, t, y, window, indices=index, **keywords), backward,
                  bytes=moved, **same)  # fmt: skip


if __name__ == "__main__":
    main(lambda device: listed("pooling", rows(device)), __doc__, {"pooling": Target(2.0, 1.0, 0.85)})
