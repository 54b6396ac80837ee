# SPDX-License-Identifier: Apache-2.0
"""Convolutions against torch (cuDNN on a GPU, benchmark mode, TF32 off): the host's cost of a tiny call, and the three
passes of layers from a ResNet-50."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from runner import Row, main

import pyminidnn as dnn

# channels in and out, image size, window, stride
LAYERS = [(3, 64, 224, 7, 2), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (128, 128, 28, 3, 1), (512, 512, 7, 3, 1)]


def rows(device: str) -> Iterator[Row]:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    convolution = torch.nn.functional.conv2d
    x, w = torch.randn(2, 4, 8, 8, device=device), torch.randn(4, 4, 3, 3, device=device)
    tx, tw = dnn.from_dlpack(x), dnn.from_dlpack(w)
    yield Row("host: conv forward f32 x=2x4x8x8 w=4x4x3x3 pad=1", lambda: dnn.conv_forward(tx, tw, padding=1),
              lambda: convolution(x, w, padding=1), host=True)  # fmt: skip
    batch = 32 if device != "cpu" else 2
    for c, k, size, window, stride in LAYERS:
        x = torch.randn(batch, c, size, size, device=device)
        w = torch.randn(k, c, window, window, device=device)
        attributes = {"stride": stride, "padding": window // 2}
        y = convolution(x, w, **attributes)
        dy = torch.randn_like(y)
        tx, tw, tdy = dnn.from_dlpack(x), dnn.from_dlpack(w), dnn.from_dlpack(dy)
        flop = 2.0 * y.numel() * c * window * window
        moved = x.nbytes + w.nbytes + y.nbytes
        tail = f"x={batch}x{c}x{size}x{size} w={k}x{c}x{window}x{window} stride={stride}"
        calls = {
            "forward": (
                lambda tx=tx, tw=tw, a=attributes: dnn.conv_forward(tx, tw, **a),
                lambda x=x, w=w, a=attributes: convolution(x, w, **a),
            ),
            "backward_data": (
                lambda tdy=tdy, tw=tw, s=x.shape, a=attributes: dnn.conv_backward_data(tdy, tw, s, **a),
                lambda s=x.shape, w=w, dy=dy, a=attributes: torch.nn.grad.conv2d_input(s, w, dy, **a),
            ),
            "backward_filter": (
                lambda tdy=tdy, tx=tx, s=w.shape, a=attributes: dnn.conv_backward_filter(tdy, tx, s, **a),
                lambda x=x, s=w.shape, dy=dy, a=attributes: torch.nn.grad.conv2d_weight(x, s, dy, **a),
            ),
        }
        for direction, (ours, peer) in calls.items():
            yield Row(f"conv {direction} f32 {tail}", ours, peer, bytes=moved, flop=flop)


if __name__ == "__main__":
    main(rows, __doc__)
