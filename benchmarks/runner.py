# SPDX-License-Identifier: Apache-2.0
"""The one way benchmarks are run: ours and the peer's in one process, alternating, random data, cold cache, medians.

    python benchmarks/bench_activation.py [--device cuda:0] [--out results.jsonl] [words to select cases]

A row prints the time, the floor (bytes over the copy rate or FLOP over the peak, both measured in this run),
time/floor, and the peer's time over ours. Each bench_F.py only lists its rows.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyminidnn as dnn

Run = Callable[[], object]


@dataclass
class Row:
    name: str  # the case line, or its like
    ours: Run
    peer: Run
    bytes: float = 0  # each input read once, each output written once
    flop: float = 0
    dtype: str = "float32"
    host: bool = False  # time the host's part of a call instead of the device's


class Clock:
    """Times calls on one device. On a GPU by CUDA events around a call, after a pass over more than its L2."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.cuda = device.startswith("cuda")
        self.device = device
        self.flush = torch.empty(256 << 20 if self.cuda else 64 << 20, dtype=torch.uint8, device=device)

    def sample_us(self, run: Run) -> float:
        self.flush.fill_(1)
        if not self.cuda:
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) * 1e6
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        # A kernel of some 20 us keeps the stream busy while the host enqueues, so that launch gaps do not count.
        self.torch.cuda._sleep(40_000)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def pair_us(self, ours: Run, peer: Run, seconds: float = 0.4) -> tuple[float, float]:
        """Medians, samples alternating so that drift of the machine meets both."""
        for _ in range(3):
            ours(), peer()
        samples: tuple[list[float], list[float]] = ([], [])
        stop = time.perf_counter() + seconds
        while len(samples[0]) < 5 or (time.perf_counter() < stop and len(samples[0]) < 200):
            samples[0].append(self.sample_us(ours))
            samples[1].append(self.sample_us(peer))
        return statistics.median(samples[0]), statistics.median(samples[1])

    def host_us(self, run: Run, calls: int = 2000) -> float:
        """The host's time for one call, the device never far behind: the least of several batches."""
        best = float("inf")
        for _ in range(7):
            self.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            best = min(best, (time.perf_counter() - start) / calls * 1e6)
        self.synchronize()
        return best

    def synchronize(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize()

    def copy_gb_s(self) -> float:
        """What a large copy moves here, bytes read plus bytes written."""
        x = self.torch.randn(1 << (28 if self.cuda else 24), device=self.device)
        y = self.torch.empty_like(x)
        us, _ = self.pair_us(lambda: y.copy_(x), lambda: None)
        return 2 * x.nbytes / us / 1e3

    def peak_gflop_s(self, dtype: str) -> float:
        """What a large product reaches here without TF32."""
        n = 8192 if self.cuda else 2048
        a, b = (self.torch.randn(n, n, device=self.device).to(getattr(self.torch, dtype)) for _ in range(2))
        us, _ = self.pair_us(lambda: a @ b, lambda: None)
        return 2 * n**3 / us / 1e3


def main(rows: Callable[[str], Iterable[Row]], description: str) -> None:
    """Runs what `rows(device)` gives, prints the table, and appends JSON lines to --out."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda:0" if dnn._C.cuda_device_count() else "cpu")
    parser.add_argument("--out", type=argparse.FileType("a"), default=None)
    parser.add_argument("words", nargs="*", help="only rows whose names hold all of these")
    options = parser.parse_args()
    import torch

    clock = Clock(options.device)
    model = torch.cuda.get_device_name() if clock.cuda else platform.processor() or platform.machine()
    copy = clock.copy_gb_s()
    peaks: dict[str, float] = {}
    print(f"{model}, {time.strftime('%Y-%m-%d')}, torch {torch.__version__}, copy {copy:.0f} GB/s")
    print(f"{'case':<72}{'us':>10}{'floor':>10}{'x floor':>9}{'torch us':>10}{'torch/ours':>11}")
    ratios = []
    for row in rows(options.device):
        if not all(word in row.name for word in options.words):
            continue
        if row.host:
            ours, peer = clock.host_us(row.ours), clock.host_us(row.peer)
        else:
            ours, peer = clock.pair_us(row.ours, row.peer)
        floor = row.bytes / copy / 1e3
        if row.flop:
            peak = peaks.get(row.dtype) or peaks.setdefault(row.dtype, clock.peak_gflop_s(row.dtype))
            floor = max(floor, row.flop / peak / 1e3)
        ratios.append(peer / ours)
        share = f"{ours / floor:9.2f}" if floor else f"{'':>9}"
        print(f"{row.name:<72}{ours:>10.2f}{floor:>10.2f}{share}{peer:>10.2f}{peer / ours:>11.2f}", flush=True)
        if options.out:
            record = {"case": row.name, "us": ours, "floor_us": floor, "torch_us": peer, "device": model}
            print(json.dumps(record), file=options.out, flush=True)
    if ratios:
        print(
            f"{len(ratios)} rows, geometric mean of torch/ours {statistics.geometric_mean(ratios):.2f}, "
            f"worst {min(ratios):.2f}"
        )
