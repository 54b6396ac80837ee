# SPDX-License-Identifier: Apache-2.0
"""Graphs: calls that are recorded once and run many times. record() records by hand, fuse() records a function."""

from __future__ import annotations

import functools
import inspect
import itertools
import os.path
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from . import _C
from ._C import DeviceError, DeviceTensor, DTypeError, Handle, ShapeError
from .conversion import ArrayLike, asarray, current_device, has_dlpack, output
from .files import Path
from .options import DTypeLike, Layout, Rounding
from .refusals import in_package, short
from .reports import Reports
from .tuning import explain, find

_P = ParamSpec("_P")
_R = TypeVar("_R")
# The most signatures that a function of fuse() keeps a graph for.
_MOST_SIGNATURES = 64


def _line_of_user() -> str:
    """The line of the source outside this package that is running: "line 12 of model.py"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and in_package(frame):
        frame = frame.f_back
    return f"line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}" if frame else ""


class BoundGraph:
    """A graph with fixed tensors. Calling it runs the graph, and returns `outputs`.

    A call allocates nothing and does not synchronise, so a CUDA graph can capture it: bind with a handle for the
    stream, call once outside of the capture, so that kernels are loaded, then capture a call. The object owns the
    memory of the temporaries: keep it as long as the CUDA graph may run. One thread and one stream may use it at a
    time. Calls read and write the same memory every time: copy new data into the inputs.
    """

    def __init__(self, call: _C.BoundCall, names: Sequence[str]) -> None:
        self._call = call
        self.outputs: dict[str, DeviceTensor] = dict(zip(names, call.results, strict=True))

    def __call__(self) -> dict[str, DeviceTensor]:
        """Runs the graph. Does not wait for a GPU."""
        self._call.run()
        return self.outputs


class Graph:
    """A graph that record() records. Inside the `with` block, functions of pyminidnn add nodes; nothing is computed.

    input() and output() name its tensors. Afterwards run() and bind() run the graph, and str(graph) shows the nodes.
    """

    def __init__(self, device: str | None = None, handle: Handle | None = None, rounding: Rounding = "fused") -> None:
        self._handle = handle
        each = _rounds_each("record", rounding)
        self._recorder: _C.Recorder | None = _C.Recorder(device, handle, _line_of_user, each)
        self._graph: _C.Graph | None = None

    def __enter__(self) -> Graph:
        recorder = self._recording()
        recorder.enter()
        try:
            if self._handle is not None:
                self._handle.__enter__()
        except BaseException:
            recorder.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder = self._recording()
        recorder.leave()
        if self._handle is not None:
            self._handle.__exit__(kind, error, trace)
        if kind is None:
            self._graph, self._recorder = recorder.finish(), None

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeLike = "float32",
        *,
        layout: Layout | None = None,
        strides: Sequence[int] | None = None,
    ) -> DeviceTensor:
        """Adds an input, and returns a tensor that stands for it in the recording.

        name            a Python identifier, the keyword of run() and bind()
        layout, strides as in empty() and as_strided(); None: channels first
        """
        if not isinstance(name, str) or not name.isidentifier() or name == "handle":
            raise ShapeError(f"input: name must be a Python identifier other than 'handle'; got {short(name)}")
        return self._recording().input(name, shape, dtype, layout, strides)

    def dynamic(self, name: str) -> Dynamic:
        """Adds an integer that each run gives anew: a seed or an offset of random numbers. At most 8 are supported."""
        return Dynamic(self._recording().dynamic(name), name)

    def output(self, name: str, tensor: DeviceTensor) -> None:
        """Names a tensor of the recording that run() returns. Other results exist only while the graph runs."""
        self._recording().output(name, tensor)

    def run(self, *, handle: Handle | None = None, **tensors: Any) -> dict[str, DeviceTensor]:
        """Runs the graph. Returns its outputs by name.

        tensors  an array for each input, with the recorded shape, dtype and strides, on the device of the graph, and an
                 int for each dynamic number. An array for an output receives that output. Others are allocated
        handle   None: the current handle of the device

        Raises ShapeError, DeviceError, OutOfMemory, and what the recorded functions raise for values, such as an index
        out of range.
        """
        return self.bind(handle=handle, **tensors)()

    def bind(self, *, handle: Handle | None = None, **tensors: Any) -> BoundGraph:
        """Fixes the tensors, workspace and engines of a run. Arguments as for run()."""
        graph = self._ended()
        names = [name for name, *_ in graph.inputs]
        results = [name for name, *_ in graph.outputs]
        numbers = graph.dynamic
        for name in [*names, *numbers]:
            if name not in tensors:
                raise ShapeError(f"run: '{name}' is an input of the graph and was not given")
        for name in tensors:
            if name not in [*names, *results, *numbers]:
                known = ", ".join([*names, *numbers, *results])
                raise ShapeError(f"run: the graph has no input or output '{name}'; it has {known}")
        given = [_shared(name, tensors[name], handle) for name in names]
        outs = [_shared(name, tensors[name], handle) if name in tensors else None for name in results]
        return BoundGraph(_C.BoundCall(graph, handle, given, outs, [tensors[n] for n in numbers]), results)

    def save(self, path: Path, constants: Literal["file", "inputs"] = "file") -> None:
        """Writes the graph to a file, so that load() makes an equal graph in another process.

        path       ends in .json; an existing file is replaced
        constants  "file": tensors that existed before the recording are written to an archive of NumPy beside the file,
                   graph.npz for graph.json. "inputs": they become inputs of the saved graph, under the names that
                   text() shows. Numbers such as the 0.5 of `x * 0.5` stay in the file

        The file has the calls, with their shapes, dtypes and options, but no regions, engines or measurements, except
        for engines that a call has named. Waits for the GPU.
        Raises ShapeError for another suffix; NotSupported for a graph that a file cannot describe; and the OSError of
        the file system.
        """
        from . import graph_files

        graph_files.save(self._ended(), path, constants)

    @staticmethod
    def load(path: Path, *, device: str | None = None) -> Graph:
        """The graph that save() has written.

        path    ends in .json; constants are read from the archive beside it, unless they are inputs
        device  of the same kind as that of the recording, such as "cuda:1"; None: the device of the current handle if
                it is of that kind, else "cpu" or "cuda"

        The calls of the file are made again, as in a recording: with all their checks, and without computing. The
        result is compared with the file, so a damaged file raises an error. Nothing in a file is executed.
        Raises ShapeError for a file that is damaged or incomplete; NotSupported for a file of a version that describes
        a call in another way, which must be recorded again; DeviceError; OutOfMemory; what the calls raise; and the
        OSError of the file system, such as FileNotFoundError.
        """
        from . import graph_files

        return Graph._of(graph_files.load(path, device))

    @staticmethod
    def _of(graph: _C.Graph) -> Graph:
        result = Graph.__new__(Graph)
        result._handle = result._recorder = None
        result._graph = graph
        return result

    def text(self) -> str:
        """The graph as text: inputs, one line for each node with its problem, outputs."""
        return self._ended().text()

    def why(self, *, handle: Handle | None = None) -> str:
        """A text that says how the graph runs, and why.

        A region is a group of nodes that one engine runs together, or a node that runs alone. The text names the nodes,
        the engine and the estimate of each region, and the reasons of the engines that cannot run it. Then it has one
        sentence for each value that connects two regions: why they are not one.

        handle  whose options choose the engines; None: the current handle of the device
        """
        return self._ended().why(handle)

    def source(self, region: int | None = None, *, handle: Handle | None = None) -> str:
        """The CUDA source that is generated for nodes whose results depend on single elements. It needs no GPU.

        The source has one line for each node, which calls functions of the library's headers. The loops around it are
        in cuda/graph/elementwise.cu of the package's sources.

        region  counted from 1, as in why(); None: all nodes together. NotSupported: the results do not depend on single
                elements
        handle  whose options choose the regions; None: the current handle of the device
        """
        return self._ended().source(region, handle)

    def explain(self, *, handle: Handle | None = None) -> Reports:
        """A Report for each region: its engines, their estimates or reasons, and the choice. It runs no engine.

        handle  None: the current handle of the device
        """
        return explain(self._ended().choose_plans, handle)

    def find(self, *, handle: Handle | None = None) -> Reports:
        """Measures every engine and config of each region on memory of its own, and remembers the fastest.

        Later runs use it, as after find() for a call. The records are found by the text of the region, so they hold for
        equal regions of other graphs, and in other processes. The regions themselves do not change.

        handle  None: the current handle of the device
        """
        return find(self._ended().choose_plans, handle)

    def dot(self, *, handle: Handle | None = None) -> str:
        """The graph in the language of Graphviz: calls, values between them with their bytes, inputs and outputs.

        Calls that one engine runs together are in a frame.

        handle  whose options choose the regions; None: the current handle of the device
        """
        from . import drawing

        return drawing.dot(drawing.picture(self._ended(), handle))

    def svg(self, *, handle: Handle | None = None) -> str:
        """The graph as a picture (SVG). Notebooks show it for a graph that is the value of a cell.

        Calls that one engine runs together have one colour.

        handle  whose options choose the regions; None: the current handle of the device
        """
        from . import drawing

        return drawing.svg(drawing.picture(self._ended(), handle))

    def _repr_svg_(self) -> str | None:
        return self.svg() if self._graph is not None else None

    def _recording(self) -> _C.Recorder:
        if self._recorder is None:
            raise DeviceError("record: the recording has ended; record again")
        return self._recorder

    def _ended(self) -> _C.Graph:
        if self._graph is None:
            raise DeviceError(
                "graph: it has no nodes yet; the `with` block of record() must end without an error first"
            )
        return self._graph

    def __str__(self) -> str:
        return self.text() if self._graph is not None else "graph, not recorded yet"

    def __repr__(self) -> str:
        if self._graph is None:
            return "Graph(not recorded yet)"
        g = self._graph
        return f"Graph({len(g.inputs)} inputs, {len(g.nodes)} nodes, {len(g.outputs)} outputs, device='{g.device}')"


def record(*, device: str | None = None, handle: Handle | None = None, rounding: Rounding = "fused") -> Graph:
    """Records a graph: `with dnn.record() as g:`.

    device    of all tensors; None: that of `handle`, else of the current handle, else the CPU
    handle    None: the current handle of the device
    rounding  "fused": calls may run together, and results that only they use stay in float32 or float64. "each": every
              result has the bits of a separate call

    Inside the block, this thread's calls are checked as usual and written down, but not computed. Their results are
    tensors without memory: reading one (numpy(), float(), print of its values) raises DeviceError. Tensors made before
    the block are constants: the graph refers to their memory. Recordings do not nest.
    """
    return Graph(device, handle, rounding)


class Dynamic:
    """An integer that changes from run to run: a seed or an offset. In a recording, only n + int and n - int work."""

    def __init__(self, code: int, name: str, plus: int = 0) -> None:
        self._code, self._name, self._plus = code, name, plus

    def __index__(self) -> int:
        return self._code + self._plus

    def __add__(self, other: int) -> Dynamic:
        if type(other) is not int or abs(self._plus + other) >= 2**31:
            raise DTypeError(f"{self._name}: an int of less than 31 bits may be added to it; got {short(other)}")
        return Dynamic(self._code, self._name, self._plus + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Dynamic:
        if type(other) is not int:
            raise DTypeError(f"{self._name}: only an int may be subtracted from it; got {short(other)}")
        return self + -other

    def _refused(self, *_: Any) -> Any:
        raise DTypeError(f"{self._name} is dynamic: its value is not known in a recording; only + int and - int work")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = _refused
    __floordiv__ = __mod__ = __truediv__ = __rsub__ = __neg__ = __int__ = __float__ = __hash__ = _refused

    def __repr__(self) -> str:
        return f"<dynamic {self._name}{f' {self._plus:+}' if self._plus else ''}>"


def _rounds_each(call: str, rounding: object) -> bool:
    if not (isinstance(rounding, str) and rounding in ("fused", "each")):
        raise ShapeError(f"{call}: rounding must be 'fused' or 'each'; got {short(rounding)}")
    return rounding == "each"


def fuse(function: Callable[_P, _R] | None = None, *, dynamic: Sequence[str] = (), rounding: Rounding = "fused") -> Any:
    """A decorator: the function's calls of pyminidnn are recorded once for each signature, then run as a graph.

        @dnn.fuse
        def block(x, w, b):
            return dnn.activation_forward(dnn.matmul(x, w, bias=b), "gelu_tanh")

    dynamic   names of int parameters (seeds and offsets of random numbers) that may change without a new recording
    rounding  "fused" or "each", as in record()

    Calls whose sequence equals one call with options run as that call, and chains of functions of single elements run
    as one. why() says which.

    A signature has the dtype, shape, strides, device and alignment of each array, which arrays share memory, the type
    and value of every other argument, and the options of the current handle. Lists, tuples and dicts may hold arrays.
    The function's Python code runs while it is recorded, and not again; a print or a random.random() in it happens
    once. A tensor that is no argument is a constant: changes of its elements are seen, another tensor under the same
    name is not (clear() forgets all recordings). Results are new tensors. The function may return tensors, and tuples,
    lists and dicts of them. The last 64 signatures are kept.

    Raises DTypeError for an argument that is neither an array nor hashable, and what the recorded calls raise.
    """
    if not isinstance(dynamic, (tuple, list)) or not all(type(name) is str for name in dynamic):
        raise DTypeError(f"fuse: dynamic must be a tuple or list of names of parameters; got {short(dynamic)}")
    _rounds_each("fuse", rounding)
    if function is None:
        return functools.partial(fuse, dynamic=dynamic, rounding=rounding)
    if not callable(function):
        raise DTypeError(f"fuse: function must be a function; got {short(function)}")
    return Fused(function, dynamic=dynamic, rounding=rounding)


class Fused(Generic[_P, _R]):
    """A function that fuse() decorates."""

    def __init__(
        self, function: Callable[_P, _R], *, dynamic: Sequence[str] = (), rounding: Rounding = "fused"
    ) -> None:
        self._rounding_each = _rounds_each("fuse", rounding)
        functools.update_wrapper(self, function)
        self._function = function
        self._dynamic = {name: _Number(name) for name in dynamic}
        if dynamic:
            try:
                self._parameters = inspect.signature(function)
            except (TypeError, ValueError):  # some functions of C have no signature
                raise DTypeError(f"fuse: function must have named parameters; got {short(function)}") from None
        for name in self._dynamic:
            if name not in self._parameters.parameters:
                raise ShapeError(f"fuse: dynamic names '{name}', which is no parameter of {short(function)}")
        self._graphs: OrderedDict[Any, _Recorded] = OrderedDict()
        self._lock = threading.Lock()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """The result of the function, computed by the graph of this signature. It is recorded at the first call."""
        if _C.recording():  # a fused function that is called in a recording is recorded with it
            return self._function(*args, **kwargs)
        call = self._arguments(args, kwargs)
        result: _R = self._recorded(call).run(call)
        return result

    def graph(self, *args: _P.args, **kwargs: _P.kwargs) -> Graph:
        """The graph of these arguments, to print or to draw. It is recorded if need be, and does not run.

        Its inputs are x0, x1, ... in the order of the arrays among the arguments, its outputs y0, y1, ...
        """
        return Graph._of(self._recorded(self._arguments(args, kwargs)).graph)

    def why(self, *args: _P.args, **kwargs: _P.kwargs) -> str:
        """How the graph of these arguments runs, and why: see Graph.why()."""
        return self.graph(*args, **kwargs).why()

    def source(self, *args: _P.args, **kwargs: _P.kwargs) -> str:
        """The CUDA source of the graph of these arguments as one kernel: see Graph.source()."""
        return self.graph(*args, **kwargs).source()

    def clear(self) -> None:
        """Forgets all recordings."""
        with self._lock:
            self._graphs.clear()

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
        if not self._dynamic:
            return _Arguments((args, kwargs), [])
        bound = self._parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        numbers = []
        for name, number in self._dynamic.items():
            value = bound.arguments[name]
            if isinstance(value, bool) or not hasattr(type(value), "__index__"):
                raise DTypeError(f"fuse: {name} is dynamic and must be an int; got {short(value)}")
            numbers.append(value.__index__())
            bound.arguments[name] = number
        return _Arguments((bound.args, bound.kwargs), numbers)

    def _recorded(self, call: _Arguments) -> _Recorded:
        key = call.key
        with self._lock:
            found = self._graphs.get(key)
            if found is not None:
                self._graphs.move_to_end(key)
                return found
        found = self._record(call)
        with self._lock:
            found = self._graphs.setdefault(key, found)
            while len(self._graphs) > _MOST_SIGNATURES:
                self._graphs.popitem(last=False)
        return found

    def _record(self, call: _Arguments) -> _Recorded:
        recorder = _C.Recorder(call.device, None, _line_of_user, self._rounding_each)
        recorder.enter()
        try:
            names = [f"x{i}" for i in range(len(call.tensors))]
            stand_ins = recorder.inputs_like(names, call.tensors)
            numbers = {name: Dynamic(recorder.dynamic(name), name) for name in self._dynamic}

            def recorded(value: Any) -> Any:
                if type(value) is _Tensor:
                    return stand_ins[value.index]
                return numbers[value.name] if type(value) is _Number else value

            args, kwargs = _mapped(call.structure(), recorded)
            results: list[DeviceTensor] = []

            def returned(value: Any) -> Any:
                if type(value) is not DeviceTensor or not value._recorded:
                    return value
                for i, argument in enumerate(stand_ins):
                    if argument is value:
                        return _Argument(i)
                results.append(value)
                recorder.output(f"y{len(results) - 1}", value)
                return _Tensor(len(results) - 1)

            structure = _mapped(self._function(*args, **kwargs), returned)
            return _Recorded(recorder.finish(), structure)
        finally:
            recorder.leave()


class _Tensor:
    """Stands for tensor number `index` in the structure of arguments or results."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Argument:
    """Stands for array number `index` of the arguments in the structure of results."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Number:
    """Stands for a dynamic number."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Arguments:
    """The arguments of a call: `value` holds all of them, `tensors` the arrays among them, in order."""

    __slots__ = ("key", "numbers", "tensors", "value")

    def __init__(self, value: Any, numbers: list[int]) -> None:
        self.value, self.numbers = value, numbers
        self.tensors, self.key = _C.flattened(value, _converted)

    def structure(self) -> Any:
        """The arguments with a _Tensor in place of each array."""
        count = itertools.count()
        return _mapped(self.value, lambda v: _Tensor(next(count)) if _is_array(v) else v)

    @property
    def device(self) -> str:
        return self.tensors[0].device if self.tensors else current_device()


