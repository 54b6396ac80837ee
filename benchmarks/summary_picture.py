# SPDX-License-Identifier: Apache-2.0
"""Draws docs/speed.svg, the picture of the README, from the tables of benchmarks/results.

    python benchmarks/summary_picture.py [h100_80gb_hbm3]

A line per list: the range and the geometric mean of the peer's times over ours.
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "speed", "font.size": 9})
from matplotlib import pyplot, ticker  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = ("conv", "matmul", "pooling", "batch_norm", "layer_norm", "lrn", "softmax", "loss", "reduce", "pointwise",
            "activation", "transform", "random")  # fmt: skip


def ratios(table: Path) -> dict[str, list[float]]:
    """The peer's times over ours of each list, without rows whose turns never agreed."""
    lists: dict[str, list[float]] = {}
    for section in table.read_text().split("\n## ")[1:]:
        name, _, rows = section.partition("\n")
        cells = [line.split(" | ") for line in rows.splitlines() if re.match(r"\| \w+ \w+ ", line)]
        settled = [float(row[6]) for row in cells if "unsettled" not in row[-1]]
        if settled:
            lists[name] = settled
    return lists


def main(device: str = "h100_80gb_hbm3") -> None:
    tables = [ROOT / f"benchmarks/results/{family}_{device}.md" for family in FAMILIES]
    title, date = re.match(r"# \w+ on (.*)\n\n(\S+),", tables[0].read_text()).groups()  # type: ignore[union-attr]
    lines = [
        (name if family.replace("_", " ") in name else f"{family} {name}", values)
        for family, table in zip(FAMILIES, tables, strict=True)
        for name, values in ratios(table).items()
    ]
    figure, axis = pyplot.subplots(figsize=(8.5, 0.21 * len(lines) + 0.9), layout="constrained")
    for at, (_, values) in enumerate(lines):
        mean = statistics.geometric_mean(values)
        axis.plot([min(values), max(values)], [at, at], color="#9ecae1", lw=4, solid_capstyle="butt")
        axis.plot(mean, at, "o", color="#08519c", ms=5)
        axis.annotate(f"{mean:.2f}", (mean, at), (5, -3), textcoords="offset points", fontsize=7)
    axis.axvline(1, color="#555555", lw=0.8)
    axis.set_yticks(range(len(lines)), [f"{name} ({len(values)})" for name, values in lines])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(ticker.FixedLocator([0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32]))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_locator(ticker.NullLocator())
    axis.set_xlabel(
        "torch's time / ours (above 1, ours is faster). Line: all rows of a list. Dot: their geometric mean"
    )
    axis.set_title(f"{title}, {date}", fontsize=9, loc="left")
    figure.savefig(ROOT / "docs/speed.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
