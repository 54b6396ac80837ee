# SPDX-License-Identifier: Apache-2.0
"""Random problems of every family (draw.py) against torch, and the choice of the engine against the best one.

    python benchmarks/bench_drawn.py --seed 5 --cases 20 [--device cpu] [--out FOLDER] [families]
    python benchmarks/bench_drawn.py --line "conv forward f32 x=8x64x28x28:nhwc w=64x64x3x3 pad=1"

Two figures of each problem:

- torch/ours: the time of torch's best call over ours, as in the other benchmarks. Torch has its images in NCHW or NHWC,
  whichever is faster, and its call is torch's operation alone (torch_calls.py).
- The regret: the time of the engine that the estimates choose over that of the best engine. find() measures all of
  them, in a tuning folder that is deleted afterwards. If another one is faster by more than 5 %, both are timed in
  alternating turns.

Tables by family and direction, by dtype and by layout have the geometric mean, the 5th percentile and the worst of
torch/ours, and the mean, the 95th percentile and the worst of the regret. A ratio whose turns differ by more than a
half is in no mean. A problem depends only on the kind of device, the seed, the family and its number. Tune engines on
some seeds, and report figures of others.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from draw import FAMILIES, NETWORKS, draw, rng_of
from problems import Problem, Refused, flat
from report import Machine, by
from runner import DISAGREEMENT, Clock, Row, Timing, as_list, call_on, link_kernels, machine, use_own_cache

import pyminidnn as dnn

MANY_FUNCTIONS = ("pointwise", "reduce")  # families that are not divided by direction
CLOSE = 1.05  # engines whose times differ by less are equally good
# The relative difference of Euclidean norms that is allowed instead of the computed one, where the state of a step
# passes its errors on (rnn), and where torch adds in less precision than ours (ctc, gradients of gather in 16 bits).
LOOSE = 0.05
# A ratio is the quotient of two medians of turns. If the slowest turn takes more than 1.5 times as long as the fastest,
# another program has disturbed them.
UNSETTLED = 0.5
SHOWN = 10  # problems in a list of the worst


@dataclass
class Drawn:
    """A problem and its times. `peer_us` and `regret` are 0 if they were not measured; `note` says why."""

    line: str
    us: float
    peer_us: float
    way: str
    engine: str
    regret: float
    best: str
    note: str = ""
    spread: float = 0  # slowest turn / fastest turn - 1 (Timing in runner.py)

    @property
    def unsettled(self) -> bool:
        return self.spread > UNSETTLED

    @property
    def ratio(self) -> float:
        return self.peer_us / self.us if self.peer_us else 0

    @property
    def family(self) -> str:
        return self.line.split(" ")[0]

    @property
    def direction(self) -> str:
        return self.family if self.family in MANY_FUNCTIONS else " ".join(self.line.split(" ")[:2])

    @property
    def dtype(self) -> str:
        return self.line.split(" ")[2]

    @property
    def layout(self) -> str:
        if re.search(r"=[0-9x]+:s\d", self.line):
            return "strides"
        return "channels last" if re.search(r":n[dhw]*c\b", self.line) else "contiguous"


CATEGORIES: dict[str, Callable[[Drawn], str]] = {
    "family and direction": lambda d: d.direction,
    "dtype": lambda d: d.dtype,
    "layout": lambda d: d.layout,
}


@contextmanager
def private_tuning(costs: Path | None) -> Iterator[None]:
    """A cache folder that has the kernels of other benchmarks and a copy of `costs`, and is deleted in the end. New
    kernels are kept."""
    use_own_cache()
    shared = Path(os.environ.get("PYMINIDNN_CACHE_DIR", os.devnull))
    with tempfile.TemporaryDirectory(prefix="drawn-", dir=shared if shared.is_dir() else None) as folder:
        link_kernels(shared, Path(folder))
        if costs:
            shutil.copy(costs, Path(folder) / "costs.txt")
        os.environ["PYMINIDNN_CACHE_DIR"] = folder
        yield
        if shared.is_dir():
            link_kernels(Path(folder), shared)


def measure(clock: Clock, line: str) -> Drawn:
    """Times our call and torch's, then all engines. Raises ArithmeticError if the results differ."""
    problem = Problem(line, clock.device)
    ours, family = problem.ours, problem.case.family
    report = report_of(dnn.explain(ours), family)
    chosen = next(f"{e.name}:{e.config}".rstrip(":") for e in report.engines if e.name == report.chosen)
    timing, way, note = against_torch(clock, problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that the results are not kept
        found = report_of(dnn.find(ours), family)
    times = {f"{e.name}:{config}".rstrip(":"): t for e in found.engines for config, t in e.measurements}
    best = min(times, key=lambda name: times[name])
    regret = times[chosen] / times[best]
    if regret > CLOSE:
        pair = clock.pair_us(partial(ours, algo=chosen), partial(ours, algo=best))
        regret = max(1.0, pair.us / pair.peer_us)
    timing = timing or Timing(times[chosen], 0, 0)
    note += f"; turns differ by {timing.spread:.0%}" if timing.spread > DISAGREEMENT else ""
    return Drawn(line, timing.us, timing.peer_us, way, short(chosen), regret, short(best), note.lstrip("; "),
                 timing.spread)  # fmt: skip


def report_of(reports: list[Any], family: str) -> Any:
    """That of the problem itself. A call may have others, of conversions of its operands."""
    return next(r for r in reports if r.family == family)


def short(engine: str) -> str:
    return engine.split(".", 2)[2]


def against_torch(clock: Clock, problem: Problem) -> tuple[Timing | None, str, str]:
    """The times of our call and of torch's fastest, which of its orders that is, and why there is none."""
    row, note = row_of(clock, problem)
    if row is None:
        return None, "", note
    with ExitStack() as threads:
        way, peer, thread = clock.fastest(row, threads)
        return call_on(thread, clock.pair_us, problem.ours, peer), way, ""


def row_of(clock: Clock, problem: Problem) -> tuple[Row | None, str]:
    """Our call and torch's, whose results were compared, or None and the reason. Orders whose results are wrong do not
    count, unless all differ from ours."""
    try:
        ways = problem.theirs()
    except Refused as error:
        return None, f"torch: {error}"
    if not ways:
        return None, "not in torch"
    case = problem.case
    free = case.family == "random" or "dropout" in case.words or case.direction in ("argmax", "argmin")
    seen = nothing if free else list  # random numbers differ, and so does the choice among equal extrema
    if case.family == "layer_norm" and problem.device == "cpu" and problem.dtype.itemsize == 2:
        seen = first  # torch sums the gradients of parameters in the dtype

    def ours() -> list[Any]:  # rnn_forward returns None in place of results that it does not have
        return [r for r in flat(as_list(problem.ours())) if r is not None]

    row = Row(case.text, ours, ways, terms=problem.terms, tolerance=tolerance_of(problem),
              dtype=dtype_of(problem), searched=case.family == "conv", seen=(seen, list))  # fmt: skip
    clock.allow_tf32(row.dtype == "tf32")
    right: dict[str, Callable[[], Any]] = {}
    errors = []
    for order, call in ways.items():
        try:
            clock.compare(row, call)
            right[order] = call
        except ArithmeticError as error:
            errors.append(error)
    if not right:
        raise errors[0]
    return replace(row, peer=right), ""


def tolerance_of(problem: Problem) -> float | None:
    case = problem.case
    sums_of_16_bits = case.family == "gather" and case.direction == "backward" and problem.dtype.itemsize == 2
    return LOOSE if case.family in ("rnn", "ctc") or sums_of_16_bits else None


def nothing(results: list[Any]) -> list[Any]:
    return []


def first(results: list[Any]) -> list[Any]:
    return results[:1]


def dtype_of(problem: Problem) -> str:
    """That of products: "tf32" if float32 may be rounded to TF32."""
    rounded = problem.case.dtype == "float32" and problem.case.family in ("conv", "matmul", "attention", "rnn")
    if problem.case.dtype not in ("float32", "float64", "float16", "bfloat16"):
        return "float32"  # of integers, whose results are equal
    return (
        "tf32" if rounded and "math" not in problem.case.attributes and problem.device != "cpu" else problem.case.dtype
    )


# ---- Tables


def summary_lines(drawn: list[Drawn]) -> list[str]:
    lines: list[str] = []
    for title, key in {"": lambda d: "all", **CATEGORIES}.items():
        lines += [
            f"| {title} | problems | torch/ours | 5 % | worst | at | regret | 95 % | worst | at |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for name, some in sorted(by(drawn, key)):
            lines.append(f"| {name} | {len(some)} | {ratios_text(some)} | {regrets_text(some)} |")
        lines.append("")
    for title, worst in (("Slowest against torch", slowest(drawn)), ("Largest regrets", regretted(drawn))):
        lines += [
            f"{title}:",
            "",
            *(f"- {d.ratio:.2f}, regret {d.regret:.2f} `{d.line}` {d.engine}" for d in worst),
            "",
        ]
    return lines


def ratios_text(some: list[Drawn]) -> str:
    compared = [d for d in some if d.ratio and not d.unsettled]
    if not compared:
        return " | | |"
    ratios, worst = [d.ratio for d in compared], min(compared, key=lambda d: d.ratio)
    mean = statistics.geometric_mean(ratios)
    return f"{mean:.2f} | {np.percentile(ratios, 5):.2f} | {worst.ratio:.2f} | `{worst.line}`"


def regrets_text(some: list[Drawn]) -> str:
    regrets, worst = [d.regret for d in some], max(some, key=lambda d: d.regret)
    mean = statistics.geometric_mean(regrets)
    return f"{mean:.3f} | {np.percentile(regrets, 95):.2f} | {worst.regret:.2f} | `{worst.line}` ({worst.best})"


def slowest(drawn: list[Drawn]) -> list[Drawn]:
    return sorted((d for d in drawn if d.ratio and not d.unsettled), key=lambda d: d.ratio)[:SHOWN]


def regretted(drawn: list[Drawn]) -> list[Drawn]:
    return sorted((d for d in drawn if d.regret > CLOSE), key=lambda d: -d.regret)[:SHOWN]


def cells(d: Drawn) -> list[str]:
    """The columns of a problem."""
    peer = [f"{d.peer_us:.1f}", f"{d.ratio:.2f}"] if d.peer_us else ["", ""]
    better = d.best if d.regret > CLOSE else ""
    return [f"{d.us:.1f}", *peer, d.way, f"{d.regret:.2f}", d.engine, better, d.note]


def write_report(folder: Path, stem: str, command: str, here: Machine, drawn: list[Drawn], failures: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# Drawn problems on {here.model}",
        "",
        f"{here.date}, {here.versions}. {here.method}.",
        "",
        f"    {command}",
        "",
        *(
            [f"![torch/ours and regret of each problem]({stem}.png)", ""]
            if picture(folder / f"{stem}.png", here, drawn)
            else []
        ),
        *summary_lines(drawn),
        *([f"Failed, in no table: {'; '.join(failures)}.", ""] if failures else []),
        "| problem | us | torch us | torch/ours | torch's order | regret | engine | best | |",
        "|---|---|---|---|---|---|---|---|---|",
        *(f"| {d.line} | {' | '.join(cells(d))} |" for d in drawn),
    ]
    (folder / f"{stem}.md").write_text("\n".join(lines) + "\n")


def picture(path: Path, here: Machine, drawn: list[Drawn]) -> bool:
    """A dot per problem, a line per family: torch/ours, and the regret. The worst ones are named. False without
    matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    families = [name for name, _ in by(drawn, lambda d: d.family)]
    size = (9, 0.24 * len(families) + 1.6)
    figure, axes = pyplot.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    sides = (
        ("torch's time / ours", lambda d: d.ratio, min),
        ("time of the chosen engine / best", lambda d: d.regret, max),
    )
    for axis, (label, value, worst) in zip(axes, sides, strict=True):
        some = [d for d in drawn if value(d)]
        axis.axvline(1, color="#555555", lw=0.8)
        axis.scatter([value(d) for d in some], [families.index(d.family) for d in some], 9, alpha=0.5, lw=0)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.set_xlabel(label, fontsize=8)
        axis.tick_params(labelsize=7)
        if some:
            d = worst(some, key=value)
            axis.set_title(f"worst {value(d):.2f}: {d.line}"[:72], fontsize=6, loc="left")
            axis.plot(value(d), families.index(d.family), "o", ms=7, mfc="none", color="#d62728")
    axes[0].set_yticks(range(len(families)), families)
    axes[0].set_ylim(len(families) - 0.5, -0.5)
    figure.suptitle(f"{len(drawn)} drawn problems, {here.model}, {here.date}", fontsize=9)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    return True


# ---- The command


def lines_of(options: argparse.Namespace) -> list[str]:
    if options.line:
        return options.line
    limits, lines = NETWORKS["cpu" if options.device == "cpu" else "cuda"], []
    for family in options.families or FAMILIES:
        rng = rng_of(family, options.seed)
        lines += [draw(family, rng, limits) for _ in range(options.cases)]
    return list(dict.fromkeys(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if dnn._C.cuda_device_count() else "cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the problems; default: 0")
    parser.add_argument("--cases", type=int, default=20, help="problems of each family; default: 20")
    parser.add_argument(
        "--line", action="append", help="this problem instead of drawn ones; may be given several times"
    )
    parser.add_argument("--seconds", type=float, default=0.15, help="of samples for a problem")
    parser.add_argument("--out", type=Path, help="a folder for the table and the picture")
    parser.add_argument("--costs", type=Path, help="a file of `pyminidnn calibrate`; default: no cost factors")
    parser.add_argument("families", nargs="*", help="only these families")
    options = parser.parse_args()
    if unknown := set(options.families) - set(FAMILIES):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(FAMILIES)}")
    with private_tuning(options.costs):
        run(options)


def run(options: argparse.Namespace) -> None:
    start = time.perf_counter()
    clock = Clock(options.device, options.seconds)
    here = machine(clock)
    drawn: list[Drawn] = []
    failures: list[str] = []
    print("| problem | us | torch us | torch/ours | torch's order | regret | engine | best | |")
    for line in lines_of(options):
        try:
            d = measure(clock, line)
        except Exception as error:  # after an error in one problem, the others are still measured
            print(f"| {line} | {type(error).__name__}: {error} |", flush=True)
            failures.append(line)
            continue
        drawn.append(d)
        print(f"| {line} | {' | '.join(cells(d))} |", flush=True)
    command = shlex.join(["python", "benchmarks/bench_drawn.py", *sys.argv[1:]])
    print(f"\n{here.model}, {here.versions}, {here.date}, `{command}`\n")
    print("\n".join(summary_lines(drawn)))
    print(f"{len(drawn)} problems in {time.perf_counter() - start:.0f} s")
    if options.out and drawn:
        model = re.sub(r"[^a-z0-9]+", "_", here.model.lower().removeprefix("nvidia ")).strip("_")
        name = "lines" if options.line else f"seed{options.seed}"
        write_report(options.out, f"drawn_{model}_{name}", command, here, drawn, failures)
    if failures:
        sys.exit(f"{len(failures)} problems failed: {'; '.join(failures)}")


if __name__ == "__main__":
    main()
