# SPDX-License-Identifier: Apache-2.0
"""Records the nodes of a pygraph as calls of pyminidnn. The recording is a graph that runs many times.

Every tensor in memory is an input of the recording, also the results: their nodes write into them. The first result of
a norm is an output of the recording instead, because a norm cannot write into given memory. So are stats and gradients
of attention. A virtual tensor has the dtype of its data_type, so HALF and BFLOAT16 round, and FLOAT does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import empty, full
from ..errors import DTypeError, Error, NotSupported, ShapeError
from ..graph import Graph
from ..ops.transform import transform
from .enums import DTYPE_OF, cudnnGraphNotSupportedError
from .epilogues import with_epilogues
from .nodes import Node
from .plans import Plan
from .tensors import Described, Tensor

# Which results of a node are outputs of the recording: those that a norm or attention cannot write into given memory.
_WITHOUT_OUT = {
    **{
        f"{norm}{direction}": slice(1)
        for norm in ("batchnorm", "layernorm", "rmsnorm", "instancenorm")
        for direction in ("", "_backward")
    },
    "sdpa": slice(1, 2),  # stats
    "sdpa_backward": slice(3),
}
FLOATING = ("float16", "bfloat16", "float32", "float64")
# A function that makes the calls of a node. It returns the results, in any dtype and layout.
Emit = Callable[["Replay", Node], Sequence["DeviceTensor | None"]]


class Replay:
    """One recording: the tensors of the pygraph as tensors of the recording.

    known     the description of each tensor
    numbers   the value of each tensor that is passed by value
    memory    for each other tensor in memory, the tensor that stands for it in the recording. Tensors in memory that
              are not there are outputs of the recording
    overlaps  results whose memory another tensor shares. They are written after all other calls, so that a node that
              reads the other tensor reads it as it was
    plan      may fix the engine of one node
    """

    def __init__(
        self,
        known: Mapping[Tensor, Described],
        numbers: Mapping[Tensor, float],
        memory: Mapping[Tensor, DeviceTensor],
        overlaps: Collection[Tensor],
        device: str,
        plan: Plan,
    ) -> None:
        self.known, self.numbers, self.memory, self.overlaps, self.device = known, numbers, memory, overlaps, device
        self.values: dict[Tensor, DeviceTensor] = {}
        self.late: list[tuple[Tensor, DeviceTensor]] = []
        self.written: set[Tensor] = set()
        self.where = ""
        self.exact = _exact_handle(device)  # for products of integers
        self.plan = plan

    def run(self, nodes: Sequence[Node], emitters: Mapping[str, Emit]) -> None:
        """Makes the calls of the nodes. Raises ValueError or cudnnGraphNotSupportedError, naming the node."""
        for node in nodes:
            self.where = node.where
            at = f"{node.label()} ({node.where})"
            try:
                results = emitters[node.kind](self, node)
                for t, result in zip(node.outputs, results, strict=False):
                    if t is not None and result is not None:
                        self._store(t, result)
            except ShapeError as error:
                raise ValueError(f"{at}: {error}") from error
            except (DTypeError, NotSupported) as error:
                raise cudnnGraphNotSupportedError(f"{at}: {error}") from error
        for t, value in self.late:
            transform(value, out=self.memory[t])

    def algo(self, node: Node) -> str | None:
        """The engine of a node, if the plan fixes it."""
        return self.plan.engine if self.plan.node in (node, node.origin) else None

    def value(self, t: Tensor | None) -> DeviceTensor:
        """The tensor of the recording that stands for an input of a node."""
        assert t is not None
        if t not in self.values:
            if t in self.numbers:
                d = self.known[t]
                self.values[t] = full(d.dim, self.numbers[t], dtype=self._dtype(t), device=self.device)  # type: ignore[arg-type]
            else:
                self.values[t] = self.memory[t]
        return self.values[t]

    def number(self, t: Tensor | None) -> float:
        """The value of an input that must be a number, such as an epsilon."""
        assert t is not None
        if t not in self.numbers:
            raise cudnnGraphNotSupportedError(
                f"{t.label()} must be passed by value: make it with is_pass_by_value=True ({self.where})"
            )
        return float(self.numbers[t])

    def dtype(self, t: Tensor | None) -> str:
        """The dtype of a tensor of the node."""
        assert t is not None
        return self._dtype(t)

    def shape(self, t: Tensor | None) -> tuple[int, ...]:
        """The sizes of a tensor of the node."""
        assert t is not None
        return self.known[t].dim

    def out(self, t: Tensor | None, *dtypes: str) -> DeviceTensor | None:
        """The memory that the caller then writes the result `t` to. None: it makes a new tensor, because the dtype is
        none of `dtypes`, because the result is virtual, or because it must be written late."""
        if t is None or t not in self.memory or t in self.overlaps or self._dtype(t) not in dtypes:
            return None
        self.written.add(t)
        return self.memory[t]

    def new(self, t: Tensor | None, dtype: str) -> DeviceTensor:
        """A temporary with the sizes and strides of `t`."""
        assert t is not None
        d = self.known[t]
        flat = empty((d.reach,), dtype=dtype, device=self.device)  # type: ignore[arg-type]
        return flat.as_strided(d.dim, d.stride)

    def as_described(self, t: Tensor | None) -> DeviceTensor:
        """The value of `t` in memory with the strides of `t`, which a view of its memory needs."""
        assert t is not None
        value = self.value(t)
        if tuple(value.strides) == self.known[t].stride:
            return value
        return transform(value, out=self.new(t, value.dtype))

    def _store(self, t: Tensor, result: DeviceTensor) -> None:
        if t in self.written:
            self.values[t] = self.memory[t]
            return
        d = self.known[t]
        if tuple(result.shape) != d.dim:
            result = result.reshape(d.dim)
        if t.virtual or t in self.overlaps:
            self.values[t] = cast(result, self._dtype(t))
            if not t.virtual:
                self.late.append((t, self.values[t]))
            return
        if t not in self.memory:
            self.values[t] = self._as_output(t, cast(result, self._dtype(t)))
            return
        memory = self.memory[t]
        transform(whole(result, memory.dtype), out=memory)
        self.values[t] = memory

    def _as_output(self, t: Tensor, value: DeviceTensor) -> DeviceTensor:
        """A temporary with these elements and the strides of `t`: the value itself, if its strides are the same."""
        d = self.known[t]
        if all(n == 1 or a == b for n, a, b in zip(d.dim, value.strides, d.stride, strict=True)):
            return value.as_strided(d.dim, d.stride)
        return transform(value, out=self.new(t, value.dtype))

    def _dtype(self, t: Tensor) -> str:
        return DTYPE_OF[self.known[t].kind]


@functools.cache
def _exact_handle(device: str) -> Handle:
    return Handle(device, math="ieee")


def cast(t: DeviceTensor, dtype: str) -> DeviceTensor:
    """The tensor in another dtype. A float that becomes an integer is rounded to the nearest one."""
    if t.dtype == dtype:
        return t
    return transform(whole(t, dtype), dtype=dtype)  # type: ignore[arg-type]


def expanded(t: DeviceTensor, shape: Sequence[int]) -> DeviceTensor:
    """A view of the tensor, broadcast to `shape`."""
    padding = len(shape) - t.ndim
    sizes, strides = (1,) * padding + tuple(t.shape), (0,) * padding + tuple(t.strides)
    return t.as_strided(shape, [0 if n == 1 else s for n, s in zip(sizes, strides, strict=True)])


def whole(t: DeviceTensor, dtype: str) -> DeviceTensor:
    """The tensor, rounded to integers if `dtype` is one of integers and the tensor is not."""
    if t.dtype in FLOATING and dtype not in FLOATING and dtype != "bool":
        return _C.pointwise("round", t, None, None, None, None, None)
    return t


def recorded(
    nodes: Sequence[Node],
    emitters: Mapping[str, Emit],
    known: Mapping[Tensor, Described],
    numbers: Mapping[Tensor, float],
    target: Target,
    plan: Plan,
) -> Graph:
    """Records the nodes for tensors of this description. Tensor number i of the target has the name t<i> in the graph.

    Raises ValueError or cudnnGraphNotSupportedError, whose text names the node and the line that made it.
    """
    # A virtual tensor of a 16-bit type is rounded to it, also if one kernel computes it and the nodes behind it.
    virtual = (d.kind for t, d in known.items() if t not in target.tensors and t not in numbers)
    rounds = any(DTYPE_OF[kind] in ("float16", "bfloat16") for kind in virtual)
    graph = Graph(target.device, rounding="each" if rounds else "fused")
    try:
        with graph:
            joined = with_epilogues(nodes, known)
            results = target.outputs_of(joined)
            memory = target.inputs_of(graph, known, results)
            replay = Replay(known, numbers, memory, target.overlaps, target.device, plan)
            replay.run(joined, emitters)
            for t in results:
                graph.output(f"t{target.tensors.index(t)}", replay.values[t])
    except Error as error:
        raise cudnnGraphNotSupportedError(str(error)) from error
    return graph


class Target:
    """The device and the tensors of a recording.

    tensors   those in memory, in the order of the recording's inputs
    samples   arrays that show alignment and overlap; None: aligned to 16 bytes, without overlap
    overlaps  results whose memory another tensor shares
    """

    def __init__(
        self,
        device: str,
        tensors: Sequence[Tensor],
        samples: Sequence[DeviceTensor] | None = None,
        overlaps: Collection[Tensor] = (),
    ) -> None:
        self.device, self.tensors, self.samples, self.overlaps = device, tensors, samples, overlaps

    def outputs_of(self, nodes: Sequence[Node]) -> list[Tensor]:
        """The tensors that are outputs of the recording, if no other tensor overlaps them."""
        if self.samples is not None:
            return []
        made = [t for n in nodes for t in n.outputs[_WITHOUT_OUT.get(n.kind, slice(0))]]
        return [t for t in made if t is not None and t in self.tensors]

    def inputs_of(
        self, graph: Graph, known: Mapping[Tensor, Described], results: Sequence[Tensor]
    ) -> dict[Tensor, DeviceTensor]:
        """Adds all tensors but the results to a graph that records."""
        named = {f"t{i}": t for i, t in enumerate(self.tensors) if t not in results}
        if self.samples is not None:
            made = graph._recording().inputs_like(list(named), self.samples)
        else:
            made = [
                graph.input(name, known[t].dim, DTYPE_OF[known[t].kind], strides=known[t].stride)  # type: ignore[arg-type]
                for name, t in named.items()
            ]
        return dict(zip(named.values(), made, strict=True))
