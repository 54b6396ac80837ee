# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn selftest: runs the main functions once on each device and compares the results with NumPy.

It takes seconds. It detects a broken installation, driver or compiler; other faults are for the test suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pyminidnn as dnn

Array = np.ndarray[Any, Any]
Check = tuple[str, Callable[[str], Any], Array]


def run(device: str | None) -> int:
    """Prints a line per function and device. Returns 0 if all results agree with NumPy, else 1."""
    devices = [device] if device else ["cpu", *(f"cuda:{i}" for i in range(dnn._C.cuda_device_count()))]
    wrong = 0
    for target in devices:
        for name, call, want in _checks():
            try:
                got = call(target)
                error = float(np.max(np.abs(got.to(dtype="float64").numpy() - want) / (1 + np.abs(want))))
                fine = error < 1e-5
                verdict = f"{error:.1e}" if fine else f"WRONG, relative error {error:.1e}"
            # A DeviceError means that the device or its driver failed, so all further checks would fail as well.
            except dnn.DeviceError as problem:
                wrong += 1
                print(f"{target:<7} {name:<32}DeviceError: {problem}\n{target:<7} the remaining checks were skipped")
                break
            except dnn.Error as problem:
                fine, verdict = False, f"{type(problem).__name__}: {problem}"
            wrong += not fine
            print(f"{target:<7} {name:<32}{verdict}")
    print(f"{wrong} checks failed" if wrong else "all checks passed")
    return 1 if wrong else 0


def _checks() -> Iterator[Check]:
    """The name, call and expected result of each check. Inputs are small integers in float32, whose sums are exact."""
    rng = np.random.default_rng(0)

    def data(*shape: int) -> Array:
        return rng.integers(-4, 5, shape).astype("float32")

    def on(device: str, array: Array) -> dnn.DeviceTensor:
        return dnn.asarray(array, device=device)

    x, w, dy = data(2, 3, 6, 6), data(4, 3, 3, 3), data(2, 4, 4, 4)
    # The dimensions of `windows` are N and C of x, height and width of y, and height and width of w.
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    yield "conv_forward", lambda p: dnn.conv_forward(on(p, x), on(p, w)), np.einsum("ncpqrs,kcrs->nkpq", windows, w)
    yield ("conv_backward_filter", lambda p: dnn.conv_backward_filter(on(p, dy), on(p, x), w.shape),
           np.einsum("ncpqrs,nkpq->kcrs", windows, dy))  # fmt: skip
    padded = np.pad(dy, ((0, 0), (0, 0), (2, 2), (2, 2)))
    flipped = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    yield ("conv_backward_data", lambda p: dnn.conv_backward_data(on(p, dy), on(p, w), x.shape),
           np.einsum("nkhwrs,kcrs->nchw", flipped, w[:, :, ::-1, ::-1]))  # fmt: skip
    yield "conv_backward_bias", lambda p: dnn.conv_backward_bias(on(p, dy)), dy.sum((0, 2, 3))

    a, b = data(5, 7), data(7, 3)
    yield "matmul", lambda p: dnn.matmul(on(p, a), on(p, b)), a @ b

    tiles = x.reshape(2, 3, 3, 2, 3, 2)
    yield "pool_forward max", lambda p: dnn.pool_forward(on(p, x), (2, 2)), tiles.max((3, 5))
    yield "pool_forward avg", lambda p: dnn.pool_forward(on(p, x), (2, 2), mode="avg"), tiles.mean((3, 5))
    d_pool = data(2, 3, 3, 3)
    spread = np.repeat(np.repeat(d_pool, 2, 2), 2, 3) / 4

    def pool_backward(p: str) -> dnn.DeviceTensor:
        image = on(p, x)
        return dnn.pool_backward(on(p, d_pool), image, dnn.pool_forward(image, (2, 2), mode="avg"), (2, 2), mode="avg")

    yield "pool_backward avg", pool_backward, spread

    e = np.exp(x - x.max(1, keepdims=True)).astype("float64")
    p_want = e / e.sum(1, keepdims=True)
    yield "softmax_forward", lambda p: dnn.softmax_forward(on(p, x)), p_want
    yield ("softmax_backward", lambda p: dnn.softmax_backward(on(p, x), dnn.softmax_forward(on(p, x))),
           p_want * (x - (x * p_want).sum(1, keepdims=True)))  # fmt: skip

    scale, bias = data(3), data(3)
    mean, var = x.mean((0, 2, 3), dtype="float64"), x.var((0, 2, 3), dtype="float64")
    per = (1, 3, 1, 1)
    x_hat = (x - mean.reshape(per)) / np.sqrt(var + 1e-5).reshape(per)
    y_norm = x_hat * scale.reshape(per) + bias.reshape(per)
    yield (
        "batch_norm_forward_training",
        lambda p: dnn.batch_norm_forward_training(on(p, x), on(p, scale), on(p, bias))[0],
        y_norm,
    )

    def norm_inference(p: str) -> dnn.DeviceTensor:
        statistics = on(p, mean.astype("float32")), on(p, var.astype("float32"))
        return dnn.batch_norm_forward_inference(on(p, x), on(p, scale), on(p, bias), *statistics)

    yield "batch_norm_forward_inference", norm_inference, y_norm

    def norm_backward(p: str) -> dnn.DeviceTensor:
        image, factor, shift = on(p, x), on(p, scale), on(p, bias)
        _, saved_mean, saved_inv_std = dnn.batch_norm_forward_training(image, factor, shift)
        return dnn.batch_norm_backward(image, image, factor, saved_mean, saved_inv_std)[1]

    yield "batch_norm_backward", norm_backward, (x * x_hat).sum((0, 2, 3))

    yield "activation_forward", lambda p: dnn.activation_forward(on(p, x), "silu"), x / (1 + np.exp(-x.astype("f8")))
    yield ("activation_backward", lambda p: dnn.activation_backward(on(p, x), on(p, x), on(p, x), "relu"), x * (x > 0))
    yield "transform", lambda p: dnn.transform(on(p, x), alpha=2, layout="NHWC"), 2 * x
