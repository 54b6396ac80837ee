# SPDX-License-Identifier: Apache-2.0
"""How the reports of explain() and find() are shown: as tables, in text and in notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from . import _C
from ._C import EngineReport, Report

_TITLES = ("engine", "estimated us", "measured us", "workspace", "config, or why not")


class Reports(list[Report]):
    """A list of Reports, which prints as one table for each problem."""

    def __repr__(self) -> str:
        return "\n\n".join(map(text_of, self)) or "no problems"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return "\n".join(map(html_of, self)) or "no problems"


def text_of(report: Report) -> str:
    """The report as a table. The chosen engine has a star."""
    rows = [_TITLES, *map(_cells, report.engines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_TITLES) - 1)]
    lines = [f"{report.problem} on {report.device}"]
    for i, row in enumerate(rows):
        star = "*" if i and report.engines[i - 1].name == report.chosen else " "
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=False))
        lines.append(f"{star} {row[0].ljust(widths[0])}  {numbers}  {row[-1]}".rstrip())
    return "\n".join(lines)


def html_of(report: Report) -> str:
    """The report as a table of HTML. The chosen engine is bold."""
    import html  # imported at first use, because the import takes milliseconds

    def row(cells: Sequence[str], tag: str, bold: bool = False) -> str:
        texts = [f"<b>{html.escape(c)}</b>" if bold else html.escape(c) for c in cells]
        return "<tr>" + "".join(f'<{tag} style="text-align: left">{t}</{tag}>' for t in texts) + "</tr>"

    body = "".join(row(_cells(e), "td", e.name == report.chosen) for e in report.engines)
    caption = html.escape(f"{report.problem} on {report.device}")
    return f"<table><caption>{caption}</caption>{row(_TITLES, 'th')}{body}</table>"


def _cells(e: EngineReport) -> tuple[str, ...]:
    if e.why_not:
        return (e.name, "", "", "", e.why_not)
    return (
        e.name,
        _number(e.estimate_us),
        _number(e.measured_us),
        _C.bytes_text(e.workspace_bytes) if e.workspace_bytes else "",
        e.config,
    )


def _number(microseconds: float) -> str:
    return f"{microseconds:.4g}" if microseconds else ""


def _shown(self: Report) -> str:
    return text_of(self)


def _shown_in_a_notebook(self: Report) -> str:
    return html_of(self)


for _name, _method in {"__repr__": _shown, "__str__": _shown, "_repr_html_": _shown_in_a_notebook}.items():
    setattr(Report, _name, _method)
