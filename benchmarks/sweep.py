# SPDX-License-Identifier: Apache-2.0
"""Times every config of every engine that supports a benchmark's rows. Estimates are fitted to these times.

    python benchmarks/sweep.py conv resnet bf16 --out FILE [--engines wgmma window] [--compile 16] [--configs 16]

Words select rows of bench_NAME.py, as in the benchmark itself. --compile N first runs everything once in N processes,
which fill the disk cache of kernels. A line of the file holds the row, its list, the peer's time and, for each engine,
[config, estimate, time] in the engine's order.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from runner import Clock, Row, use_own_cache

import pyminidnn as dnn

CALLS = ("conv_forward", "conv_backward_data", "conv_backward_filter", "matmul")
PLAIN = {name: getattr(dnn, name) for name in CALLS}


def force(algo: str | None) -> None:
    """Makes the calls of rows use `algo`; None: the engine that is chosen."""
    for name, call in PLAIN.items():
        setattr(dnn, name, partial(by_algo, call, algo) if algo else call)


def by_algo(call: Callable[..., object], algo: str, /, *args: object, **kwargs: object) -> object:
    return call(*args, **{**kwargs, "algo": algo})


def median_us(clock: Clock, run: object, samples: int = 7) -> float:
    run()
    return statistics.median(clock.sample_us(run) for _ in range(samples))


def sweep(clock: Clock, row: Row, engines: list[str], configs: int, timed: bool) -> dict[str, object]:
    force(None)
    clock.allow_tf32(row.dtype == "tf32")
    record: dict[str, object] = {"list": row.list, "row": row.name, "peer": None, "engines": {}}
    (report,) = dnn.explain(row.ours)
    if timed:
        record["peer"], peer = min(((median_us(clock, way), way) for way in row.ways.values()), key=lambda way: way[0])
    for engine in report.engines:
        if engine.why_not or (engines and engine.name.rpartition(".")[2] not in engines):
            continue
        times = record["engines"][engine.name] = []
        for config in engine.configs[:configs] or [""]:
            force(f"{engine.name}:{config}" if config else engine.name)
            try:
                if timed:
                    clock.compare(row, peer)
                    times.append([config, engine.estimate_us, median_us(clock, row.ours)])
                else:
                    row.ours()
            except Exception as error:
                times.append([config, str(error)[:300], None])
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", default=[])
    parser.add_argument("--compile", type=int, default=0)
    parser.add_argument("--configs", type=int, default=16)
    parser.add_argument("--share", type=int, nargs=2)
    options = parser.parse_args()
    if options.compile:
        again = [sys.executable, *sys.argv, "--compile", "0", "--share"]
        shares = [subprocess.Popen([*again, str(i), str(options.compile)]) for i in range(options.compile)]
        for share in shares:
            share.wait()
    use_own_cache()
    clock = Clock("cuda:0", 0.05)
    rows = [
        row
        for row in importlib.import_module(f"bench_{options.bench}").rows("cuda:0")
        if all(word in f"{row.list} {row.name}" for word in options.words) and not row.host
    ]
    if options.share:
        first, step = options.share
        for row in rows[first::step]:
            sweep(clock, row, options.engines, options.configs, timed=False)
        return
    with options.out.open("a") as out:
        for row in rows:
            out.write(json.dumps(sweep(clock, row, options.engines, options.configs, timed=True)) + "\n")


if __name__ == "__main__":
    main()
