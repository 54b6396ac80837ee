# SPDX-License-Identifier: Apache-2.0
"""Graph: a pygraph whose methods take arrays, that is built at the end of a `with` block and called like a function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from ..conversion import has_dlpack
from ..refusals import short
from .enums import DTYPE_OF, heur_mode, type_of
from .execution import memory_for
from .graph import pygraph
from .handles import CudnnHandle, create_handle, set_stream
from .inference import RULES
from .tensors import Tensor

_TENSORS = ("tensor", "tensor_like", "tensor_scalar")
_QUERIES = ("get_workspace_size", "get_workspace_size_plan_at_index", "serialize", "query_tensor_attributes_of_uid")
_NODES = {
    *RULES, "leaky_relu", "leaky_relu_backward", "scaled_dot_product_flash_attention",
    "scaled_dot_product_flash_attention_backward",
}  # fmt: skip
_auto: list[CudnnHandle] = []  # the handle of Graph(handle="auto"), when it is made


def _automatic_handle() -> CudnnHandle:
    """A handle of this module for the current stream of torch."""
    if not _auto:
        _auto.append(create_handle())
    torch = sys.modules.get("torch")
    if torch is not None and _auto[0].device.startswith("cuda"):
        set_stream(_auto[0], torch.cuda.current_stream().cuda_stream)
    return _auto[0]


class Graph:
    """A pygraph whose methods accept arrays instead of tensors.

        with cudnn.Graph(io_data_type=cudnn.data_type.HALF, inputs=["conv::image", "conv::weight"], outputs=["y"]) as g:
            y = g.conv_fprop(image=x, weight=w, padding=[1, 1], stride=[1, 1], dilation=[1, 1], name="conv")
            y.set_output(True).set_name("y")
        result = g(x, w, handle=handle)

    handle           of create_handle(), or "auto": a handle of this module on torch's current stream. None: the call
                     passes one, or runs on the default device
    inputs, outputs  the order of arguments and results, as set_io_tuples() takes it
    heuristics       modes for build()
    workspace_alloc  has no effect, because plans own their memory

    Other arguments are those of pygraph; types may be dtypes of torch. Arrays that the methods get describe a tensor:
    their elements are not read. An input is called "node::parameter" or "node::position", a result "node::Y" (or
    another name of cudnn-frontend), or as set_name() says. A node without a name is "method.0", "method.1" and so on.
    """

    def __init__(
        self,
        *,
        handle: CudnnHandle | str | None = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        heuristics: Sequence[Any] | None = None,
        workspace_alloc: bool = True,
        **attributes: Any,
    ) -> None:
        for name in ("io_data_type", "intermediate_data_type", "compute_data_type"):
            if name in attributes:
                attributes[name] = type_of(attributes[name])
        self._handle = handle
        self._order = (_sequence("inputs", inputs), _sequence("outputs", outputs))
        self._modes = list(heuristics or [heur_mode.A, heur_mode.FALLBACK])
        self._graph = pygraph(handle=self._resolved(None), **attributes)
        self._known: dict[int, Tensor] = {}  # by the id of the array that described it
        self._made: list[Tensor] = []  # by methods such as tensor()
        self._read: dict[str, Tensor] = {}
        self._written: list[tuple[str, Tensor]] = []
        self._counts: dict[str, int] = {}
        self._names: set[str] = set()
        self._inputs: list[Tensor] | None = None
        self._outputs: list[Tensor] = []

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        self._graph.build(self._modes)
        if any(self._order):
            self.set_io_tuples(*self._order)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._graph, name)
        if name in _TENSORS:
            return lambda *args, **kwargs: self._kept(method(*args, **kwargs))
        if name in _NODES:
            return lambda *args, **kwargs: self._node(name, method, list(args), kwargs)
        if name in _QUERIES or not inspect.ismethod(method):
            return method
        raise RuntimeError(f"{name} is a method of pygraph, which Graph does not have")

    def set_io_tuples(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Sets the order of arguments and results of a call: names, uids, tensors, or the arrays that described them.

        Every tensor in memory must be among them. Raises ValueError for one that is missing, unknown or there twice.
        """
        self._order = (_sequence("inputs", inputs), _sequence("outputs", outputs))
        if not self._graph.get_execution_plan_count():
            return  # __exit__() calls again
        read = [self._found("input", i, key, list(self._read.items())) for i, key in enumerate(self._order[0])]
        written = [self._found("output", i, key, self._written) for i, key in enumerate(self._order[1])]
        both = [*read, *written]
        for t in both:
            if both.count(t) > 1:
                raise ValueError(f"set_io_tuples: {t.label()} is there twice")
            if t.virtual:
                raise ValueError(f"set_io_tuples: {t.label()} is virtual")
        for name, t in [*self._read.items(), *self._written]:
            if not t.virtual and t not in both:
                raise ValueError(f"set_io_tuples: {name} is in memory, but neither among the inputs nor the outputs")
        self._inputs, self._outputs = read, written

    def __call__(self, *args: Any, handle: CudnnHandle | None = None, workspace: Any = None) -> Any:
        """Runs the graph, and returns its results.

        args  the arrays in the order of set_io_tuples(): returns the results in that order, a single one as it is.
              Or one dict from names, uids or tensors to arrays: returns the dict, with the results it lacked

        New results are torch tensors if torch is imported, else DeviceTensors. Raises RuntimeError before the `with`
        block ends, ValueError for a wrong number of arguments or a missing input.
        """
        if not self._graph.get_execution_plan_count():
            raise RuntimeError("the graph can be called after the end of its `with` block")
        if len(args) == 1 and isinstance(args[0], dict):
            return self._with_names(args[0], self._resolved(handle))
        if self._inputs is None:
            raise ValueError("a call with arrays in order needs set_io_tuples() before it")
        if len(args) != len(self._inputs):
            raise ValueError(f"the graph has {len(self._inputs)} inputs; got {len(args)} arguments")
        pack = dict(zip(self._inputs, args, strict=True))
        handle = self._resolved(handle)
        results = [self._new(t, handle) for t in self._outputs]
        self._graph.execute(pack | dict(zip(self._outputs, results, strict=True)), None, handle)
        return results[0] if len(results) == 1 else tuple(results)

    def _with_names(self, given: dict[Any, Any], handle: CudnnHandle | None) -> dict[Any, Any]:
        pack: dict[Tensor, Any] = {}
        for name, t in [*self._read.items(), *self._written]:
            keys = [key for key in (name, t, t.name, t.uid) if key in given]
            if keys and not t.virtual:
                pack[t] = given[keys[0]]
        for name, t in self._written:
            if not t.virtual and t not in pack:
                pack[t] = given[name] = self._new(t, handle)
        self._graph.execute(pack, None, handle)
        return given

    def _resolved(self, handle: CudnnHandle | None) -> CudnnHandle | None:
        if handle is not None:
            return handle
        return _automatic_handle() if self._handle == "auto" else self._handle  # type: ignore[return-value]

    def _new(self, t: Tensor, handle: CudnnHandle | None) -> Any:
        """Memory for a result."""
        torch = sys.modules.get("torch")
        d, device = self._graph.description(t), handle.device if handle else self._graph.device()
        if torch is not None and (device == "cpu" or torch.cuda.is_available()):
            return torch.empty_strided(d.dim, d.stride, dtype=getattr(torch, DTYPE_OF[d.kind]), device=device)
        return memory_for(d, device)

    def _kept(self, t: Tensor) -> Tensor:
        self._made.append(t)
        return t

    def _node(self, kind: str, method: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        count = self._counts[kind] = self._counts.get(kind, -1) + 1
        name = kwargs.setdefault("name", f"{kind}.{count}")
        if name in self._names:
            raise ValueError(f"{kind}: a node of the graph has the name '{name}' already")
        self._names.add(name)
        for i, value in enumerate(args):
            args[i] = self._tensor(f"{name}::{i}", value)
        for key, value in kwargs.items():
            kwargs[key] = self._tensor(f"{name}::{key}", value)
        result = method(*args, **kwargs)
        made = result if isinstance(result, list) else [result]
        self._written += [(t.name, t) for t in made if t is not None]
        return result

    def _tensor(self, name: str, value: Any) -> Any:
        """The tensor of an argument that is an array or a tensor, also in a tuple; other arguments are unchanged."""
        if isinstance(value, tuple):
            return tuple(self._tensor(f"{name}.{i}", element) for i, element in enumerate(value))
        if has_dlpack(value):
            if id(value) not in self._known:
                self._known[id(value)] = self._graph.tensor_like(value)
            value = self._known[id(value)]
        if isinstance(value, Tensor):
            self._read[name] = value
        return value

    def _found(self, role: str, i: int, key: Any, named: Sequence[tuple[str, Tensor]]) -> Tensor:
        candidates = [t for name, t in named if key == name] + [t for _, t in named if key == t.name]
        if isinstance(key, Tensor):
            candidates = [t for t in [*self._made, *(t for _, t in named)] if t is key]
        elif type(key) is int:
            candidates = [t for _, t in named if t.uid == key]
        elif not isinstance(key, str):
            candidates = [t for t in (self._known.get(id(key)),) if t is not None]
        if not candidates:
            raise ValueError(f"set_io_tuples: {role} {i} is no {role} of a node; got {short(key)}")
        return candidates[0]


def _sequence(name: str, values: Any) -> list[Any]:
    if (values is not None and not isinstance(values, (list, tuple))) or isinstance(values, Mapping):
        raise ValueError(f"Graph: {name} must be a list or tuple; got {short(values)}")
    return list(values or [])
