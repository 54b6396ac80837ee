# SPDX-License-Identifier: Apache-2.0
"""Local response and local contrast norm against torch. Bytes: each input is read once, each output is written once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from report import Target
from runner import Row, listed, main
from torch.nn import functional

import pyminidnn as dnn

TARGETS = {
    "local response norm": Target(share=0.7),
    "local contrast norm": Target(share=0.7),
}


def local_norms(device: str) -> Iterator[Row]:
    # The shapes are those of layers of GoogLeNet and AlexNet. Some heights and widths are odd (55).
    shapes = [(128, 64, 56, 56), (128, 192, 56, 56), (256, 96, 55, 55)] if device != "cpu" else [(8, 64, 28, 28)]
    for shape in shapes:
        # On the CPU, torch's local response norm supports only float32.
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
                yield Row(f"lrn lrn_forward {line}", partial(dnn.lrn_forward, t, 5),
                          partial(functional.local_response_norm, x, 5), bytes=2 * x.nbytes, dtype=dtype,
                          terms=5)  # fmt: skip
                yield Row(f"lrn lrn_backward {line}", partial(dnn.lrn_backward, g, t, 5),
                          partial(torch.autograd.grad, graph, leaf, dy, retain_graph=True),
                          bytes=3 * x.nbytes, dtype=dtype, terms=5)  # fmt: skip


def inside(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Leaves out the edges, where torch_lcn is a different function: 2 elements for windows of 5, and
    2 more for backward, which adds up the windows of neighbours."""
    return [y[..., 4:-4, 4:-4] for y in results]


# Local contrast normalization, composed of torch's functions, because torch has no function for it.
def torch_lcn(x: torch.Tensor, means: torch.Tensor | None = None) -> torch.Tensor:
    s = functional.avg_pool2d(x * x, 5, 1, 2)
    if means is not None:
        # At the edges of x, the library leaves the padding out of this sum.
        s = s - 2 * means * functional.avg_pool2d(x, 5, 1, 2) + means * means
    return x * s.mul(1e-4).add(1).pow(-0.75)


def contrast_norms(device: str) -> Iterator[Row]:
    shape = (128, 64, 56, 56) if device != "cpu" else (8, 32, 28, 28)
    for dtype in ("float32", "bfloat16"):
        for layout, memory in (("", torch.contiguous_format), (":nhwc", torch.channels_last)):
            x, dy, m = (
                torch.randn(shape, device=device).to(getattr(torch, dtype)).to(memory_format=memory) for _ in range(3)
            )
            t, g, means = (dnn.from_dlpack(v) for v in (x, dy, m))
            # Torch's gradients are computed in NCHW. In NHWC, torch 2.11 computes wrong gradients of padded average
            # pooling on CUDA (pytorch issue 188344).
            leaf, center, gradient = (v.clone(memory_format=torch.contiguous_format) for v in (x, m, dy))
            leaf.requires_grad_(), center.requires_grad_()
            graph, centered = torch_lcn(leaf), torch_lcn(leaf, center)
            head, line = f"{dtype} x={'x'.join(map(str, shape))}{layout}", "size=5"
            yield Row(f"lrn lcn_forward {head} {line}", partial(dnn.lcn_forward, t, 5), partial(torch_lcn, x),
                      bytes=2 * x.nbytes, dtype=dtype, terms=25)  # fmt: skip
            yield Row(f"lrn lcn_forward {head} centered {line}", partial(dnn.lcn_forward, t, 5, means=means),
                      partial(torch_lcn, x, m),
                      bytes=3 * x.nbytes, dtype=dtype, terms=25, seen=(inside, inside))  # fmt: skip
            yield Row(f"lrn lcn_backward {head} {line}", partial(dnn.lcn_backward, g, t, 5),
                      partial(torch.autograd.grad, graph, leaf, gradient, retain_graph=True),
                      bytes=3 * x.nbytes, dtype=dtype, terms=25)  # fmt: skip
            yield Row(f"lrn lcn_backward {head} centered {line}", partial(dnn.lcn_backward, g, t, 5, means=means),
                      partial(torch.autograd.grad, centered, [leaf, center], gradient, retain_graph=True),
                      bytes=5 * x.nbytes, dtype=dtype, terms=25, seen=(inside, inside))  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    yield from listed("local response norm", local_norms(device))
    yield from listed("local contrast norm", contrast_norms(device))


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
