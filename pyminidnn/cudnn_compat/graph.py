# SPDX-License-Identifier: Apache-2.0
"""pygraph: a graph as in cudnn-frontend, built and executed by pyminidnn."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import empty
from ..errors import Error, NotSupported, OutOfMemory
from ..refusals import short
from . import saving
from .emit import EMITTERS
from .enums import (
    DTYPE_OF,
    NOT_SET,
    behavior_note,
    build_plan_policy,
    cudnnGraphNotSupportedError,
    knob_type,
    numerical_note,
    type_of,
)
from .handles import CudnnHandle, default_device, in_memory, number
from .inference import Overrides, check_compute, infer
from .methods import Methods
from .plans import Plan, proposed
from .replay import Place, recorded
from .tensors import Described, Tensor, ints

_MOST_RECORDINGS = 16
_UNSUPPORTED = {
    "sdpa": "attention", "sdpa_backward": "attention", "sdpa_fp8": "attention in 8-bit floats",
    "sdpa_fp8_backward": "attention in 8-bit floats", "sdpa_mxfp8": "attention in 8-bit floats",
    "sdpa_mxfp8_backward": "attention in 8-bit floats", "block_scale_quantize": "scaling by blocks",
    "block_scale_dequantize": "scaling by blocks", "moe_grouped_matmul": "a product of groups",
    "moe_grouped_matmul_bwd": "a product of groups",
}  # fmt: skip


class knob:
    """A knob of an engine: its type, and the values from min_value to max_value in steps of stride."""

    def __init__(self, knob_type: Any, max_value: int, min_value: int, stride: int) -> None:
        self.type, self.max_value, self.min_value, self.stride = knob_type, max_value, min_value, stride

    def __repr__(self) -> str:
        return f"knob({self.type.name}, {self.min_value} to {self.max_value} in steps of {self.stride})"


class pygraph(Methods):
    """A graph that is described by methods, then built, then executed any number of times.

    io_data_type, intermediate_data_type  of tensors in memory and of virtual tensors that have none
    compute_data_type                     FLOAT, DOUBLE or INT32; NOT_SET means FLOAT
    handle                                of create_handle(); it says on which device the graph is built. None: that of
                                          create_handle(). execute() may get another one

    sm_count, sm_version, kernel_cache and device_property have no effect: kernels are compiled for the GPU that runs
    them, and cached. Shapes may be overridden in every graph.
    """

    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = NOT_SET,
        intermediate_data_type: Any = NOT_SET,
        compute_data_type: Any = NOT_SET,
        handle: CudnnHandle | None = None,
        sm_count: int | None = None,
        sm_version: int | None = None,
        kernel_cache: Any = None,
        device_property: Any = None,
        is_dynamic_shape_enabled: bool = False,
        is_override_shape_enabled: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.handle = name, handle
        self.io, self.intermediate = type_of(io_data_type), type_of(intermediate_data_type)
        self.compute = type_of(compute_data_type)
        self._known: dict[Tensor, Described] | None = None
        self._recordings: OrderedDict[Any, _C.Graph] = OrderedDict()
        self._plans: list[Plan] | None = None
        self._built: set[int] = set()  # indices of plans
        self._last_key: Any = None  # of the call with fixed tensors that ran last
        self._last_call: _C.BoundCall | None = None
        self._most_workspace: int | None = None
        self._options: dict[str, Any] = {}
        self._refused = ""

    # ---- building

    def validate(self) -> None:
        """Infers what is not set, and checks the graph. Raises ValueError for what is missing or contradictory."""
        if not self.nodes:
            raise ValueError("validate: the graph has no nodes")
        known = infer(self.nodes, self.io, self.intermediate)
        for node in self.nodes:
            check_compute(node, self.compute)
        uids = [t.uid for t in known if t.has_uid]
        twice = {uid for uid in uids if uids.count(uid) > 1}
        if twice:
            raise ValueError(f"validate: uid {min(twice)} belongs to two tensors")
        for t, d in known.items():
            t.inferred = d
        self._known = known

    def build_operation_graph(self) -> None:
        """validate(), if it has not been called; then gives a uid to each tensor that has none, counting from 1."""
        if self._known is None:
            self.validate()
        assert self._known is not None
        used = {t.uid for t in self._known if t.has_uid}
        free = (uid for uid in range(1, len(used) + len(self._known) + 1) if uid not in used)
        for t in self._known:
            if not t.has_uid:
                t.set_uid(next(free))

    def create_execution_plans(self, modes: Any = ()) -> None:
        """Records the graph for its device, and proposes plans. The heuristic modes make no difference.

        Raises cudnnGraphNotSupportedError if a node is not supported.
        """
        self._plans = self._proposals()

    def check_support(self) -> None:
        """Chooses the engines of the first plan and compiles its kernels, with temporary memory for the tensors.

        Raises cudnnGraphNotSupportedError with the reasons of all engines if none can run a node.
        """
        if self._plans is None:
            self.create_execution_plans()
        if self._refused or not self._plans:
            raise cudnnGraphNotSupportedError(f"all plans are deselected: {self._refused or 'by their names'}")
        plan = self._plans[0]
        temporary = self._recording(self.device(), self._descriptions(), self._stand_in_numbers(), plan)
        if self._most_workspace is not None and temporary.arena_bytes > self._most_workspace:
            raise cudnnGraphNotSupportedError(
                f"the plan needs {temporary.arena_bytes} bytes for temporaries; "
                f"deselect_workspace_greater_than({self._most_workspace}) forbids it"
            )
        self._bind_scratch(plan)

    def build_plans(self, policy: Any = build_plan_policy.HEURISTICS_CHOICE) -> None:
        """Builds the first plan, which execute() runs. ALL: builds all plans."""
        if 0 not in self._built:
            self.check_support()
            self._built.add(0)
        if policy is build_plan_policy.ALL:
            for index in range(1, self.get_execution_plan_count()):
                self.build_plan_at_index(index)

    def build_plan_at_index(self, index: int) -> None:
        """Builds the plan with this index, so that execute_plan_at_index() can run it."""
        self._bind_scratch(self._plan(index))
        self._built.add(index)

    def build(self, modes: Any = None) -> None:
        """All steps from validate() to build_plans(). Without modes, as in cudnn-frontend, the first two."""
        self.validate()
        self.build_operation_graph()
        if modes is not None:
            self.create_execution_plans(modes)
            self.check_support()
            self.build_plans()

    # ---- plans

    def get_execution_plan_count(self) -> int:
        """The number of plans: 0 before create_execution_plans()."""
        return len(self._plans or ())

    def get_plan_name_at_index(self, index: int) -> str:
        """The name of a plan: the engine of the most expensive product, or the kinds of all nodes."""
        return self._plan(index).name

    def get_workspace_size(self) -> int:
        """0: a plan owns its temporary memory. See temporary_bytes()."""
        return 0

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        """As get_workspace_size()."""
        self._plan(index)
        return 0

    def temporary_bytes(self) -> int:
        """The bytes of the virtual tensors that exist at the same time. A plan allocates them itself."""
        return max((r.arena_bytes for r in self._recordings.values()), default=0)

    def get_engine_count(self) -> int:
        """The number of engines that can compute the most expensive product; 1 for a graph without products."""
        return len(self._proposals())

    def get_knobs_for_engine(self, engine_id: int) -> list[knob]:
        """One knob of type KERNEL_CFG, whose only value is 0: an engine chooses its config itself."""
        _at("engine", self._proposals(), engine_id)
        return [knob(knob_type.KERNEL_CFG, 0, 0, 1)]

    def create_execution_plan(self, engine_id: int, knobs: Mapping[Any, int]) -> None:
        """Adds the plan of an engine. Its knob KERNEL_CFG must be at 0."""
        if any(kind is not knob_type.KERNEL_CFG or value != 0 for kind, value in knobs.items()):
            raise RuntimeError(f"create_execution_plan: the engine has one knob, KERNEL_CFG, at 0; got {short(knobs)}")
        plan = _at("engine", self._proposals(), engine_id)
        self._plans = [*(self._plans or []), plan]

    def get_behavior_notes(self) -> list[Any]:
        """[RUNTIME_COMPILATION]: graphs are recorded, and kernels of a GPU are compiled, at run time."""
        return [behavior_note.RUNTIME_COMPILATION]

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[Any]:
        """As get_behavior_notes()."""
        self._plan(index)
        return self.get_behavior_notes()

    def deselect_engines(self, names: Sequence[str]) -> pygraph:
        """Removes plans whose names contain one of these names."""
        self._plans = [p for p in self._plans or [] if not any(name in p.name for name in names)]
        self._built.clear()  # the indices have changed
        return self

    def deselect_numeric_notes(self, notes: Sequence[Any]) -> pygraph:
        """Forbids arithmetic: without TENSOR_CORE or DOWN_CONVERT_INPUTS, products of FLOAT are true float32.

        NONDETERMINISTIC excludes engines whose results vary from run to run, WINOGRAD plans of that name.
        """
        if {numerical_note.TENSOR_CORE, numerical_note.DOWN_CONVERT_INPUTS} & set(notes):
            self._options["math"] = "ieee"
        if numerical_note.NONDETERMINISTIC in notes:
            self._options["deterministic"] = True
        if numerical_note.WINOGRAD in notes:
            self.deselect_engines(["winograd"])
        return self

    def select_numeric_notes(self, notes: Sequence[Any]) -> pygraph:
        """Has no effect: an engine is chosen by its time."""
        return self

    def deselect_behavior_notes(self, notes: Sequence[Any]) -> pygraph:
        """Forbids behaviour. The plan is made at run time, so check_support() fails without RUNTIME_COMPILATION."""
        if behavior_note.RUNTIME_COMPILATION in notes:
            self._refused = "deselect_behavior_notes() names RUNTIME_COMPILATION"
        return self

    def select_behavior_notes(self, notes: Sequence[Any]) -> pygraph:
        """Demands behaviour: only RUNTIME_COMPILATION can be met."""
        others = [n for n in notes if n is not behavior_note.RUNTIME_COMPILATION]
        if others:
            self._refused = f"select_behavior_notes() demands {others[0].name}"
        return self

    def deselect_workspace_greater_than(self, bytes: int) -> pygraph:
        """Makes check_support() fail if the virtual tensors need more memory at the same time."""
        self._most_workspace = bytes.__index__()
        return self

    def key(self) -> int:
        """A number that graphs with equal descriptions share."""
        self.build_operation_graph()
        return int.from_bytes(hashlib.sha256(self.serialize()).digest()[:8], "little")

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with this uid."""
        for t in self._known or self.tensors:
            if t.uid == uid and t.has_uid:
                return t
        raise ValueError(f"query_tensor_attributes_of_uid: no tensor of the graph has the uid {uid}")

    # ---- execution

    def execute(
        self,
        tensor_to_device_buffer: Mapping[Any, Any],
        workspace: Any = None,
        handle: CudnnHandle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Runs the graph. Does not wait for a GPU.

        tensor_to_device_buffer  for each tensor in memory (the tensor or its uid) an array or an address, which is read
                                 with the sizes and strides of the graph; for a tensor passed by value a number, an
                                 array of one element or the host address of one. Other entries are ignored
        workspace                not used: the plan owns its temporary memory
        handle                   None: that of the graph
        override_*               other sizes and strides of tensors, by uid; what depends on them is inferred again

        Raises RuntimeError if the graph is not built; ValueError for a tensor that is missing, too small or on another
        device.
        """
        overrides = (override_uids, override_shapes, override_strides)
        self.execute_plan_at_index(tensor_to_device_buffer, workspace, 0, handle, *overrides)

    def execute_plan_at_index(
        self,
        tensor_to_device_buffer: Mapping[Any, Any],
        workspace: Any,
        index: int,
        handle: CudnnHandle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """execute() with the plan at this index, which must be built."""
        if index not in self._built:
            which = "" if index == 0 else f" {short(index)}"
            raise RuntimeError(
                f"execute: the graph has no plan{which}; call build([heur_mode.A]) or build_plans() first"
            )
        pack = {t if type(t) is int else t.uid: v for t, v in tensor_to_device_buffer.items() if t is not None}
        known = self._descriptions(self._overrides(override_uids, override_shapes, override_strides))
        self._run(known, pack, handle, self._plan(index))

    _execute = execute
    _execute_plan_at_index = execute_plan_at_index

    def _prepare_variant_pack_template(self) -> None:
        """Has no effect. _get_variant_pack_uids_sorted() is always up to date."""

    def _get_variant_pack_uids_sorted(self) -> list[int]:
        known = self._descriptions()
        return sorted(t.uid for t in known if not t.virtual and not t.constant)

    def _execute_with_ptrs(
        self, user_ptrs: Sequence[int], workspace: Any = 0, handle: CudnnHandle | None = None
    ) -> None:
        """execute() with the addresses in the order of _get_variant_pack_uids_sorted()."""
        uids = self._get_variant_pack_uids_sorted()
        if len(user_ptrs) != len(uids):
            raise ValueError(f"execute: user_ptrs must have {len(uids)} addresses; got {len(user_ptrs)}")
        self.execute(dict(zip(uids, user_ptrs, strict=True)), workspace, handle or None)

    def populate_cuda_graph(self, handle: Any, var_pack: Any, workspace: Any, cuda_graph: Any) -> NoReturn:
        """Not supported: capture execute() in a stream, after one call outside of the capture."""
        raise cudnnGraphNotSupportedError(
            "populate_cuda_graph is not supported; capture execute() on the handle's stream, as with torch.cuda.graph()"
        )

    update_cuda_graph = populate_cuda_graph

    # ---- saving

    def serialize(self) -> bytes:
        """The graph as JSON: tensors, nodes and their attributes. deserialize() of another pygraph reads it."""
        self.build_operation_graph()
        return saving.to_json(self).encode()

    def deserialize(self, *arguments: Any) -> None:
        """deserialize(data) or deserialize(handle, data): the graph that serialize() wrote, built for this handle."""
        if len(arguments) == 2 and arguments[0] is not None:
            self.handle = arguments[0]
        data = arguments[-1]
        saving.from_json(self, data if isinstance(data, str) else bytes(data).decode())
        self._changed()
        self.build([])

    def __repr__(self) -> str:
        return saving.to_json(self)

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name not in _UNSUPPORTED:
            raise AttributeError(f"pygraph has no attribute '{name}'")

        def method(*_: Any, **__: Any) -> NoReturn:
            raise cudnnGraphNotSupportedError(f"{name}: {_UNSUPPORTED[name]} is not supported")

        return method

    # ---- recordings

    def _changed(self) -> None:
        self._known, self._plans = None, None
        self._built.clear()
        self._recordings.clear()
        self._last_key = self._last_call = None

    def device(self) -> str:
        """The device that the graph is built for: that of its handle, else the default of create_handle()."""
        return self.handle.device if self.handle is not None else default_device()

    def _handle(self, given: CudnnHandle | None) -> Handle | None:
        handle = given or self.handle
        if handle is not None:
            return handle.handle(**self._options)
        return Handle(self.device(), **self._options) if self._options else None

    def _plan(self, index: int) -> Plan:
        return _at("plan", self._plans or [], index)

    def _proposals(self) -> list[Plan]:
        self.build_operation_graph()
        any_engine = Plan("")
        recording = self._recording(self.device(), self._descriptions(), self._stand_in_numbers(), any_engine)
        try:
            return proposed(self.nodes, lambda: self._call_on_scratch(recording).run())
        except OutOfMemory:
            return [any_engine]
        except NotSupported as error:
            raise cudnnGraphNotSupportedError(str(error)) from error

    def _call_on_scratch(self, recording: _C.Graph) -> _C.BoundCall:
        known, device = self._descriptions(), self.device()
        tensors = [memory_for(known[t], device) for t in self._in_memory(known)]
        return _C.BoundCall(recording, self._handle(None), tensors, [], [])

    def _bind_scratch(self, plan: Plan) -> None:
        try:
            self._call_on_scratch(self._recording(self.device(), self._descriptions(), self._stand_in_numbers(), plan))
        except NotSupported as error:
            raise cudnnGraphNotSupportedError(str(error)) from error
        except OutOfMemory:
            pass  # the tensors of execute() may still fit, because they exist already

    def _descriptions(self, overrides: Overrides | None = None) -> Mapping[Tensor, Described]:
        if overrides:
            return infer(self.nodes, self.io, self.intermediate, overrides)
        if self._known is None:
            self.validate()
        assert self._known is not None
        return self._known

    def _overrides(self, uids: Any, shapes: Any, strides: Any) -> Overrides | None:
        if uids is None or not len(uids):
            return None
        if shapes is None or strides is None or not len(uids) == len(shapes) == len(strides):
            raise ValueError("execute: override_uids, override_shapes and override_strides must have equal lengths")
        found = (self.query_tensor_attributes_of_uid(uid) for uid in uids)
        pairs = zip(found, shapes, strides, strict=True)
        return {t: (ints("override_shapes", n), ints("override_strides", s)) for t, n, s in pairs}

    def description(self, t: Tensor) -> Described:
        """Sizes, strides and data_type of a tensor of the graph, with what is inferred."""
        return self._descriptions()[t]

    @staticmethod
    def _in_memory(known: Mapping[Tensor, Described]) -> list[Tensor]:
        return [t for t in known if not t.virtual and not t.by_value]

    def _stand_in_numbers(self) -> dict[Tensor, float]:
        """Values for tensors passed by value while those of execute() are not known."""
        values: dict[Tensor, float] = {}
        for t, d in self._descriptions().items():
            if t.by_value:
                whole = DTYPE_OF[d.kind] not in ("float32", "float64", "float16", "bfloat16")
                values[t] = t.value if t.value is not None else 1 if whole else 0.5
        return values

    def _recording(
        self,
        device: str,
        known: Mapping[Tensor, Described],
        numbers: Mapping[Tensor, float],
        plan: Plan,
        samples: Sequence[DeviceTensor] | None = None,
        overlaps: tuple[tuple[int, int, int], ...] = (),
    ) -> _C.Graph:
        tensors = self._in_memory(known)
        shapes = () if known is self._known else tuple((known[t].dim, known[t].stride) for t in tensors)
        alignment = () if samples is None else tuple(s.data_ptr % 16 for s in samples)
        key = (device, shapes, alignment, overlaps, tuple(numbers.values()), plan.engine)
        if key not in self._recordings:
            made = {t for n in self.nodes for t in n.outputs}
            both = {tensors[i] for pair in overlaps for i in pair[:2]}
            place = Place(device, tensors, samples, both & made)
            self._recordings[key] = recorded(self.nodes, EMITTERS, known, numbers, place, plan)
            if len(self._recordings) > _MOST_RECORDINGS:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(key)
        return self._recordings[key]

    def _run(
        self, known: Mapping[Tensor, Described], pack: Mapping[int, Any], given: CudnnHandle | None, plan: Plan
    ) -> None:
        if given is not None and not isinstance(given, CudnnHandle):
            raise ValueError(f"execute: handle must be one of create_handle(); got {short(given)}")
        handle = self._handle(given)
        device = handle.device if handle else self.device()
        numbers, arrays = _entries(known, pack, device, handle)
        key = (plan, handle, tuple(numbers.values()), tuple(a.data_ptr for a in arrays))
        try:
            if key != self._last_key or known is not self._known:
                self._last_call = self._bound(known, numbers, arrays, handle, device, plan)
                self._last_key = key if known is self._known else None
            assert self._last_call is not None
            self._last_call.run()
        except NotSupported as error:
            raise cudnnGraphNotSupportedError(str(error)) from error
        except OutOfMemory:
            raise
        except Error as error:
            raise ValueError(f"execute: {error}") from error

    def _bound(
        self,
        known: Mapping[Tensor, Described],
        numbers: Mapping[Tensor, float],
        arrays: Sequence[DeviceTensor],
        handle: Handle | None,
        device: str,
        plan: Plan,
    ) -> _C.BoundCall:
        overlaps = self._overlaps(known, arrays)
        aligned = device == "cpu" or all(a.data_ptr % 16 == 0 for a in arrays)
        samples = None if aligned and not overlaps else arrays
        recording = self._recording(device, known, numbers, plan, samples, overlaps)
        return _C.BoundCall(recording, handle, arrays, [], [])

    def _overlaps(
        self, known: Mapping[Tensor, Described], arrays: Sequence[DeviceTensor]
    ) -> tuple[tuple[int, int, int], ...]:
        """For each result that shares memory with another tensor: the indices of both, and their distance in bytes."""
        made = {t for n in self.nodes for t in n.outputs}
        written = [t in made for t in self._in_memory(known)]
        found = []
        for i, a in enumerate(arrays):
            for k in range(i):
                if (written[i] or written[k]) and _C.share_memory(a, arrays[k]):
                    found.append((k, i, a.data_ptr - arrays[k].data_ptr))
        return tuple(found)


def _entries(
    known: Mapping[Tensor, Described], pack: Mapping[int, Any], device: str, handle: Handle | None
) -> tuple[dict[Tensor, float], list[DeviceTensor]]:
    """The numbers of a variant pack, and its arrays in the order of the tensors in memory."""
    numbers: dict[Tensor, float] = {}
    arrays: list[DeviceTensor] = []
    for t, d in known.items():
        if t.virtual:
            continue
        if t.by_value and t.value is not None and (t.constant or t.uid not in pack):
            numbers[t] = t.value
            continue
        if pack.get(t.uid) is None:
            raise ValueError(f"execute: the variant pack lacks {t.label()} (uid {t.uid})")
        if t.by_value:
            numbers[t] = number(t, d, pack[t.uid])
        else:
            arrays.append(in_memory(t, d, pack[t.uid], device, handle))
    return numbers, arrays


def _at(what: str, plans: Sequence[Plan], index: int) -> Plan:
    if type(index) is not int or not 0 <= index < len(plans):
        raise RuntimeError(f"{what} must be below {len(plans)}, the number of {what}s of the graph; got {short(index)}")
    return plans[index]


def memory_for(d: Described, device: str) -> DeviceTensor:
    """Memory for a tensor, with arbitrary elements."""
    flat = empty((d.reach,), dtype=DTYPE_OF[d.kind], device=device)  # type: ignore[arg-type]
    return flat.as_strided(d.dim, d.stride)
