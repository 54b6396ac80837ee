# SPDX-License-Identifier: Apache-2.0
"""A pygraph as JSON: its types, its tensors in the order of their creation, and its nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .enums import data_type, tensor_reordering
from .nodes import Node
from .tensors import Tensor

if TYPE_CHECKING:
    from .graph import pygraph

_FORMAT = "pyminidnn.cudnn_compat 1"


def to_json(g: pygraph) -> str:
    """The graph as text."""
    # Nodes may read tensors that another graph made.
    index = {t: i for i, t in enumerate(dict.fromkeys([*g.tensors, *(t for n in g.nodes for t in n.inputs if t)]))}
    tensors = [_tensor(t) for t in index]
    nodes = [
        {
            "kind": n.kind,
            "inputs": [None if t is None else index[t] for t in n.inputs],
            "outputs": [None if t is None else index[t] for t in n.outputs],
            "attributes": n.attributes,
            "compute_data_type": n.compute.name,
            "name": n.name,
            "where": n.where,
        }
        for n in g.nodes
    ]
    types = {"io": g.io.name, "intermediate": g.intermediate.name, "compute": g.compute.name}
    return json.dumps({"format": _FORMAT, "name": g.name, "types": types, "tensors": tensors, "nodes": nodes}, indent=1)


def from_json(g: pygraph, text: str) -> None:
    """Replaces the contents of `g` by the graph of to_json(). Raises ValueError for any other text."""
    try:
        saved = json.loads(text)
        known = saved["format"] == _FORMAT
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError("deserialize: the data must be what serialize() of this module returned")
    try:
        tensors = [_made(entry) for entry in saved["tensors"]]
        nodes = [
            Node(
                entry["kind"],
                [None if i is None else tensors[i] for i in entry["inputs"]],
                [None if i is None else tensors[i] for i in entry["outputs"]],
                entry["attributes"],
                data_type[entry["compute_data_type"]],
                entry["name"],
                entry["where"],
            )
            for entry in saved["nodes"]
        ]
        types = [data_type[saved["types"][key]] for key in ("io", "intermediate", "compute")]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"deserialize: the data is damaged: {error!r}") from None
    g.name, g.tensors, g.nodes = saved["name"], tensors, nodes
    g.io, g.intermediate, g.compute = types


def _tensor(t: Tensor) -> dict[str, Any]:
    return {
        "name": t.name,
        "uid": t.uid if t.has_uid else None,
        "dim": list(t.dim),
        "stride": list(t.stride),
        "data_type": t.kind.name,
        "virtual": t.virtual,
        "by_value": t.by_value,
        "fetched": t.fetched,
        "value": t.value,
        "constant": t.constant,
        "reordering": t.reordering.name,
        "vector": list(t.vector),
    }


def _made(entry: dict[str, Any]) -> Tensor:
    t = Tensor().set_name(entry["name"]).set_dim(entry["dim"]).set_stride(entry["stride"])
    t.kind = data_type[entry["data_type"]]
    t.virtual, t.by_value, t.fetched = entry["virtual"], entry["by_value"], entry["fetched"]
    t.value, t.constant = entry["value"], entry["constant"]
    t.reordering = tensor_reordering[entry["reordering"]]
    t.vector = (entry["vector"][0], entry["vector"][1])
    return t if entry["uid"] is None else t.set_uid(entry["uid"])
