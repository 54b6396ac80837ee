# SPDX-License-Identifier: Apache-2.0
"""Random tensors and dropout against torch, whose dropout in training stores a mask besides."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, listed, main
from torch.nn import functional

import pyminidnn as dnn


def rows(device: str) -> Iterator[Row]:
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 64, 56, 56)
    size = "x".join(map(str, shape))
    for name in ("float32", "bfloat16"):
        x = torch.randn(shape, device=device).to(getattr(torch, name))
        t = dnn.from_dlpack(x)
        yield Row(f"random dropout {name} x={size}", lambda t=t: dnn.dropout_forward(t, 0.3, seed=1),
                  lambda x=x: functional.dropout(x, 0.3), bytes=2 * x.nbytes)  # fmt: skip
        y = torch.empty_like(x)
        yield Row(f"random uniform {name} y={size}",
                  lambda name=name, d=t.device: dnn.random_uniform(shape, seed=1, dtype=name, device=d),
                  lambda y=y: y.uniform_(), bytes=x.nbytes)  # fmt: skip
        yield Row(f"random normal {name} y={size}",
                  lambda name=name, d=t.device: dnn.random_normal(shape, seed=1, dtype=name, device=d),
                  lambda y=y: y.normal_(), bytes=x.nbytes)  # fmt: skip


if __name__ == "__main__":
    main(lambda device: listed("random", rows(device)), __doc__, {"random": Target(worst=1.0, share=0.92)})
