# SPDX-License-Identifier: Apache-2.0
"""The files that a benchmark writes: WHAT_GPU.md with a table for each list and, on request, WHAT_GPU.png with bars for
each list and a roofline."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Machine:
    model: str
    date: str
    versions: str
    method: str  # a sentence: how times were measured
    copy_gb_s: float
    # For each dtype with a measured peak, that peak in GFLOP/s.
    peaks_gflop_s: dict[str, float]


@dataclass
class Target:
    """Targets for the ratio of the peer's time to ours, and for the fraction of the floor that each row reaches."""

    mean: float | None = None  # geometric mean of (peer's time / our time)
    worst: float | None = None
    share: float | None = None


@dataclass
class Record:
    list: str
    name: str
    label: str
    dtype: str
    bytes: float
    flop: float
    us: float
    peer_us: float
    floor_us: float
    engine: str
    way: str = ""  # name of the fastest variant of the peer; empty if the peer has one variant
    spread: float = 0  # relative difference between the slowest and the fastest turn
    unsettled: bool = False  # the turns disagreed in every attempt; means leave such a row out

    @property
    def notes(self) -> str:
        """The engine and the peer's variant, and whether the times settled."""
        return self.engine + (f"; torch: {self.way}" if self.way else "") + ("; unsettled" if self.unsettled else "")

    @property
    def ratio(self) -> float:
        return self.peer_us / self.us

    @property
    def share(self) -> float:
        return self.floor_us / self.us

    @property
    def tflop_s(self) -> float:
        return self.flop / self.us / 1e6

    @property
    def direction(self) -> str:
        """The second word of the case line."""
        return [*self.name.split(), "", ""][1]


@dataclass
class Summary:
    list: str
    records: list[Record]
    target: Target | None

    @property
    def mean(self) -> float:
        return mean_ratio(self.records)

    @property
    def worst(self) -> Record:
        return min(self.records, key=lambda r: r.ratio)

    @property
    def least(self) -> Record | None:
        """The row with the smallest fraction of its floor; None if no row has a floor."""
        return min((r for r in self.records if r.floor_us), key=lambda r: r.share, default=None)

    def directions(self) -> str:
        """The mean of each direction, if there are several."""
        each = by(self.records, lambda r: r.direction)
        return ", ".join(f"{name} {mean_ratio(some):.2f}" for name, some in each) if len(each) > 1 else ""

    def missed(self) -> list[str]:
        """The targets that were missed, with the values."""
        t = self.target or Target()
        values = [("mean", self.mean, t.mean), ("worst", self.worst.ratio, t.worst)]
        values += [("least of floor", self.least.share, t.share)] if self.least else []
        return [f"{self.list}: {what} {value:.2f}, target {wanted:g}" for what, value, wanted in values
                if wanted is not None and value < wanted]  # fmt: skip

    def line(self) -> str:
        least = f"{self.least.share:.2f} | {self.least.name}" if self.least else " | "
        return (
            f"| {self.list or 'rows'} | {len(self.records)} | {self.mean:.2f} | {self.directions()} "
            f"| {self.worst.ratio:.2f} | {self.worst.name} | {least} |"
        )


def summary_lines(records: list[Record], targets: dict[str, Target]) -> list[str]:
    """Markdown: a table of lists; then the names of rows that missed a target, were slower than the peer, or did not
    settle."""
    lists = summaries(records, targets)
    slower = sorted((r for s in lists for r in s.records if r.ratio < 1), key=lambda r: r.ratio)
    return [
        "| list | rows | geometric mean of torch/ours | by direction | worst | at | least of floor | at |",
        "|---|---|---|---|---|---|---|---|",
        *(s.line() for s in lists),
        "",
        f"Targets missed: {'; '.join(text for s in lists for text in s.missed()) or 'none'}.",
        "",
        f"Slower than torch: {'; '.join(f'{r.name} {r.ratio:.2f}' for r in slower) or 'none'}.",
        "",
        f"Turns never agreed, not counted above: {'; '.join(r.name for r in records if r.unsettled) or 'none'}.",
    ]


def mean_ratio(records: list[Record]) -> float:
    return statistics.geometric_mean(r.ratio for r in records)


def by(records: Iterable[Record], key: Callable[[Record], str]) -> list[tuple[str, list[Record]]]:
    """Groups, in the order of their first records."""
    groups: dict[str, list[Record]] = {}
    for r in records:
        groups.setdefault(key(r), []).append(r)
    return list(groups.items())


def summaries(records: list[Record], targets: dict[str, Target]) -> list[Summary]:
    counted = [r for r in records if not r.unsettled]
    return [Summary(name, some, targets.get(name)) for name, some in by(counted, lambda r: r.list)]


