# SPDX-License-Identifier: Apache-2.0
"""Runs all benchmarks in the same way: results are compared; then our call and the peer's are timed in alternating
turns in one process, on random data and with a cold cache.

    python benchmarks/bench_conv.py [--device cuda:0] [--out FOLDER [--picture]] [--seconds 0.15] [words to select rows]

A row prints the time, the floor (bytes over the copy rate or FLOP over the peak, both measured in this run), the floor
as a fraction of the time, the peer's time over ours, the relative difference of the turns, the engine that our call
chose and, where the peer has several variants, the fastest one. Rows may belong to a list. At the end, a table of lists
is printed. --out writes tables (report.py), and --picture draws them. Each bench_F.py only defines its rows.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from report import Machine, Record, Target, summary_lines, write_report

import pyminidnn as dnn

Run = Callable[[], Any]
Seen = Callable[[list[Any]], Iterable[Any]]

TURNS = 4  # number of turns; each turn times our call several times, and the peer's call as often
# If the slowest and the fastest turn of a measurement differ by more than this fraction, all turns are measured again.
DISAGREEMENT = 0.1
ATTEMPTS = 3
# The number of times that cuDNN searches for its fastest algorithm, because a search times each algorithm only once.
SEARCHES = 2


@dataclass(frozen=True)
class Arithmetic:
    """How matrix products are computed."""

    dtype: str  # dtype of the operands of the product
    short: str  # name of the dtype in case lines
    math: str = "tf32"  # the `math` option of the handle that computes the product
    suffix: str = ""  # text added to the end of case lines

    @property
    def ceiling(self) -> str:
        """The dtype whose peak is the ceiling of a row."""
        return "tf32" if self.dtype == "float32" and self.math == "tf32" else self.dtype


ARITHMETIC = {
    "bf16": Arithmetic("bfloat16", "bf16"),
    "fp16": Arithmetic("float16", "f16"),
    "tf32": Arithmetic("float32", "f32"),
    "ieee": Arithmetic("float32", "f32", "ieee", " math=ieee"),
    "f64": Arithmetic("float64", "f64"),
}


@dataclass
class Row:
    name: str  # the case line, or a similar text if the call has no case line
    ours: Run  # our call; operands that are made in its first run cost nothing if the row is not selected
    # The call of torch to compare with, or a dict of variants of this call. The fastest variant counts.
    peer: Run | dict[str, Run]
    bytes: float = 0  # bytes of all inputs (each read once) and of all outputs (each written once)
    flop: float = 0
    dtype: str = "float32"  # with "tf32", the peer may round float32 products to TF32
    host: bool = False  # if set, the time that the host spends on the call is measured, not the time on the device
    terms: float = 1  # terms of the longest sum in a result; 0 if elements are only copied
    # The largest allowed |ours - peer| / |peer| in Euclidean norms. The default, None, is computed from `dtype` and
    # `terms`, the number of terms of the longest sum.
    tolerance: float | None = None
    # Two functions that select the results to compare: of our call, and of torch's call.
    seen: tuple[Seen, Seen] = (list, list)
    searched: bool = False  # whether cuDNN searches for the algorithm of the peer's call
    list: str = ""
    label: str = ""  # a short name for pictures

    @property
    def ways(self) -> dict[str, Run]:
        return self.peer if isinstance(self.peer, dict) else {"": self.peer}


def in_orders(*tensors: Any) -> dict[str, list[Any]]:
    """Copies of the tensors in NCHW and in NHWC, for variants of torch: a user of torch keeps tensors in the faster
    order."""
    import torch

    orders = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
    return {name: [t.contiguous(memory_format=memory) for t in tensors] for name, memory in orders.items()}


@dataclass
class Timing:
    us: float
    peer_us: float
    spread: float  # slowest turn / fastest turn - 1, for our call or for the peer's, whichever is larger


def settled(turns: Callable[[], list[tuple[float, float]]], slack_us: float = 0) -> Timing:
    """Medians over turns of (ours, peer). If the turns disagree, they are measured again; after the last attempt, the
    attempt with the smallest spread counts. Turns may differ by `slack_us`, whatever fraction of the time that is."""
    attempts: list[Timing] = []
    while not attempts or (attempts[-1].spread > DISAGREEMENT and len(attempts) < ATTEMPTS):
        ours, peer = zip(*turns(), strict=True)
        spread = max(max(max(side) - slack_us, min(side)) / min(side) - 1 for side in (ours, peer))
        attempts.append(Timing(statistics.median(ours), statistics.median(peer), spread))
    return min(attempts, key=lambda timing: timing.spread)


def listed(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows as a list of that name."""
    return (replace(row, list=name) for row in rows)


