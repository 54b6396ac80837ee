# SPDX-License-Identifier: Apache-2.0
"""The plans of a pygraph: one for each engine that can compute its most expensive product.

Attention counts as a product. Plan 0 leaves the choice to pyminidnn. The other nodes of a graph have the engine that
pyminidnn chooses, in every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import tuning
from .nodes import Node

# The family of pyminidnn that computes a node of this kind.
_PRODUCTS = {
    **dict.fromkeys(["conv_fprop", "conv_dgrad", "conv_wgrad"], "conv"),
    **dict.fromkeys(["sdpa", "sdpa_backward"], "attention"),
    "matmul": "matmul",
}


class Plan(NamedTuple):
    """A plan: its name, and the engine of one node, if the plan fixes it."""

    name: str
    node: Node | None = None
    engine: str | None = None


def default_plan(nodes: Sequence[Node]) -> Plan:
    """The plan in which pyminidnn chooses all engines, with the kinds of the nodes as its name."""
    return Plan("pyminidnn." + "_".join(node.kind for node in nodes))


def proposed(nodes: Sequence[Node], run: Callable[[], Any]) -> list[Plan]:
    """The plans of a graph, the fastest expected first.

    run  runs the recorded graph. It is called in a way that chooses engines, and computes nothing
    """
    reports = tuning.explain(run)
    products = [node for node in nodes if node.kind in _PRODUCTS]
    of_products = [r for r in reports if r.problem.split()[0] in _PRODUCTS.values()]
    families = [r.problem.split()[0] for r in of_products]
    if not products or families != [_PRODUCTS[node.kind] for node in products]:
        return [default_plan(nodes)]
    costs = [next((e.estimate_us for e in r.engines if e.name == r.chosen), 0.0) for r in of_products]
    i = costs.index(max(costs))
    usable = [e for e in of_products[i].engines if not e.why_not]
    usable.sort(key=lambda e: (e.name != of_products[i].chosen, e.estimate_us))
    first, *others = usable
    return [Plan(first.name), *(Plan(e.name, products[i], e.name) for e in others)]
