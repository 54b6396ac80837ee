# SPDX-License-Identifier: Apache-2.0
"""The nodes of a pygraph, and the methods that make its tensors. They compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..conversion import asarray
from ..graph import _line_of_user
from ..refusals import short
from .enums import (
    NOT_SET,
    member,
    norm_forward_phase,
    tensor_reordering,
    type_of,
)
from .tensors import Tensor, scalar

_STATISTICS = ("Y", "MEAN", "INV_VARIANCE")
_GRADIENTS = ("DX", "DSCALE", "DBIAS")
# The names of the results of a node after "node::", as in cudnn-frontend. That of a function of elements is OUT_0.
RESULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["conv_fprop", "reduction", "reshape", "transpose", "slice", "concatenate"], ("Y",)),
    **dict.fromkeys(["layernorm", "adalayernorm", "instancenorm"], _STATISTICS),
    **{f"{norm}_backward": _GRADIENTS for norm in ("batchnorm", "layernorm", "adalayernorm", "instancenorm")},
    "conv_dgrad": ("DX",),
    "conv_wgrad": ("DW",),
    "matmul": ("C",),
    "genstats": ("SUM", "SQ_SUM"),
    "batchnorm": (*_STATISTICS, "NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR"),
    "batchnorm_inference": ("Y",),
    "rmsnorm": ("Y", "INV_VARIANCE"),
    "rmsnorm_backward": ("DX", "Dscale", "Dbias"),
    "sdpa": ("O", "Stats"),
    "sdpa_backward": ("dQ", "dK", "dV"),
}
# The inputs of nodes of attention.
INPUTS: dict[str, tuple[str, ...]] = {
    "sdpa": (
        "q", "k", "v", "attn_scale", "bias", "seq_len_q", "seq_len_kv", "seed", "offset", "k_table", "v_table",
        "sink_token",
    ),
    "sdpa_backward": (
        "q", "k", "v", "o", "dO", "stats", "attn_scale", "bias", "seq_len_q", "seq_len_kv", "seed", "offset",
        "sink_token",
    ),
}  # fmt: skip


# The positions of inputs that may be None.
_OPTIONAL: dict[str, Sequence[int]] = {
    **dict.fromkeys(["layernorm", "adalayernorm", "rmsnorm", "instancenorm"], (2,)),
    "batchnorm": (3, 4, 6),
    "instancenorm_backward": (3, 4),
    "sdpa": range(3, 12),
    "sdpa_backward": range(6, 13),
}


@dataclass(eq=False)
class Node:
    """A call of a method: its name, tensors (None: left out), attributes, compute type and the line that made it."""

    kind: str
    inputs: list[Tensor | None]
    outputs: list[Tensor | None]
    attributes: dict[str, Any]
    compute: Any
    name: str
    where: str
    origin: Node | None = None  # the product of a node that with_epilogues() made

    def label(self) -> str:
        """The node in texts of errors."""
        return f"{self.kind} '{self.name}'" if self.name else self.kind


class Nodes:
    """The tensors and nodes of a graph, in the order in which they are made."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []

    def _changed(self) -> None:
        """Called after each change of the graph."""

    def tensor(
        self,
        dim: Sequence[int],
        stride: Sequence[int],
        data_type: Any = NOT_SET,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: Tensor | None = None,
        reordering_type: Any = tensor_reordering.NONE,
        name: str = "",
        uid: int = -1,
    ) -> Tensor:
        """A tensor of the user with these sizes and strides (in elements). data_type NOT_SET: that of the graph."""
        t = Tensor().set_dim(dim).set_stride(stride).set_data_type(data_type).set_name(name)
        t.virtual, t.by_value = bool(is_virtual), bool(is_pass_by_value)
        t.ragged, t.reordering = ragged_offset, reordering_type
        if uid != -1:
            t.set_uid(uid)
        return self._added(t)

    _make_tensor = tensor

    def tensor_like(self, input: Any, name: str = "") -> Tensor:
        """A tensor with the attributes of another tensor (without its uid), or with the description of an array.

        An array in host memory is passed by value: always on a GPU, and with one element on the CPU.
        """
        t = Tensor()
        if isinstance(input, Tensor):
            t.dim, t.stride = tuple(input.get_dim()), tuple(input.get_stride())
            t.kind, t.virtual, t.by_value = input.get_data_type(), input.virtual, input.by_value
            t.value, t.constant, t.alignment = input.value, input.constant, input.alignment
        else:
            array = asarray(input.detach() if hasattr(input, "detach") else input)
            t.dim, t.stride = tuple(array.shape), tuple(array.strides)
            t.kind = type_of(array.dtype)
            t.by_value = array.device == "cpu" and (array.size == 1 or self.device().startswith("cuda"))
        return self._added(t.set_name(name))

    def tensor_scalar(self, value: float, scalar_type: Any) -> Tensor:
        """A tensor of one number, which is part of the graph. A variant pack may replace it for RUNTIME_PARAM."""
        return self._added(scalar(value, scalar_type))

    def device(self) -> str:
        """The device that the graph is built for."""
        raise NotImplementedError

    def _added(self, t: Tensor) -> Tensor:
        self.tensors.append(t)
        return t

    def _one(
        self, kind: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], compute: Any, name: str
    ) -> Tensor:
        (output,) = self._many(kind, inputs, 1, attributes, compute, name)
        return output

    def _many(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        count: int,
        attributes: dict[str, Any],
        compute: Any,
        name: str,
    ) -> list[Tensor]:
        made = self._node(kind, inputs, [True] * count, attributes, compute, name)
        return [t for t in made if t is not None]

    def _norm(
        self, kind: str, phase: Any, tensors: Sequence[Tensor | None], statistics: int, compute: Any, name: str
    ) -> list[Tensor | None]:
        member(f"{kind}: norm_forward_phase", phase, norm_forward_phase)
        if tensors[3] is None:
            raise ValueError(f"{kind}: epsilon must be a tensor that is passed by value; got None")
        training = phase is norm_forward_phase.TRAINING
        return self._node(kind, tensors, [True] + [training] * statistics, {}, compute, name)

    def _node(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        present: Sequence[bool],
        attributes: dict[str, Any],
        compute: Any,
        name: str,
    ) -> list[Tensor | None]:
        """Adds a node. `present` says of each result whether there is one."""
        for i, t in enumerate(inputs):
            if t is not None or i not in _OPTIONAL.get(kind, ()):
                checked(kind, t)
        outputs: list[Tensor | None] = []
        for i, there in enumerate(present):
            label = f"{name or f'{kind}.{len(self.nodes)}'}::{RESULTS.get(kind, ('OUT_0',))[i]}"
            outputs.append(self._added(Tensor().set_is_virtual(True).set_name(label)) if there else None)
        where = _line_of_user()
        self.nodes.append(Node(kind, list(inputs), outputs, attributes, type_of(compute), str(name), where))
        self._changed()
        return outputs


def checked(kind: str, t: Any) -> Tensor:
    """The input `t` of a node of this kind. Raises ValueError if it is no tensor of a pygraph."""
    if not isinstance(t, Tensor):
        raise ValueError(f"{kind}: each input must be a tensor of a pygraph; got {short(t)}")
    return t
