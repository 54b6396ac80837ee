# SPDX-License-Identifier: Apache-2.0
"""Batch normalization against torch (cuDNN where torch takes it): training, inference and backward in both layouts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from runner import Row, main
from torch.nn import functional

import pyminidnn as dnn

torch_backward = partial(torch.ops.aten.native_batch_norm_backward, train=True, eps=1e-5, output_mask=[True] * 3)


def rows(device: str) -> Iterator[Row]:
    shapes = [(64, 64, 112, 112), (64, 256, 56, 56), (64, 2048, 7, 7)] if device != "cpu" else [(64, 16, 28, 28)]
    for shape in shapes:
        scale, bias, mean, var = (torch.rand(shape[1], device=device) + 0.5 for _ in range(4))
        p = [dnn.from_dlpack(t) for t in (scale, bias, mean, var)]
        for dtype in ("float32", "bfloat16"):
            for layout, memory in (("", torch.contiguous_format), (":nhwc", torch.channels_last)):
                x, dy = (
                    torch.randn(shape, device=device).to(getattr(torch, dtype)).to(memory_format=memory)
                    for _ in range(2)
                )
                t, g = dnn.from_dlpack(x), dnn.from_dlpack(dy)
                saved = dnn.batch_norm_forward_training(t, *p[:2])[1:]
                torch_saved = [torch.from_dlpack(s) for s in saved]
                line = f"{dtype} x={'x'.join(map(str, shape))}{layout}"
                yield Row(f"norm training {line}", partial(dnn.batch_norm_forward_training, t, *p[:2]),
                          partial(functional.batch_norm, x, None, None, scale, bias, training=True),
                          bytes=2 * x.nbytes, dtype=dtype)  # fmt: skip
                yield Row(f"norm inference {line}", partial(dnn.batch_norm_forward_inference, t, *p),
                          partial(functional.batch_norm, x, mean, var, scale, bias),
                          bytes=2 * x.nbytes, dtype=dtype)  # fmt: skip
                yield Row(f"norm backward {line}", partial(dnn.batch_norm_backward, g, t, p[0], *saved),
                          partial(torch_backward, dy, x, scale, None, None, *torch_saved),
                          bytes=3 * x.nbytes, dtype=dtype)  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__)
