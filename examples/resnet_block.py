# SPDX-License-Identifier: Apache-2.0
"""A residual block of a ResNet in inference, as a graph, in both memory layouts.

    y = relu(x + bn2(conv2(relu(bn1(conv1(x))))))

The function below is ordinary calls. @dnn.fuse records it once, then runs several calls as one where an engine supports
that. why() says where, and why not elsewhere. The result is compared with that of separate calls.

    python examples/resnet_block.py [--device cuda]
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyminidnn as dnn

IMAGES, CHANNELS, SIZE = 8, 64, 28
Norm = tuple[Any, Any, Any, Any]  # scale, bias, running mean, running variance


@dnn.fuse
def block(x: Any, w1: Any, norm1: Norm, w2: Any, norm2: Norm) -> dnn.DeviceTensor:
    """Arguments may be tuples, lists and dicts of arrays."""
    y = dnn.conv_forward(x, w1, padding=1)
    y = dnn.activation_forward(dnn.batch_norm_forward_inference(y, *norm1), "relu")
    y = dnn.batch_norm_forward_inference(dnn.conv_forward(y, w2, padding=1), *norm2)
    return dnn.activation_forward(dnn.add(y, x), "relu")


def milliseconds(device: str, *calls: Callable[[], Any]) -> list[float]:
    """The shortest time of each call. The calls take turns, because other programs use the machine, too."""
    shortest = [float("inf")] * len(calls)
    for _ in range(15):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            dnn.synchronize(device)
            shortest[i] = min(shortest[i], 1e3 * (time.perf_counter() - start))
    return shortest


def main() -> None:
    """Runs, checks and times the block in both layouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device

    rng = np.random.default_rng(0)

    def tensor(*shape: int, layout: Any = None, scale: float = 1.0) -> dnn.DeviceTensor:
        values = (rng.standard_normal(shape) * scale).astype("float32")
        return dnn.asarray(values, layout=layout).to(device=device)

    def norm() -> Norm:
        variance = dnn.add(dnn.abs(tensor(CHANNELS)), 0.5)
        return tensor(CHANNELS), tensor(CHANNELS), tensor(CHANNELS), variance

    for layout in ("NHWC", "NCHW"):
        print(f"\n{layout}")
        filters = [tensor(CHANNELS, CHANNELS, 3, 3, layout=layout, scale=(9 * CHANNELS) ** -0.5) for _ in range(2)]
        x = tensor(IMAGES, CHANNELS, SIZE, SIZE, layout=layout)
        arguments = (x, filters[0], norm(), filters[1], norm())
        print(block.why(*arguments))

        y = block(*arguments)
        apart = block.__wrapped__(*arguments)  # the function without fuse(): its calls run one by one
        error = float(dnn.max(dnn.abs(y - apart))) / float(dnn.max(dnn.abs(apart)))
        print(f"largest difference from separate calls: {error:.0e} of the largest result")
        if error > (1e-5 if device == "cpu" else 1e-2):  # tensor cores round float32 factors to TF32
            raise SystemExit("the graph and the separate calls differ")
        calls = [functools.partial(f, *arguments) for f in (block, block.__wrapped__)]
        fused, separate = milliseconds(device, *calls)
        print(f"{fused:.2f} ms as a graph, {separate:.2f} ms as separate calls")


if __name__ == "__main__":
    main()
