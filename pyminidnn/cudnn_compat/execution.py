# SPDX-License-Identifier: Apache-2.0
"""The part of pygraph that records the graph for tensors, plans and numbers, and runs the recordings."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import empty
from ..errors import Error, NotSupported, OutOfMemory
from ..graph import BoundGraph, Graph
from ..refusals import short
from .emit import EMITTERS
from .enums import DTYPE_OF, ITEMSIZE, cudnnGraphNotSupportedError, type_of
from .handles import CudnnHandle, default_device, in_memory, number
from .inference import Overrides, check_compute, infer
from .methods import Methods
from .plans import Plan
from .replay import FLOATING, Target, recorded
from .tensors import Described, Tensor, ints

_MOST_RECORDINGS = 16
# The most bytes of temporary memory for choosing engines before execute(). The allocator keeps this memory, so other
# libraries cannot use it.
_MOST_SCRATCH = 2**28
# Pairs of tensors that share memory: their indices among the tensors in memory, and the distance in bytes.
Overlaps = tuple[tuple[int, int, int], ...]


class Executable(Methods):
    """A graph that can be validated, recorded and executed. `_plans` and `_built` are set by the methods of pygraph."""

    def __init__(self, handle: CudnnHandle | None, types: Sequence[Any]) -> None:
        super().__init__()
        self.handle = handle
        self.io, self.intermediate, self.compute = map(type_of, types)
        self._known: dict[Tensor, Described] | None = None
        self._attributes: list[Any] = []  # of the tensors in the last validate()
        self._recordings: OrderedDict[Any, Graph] = OrderedDict()
        self._plans: list[Plan] | None = None
        self._built: set[int] = set()  # indices of plans
        self._engines: list[Plan] | None = None  # the plan of each engine
        # The key of _run() and the call with fixed tensors that ran last. Several threads may execute a graph.
        self._last: tuple[Any, BoundGraph] | None = None
        self._lock = threading.Lock()  # of _recordings
        self._options: dict[str, Any] = {}  # of the pyminidnn.Handle
        self._own: CudnnHandle | None = None  # the handle of a graph with options and without a handle

    # ---- what is known of the graph

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
        attributes = [(t, d, t.virtual, t.is_number, t.value) for t, d in known.items()]
        if attributes != self._attributes:  # the user has changed a tensor since the last call
            self._changed()
        self._known, self._attributes = known, attributes

    def build_operation_graph(self) -> None:
        """validate(), if it has not been called; then numbers the tensors without a uid, from 1."""
        if self._known is None:
            self.validate()
        assert self._known is not None
        used = {t.uid for t in self._known if t.has_uid}
        free = (uid for uid in range(1, len(used) + len(self._known) + 1) if uid not in used)
        for t in self._known:
            if not t.has_uid:
                t.set_uid(next(free))

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with this uid."""
        for t in self._known or self.tensors:
            if t.uid == uid and t.has_uid:
                return t
        raise ValueError(f"query_tensor_attributes_of_uid: no tensor of the graph has the uid {uid}")

    def device(self) -> str:
        """The device that the graph is built for: that of its handle, else the default of create_handle()."""
        return self.handle.device if self.handle is not None else default_device()

    def description(self, t: Tensor) -> Described:
        """Sizes, strides and data_type of a tensor of the graph, with what is inferred."""
        return self._descriptions()[t]

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
        """Runs the graph. Does not wait for a GPU, unless dropout has its seed or offset there.

        tensor_to_device_buffer  for each tensor in memory (the tensor or its uid) an array or an address, which is read
                                 with the sizes and strides of the graph; for a tensor passed by value a number, an
                                 array of one element or the host address of one. Other entries are ignored
        workspace                not used: the plan owns its temporary memory
        handle                   None: that of the graph
        override_*               other sizes and strides of tensors, by uid; what depends on them is inferred again

        The graph keeps the arrays of its last call alive. Several threads may execute it, with memory of their own.
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

    # ---- recordings

    def _changed(self) -> None:
        self._known, self._plans = None, None
        self._built.clear()
        self._recordings.clear()
        self._engines = None
        self._last = None

    def _handle(self, given: CudnnHandle | None) -> Handle | None:
        handle = given or self.handle
        options = dict(self._options)
        if any(node.attributes.get("deterministic") for node in self.nodes):
            options["deterministic"] = True
        if handle is None and options:
            handle = self._own = self._own or CudnnHandle(self.device())
        return None if handle is None else handle.handle(**options)

    def _plan(self, index: int) -> Plan:
        return at("plan", self._plans or [], index)

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

    @staticmethod
    def _in_memory(known: Mapping[Tensor, Described]) -> list[Tensor]:
        return [t for t in known if not t.virtual and not t.is_number]

    def _stand_in_numbers(self) -> dict[Tensor, float]:
        """Values for tensors passed by value while those of execute() are not known."""
        values: dict[Tensor, float] = {}
        for t, d in self._descriptions().items():
            if t.is_number:
                values[t] = t.value if t.value is not None else 0.5 if DTYPE_OF[d.kind] in FLOATING else 1
        return values

    def _call_on_scratch(self, recording: Graph) -> BoundGraph:
        """The recording, bound to temporary memory. Raises OutOfMemory if the tensors are too large for that."""
        known, device = self._descriptions(), self.device()
        tensors = self._in_memory(known)
        bytes_needed = sum(known[t].reach * ITEMSIZE[DTYPE_OF[known[t].kind]] for t in tensors)
        if bytes_needed > _MOST_SCRATCH:
            raise OutOfMemory(f"the tensors have {bytes_needed} bytes")
        return _bound_to(recording, self._handle(None), [memory_for(known[t], device) for t in tensors])

    def _recording(
        self,
        device: str,
        known: Mapping[Tensor, Described],
        numbers: Mapping[Tensor, float],
        plan: Plan,
        samples: Sequence[DeviceTensor] | None = None,
        overlaps: Overlaps = (),
    ) -> Graph:
        tensors = self._in_memory(known)
        shapes = () if known is self._known else tuple((known[t].dim, known[t].stride) for t in tensors)
        alignment = () if samples is None else tuple(s.data_ptr % 16 for s in samples)
        key = (device, shapes, alignment, overlaps, tuple(map(repr, numbers.values())), plan.engine)
        with self._lock:
            if key not in self._recordings:
                made = {t for n in self.nodes for t in n.outputs}
                both = {tensors[i] for k, j, _ in overlaps for i in (k, j)}
                target = Target(device, tensors, samples, both & made)
                self._recordings[key] = recorded(self.nodes, EMITTERS, known, numbers, target, plan)
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
        overridden = None if known is self._known else known
        key = (plan, handle, overridden, tuple(map(repr, numbers.values())), tuple(a.data_ptr for a in arrays))
        last = self._last
        try:
            if last is None or last[0] != key:
                last = self._last = (key, self._bound(known, numbers, arrays, handle, device, plan))
            last[1]()
        except NotSupported as error:
            raise cudnnGraphNotSupportedError(str(error)) from error
        except OutOfMemory:
            raise
        except Error as error:
            tensors = self._in_memory(known)
            # The tensors have names of their own in a recording, t0, t1 and so on.
            text = re.sub(r"'t(\d+)'", lambda match: tensors[int(match[1])].label(), str(error))
            raise ValueError(f"execute: {text}") from error

    def _bound(
        self,
        known: Mapping[Tensor, Described],
        numbers: Mapping[Tensor, float],
        arrays: Sequence[DeviceTensor],
        handle: Handle | None,
        device: str,
        plan: Plan,
    ) -> BoundGraph:
        overlaps, matter = self._overlaps(known, arrays)
        aligned = device == "cpu" or all(a.data_ptr % 16 == 0 for a in arrays)
        if aligned and not matter:
            recording = self._recording(device, known, numbers, plan)
        else:
            recording = self._recording(device, known, numbers, plan, arrays, overlaps)
        return _bound_to(recording, handle, arrays)

    def _overlaps(self, known: Mapping[Tensor, Described], arrays: Sequence[DeviceTensor]) -> tuple[Overlaps, bool]:
        """The arrays that share memory: indices and distance in bytes of each pair; whether a result is among them."""
        made = {t for n in self.nodes for t in n.outputs}
        written = [t in made for t in self._in_memory(known)]
        found = tuple(
            (k, i, a.data_ptr - arrays[k].data_ptr)
            for i, a in enumerate(arrays)
            for k in range(i)
            if _C.share_memory(a, arrays[k])
        )
        return found, any(written[k] or written[i] for k, i, _ in found)


def _entries(
    known: Mapping[Tensor, Described], pack: Mapping[int, Any], device: str, handle: Handle | None
) -> tuple[dict[Tensor, float], list[DeviceTensor]]:
    """The numbers of a variant pack, and its arrays in the order of the tensors in memory."""
    numbers: dict[Tensor, float] = {}
    arrays: list[DeviceTensor] = []
    for t, d in known.items():
        if t.virtual:
            continue
        if t.is_number and t.value is not None and (t.constant or t.uid not in pack):
            numbers[t] = t.value
            continue
        if pack.get(t.uid) is None:
            raise ValueError(f"execute: the variant pack lacks {t.label()} (uid {t.uid})")
        if t.is_number:
            numbers[t] = number(t, d, pack[t.uid], device, handle)
        else:
            arrays.append(in_memory(t, d, pack[t.uid], device, handle))
    return numbers, arrays


def at(what: str, plans: Sequence[Plan], index: int) -> Plan:
    """plans[index]. Raises RuntimeError for an index out of range. `what` says what is counted."""
    if type(index) is not int or not 0 <= index < len(plans):
        raise RuntimeError(f"{what} must be below {len(plans)}, the number of {what}s of the graph; got {short(index)}")
    return plans[index]


def _bound_to(graph: Graph, handle: Handle | None, tensors: Sequence[DeviceTensor]) -> BoundGraph:
    return graph.bind(handle=handle, **{f"t{i}": t for i, t in enumerate(tensors)})


def memory_for(d: Described, device: str) -> DeviceTensor:
    """Memory for a tensor, with arbitrary elements."""
    flat = empty((d.reach,), dtype=DTYPE_OF[d.kind], device=device)  # type: ignore[arg-type]
    return flat.as_strided(d.dim, d.stride)
