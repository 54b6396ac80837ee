# SPDX-License-Identifier: Apache-2.0
"""Activations against torch: the host's time for a tiny call, and the bandwidth of large ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from report import Target
from runner import Row, main
from torch.nn import functional

import pyminidnn as dnn

MODES = {"relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu, "tanh": torch.tanh}

aten = torch.ops.aten
# Torch's gradient of each activation. It is computed from x or y, whichever torch saves for the backward call.
BACKWARD = {
    "relu": lambda dy, x, y: aten.threshold_backward(dy, y, 0),
    "gelu": lambda dy, x, y: aten.gelu_backward(dy, x),
    "silu": lambda dy, x, y: aten.silu_backward(dy, x),
    "tanh": lambda dy, x, y: aten.tanh_backward(dy, y),
}


def rows(device: str) -> Iterator[Row]:
    tiny = torch.randn(8, 8, 8, 8, device=device)
    ours = dnn.from_dlpack(tiny)
    yield Row("host: activation forward f32 relu x=8x8x8x8", lambda: dnn.activation_forward(ours, "relu"),
              lambda: torch.relu(tiny), host=True)  # fmt: skip
    shape = (64, 256, 56, 56) if device != "cpu" else (8, 64, 56, 56)
    for dtype in ("float32", "float16", "bfloat16"):
        for mode, peer in MODES.items():
            x = torch.randn(shape, device=device).to(getattr(torch, dtype))
            t = dnn.from_dlpack(x)
            name = f"activation forward {dtype} {mode} x={'x'.join(map(str, shape))}"
            yield Row(name, lambda t=t, mode=mode: dnn.activation_forward(t, mode), lambda x=x, peer=peer: peer(x),
                      bytes=2 * x.nbytes, dtype=dtype, list="activation")  # fmt: skip
            dy = torch.randn(shape, device=device).to(x.dtype)
            y = peer(x)
            d, u = dnn.from_dlpack(dy), dnn.from_dlpack(y)
            yield Row(name.replace("forward", "backward"),
                      lambda t=t, d=d, u=u, mode=mode: dnn.activation_backward(d, t, u, mode),
                      lambda dy=dy, x=x, y=y, mode=mode: BACKWARD[mode](dy, x, y),
                      bytes=3 * x.nbytes, dtype=dtype, list="activation")  # fmt: skip


if __name__ == "__main__":
    main(rows, __doc__, {"activation": Target(worst=1.0, share=0.92)})
