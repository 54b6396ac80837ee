# SPDX-License-Identifier: Apache-2.0
"""The one way benchmarks are run: ours and the peer's in one process, in turn, random data, cold cache, medians.

    python benchmarks/bench_conv.py [--device cuda:0] [--out FOLDER] [--seconds 0.15] [words to select rows]

A row prints the time, the floor (bytes over the copy rate or FLOP over the peak, both measured in this run), its share
in the time, the peer's time over ours, and the engine that ours chose. Rows may belong to a list, which ends in a mean
and a worst case beside their targets. --out writes tables and, of lists, a picture (report.py). Each bench_F.py only
lists its rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from report import Machine, Record, Target, summaries, write_report

import pyminidnn as dnn

Run = Callable[[], Any]


@dataclass(frozen=True)
class Arithmetic:
    """How products are computed."""

    dtype: str  # of operands
    short: str  # in case lines
    tolerance: float  # of a row; rounding explains a third or less
    math: str = "tf32"  # of a handle
    suffix: str = ""  # of case lines

    @property
    def ceiling(self) -> str:
        """A row's dtype."""
        return "tf32" if self.dtype == "float32" and self.math == "tf32" else self.dtype


ARITHMETIC = {
    "bf16": Arithmetic("bfloat16", "bf16", 2e-2),
    "fp16": Arithmetic("float16", "f16", 3e-3),
    "tf32": Arithmetic("float32", "f32", 3e-3),
    "ieee": Arithmetic("float32", "f32", 1e-4, "ieee", " math=ieee"),
    "f64": Arithmetic("float64", "f64", 1e-4),
}


@dataclass
class Row:
    name: str  # the case line, or its like
    ours: Run  # what has not been made until its first call costs nothing where the row is not wanted
    peer: Run
    bytes: float = 0  # each input read once, each output written once
    flop: float = 0
    dtype: str = "float32"  # "tf32" lets the peer round float32 products
    host: bool = False  # time the host's part of a call instead of the device's
    tolerance: float = 0  # of |ours - peer| / |peer|, Euclidean; 0: results are not compared
    list: str = ""
    label: str = ""  # a name short enough for a picture


