# SPDX-License-Identifier: Apache-2.0
"""The feed-forward half of a transformer layer as graphs: in inference, and in training forward and backward.

    y = x + dropout(gelu(rms_norm(x) w1 + b1) w2 + b2)

The functions below are ordinary calls. @dnn.fuse records each of them once, then runs several calls as one where an
engine supports that. why() says where. The results are compared with NumPy in float64, and a graph is saved and loaded.

    python examples/transformer_mlp.py [--device cuda]
"""

from __future__ import annotations

import argparse
import functools
import re
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyminidnn as dnn

TOKENS, WIDTH, HIDDEN = 512, 256, 1024
DROPPED, SEED = 0.1, 7
Tensors = tuple[dnn.DeviceTensor, ...]


# Each step drops other elements, so `offset` differs from call to call. With `dynamic`, it is no part of the recording.
@dnn.fuse(dynamic=("offset",))
def forward(x: Any, scale: Any, w1: Any, b1: Any, w2: Any, b2: Any, offset: int) -> Tensors:
    """The layer's output, then what backward() needs."""
    normed, inv_rms = dnn.rms_norm_forward(x, scale)
    before = dnn.matmul(normed, w1, bias=b1)
    hidden = dnn.activation_forward(before, "gelu_tanh")
    y = dnn.dropout_forward(dnn.matmul(hidden, w2, bias=b2), DROPPED, seed=SEED, offset=offset)
    return dnn.add(x, y), normed, inv_rms, before, hidden


@dnn.fuse
def infer(x: Any, scale: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> dnn.DeviceTensor:
    """The layer's output in inference: nothing is dropped, and no intermediate result is returned."""
    hidden = dnn.activation_forward(dnn.matmul(dnn.rms_norm_forward(x, scale)[0], w1, bias=b1), "gelu_tanh")
    return dnn.add(x, dnn.matmul(hidden, w2, bias=b2))


@dnn.fuse(dynamic=("offset",))
def backward(
    dy: Any, x: Any, scale: Any, w1: Any, w2: Any, normed: Any, inv_rms: Any, before: Any, hidden: Any, offset: int
) -> Tensors:
    """The gradients of x, scale, w1, b1, w2 and b2. Nothing is derived automatically: each gradient is a call."""
    dropped = dnn.dropout_backward(dy, DROPPED, seed=SEED, offset=offset)
    dhidden = dnn.matmul(dropped, w2, transpose_b=True)
    dbefore = dnn.activation_backward(dhidden, before, hidden, "gelu_tanh")
    dnormed = dnn.matmul(dbefore, w1, transpose_b=True)
    dx, dscale = dnn.rms_norm_backward(dnormed, x, scale, inv_rms)
    dw1 = dnn.matmul(normed, dbefore, transpose_a=True)
    dw2 = dnn.matmul(hidden, dropped, transpose_a=True)
    return dnn.add(dx, dy), dscale, dw1, dnn.sum(dbefore, axis=0), dw2, dnn.sum(dropped, axis=0)


def numpy_gradients(dy: Any, x: Any, scale: Any, w1: Any, b1: Any, w2: Any, b2: Any, kept: Any) -> list[Any]:
    """y and all gradients in float64. `kept` has 0 for dropped elements, 1 / (1 - p) for the others."""
    inv_rms = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
    normed = x * inv_rms * scale
    before = normed @ w1 + b1
    inner = np.sqrt(2 / np.pi) * (before + 0.044715 * before**3)
    hidden = 0.5 * before * (1 + np.tanh(inner))
    y = x + (hidden @ w2 + b2) * kept

    dropped = dy * kept
    slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * before**2)
    dgelu = 0.5 * (1 + np.tanh(inner)) + 0.5 * before * (1 - np.tanh(inner) ** 2) * slope
    dbefore = (dropped @ w2.T) * dgelu
    dnormed = dbefore @ w1.T
    x_hat, g = x * inv_rms, dnormed * scale
    dx = inv_rms * (g - x_hat * (g * x_hat).mean(1, keepdims=True)) + dy
    return [y, dx, (dnormed * x_hat).sum(0), normed.T @ dbefore, dbefore.sum(0), hidden.T @ dropped, dropped.sum(0)]


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
    """Runs, checks and times the graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device

    rng = np.random.default_rng(0)
    shapes = ((TOKENS, WIDTH), (WIDTH,), (WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, WIDTH), (WIDTH,), (TOKENS, WIDTH))
    arrays = [rng.standard_normal(shape).astype("float32") / len(shape) ** 4 for shape in shapes]
    x, scale, w1, b1, w2, b2, dy = (dnn.asarray(a, device=device) for a in arrays)
    offset = 3

    y, *saved = forward(x, scale, w1, b1, w2, b2, offset)
    gradients = backward(dy, x, scale, w1, w2, *saved, offset)
    print("inference:", infer.why(x, scale, w1, b1, w2, b2), sep="\n")
    for name, text in (
        ("forward", forward.why(x, scale, w1, b1, w2, b2, offset)),
        ("backward", backward.why(dy, x, scale, w1, w2, *saved, offset)),
    ):
        print(f"{name}:", "; ".join(re.findall(r"region \d+: (.*) ->", text)))

    kept = dnn.dropout_forward(dnn.ones(dy.shape, device=device), DROPPED, seed=SEED, offset=offset)
    exact = [a.astype("float64") for a in arrays]
    wanted = numpy_gradients(exact[-1], *exact[:-1], kept.numpy().astype("float64"))
    names = ("y", "dx", "dscale", "dw1", "db1", "dw2", "db2")
    errors = [np.abs(r.numpy() - w).max() / np.abs(w).max() for r, w in zip((y, *gradients), wanted, strict=True)]
    print("errors:", ", ".join(f"{name} {error:.0e}" for name, error in zip(names, errors, strict=True)))
    limit = 1e-5 if device == "cpu" else 1e-2  # tensor cores round float32 factors to TF32
    if max(errors) > limit:
        raise SystemExit(f"an error is above {limit}")

    # __wrapped__ is the function without fuse(): its calls run one by one.
    for name, function, given in (
        ("inference", infer, (x, scale, w1, b1, w2, b2)),
        ("forward", forward, (x, scale, w1, b1, w2, b2, offset)),
        ("backward", backward, (dy, x, scale, w1, w2, *saved, offset)),
    ):
        calls = [functools.partial(f, *given) for f in (function, function.__wrapped__)]
        fused, apart = milliseconds(device, *calls)
        print(f"{name}: {fused:.2f} ms as a graph, {apart:.2f} ms as separate calls")

    with tempfile.TemporaryDirectory() as folder:
        forward.graph(x, scale, w1, b1, w2, b2, offset).save(f"{folder}/mlp.json")
        loaded = dnn.Graph.load(f"{folder}/mlp.json", device=device)
    again = loaded.run(x0=x, x1=scale, x2=w1, x3=b1, x4=w2, x5=b2, offset=offset)["y0"]
    print("the loaded graph gives the same bits:", bool((again == y).all()))


if __name__ == "__main__":
    main()
