# SPDX-License-Identifier: Apache-2.0
"""Draws a recorded graph: as text for Graphviz, and as an SVG picture with a layout of its own."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from . import _C


class Box(NamedTuple):
    """A call, an input, a constant or an output. `kind` is "call" or "value"; `lines` are the words in the box.

    `region` is the number of the region, from 1, if the call runs together with other calls; else it is 0.
    """

    kind: str
    lines: tuple[str, ...]
    region: int = 0


class Arrow(NamedTuple):
    """A value of `bytes` bytes, which box number `source` makes and box number `target` uses."""

    source: int
    target: int
    name: str
    bytes: int


class Picture(NamedTuple):
    """The boxes and arrows of a graph. Every arrow points to a box that is listed later."""

    boxes: list[Box]
    arrows: list[Arrow]


def picture(graph: _C.Graph, handle: _C.Handle | None = None) -> Picture:
    """The boxes and arrows of a graph: inputs and constants first, then calls in recorded order, then outputs."""
    regions = [nodes for nodes in graph.regions(handle) if len(nodes) > 1]
    region_of = {node: number for number, nodes in enumerate(regions, 1) for node in nodes}
    boxes = [Box("value", (name, f"{dtype} {_size(shape)}")) for name, _, shape, dtype, _ in graph.inputs]
    arrows: list[Arrow] = []
    # For each buffer, the box that wrote it last. Inputs that share memory have one buffer.
    writer = {buffer: i for i, (_, buffer, *_) in enumerate(graph.inputs)}
    written = {buffer for _, _, ports in graph.nodes for _, buffer, _, reads, writes in ports if writes and not reads}
    for _, _, ports in graph.nodes:
        for name, buffer, size, reads, _ in ports:
            if reads and buffer not in writer and buffer not in written:
                boxes.append(Box("value", (name, f"constant, {_C.bytes_text(size)}")))
                writer[buffer] = len(boxes) - 1
    for index, (family, text, ports) in enumerate(graph.nodes):
        # The first words of the problem name the function: "pointwise add f32 a=8x3 b=8x3".
        head = " ".join(w for w in text.split() if "=" not in w)
        operands = " ".join(w for w in text.split() if "=" in w)
        boxes.append(Box("call", (head or family, operands), region_of.get(index, 0)))
        for name, buffer, size, reads, _ in ports:
            if reads and buffer in writer:
                arrows.append(Arrow(writer[buffer], len(boxes) - 1, name, size))
        writer |= {buffer: len(boxes) - 1 for _, buffer, _, _, writes in ports if writes}
    for name, buffer, shape, dtype, size in graph.outputs:
        boxes.append(Box("value", (name, f"{dtype} {_size(shape)}")))
        if buffer in writer:
            arrows.append(Arrow(writer[buffer], len(boxes) - 1, name, size))
    return Picture(boxes, arrows)


def dot(p: Picture) -> str:
    """The picture in the language of Graphviz."""
    lines = ["digraph {", '  node [fontname="sans-serif", fontsize=10]; edge [fontname="sans-serif", fontsize=9];']
    for i, box in enumerate(p.boxes):
        label = "\\n".join(_quoted(line) for line in box.lines if line)
        lines.append(f'  n{i} [label="{label}", shape={"box" if box.kind == "call" else "ellipse"}];')
    for number in range(1, max((box.region for box in p.boxes), default=0) + 1):
        members = " ".join(f"n{i};" for i, box in enumerate(p.boxes) if box.region == number)
        lines.append(f'  subgraph cluster_{number} {{ label="region {number}"; fontname="sans-serif"; {members} }}')
    for a in p.arrows:
        lines.append(f'  n{a.source} -> n{a.target} [label="{_quoted(a.name)}, {_C.bytes_text(a.bytes)}"];')
    return "\n".join([*lines, "}"]) + "\n"


# The colours of calls: the first one for those that run alone, the others for regions in turn.
_COLOURS = ("#dbe9fb", "#fbe3c8", "#e6d9f5", "#f9d6dd", "#d6f0ea", "#f3efc4")

# Sizes of the SVG picture, in pixels. The widest usual font has 8 pixels for a character.
_CHARACTER, _LINE, _GAP_X, _GAP_Y, _MARGIN = 8, 15, 24, 44, 12


def _levels(p: Picture) -> list[int]:
    """For each box, the number of the row in which it is drawn: below all boxes whose values it uses."""
    level = [0] * len(p.boxes)
    for a in p.arrows:  # an arrow points to a later box, and arrows are in the order of their targets
        level[a.target] = max(level[a.target], level[a.source] + 1)
    first_use = [len(p.boxes)] * len(p.boxes)
    for a in p.arrows:
        first_use[a.source] = min(first_use[a.source], level[a.target])
    # An input that is used far below is drawn close to its first use.
    made = {a.target for a in p.arrows}
    return [n if i in made or first_use[i] == len(p.boxes) else first_use[i] - 1 for i, n in enumerate(level)]


def _centers(p: Picture, level: list[int], width: list[int]) -> list[float]:
    """For each box, the position of its center from left to right: close to the boxes whose values it uses."""
    center = [0.0] * len(p.boxes)
    uses: dict[int, list[int]] = defaultdict(list)
    for a in p.arrows:
        uses[a.target].append(a.source)

    def wanted(box: int) -> float:
        return sum(center[s] for s in uses[box]) / len(uses[box]) if uses[box] else 0.0

    for n in range(max(level, default=-1) + 1):
        row = sorted((i for i in range(len(level)) if level[i] == n), key=wanted)
        x = 0.0
        for i in row:
            center[i] = x + width[i] / 2
            x += width[i] + _GAP_X
        placed = [i for i in row if uses[i]]
        shift = sum(wanted(i) - center[i] for i in placed) / len(placed) if placed else 0.0
        for i in row:
            center[i] += shift
    return center


def svg(p: Picture) -> str:
    """The picture as SVG."""
    level = _levels(p)
    width = [_CHARACTER * max(len(line) for line in b.lines) + 16 for b in p.boxes]
    height = 2 * _LINE + 10
    center = _centers(p, level, width)
    left = min((c - w / 2 for c, w in zip(center, width, strict=True)), default=0.0) - _MARGIN
    right = max((c + w / 2 for c, w in zip(center, width, strict=True)), default=0.0) + _MARGIN
    bottom = (max(level, default=0) + 1) * (height + _GAP_Y) - _GAP_Y + 2 * _MARGIN

    def top(i: int) -> float:
        return _MARGIN + level[i] * (height + _GAP_Y)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} 0 {right - left:.0f} {bottom:.0f}" '
        f'width="{right - left:.0f}" font-family="sans-serif" font-size="12" text-anchor="middle">'
    ]
    for a in p.arrows:
        x1, y1, x2, y2 = center[a.source], top(a.source) + height, center[a.target], top(a.target)
        middle = (y1 + y2) / 2
        parts.append(
            f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}" fill="none" '
            f'stroke="#888"><title>{_escaped(a.name)}, {_C.bytes_text(a.bytes)}</title></path>'
        )
    for i, box in enumerate(p.boxes):
        x, y = center[i], top(i)
        colour = _COLOURS[(box.region - 1) % (len(_COLOURS) - 1) + 1 if box.region else 0]
        fill, corner = (colour, 4) if box.kind == "call" else ("#eef3e6", height / 2)
        title = f"<title>region {box.region}</title>" if box.region else ""
        parts.append(
            f'<rect x="{x - width[i] / 2:.0f}" y="{y:.0f}" width="{width[i]}" height="{height}" rx="{corner:.0f}" '
            f'fill="{fill}" stroke="#666">{title}</rect>'
        )
        for k, line in enumerate(box.lines):
            parts.append(f'<text x="{x:.0f}" y="{y + _LINE * (k + 1):.0f}">{_escaped(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape) or "scalar"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
