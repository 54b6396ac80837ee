# SPDX-License-Identifier: Apache-2.0
"""How CPU calls scale with threads, and what another library's waiting threads cost.

    python benchmarks/bench_threads.py [--threads 1 4 8 16] [--seconds 0.2] [--line PROBLEM ...]

Each number of threads runs in processes of its own, on as many cores: one with our calls alone, one with torch's alone,
and one with both in alternation, where the threads of each library wait actively while the other computes. A row has
the median times in us of ours and of torch's, alone and in alternation, and the speed-up of ours, alone, over the first
number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LINES = [
    "activation forward f32 relu x=8x8x8x8",
    "softmax forward f32 x=64x256 axis=1",
    "activation forward f32 gelu x=1048576",
    "activation forward f32 relu x=16777216",
    "softmax forward f32 x=8192x1000 axis=1",
    "reduce sum f32 x=32x256x56x56 axes=0,2,3",
    "pooling forward f32 max x=32x64x112x112:nhwc window=3 stride=2 pad=1",
    "matmul forward f32 a=256x256 b=256x256",
    "matmul forward f32 a=2048x2048 b=2048x2048",
    "conv forward f32 x=8x64x56x56:nhwc w=64x64x3x3 pad=1",
    "conv backward_filter f32 dy=8x256x14x14:nhwc x=8x256x14x14:nhwc dw=256x256x3x3 pad=1",
]


def measure(lines: list[str], who: str, seconds: float) -> list[dict[str, float]]:
    """The median times in us of "ours", "torch" or, in alternation, "both"."""
    threads = int(os.environ["OMP_NUM_THREADS"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # before the libraries count the cores
    import torch
    from problems import Problem

    torch.set_num_threads(threads)
    return [times_of(Problem(line, "cpu"), who, seconds) for line in lines]


def times_of(problem: Any, who: str, seconds: float) -> dict[str, float]:
    calls: dict[str, Callable[[], Any]] = {}
    if who != "torch":
        calls["ours"] = problem.ours
    if who != "ours":
        ways = problem.theirs()
        calls["torch"] = min(ways.values(), key=lambda call: samples({"": call}, seconds / 4)[""])
    return samples(calls, seconds)


def samples(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    for call in [*calls.values()] * 2:
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(times[next(iter(calls))]) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(some) for name, some in times.items()}


def in_process(threads: int, who: str, options: argparse.Namespace) -> list[dict[str, float]]:
    command = [sys.executable, __file__, "--measure", who, "--seconds", str(options.seconds)]
    command += [word for line in options.line for word in ("--line", line)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYMINIDNN_NUM_THREADS": str(threads)}
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    times: list[dict[str, float]] = json.loads(run.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=0.2, help="of samples for a call")
    parser.add_argument("--line", action="append", help="this problem instead of the list; may be given several times")
    parser.add_argument("--measure", choices=("ours", "torch", "both"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.line = options.line or LINES
    if options.measure:
        print(json.dumps(measure(options.line, options.measure, options.seconds)))
        return
    print("| problem | threads | ours | torch | torch/ours | in alternation: ours | torch | torch/ours | speed-up |")
    print("|---|---|---|---|---|---|---|---|---|")
    first: list[float] = []
    for threads in options.threads:
        if threads > len(os.sched_getaffinity(0)):
            continue
        ours, theirs, both = (in_process(threads, who, options) for who in ("ours", "torch", "both"))
        first = first or [t["ours"] for t in ours]
        for line, one, a, b, c in zip(options.line, first, ours, theirs, both, strict=True):
            print(f"| {line} | {threads} | {a['ours']:.1f} | {b['torch']:.1f} | {b['torch'] / a['ours']:.2f} "
                  f"| {c['ours']:.1f} | {c['torch']:.1f} | {c['torch'] / c['ours']:.2f} | {one / a['ours']:.2f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