class Clock:
    """Times calls on one device. On a GPU, CUDA events measure one call, after more bytes than the L2 holds were
    read."""

    def __init__(self, device: str, seconds: float) -> None:
        import torch

        self.torch = torch
        self.cuda = device.startswith("cuda")
        self.device = device
        self.seconds = seconds
        self.peaks: dict[str, float] = {}
        if self.cuda:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.benchmark_limit = 0  # 0: cuDNN tries all algorithms
            # Reading this buffer before a timed call empties the L2 cache. Writing it would leave lines to write back
            # during the timed call. Reading 256 MB also takes about 0.1 ms on an H100, in which the host enqueues the
            # timed call, so the measured time contains no gaps between launches.
            self.flush = torch.zeros(64 << 20, device=device)
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample_us(self, run: Run) -> float:
        self.flush.sum()
        # A kernel that waits for about 20 us, so that the timed call is enqueued before the GPU can start it.
        self.torch.cuda._sleep(40_000)
        self.begin.record()
        run()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e3

    def pair_us(self, ours: Run, peer: Run, host: bool = False) -> Timing:
        """Times two calls. Two calls before do not count: they compile kernels, and cuDNN searches for its fastest
        algorithm."""
        for _ in range(2):
            ours(), peer()
        self.synchronize()
        # On an H100, CUDA events measure up to 0.9 us too much for every second sample of a 7 us launch.
        slack_us = 1 if self.cuda and not host else 0
        return settled(lambda: [self.turn(ours, peer, host) for _ in range(TURNS)], slack_us)

    def turn(self, ours: Run, peer: Run, host: bool) -> tuple[float, float]:
        if host:
            return self.host_turn(ours, peer)
        return self.device_turn(ours, peer) if self.cuda else self.cpu_turn(ours, peer)

    def device_turn(self, ours: Run, peer: Run) -> tuple[float, float]:
        """Samples of both calls in pairs, in random order."""
        samples: tuple[list[float], list[float]] = ([], [])
        stop = time.perf_counter() + self.seconds / TURNS
        pair, orders = list(zip((ours, peer), samples, strict=True)), random.Random(0)
        while len(samples[0]) < 3 or (time.perf_counter() < stop and len(samples[0]) < 50):
            orders.shuffle(pair)
            for run, mine in pair:
                mine.append(self.sample_us(run))
        return statistics.median(samples[0]), statistics.median(samples[1])

    def cpu_turn(self, ours: Run, peer: Run) -> tuple[float, float]:
        """A block of calls of each, as in a network: one after the other, with warm caches and threads. The other
        side's threads wait for work on the same cores for some ms, so the block begins after they are blocked, and one
        call wakes its own threads."""
        medians: list[float] = []
        for run in (ours, peer):
            time.sleep(0.012)
            run()
            samples: list[float] = []
            stop = time.perf_counter() + self.seconds / (2 * TURNS)
            while len(samples) < 2 or (time.perf_counter() < stop and len(samples) < 50):
                start = time.perf_counter()
                run()
                samples.append((time.perf_counter() - start) * 1e6)
            medians.append(statistics.median(samples))
        return medians[0], medians[1]

    def host_turn(self, ours: Run, peer: Run, calls: int = 2000) -> tuple[float, float]:
        """The host's time for one call, with a device that never falls far behind: the smaller one of two batches."""
        best = [math.inf, math.inf]
        for _ in range(2):
            for i, run in enumerate((ours, peer)):
                self.synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                best[i] = min(best[i], (time.perf_counter() - start) / calls * 1e6)
        self.synchronize()
        return best[0], best[1]

    def synchronize(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize()

    def allow_tf32(self, allowed: bool) -> None:
        self.torch.backends.cuda.matmul.allow_tf32 = self.torch.backends.cudnn.allow_tf32 = allowed

    def copy_gb_s(self) -> float:
        """The rate of a large copy on this device, bytes read plus bytes written."""
        x = self.torch.randn(1 << (28 if self.cuda else 24), device=self.device)
        y = self.torch.empty_like(x)
        return 2 * x.nbytes / self.pair_us(lambda: y.copy_(x), lambda: y.copy_(x)).us / 1e3

    def peak_gflop_s(self, dtype: str) -> float:
        """The rate of a large matrix product of the peer on this device; on a CPU, of multiply-adds in registers."""
        if dtype not in self.peaks and not self.cuda and dtype in ("float32", "tf32"):
            self.peaks[dtype] = dnn._C.cpu_peak_gflop_s()
        if dtype not in self.peaks:
            self.allow_tf32(dtype == "tf32")
            n = 8192 if self.cuda else 1024
            kind = getattr(self.torch, "float32" if dtype == "tf32" else dtype)
            a, b = (self.torch.randn(n, n, device=self.device).to(kind) for _ in range(2))
            self.peaks[dtype] = 2 * n**3 / self.pair_us(lambda: a @ b, lambda: a @ b).us / 1e3
        return self.peaks[dtype]

    def tolerance(self, row: Row, *results: Any) -> float:
        """Three times the rounding error: one rounding in the row's dtype and one in the result's, and those of sums in
        float32 or float64, whose errors grow as a random walk. Integers, and elements that are only copied, must be
        equal."""
        if row.tolerance is not None:
            return row.tolerance
        if not row.terms or not all(r.is_floating_point() for r in results):
            return 0
        own = 2.0**-10 if row.dtype == "tf32" else self.torch.finfo(getattr(self.torch, row.dtype)).eps
        eps = max(own, *(self.torch.finfo(r.dtype).eps for r in results))
        return 3 * (eps + min(eps, 2.0**-23) * math.sqrt(row.terms))

    def compare(self, row: Row, peer: Run) -> None:
        """ArithmeticError if a result of both sides differs."""
        norm = self.torch.linalg.vector_norm
        ours = row.seen[0]([self.torch.from_dlpack(r) for r in as_list(row.ours())])
        # The GPU is busy for some ms before torch's first call, in which cuDNN times its algorithms.
        if self.cuda:
            for _ in range(50):
                self.flush.sum()
        theirs = row.seen[1](as_list(peer()))
        sizes = [norm(b.double()).item() for b in theirs]
        for i, (a, b, size) in enumerate(zip(ours, theirs, sizes, strict=False)):
            if a.shape != b.shape:
                raise ArithmeticError(f"result {i} is {list(a.shape)}, torch's {list(b.shape)}")
            allowed = self.tolerance(row, a, b)
            difference = norm(a.double() - b.double()).item()
            # The terms of a result may cancel, as those of the gradient of a softmax with one column. What remains are
            # their roundings in float32. The largest result shows the size of the terms.
            cancelled = 2.0**-20 * max(sizes) if row.terms and b.is_floating_point() else 0
            if not difference <= allowed * size + cancelled:
                raise ArithmeticError(
                    f"result {i} differs from torch's by {difference:.3g}, of a norm of {size:.3g}: more than the "
                    f"{allowed:.2g} of it that are allowed"
                )

    def fastest(self, row: Row, threads: ExitStack) -> tuple[str, Run, ThreadPoolExecutor | None]:
        """The peer's fastest variant, by one turn of each: its name, its call, and the thread to call it on. Each
        variant is compared with our result first. cuDNN keeps its choice per thread, so a new thread searches again."""
        searched = self.cuda and row.searched
        ways = [way for way in row.ways.items() for _ in range(SEARCHES if searched else 1)]
        looks = []
        for name, peer in ways:
            thread = threads.enter_context(ThreadPoolExecutor(1)) if searched else None
            call_on(thread, self.compare, row, peer)
            us = min(call_on(thread, self.turn, peer, peer, row.host)) if len(ways) > 1 else 0
            looks.append((us, name, peer, thread))
        return min(looks, key=lambda look: look[0])[1:]

    def measure(self, row: Row, copy_gb_s: float) -> Record:
        floor = row.bytes / copy_gb_s / 1e3
        if row.flop:
            floor = max(floor, row.flop / self.peak_gflop_s(row.dtype) / 1e3)
        self.allow_tf32(row.dtype == "tf32")
        engine = ", ".join(engine_text(report) for report in dnn.explain(row.ours))
        with ExitStack() as threads:
            way, peer, thread = self.fastest(row, threads)
            timing = call_on(thread, self.pair_us, row.ours, peer, row.host)
        label = row.label or " ".join(row.name.split()[2:])
        return Record(row.list, row.name, label, row.dtype, row.bytes, row.flop, timing.us, timing.peer_us, floor,
                      engine, way, timing.spread, timing.spread > DISAGREEMENT)  # fmt: skip


def call_on(thread: ThreadPoolExecutor | None, call: Callable[..., Any], *arguments: Any) -> Any:
    return thread.submit(call, *arguments).result() if thread else call(*arguments)


def as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def engine_text(report: dnn.Report) -> str:
    """The engine that was chosen, without device and family, and its config."""
    (config,) = (e.config for e in report.engines if e.name == report.chosen)
    return f"{report.chosen.rpartition('.')[2]} {config}".strip()


def driver_text() -> str:
    """Facts from nvidia-smi that torch does not have."""
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
        method = (
            f"{TURNS} turns of samples of ours and torch's in pairs, in random order, on random data, with a clean L2"
        )
    else:
        threads = dnn._C.device_info("cpu")["units"]
        model = cpu_model()
        versions = f"{threads} threads, {dnn._C.cpu_isa()}, {versions}"
        method = (
            f"{TURNS} turns of a block of our calls and one of torch's, on random data, with warm threads and caches"
        )
    return Machine(model, time.strftime("%Y-%m-%d"), versions, method, clock.copy_gb_s(), clock.peaks)


def cpu_model() -> str:
    """The name in Linux, with the numbers that identify a generation of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    name = facts.get("model name", platform.machine())
    return f"{name} family {facts['cpu family']}" if "cpu family" in facts else name


def use_own_cache() -> None:
    """Uses a cache folder that has the user's kernels, but not the results of the user's find() and calibrate, which
    would change the choice of our engines. The folder is inside the user's cache, so later benchmarks find the compiled
    kernels."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyminidnn"
    user = Path(os.environ.get("PYMINIDNN_CACHE_DIR") or default)
    if user.exists() and not user.is_dir():
        return  # the cache folder is /dev/null or another file: no kernels are stored
    own = user / "benchmarks"
    link_kernels(user, own)
    for results in ("tuning.txt", "costs.txt"):
        (own / results).unlink(missing_ok=True)
    os.environ["PYMINIDNN_CACHE_DIR"] = str(own)


def link_kernels(source: Path, target: Path) -> None:
    """Adds the kernels of a cache folder to another."""
    for kernel in source.glob("sm_*/*.cubin"):
        link = target / kernel.relative_to(source)
        for folder in (target, link.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            link.hardlink_to(kernel)


def main(
    rows: Callable[[str], Iterable[Row]], description: str | None, targets: dict[str, Target] | None = None
) -> None:
    """Runs the rows of `rows(device)` and prints the table; `targets` belong to lists."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda:0" if dnn._C.cuda_device_count() else "cpu")
    parser.add_argument("--out", type=Path, help="a folder for the tables")
    parser.add_argument("--picture", action="store_true", help="with --out: bars of each list, and a roofline")
    parser.add_argument("--seconds", type=float, default=0.15, help="of samples for a row, at least 5 of them on a GPU")
    parser.add_argument("words", nargs="*", help="only rows whose list and name hold all of these")
    options = parser.parse_args()
    use_own_cache()

    start = time.perf_counter()
    clock = Clock(options.device, options.seconds)
    here = machine(clock)
    print(f"{here.model}, {here.date}, {here.versions}, copy {here.copy_gb_s:.0f} GB/s")
    columns = (
        f"{'us':>10}{'floor':>10}{'of floor':>9}{'GFLOP/s':>9}{'torch us':>10}{'torch/ours':>11}{'spread':>8}  engine"
    )
    print(f"{'case':<100}{columns}")
    records: list[Record] = []
    failures: list[str] = []
    for row in rows(options.device):
        if not all(word in f"{row.list} {row.name}" for word in options.words):
            continue
        if row.list and row.list not in (r.list for r in records):
            print(row.list)
        try:
            r = clock.measure(row, here.copy_gb_s)
        except Exception as error:  # after an error in one row, the other rows are still measured
            print(f"{row.name}: {type(error).__name__}: {error}", flush=True)
            failures.append(row.name)
            continue
        records.append(r)
        share = f"{r.share:9.2f}" if r.floor_us else f"{'':>9}"
        rate = f"{r.tflop_s * 1e3:9.0f}" if r.flop else f"{'':>9}"
        times = f"{r.us:>10.2f}{r.floor_us:>10.2f}{share}{rate}{r.peer_us:>10.2f}{r.ratio:>11.2f}{r.spread:>8.0%}"
        print(f"{r.name:<100}{times}  {r.notes}", flush=True)
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    print(f"\n{here.model}, {here.versions}, {here.date}, `{command}`\n")
    print("\n".join(summary_lines(records, targets or {})))
    print(f"{len(records)} rows in {time.perf_counter() - start:.0f} s")
    if options.out and records:
        what = Path(sys.argv[0]).stem.removeprefix("bench_")
        write_report(options.out, what, command, here, records, targets or {}, failures, options.picture)
    if failures:
        sys.exit(f"{len(failures)} rows failed: {'; '.join(failures)}")
