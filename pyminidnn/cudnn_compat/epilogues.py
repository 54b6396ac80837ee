# SPDX-License-Identifier: Apache-2.0
"""Joins a product or a batch norm with the bias, the residual and the activation that follow it into one call.

A convolution is also joined by genstats of its result.

A node joins if its input is virtual, has no other reader and is not rounded (FLOAT, or DOUBLE in a graph of doubles).
The call then rounds once, as the separate nodes do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .enums import DTYPE_OF
from .nodes import Node
from .tensors import Described, Tensor

# Activations of a call, by the kind of the node. Other attributes than the default ones are checked below.
_ACTIVATIONS = {
    "relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "elu": "elu", "gelu": "gelu", "softplus": "softplus",
    "gelu_approx_tanh": "gelu_tanh", "swish": "silu",
}  # fmt: skip
_DEFAULTS = {"relu": {"slope": 0.0, "lower": 0.0, "upper": None}, "swish": {"beta": 1.0}}
_FLOATING = ("float16", "bfloat16", "float32", "float64")


class _Chain:
    """A product and the nodes that have joined it. `y` is the result of the last one."""

    def __init__(self, product: Node, known: Mapping[Tensor, Described]) -> None:
        assert product.inputs[0] is not None and product.outputs[0] is not None
        self.known, self.product, self.y = known, product, product.outputs[0]
        self.members = [product]
        self.dtype = DTYPE_OF[known[product.inputs[0]].kind]
        self.bias: Tensor | None = None
        self.residual: Tensor | None = None
        self.activation: str | None = None

    def type_of(self, t: Tensor) -> str:
        return DTYPE_OF[self.known[t].kind]

    def is_exact(self) -> bool:
        """Whether `y` exists only between nodes, and is not rounded."""
        wide = "float64" if self.dtype == "float64" else "float32"
        return self.y.virtual and self.type_of(self.y) == wide

    def joins(self, node: Node) -> bool:
        """Adds a node that reads `y`, if the call can do what it does."""
        if node.outputs[0] is None or self.known[node.outputs[0]].dim != self.known[self.y].dim or self.activation:
            return False
        if node.kind in _ACTIVATIONS and node.attributes == _DEFAULTS.get(node.kind, {}):
            mode = _ACTIVATIONS[node.kind]
            if self.product.kind == "batchnorm" and mode != "relu":
                return False
            self.activation = mode
        elif node.kind in ("add", "bias") and self.product.kind != "batchnorm":
            others = [t for t in node.inputs if t is not self.y]
            if len(others) != 1 or others[0] is None or not self._adds(others[0]):
                return False
        elif node.kind != "identity":
            return False
        self.members.append(node)
        self.y = node.outputs[0]
        return True

    def _adds(self, t: Tensor) -> bool:
        dim, shape = self.known[t].dim, self.known[self.y].dim
        channel = 1 if self.product.kind.startswith("conv") else len(shape) - 1
        if self.bias is None and dim == tuple(n if i == channel else 1 for i, n in enumerate(shape)):
            if self.type_of(t) == self.dtype and dim != shape:
                self.bias = t
                return True
        elif self.residual is None and dim == shape:
            self.residual = t
            return True
        return False

    def joined(self) -> Node | None:
        """The node for all members, if the call can write `y`."""
        target = self.type_of(self.y)
        widens = self.dtype in ("float16", "bfloat16") and self.product.kind != "batchnorm"
        if target != self.dtype and not (widens and target == "float32"):
            return None
        if self.residual is not None and self.type_of(self.residual) != target:
            return None
        attributes = self.product.attributes | {"activation": self.activation}
        inputs = self.product.inputs + ([] if self.product.kind == "batchnorm" else [self.bias, self.residual])
        outputs = [self.y, *self.product.outputs[1:]]
        return replace(self.product, inputs=inputs, outputs=outputs, attributes=attributes, origin=self.product)


def with_epilogues(nodes: Sequence[Node], known: Mapping[Tensor, Described]) -> list[Node]:
    """The nodes, with one node instead of each product and what has joined it, where the last of them was."""
    readers: dict[Tensor | None, list[Node]] = {}
    for node in nodes:
        for t in node.inputs:
            readers.setdefault(t, []).append(node)
    result = list(nodes)
    for product in nodes:
        if product.kind not in ("conv_fprop", "matmul", "batchnorm"):
            continue
        operands = product.inputs[: 1 if product.kind == "batchnorm" else 2]
        dtypes = {DTYPE_OF[known[t].kind] for t in operands if t is not None}
        chain = _Chain(product, known)
        if len(dtypes) > 1 or chain.dtype not in _FLOATING:
            continue
        while chain.is_exact() and len(readers.get(chain.y, ())) == 1 and chain.joins(readers[chain.y][0]):
            pass
        last = chain.members[-1]
        statistics = [n for n in readers.get(chain.y, ()) if n.kind == "genstats" and product.kind == "conv_fprop"]
        between = nodes[nodes.index(product) + 1 : nodes.index(last)]
        if any(t in product.outputs[1:] for n in between for t in n.inputs):
            continue  # a statistic of the norm must be there before `last`
        joined = chain.joined() if statistics or last is not product else None
        if joined is None:
            continue
        if statistics:
            joined.outputs += statistics[0].outputs
        result[result.index(last)] = joined
        result = [n for n in result if n not in chain.members + statistics[:1]]
    return result