class _Recorded:
    """A graph with the structure of the function's result."""

    def __init__(self, graph: _C.Graph, structure: Any) -> None:
        self.graph, self.structure = graph, structure

    def run(self, call: _Arguments) -> Any:
        results = _C.run_graph(self.graph, call.tensors, call.numbers)
        if type(self.structure) is _Tensor:
            return results[0]

        def result(value: Any) -> Any:
            if type(value) is _Tensor:
                return results[value.index]
            return call.tensors[value.index] if type(value) is _Argument else value

        return _mapped(self.structure, result)


def _is_array(value: Any) -> bool:
    return has_dlpack(value) or hasattr(value, "__cuda_array_interface__")


def _converted(value: Any) -> DeviceTensor | None:
    """`value` as a tensor that shares its memory; None if it is no array."""
    if _is_array(value):
        return _shared("an argument", value, None)
    if isinstance(value, (tuple, list, dict)):
        message = f"an argument of a fused function may be a plain tuple, list or dict; got {short(value)}"
        raise DTypeError(message)
    return None


def _shared(name: str, value: ArrayLike, handle: Handle | None) -> DeviceTensor:
    """`value` as a tensor that shares its memory."""
    if type(value) is DeviceTensor:
        return value
    if not _is_array(value):
        raise DTypeError(f"{name} must be an array; got {short(value)}")
    tensor = output(value, handle)
    return asarray(value) if tensor is None else tensor


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The value with leaf(v) in place of each v that is no tuple, list or dict."""
    kind = type(value)
    if kind in (tuple, list):
        return kind(_mapped(v, leaf) for v in value)
    if kind is dict:
        return {k: _mapped(v, leaf) for k, v in value.items()}
    return leaf(value)