def write_report(
    folder: Path,
    what: str,
    command: str,
    machine: Machine,
    records: list[Record],
    targets: dict[str, Target],
    failures: list[str],
    picture: bool,
) -> None:
    """`failures` are names of rows without a record."""
    gpu = re.sub(r"[^a-z0-9]+", "_", machine.model.lower().removeprefix("nvidia ")).strip("_")
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{what}_{gpu}"
    lists = by(records, lambda r: r.list)
    picture = picture and any(name for name, _ in lists)
    peaks = "".join(f", {dtype} {rate / 1e3:.1f} TFLOP/s" for dtype, rate in machine.peaks_gflop_s.items())
    lines = [
        f"# {what} on {machine.model}",
        "",
        f"{machine.date}, {machine.versions}. Measured ceilings: copy {machine.copy_gb_s:.0f} GB/s{peaks}.",
        "",
        f"    {command}",
        "",
        f"Medians; {machine.method}. Spread: the slowest turn's time over the fastest's, less one.",
        "The floor is bytes over the copy rate or FLOP over the ceiling, whichever takes longer.",
        "",
        *([f"![times and roofline]({stem}.png)", ""] if picture else []),
        *summary_lines(records, targets),
        *(["", f"Failed, in no table: {'; '.join(failures)}."] if failures else []),
    ]
    for name, some in lists:
        lines += [
            "",
            f"## {name or 'rows'}",
            "",
            "| case | us | floor us | of floor | GFLOP/s | torch us | torch/ours | spread | engine |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for r in some:
            share = f"{r.share:.2f}" if r.floor_us else ""
            rate = f"{r.tflop_s * 1e3:.0f}" if r.flop else ""
            times = f"{r.us:.2f} | {r.floor_us:.2f} | {share} | {rate} | {r.peer_us:.2f} | {r.ratio:.2f}"
            lines.append(f"| {r.name} | {times} | {r.spread:.0%} | {r.notes} |")
    (folder / f"{stem}.md").write_text("\n".join(lines) + "\n")
    if picture:
        draw(folder / f"{stem}.png", f"{what} on {machine.model}, {machine.date}", machine, lists)


COLOURS = {"ours": "#1f77b4", "torch": "#ff9f40", "floor": "#555555"}


def draw(path: Path, title: str, machine: Machine, lists: list[tuple[str, list[Record]]]) -> None:
    """Bars for each list; directions that fit one axis share it. Below, a roofline of all rows with FLOP, under the
    measured ceilings."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    lists = [(name, some) for name, some in lists if name]
    groups: list[tuple[str, list[Record]]] = []
    for list_name, records in lists:
        parts: list[tuple[list[str], list[Record]]] = []
        for name, some in by(records, lambda r: r.direction):
            if parts and len(parts[-1][1]) + len(some) <= 24:
                parts[-1][0].append(name)
                parts[-1][1].extend(some)
            else:
                parts.append(([name], list(some)))
        groups += [(", ".join([list_name, *names] if len(parts) > 1 else [list_name]), some) for names, some in parts]
    multiplied = [r for _, records in lists for r in records if r.flop]
    # The slanted labels of the bars need a height of 0.04 inches per letter.
    heights = [1.7 + 0.04 * max(len(r.label) for r in records) for _, records in groups] + [5.0] * bool(multiplied)
    figure, axes = pyplot.subplots(
        len(heights), 1, figsize=(13, sum(heights) + 1), height_ratios=heights, layout="constrained", squeeze=False
    )
    figure.suptitle(title)
    for axis, (name, records) in zip(axes[:, 0], groups, strict=False):
        bars(axis, name, records)
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_locator(ticker.NullLocator())
    if multiplied:
        roofline(axes[-1, 0], machine, multiplied)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def bars(axis: Any, name: str, records: list[Record]) -> None:
    several = len({r.direction for r in records}) > 1
    labels = [f"{r.label} {r.direction.removeprefix('backward_') if several else ''}".strip() for r in records]
    at = range(len(records))
    axis.bar([i - 0.2 for i in at], [r.us for r in records], 0.4, label="ours", color=COLOURS["ours"])
    axis.bar([i + 0.2 for i in at], [r.peer_us for r in records], 0.4, label="torch", color=COLOURS["torch"])
    floors = [r.floor_us for r in records]
    axis.hlines(floors, [i - 0.4 for i in at], [i + 0.4 for i in at], label="floor", color=COLOURS["floor"], lw=2)
    axis.set_yscale("log")
    axis.set_ylabel("us")
    axis.set_ylim(min(r.floor_us for r in records) / 2)
    axis.set_xticks(at, labels, rotation=40, ha="right", fontsize=7)
    axis.set_xlim(-0.6, max(len(records), 8) - 0.4)
    settled = [r for r in records if not r.unsettled]
    axis.set_title(f"{name}: torch/ours {mean_ratio(settled):.2f}" if settled else name, loc="left", fontsize=9)
    axis.legend(fontsize=7, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.1, frameon=False)


def roofline(axis: Any, machine: Machine, records: list[Record]) -> None:
    intensities = [r.flop / r.bytes for r in records]
    low, high = min(intensities) / 1.5, max(intensities) * 1.5
    dtypes = [name for name, _ in by(records, lambda r: r.dtype)]
    for i, dtype in enumerate(dtypes):
        some = [r for r in records if r.dtype == dtype]
        peak = machine.peaks_gflop_s[dtype] / 1e3
        ridge = min(max(peak * 1e3 / machine.copy_gb_s, low), high)
        roof = [min(x * machine.copy_gb_s / 1e3, peak) for x in (low, ridge, high)]
        axis.plot([low, ridge, high], roof, color=f"C{i}", lw=1)
        x = [r.flop / r.bytes for r in some]
        axis.scatter(x, [r.tflop_s for r in some], 14, color=f"C{i}", label=f"{dtype}, peak {peak:.3g} TFLOP/s")
        rates = [r.flop / r.peer_us / 1e6 for r in some]
        axis.scatter(x, rates, 14, facecolors="none", edgecolors=f"C{i}", lw=0.7)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("FLOP/byte")
    axis.set_ylabel("TFLOP/s")
    axis.set_title(f"filled: ours, hollow: torch; copy {machine.copy_gb_s:.0f} GB/s", loc="left", fontsize=9)
    axis.legend(fontsize=7, loc="lower right")
