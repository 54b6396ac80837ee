# SPDX-License-Identifier: Apache-2.0
"""pygraph: a graph as in cudnn-frontend, built and executed by pyminidnn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import NotSupported, OutOfMemory
from ..refusals import short
from . import saving
from .enums import (
    NOT_SET,
    behavior_note,
    build_plan_policy,
    cudnnGraphNotSupportedError,
    knob_type,
    numerical_note,
)
from .execution import Executable, at
from .handles import CudnnHandle
from .plans import Plan, default_plan, proposed

_MOST_RECORDINGS = 16
_UNSUPPORTED = {
    "sdpa_fp8": "attention in 8-bit floats",
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


class pygraph(Executable):
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
        super().__init__(handle, (io_data_type, intermediate_data_type, compute_data_type))
        self.name = name
        self._most_workspace: int | None = None
        self._barred: list[str] = []
        self._refused = ""

    # ---- building

    def create_execution_plans(self, modes: Any = ()) -> None:
        """Records the graph for its device, and proposes plans. The heuristic modes make no difference.

        Raises cudnnGraphNotSupportedError if a node is not supported.
        """
        self._plans = [p for p in self._proposals() if self._allowed(p)]

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
        if self._most_workspace is not None and temporary._ended().arena_bytes > self._most_workspace:
            raise cudnnGraphNotSupportedError(
                f"the plan needs {temporary._ended().arena_bytes} bytes for temporaries; "
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
        return max((r._ended().arena_bytes for r in self._recordings.values()), default=0)

    def get_engine_count(self) -> int:
        """The number of engines that can compute the most expensive product; 1 for a graph without products."""
        return len(self._proposals())

    def get_knobs_for_engine(self, engine_id: int) -> list[knob]:
        """One knob of type KERNEL_CFG, whose only value is 0: an engine chooses its config itself."""
        at("engine", self._proposals(), engine_id)
        return [knob(knob_type.KERNEL_CFG, 0, 0, 1)]

    def create_execution_plan(self, engine_id: int, knobs: Mapping[Any, int]) -> None:
        """Adds the plan of an engine. Its knob KERNEL_CFG must be at 0."""
        if any(kind is not knob_type.KERNEL_CFG or value != 0 for kind, value in knobs.items()):
            raise RuntimeError(f"create_execution_plan: the engine has one knob, KERNEL_CFG, at 0; got {short(knobs)}")
        plan = at("engine", self._proposals(), engine_id)
        self._plans = [*(self._plans or []), plan]

    def get_behavior_notes(self) -> list[Any]:
        """[RUNTIME_COMPILATION]: graphs are recorded, and kernels of a GPU are compiled, at run time."""
        return [behavior_note.RUNTIME_COMPILATION]

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[Any]:
        """As get_behavior_notes()."""
        self._plan(index)
        return self.get_behavior_notes()

    def deselect_engines(self, names: Sequence[str]) -> pygraph:
        """Removes plans whose names contain one of these names, also from those that are created later."""
        self._barred += names
        if self._plans is not None:
            self._plans = [p for p in self._plans if self._allowed(p)]
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
        """Demands behaviour: only RUNTIME_COMPILATION is available."""
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

    def __getattr__(self, name: str) -> Any:
        if name not in _UNSUPPORTED:
            raise AttributeError(f"pygraph has no attribute '{name}'")

        def method(*_: Any, **__: Any) -> NoReturn:
            raise cudnnGraphNotSupportedError(f"{name}: {_UNSUPPORTED[name]} is not supported")

        return method

    # ---- how plans are proposed and built

    def _allowed(self, plan: Plan) -> bool:
        return not any(name in plan.name for name in self._barred)

    def _proposals(self) -> list[Plan]:
        self.build_operation_graph()
        if self._engines is None:
            self._engines = self._surveyed()
        return self._engines

    def _surveyed(self) -> list[Plan]:
        default = default_plan(self.nodes)
        recording = self._recording(self.device(), self._descriptions(), self._stand_in_numbers(), default)
        try:
            return proposed(self.nodes, lambda: self._call_on_scratch(recording)())
        except OutOfMemory:
            return [default]
        except NotSupported as error:
            raise cudnnGraphNotSupportedError(str(error)) from error

    def _bind_scratch(self, plan: Plan) -> None:
        try:
            self._call_on_scratch(self._recording(self.device(), self._descriptions(), self._stand_in_numbers(), plan))
        except NotSupported as error:
            raise cudnnGraphNotSupportedError(str(error)) from error
        except OutOfMemory:
            pass  # the tensors of execute() may still fit, because they exist already
