# SPDX-License-Identifier: Apache-2.0
"""Random tensors and dropout against torch, whose dropout in training also stores a mask. The two sides draw different
numbers, so their moments are compared."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, listed, main
from torch.nn import functional

import pyminidnn as dnn


def moments(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The mean, the mean square, and the fraction of zeros."""
    y = results[0].double()
    return [torch.stack([y.mean(), y.square().mean(), (y == 0).double().mean()])]


def rows(device: str) -> Iterator[Row]:
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 64, 56, 56)
    size = "x".join(map(str, shape))
    for name in ("float32", "bfloat16"):
        x = torch.randn(shape, device=device).to(getattr(torch, name))
        t = dnn.from_dlpack(x)
        # The tolerance is 6 standard deviations of the mean of x^2, plus a rounding error. The other results of
        # moments() have smaller deviations.
        tolerance = 6 * (2 * 2 / x.numel()) ** 0.5 + torch.finfo(x.dtype).eps
        same = {"seen": (moments, moments), "tolerance": tolerance}
        yield Row(f"random dropout {name} x={size}", lambda t=t: dnn.dropout_forward(t, 0.3, seed=1),
                  lambda x=x: functional.dropout(x, 0.3), bytes=2 * x.nbytes, **same)  # fmt: skip
        y = torch.empty_like(x)
        yield Row(f"random uniform {name} y={size}",
                  lambda name=name, d=t.device: dnn.random_uniform(shape, seed=1, dtype=name, device=d),
                  lambda y=y: y.uniform_(), bytes=x.nbytes, **same)  # fmt: skip
        yield Row(f"random normal {name} y={size}",
                  lambda name=name, d=t.device: dnn.random_normal(shape, seed=1, dtype=name, device=d),
                  lambda y=y: y.normal_(), bytes=x.nbytes, **same)  # fmt: skip


if __name__ == "__main__":
    main(lambda device: listed("random", rows(device)), __doc__, {"random": Target(worst=1.0, share=0.92)})