def listed(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows as a list of that name."""
    return (replace(row, list=name) for row in rows)


class Clock:
    """Times calls on one device. On a GPU by CUDA events around a call, after a pass over more than its L2."""

    def __init__(self, device: str, seconds: float) -> None:
        import torch

        self.torch = torch
        self.cuda = device.startswith("cuda")
        self.device = device
        self.seconds = seconds
        self.peaks: dict[str, float] = {}
        if self.cuda:
            # Some 0.1 ms on an H100, in which the host enqueues all that is timed: launch gaps do not count.
            self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=device)
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample_us(self, run: Run) -> float:
        self.flush.fill_(1)
        self.torch.cuda._sleep(40_000)  # another 20 us
        self.begin.record()
        run()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e3

    def pair_us(self, ours: Run, peer: Run) -> tuple[float, float]:
        """Medians, samples in pairs so that drift of the machine meets both, in random order: launches of 7 us take up
        to 0.9 us longer in every second sample. Two calls before them do not count: in these kernels are compiled and
        cuDNN looks for its fastest algorithm."""
        for _ in range(2):
            ours(), peer()
        self.synchronize()
        if not self.cuda:
            return self.blocks_us(ours, peer)
        samples: tuple[list[float], list[float]] = ([], [])
        stop = time.perf_counter() + self.seconds
        pair, orders = list(zip((ours, peer), samples, strict=True)), random.Random(0)
        while len(samples[0]) < 5 or (time.perf_counter() < stop and len(samples[0]) < 200):
            orders.shuffle(pair)
            for run, mine in pair:
                mine.append(self.sample_us(run))
        return statistics.median(samples[0]), statistics.median(samples[1])

    def blocks_us(self, ours: Run, peer: Run) -> tuple[float, float]:
        """Medians on a CPU, as a network calls: one after the other, caches and threads warm. Blocks of either
        alternate; before each the threads of the other, which wait for work on the same cores for some ms, have gone
        to sleep, and one call wakes its own."""
        samples: tuple[list[float], list[float]] = ([], [])
        for _ in range(4):
            for run, mine in zip((ours, peer), samples, strict=True):
                time.sleep(0.012)
                run()
                stop, begun = time.perf_counter() + self.seconds / 8, len(mine)
                while len(mine) < begun + 2 or (time.perf_counter() < stop and len(mine) < begun + 50):
                    start = time.perf_counter()
                    run()
                    mine.append((time.perf_counter() - start) * 1e6)
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

    def allow_tf32(self, allowed: bool) -> None:
        self.torch.backends.cuda.matmul.allow_tf32 = self.torch.backends.cudnn.allow_tf32 = allowed

    def copy_gb_s(self) -> float:
        """What a large copy moves here, bytes read plus bytes written."""
        x = self.torch.randn(1 << (28 if self.cuda else 24), device=self.device)
        y = self.torch.empty_like(x)
        us, _ = self.pair_us(lambda: y.copy_(x), lambda: None)
        return 2 * x.nbytes / us / 1e3

    def peak_gflop_s(self, dtype: str) -> float:
        """What a large product of the peer reaches here; on a CPU, multiply-adds in registers."""
        if dtype not in self.peaks and not self.cuda and dtype in ("float32", "tf32"):
            self.peaks[dtype] = dnn._C.cpu_peak_gflop_s()
        if dtype not in self.peaks:
            self.allow_tf32(dtype == "tf32")
            n = 8192 if self.cuda else 1024
            kind = getattr(self.torch, "float32" if dtype == "tf32" else dtype)
            a, b = (self.torch.randn(n, n, device=self.device).to(kind) for _ in range(2))
            us, _ = self.pair_us(lambda: a @ b, lambda: None)
            self.peaks[dtype] = 2 * n**3 / us / 1e3
        return self.peaks[dtype]

    def compare(self, row: Row) -> None:
        norm = self.torch.linalg.vector_norm
        ours = self.torch.from_dlpack(row.ours()).float()
        if self.cuda:  # busy for some ms before the peer's first call, in which cuDNN times its algorithms
            for _ in range(50):
                self.flush.fill_(1)
        peer = row.peer().float()
        error = (norm(ours - peer) / norm(peer)).item()
        if not error <= row.tolerance:
            raise ArithmeticError(
                f"differs from torch's result by {error:.2g} of its norm, more than {row.tolerance:g}"
            )

    def measure(self, row: Row, copy_gb_s: float) -> Record:
        floor = row.bytes / copy_gb_s / 1e3
        if row.flop:
            floor = max(floor, row.flop / self.peak_gflop_s(row.dtype) / 1e3)
        self.allow_tf32(row.dtype == "tf32")
        engine = ", ".join(engine_text(report) for report in dnn.explain(row.ours))
        if row.tolerance:
            self.compare(row)
        if row.host:
            us, peer_us = self.host_us(row.ours), self.host_us(row.peer)
        else:
            us, peer_us = self.pair_us(row.ours, row.peer)
        label = row.label or " ".join(row.name.split()[2:])
        return Record(row.list, row.name, label, row.dtype, row.bytes, row.flop, us, peer_us, floor, engine)


def engine_text(report: dnn.Report) -> str:
    """The engine that was chosen, without device and family, and its config."""
    (config,) = (e.config for e in report.engines if e.name == report.chosen)
    return f"{report.chosen.rpartition('.')[2]} {config}".strip()


def driver_text() -> str:
    """What nvidia-smi knows and torch does not."""
    command = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader", "--id=0"]
    try:
        version, clock = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().split(", ")
    except (OSError, ValueError):
        return "driver unknown"
    return f"driver {version}, SM clock up to {clock}"


def machine(clock: Clock) -> Machine:
    torch = clock.torch
    versions = f"torch {torch.__version__}"
    if clock.cuda:
        model = torch.cuda.get_device_name(clock.device)
        versions = f"{driver_text()}, {versions}, cuDNN {torch.backends.cudnn.version()}"
        method = "ours and torch's sampled in pairs, in random order, on random data, L2 overwritten before each"
    else:
        threads = dnn._C.device_info("cpu")["units"]
        model = cpu_model()
        versions = f"{threads} threads, {dnn._C.cpu_isa()}, {versions}"
        method = "blocks of ours and of torch's alternate, on random data, one call after the other with warm threads"
    return Machine(model, time.strftime("%Y-%m-%d"), versions, method, clock.copy_gb_s(), clock.peaks)


def cpu_model() -> str:
    """As Linux names it, with the numbers that tell one generation of cores from another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    name = facts.get("model name", platform.machine())
    return f"{name} family {facts['cpu family']}" if "cpu family" in facts else name


def main(
    rows: Callable[[str], Iterable[Row]], description: str | None, targets: dict[str, Target] | None = None
) -> None:
    """Runs what `rows(device)` gives and prints the table; `targets` are of lists."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda:0" if dnn._C.cuda_device_count() else "cpu")
    parser.add_argument("--out", type=Path, help="a folder for the table and the picture")
    parser.add_argument("--seconds", type=float, default=0.15, help="of samples for a row, at least 5 of them on a GPU")
    parser.add_argument("words", nargs="*", help="only rows whose list and name hold all of these")
    options = parser.parse_args()
    if options.device == "cpu":  # no tuning file of the user's chooses engines; a GPU's kernels come from that folder
        os.environ["PYMINIDNN_CACHE_DIR"] = os.devnull

    start = time.perf_counter()
    clock = Clock(options.device, options.seconds)
    here = machine(clock)
    print(f"{here.model}, {here.date}, {here.versions}, copy {here.copy_gb_s:.0f} GB/s")
    columns = f"{'us':>10}{'floor':>10}{'of floor':>9}{'GFLOP/s':>9}{'torch us':>10}{'torch/ours':>11}  engine"
    print(f"{'case':<100}{columns}")
    records: list[Record] = []
    failures = 0
    for row in rows(options.device):
        if not all(word in f"{row.list} {row.name}" for word in options.words):
            continue
        if row.list and row.list not in (r.list for r in records):
            print(row.list)
        try:
            r = clock.measure(row, here.copy_gb_s)
        except Exception as error:  # one row does not take the others with it
            print(f"{row.name}: {type(error).__name__}: {error}", flush=True)
            failures += 1
            continue
        records.append(r)
        share = f"{r.share:9.2f}" if r.floor_us else f"{'':>9}"
        rate = f"{r.tflop_s * 1e3:9.0f}" if r.flop else f"{'':>9}"
        print(
            f"{r.name:<100}{r.us:>10.2f}{r.floor_us:>10.2f}{share}{rate}{r.peer_us:>10.2f}{r.ratio:>11.2f}  {r.engine}",
            flush=True,
        )
    for summary in summaries(records, targets or {}):
        print(summary.line())
    print(f"{len(records)} rows in {time.perf_counter() - start:.0f} s")
    if options.out and records:
        what = Path(sys.argv[0]).stem.removeprefix("bench_")
        command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        write_report(options.out, what, command, here, records, targets or {})
    if failures:
        sys.exit(f"{failures} rows failed")
