# SPDX-License-Identifier: Apache-2.0
"""Times calls on small torch tensors: the host time of a call, with the exchange of its arrays, and of recorded calls.

    python benchmarks/host_time.py [--device cuda:0] [--calls 500] [--repeats 31] [--first]

A row is the median of all repeats, in us for each call. On a GPU, a repeat ends when the host has enqueued all calls.
The tensors have 32 elements, so a kernel takes less time than its launch. The last rows have no array to exchange.

With --first, it instead times the first run of graphs whose kernels are in no cache, in seconds: kernels are generated,
compiled, loaded and run.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import pyminidnn as dnn


def time_us(call: Callable[[], Any], device: str, calls: int, repeats: int) -> float:
    def synchronize() -> None:
        if device != "cpu":
            torch.cuda.synchronize()
            dnn.synchronize()

    for _ in range(calls):  # loads kernels and fills caches
        call()
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
    synchronize()
    return statistics.median(times)


def rows(device: str) -> dict[str, Callable[[], Any]]:
    x = torch.randn(4, 8, device=device)
    out, t = torch.empty_like(x), dnn.from_dlpack(x)
    return {
        "dnn.relu(torch)": lambda: dnn.relu(x),
        "dnn.from_dlpack(torch)": lambda: dnn.from_dlpack(x),
        "torch.relu(torch)": lambda: torch.relu(x),
        "dnn.asarray(torch)": lambda: dnn.asarray(x),
        "dnn.activation_forward(torch, out=torch)": lambda: dnn.activation_forward(x, "relu", out=out),
        "dnn.activation_backward(torch, torch, torch)": lambda: dnn.activation_backward(x, x, x, "relu"),
        "DeviceTensor + torch": lambda: t + x,
        "torch.from_dlpack(DeviceTensor)": lambda: torch.from_dlpack(t),
        "torch.from_dlpack(dnn.relu(torch))": lambda: torch.from_dlpack(dnn.relu(x)),
        "dnn.relu(DeviceTensor)": lambda: dnn.relu(t),
        "dnn.activation_backward(3 x DeviceTensor)": lambda: dnn.activation_backward(t, t, t, "relu"),
        "DeviceTensor + DeviceTensor": lambda: t + t,
        **graph_rows(t),
    }


def graph_rows(t: dnn.DeviceTensor) -> dict[str, Callable[[], Any]]:
    """A call of three tensors and 50 calls of one tensor: plain, as a fused function, and as a bound graph."""

    def chain(x: dnn.DeviceTensor) -> dnn.DeviceTensor:
        for _ in range(50):
            x = dnn.tanh(x)
        return x

    def record() -> None:
        fused_chain.clear()
        fused_chain.graph(t)

    fused, fused_chain = dnn.fuse(dnn.multiply_add), dnn.fuse(chain)
    with dnn.record(device=t.device) as graph:
        graph.output("y", dnn.multiply_add(*(graph.input(name, t.shape) for name in "abc")))
    return {
        "dnn.multiply_add(3 x DeviceTensor)": lambda: dnn.multiply_add(t, t, t),
        "a fused function of this call": lambda: fused(t, t, t),
        "a bound graph of this call": graph.bind(a=t, b=t, c=t),
        "50 calls of tanh": lambda: chain(t),
        "a fused function of these calls": lambda: fused_chain(t),
        "recording these calls": record,
    }


def first_run(device: str, regions: int, seed: int) -> float:
    """The seconds of the first run of a graph. Its regions have different shapes and constants, so none are joined, and
    different functions, so each has a kernel of its own."""
    modes = ("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "softplus", "mish")
    tensors = [dnn.zeros((8, 32 + i), device=device) for i in range(regions)]

    def regions_of(*inputs: dnn.DeviceTensor) -> list[dnn.DeviceTensor]:
        results = []
        for i, x in enumerate(inputs):
            for _ in range(seed + 1):
                x = dnn.activation_forward(x * 0.5, modes[i])
            results.append(x + x * x)
        return results

    start = time.perf_counter()
    dnn.fuse(regions_of)(*tensors)
    dnn.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=500, help="calls in a repeat; default: 500")
    parser.add_argument("--repeats", type=int, default=31, help="default: 31")
    parser.add_argument("--first", action="store_true", help="times first runs, with an empty cache, instead")
    options = parser.parse_args()
    machine = platform.machine() if options.device == "cpu" else torch.cuda.get_device_name(options.device)
    exchange = "has" if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") else "does not have"
    print(f"{machine}, torch {torch.__version__}, which {exchange} the C exchange")

    if options.first:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PYMINIDNN_CACHE_DIR"] = folder
            for seed, regions in enumerate((1, 1, 2, 4, 8)):
                print(f"first run of {regions} regions: {first_run(options.device, regions, seed):.3f} s", flush=True)
        return

    def row(name: str, call: Callable[[], Any]) -> None:
        print(f"{name:45} {time_us(call, options.device, options.calls, options.repeats):7.2f} us", flush=True)

    for name, call in rows(options.device).items():
        row(name, call)
    if options.device != "cpu":
        relu = rows(options.device)["dnn.relu(torch)"]
        with torch.cuda.stream(torch.cuda.Stream()):
            row("dnn.relu(torch), torch on another stream", relu)


if __name__ == "__main__":
    main()
