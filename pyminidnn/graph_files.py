# SPDX-License-Identifier: Apache-2.0
"""Graph.save() and Graph.load(): a graph as JSON, and its constants in an .npz file beside it.

A file says of each node which call it was: the text of its problem and its tensors. load() makes these calls again
while a recorder writes them down (graph_calls.py), then compares each node with the file, word for word. So a file can
do no more than a caller of the library, and a file of a version that describes a call in another way is refused.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from . import _C, __version__, files
from ._C import DeviceError, DeviceTensor, Error, Handle, NotSupported, OutOfMemory, ShapeError
from .conversion import bits, current_device
from .graph_calls import RecordedCall
from .refusals import short

Constants: TypeAlias = Literal["file", "inputs"]

_FORMAT = "pyminidnn graph 1"  # a version that reads another format refuses the file
_OPTIONS = ("deterministic", "math", "max_workspace", "threads")
_Contents: TypeAlias = dict[str, Any]  # that of a file: numbers, texts, lists and dicts


def save(graph: _C.Graph, path: files.Path, constants: Constants) -> None:
    """See Graph.save()."""
    target, _ = files.target_of("save", path, {".json": None})
    if not (isinstance(constants, str) and constants in ("file", "inputs")):
        raise ShapeError(f"save: constants must be 'file' or 'inputs'; got {short(constants)}")
    with _explained("save", target):
        contents: _Contents = {"format": _FORMAT, "version": __version__, **_plain(graph)}
        if constants == "inputs":
            _make_inputs(contents)
        memory = {b["name"]: graph.constant(i) for i, b in enumerate(contents["buffers"]) if _is_in_archive(b)}
        _check_constants(contents, memory)
        in_archive = filter(_is_in_archive, contents["buffers"])
        on_host = {b["name"]: _flat(memory[b["name"]], b).to(device="cpu") for b in in_archive}
        contents["constants"] = _digest(on_host)
        contents["sha256"] = _checksum(contents)
        # The user can still change a graph that load() would refuse.
        try:
            again = _Rebuilding(contents, memory, graph.device).graph()
        except NotSupported as error:
            raise NotSupported(f"a file cannot describe this graph: {error}") from error
        if again.text() != graph.text() and constants == "file":
            raise NotSupported(f"a loaded graph would differ from this one:\n{again.text()}")
    if on_host:
        files.save(_beside(target), on_host)
    with files.replaced(target) as file:
        file.write(_text(contents).encode())


def load(path: files.Path, device: str | None) -> _C.Graph:
    """See Graph.load()."""
    source, _ = files.target_of("load", path, {".json": None})
    with open(source, "rb") as file, _explained("load", source):
        contents = json.loads(file.read().decode())
        _check(contents)
        kind = contents["device"]
        if device is None:
            device = current_device() if current_device().partition(":")[0] == kind else kind
        if device.partition(":")[0] != kind:
            raise DeviceError(f"the graph was recorded on {kind}; it cannot run on {short(device)}; record it there")
        return _Rebuilding(contents, _read_constants(_beside(source), contents, device), device).graph()


class _Rebuilding:
    """Makes the calls of a file again, and records them."""

    def __init__(self, contents: _Contents, constants: dict[str, DeviceTensor], device: str) -> None:
        self.contents, self.constants, self.device = contents, constants, device
        ieee = any(" math=ieee" in n["text"] for n in contents["nodes"] if n["handle"] is None)
        self.handle = Handle(device, math="ieee" if ieee else "tf32")
        self.handles: dict[str, Handle] = {}
        self.where = ""
        each: bool = contents["rounding_each"]
        self.recorder = _C.Recorder(device, self.handle, lambda: self.where, each)
        self.memory: dict[int, DeviceTensor] = {}  # of each buffer
        self.numbers: dict[int, int] = {}  # of buffers in the file, by those of the recorder

    def graph(self) -> _C.Graph:
        self.recorder.enter()
        try:
            with self.handle:
                self._make_buffers()
                for i, node in enumerate(self.contents["nodes"]):
                    try:
                        self._make_node(node)
                    except Error as error:
                        raise type(error)(f"node {i} ({short(node['text'])}): {error}") from error
                for name, *view in self.contents["outputs"]:
                    self.recorder.output(name, self._view(*view))
                return self.recorder.finish(rewrites=False)
        finally:
            self.recorder.leave()

    def _make_buffers(self) -> None:
        for i, b in enumerate(self.contents["buffers"]):
            if b["kind"] == "input":
                self._add(i, self.recorder.buffer(b["name"], True, b["bytes"], b["residue"], b["read_only"]))
            elif b["kind"] == "constant":
                self._make_constant(i, b)
            elif b["kind"] != "temporary":
                raise ShapeError(f"buffer {i} is of the kind {short(b['kind'])}")
        names = [*self.contents["dynamic"], *(name for name, *_ in self.contents["inputs"])]
        for name, count in Counter(names).items():
            if not name.isidentifier() or name == "handle" or count > 1:
                text = "an input must have a name of its own, which is a Python identifier"
                raise ShapeError(f"{text}; got {short(name)}")
        for name in self.contents["dynamic"]:
            self.recorder.dynamic(name)
        for name, *view in self.contents["inputs"]:
            self.recorder.input_view(name, self._view(*view))

    def _make_constant(self, i: int, b: _Contents) -> None:
        _, offset, dtype, shape, strides = b["tensor"]
        if "number" in b:
            (value,) = struct.unpack(">d", bytes.fromhex(b["number"].zfill(16)))
            tensor = _C.recorded_number(value, dtype, self.device)
        else:
            tensor = _C.elements_at(_C.storage(self.constants[b["name"]]), offset, dtype, shape, strides)
        self.recorder.rename(tensor, b["name"])
        self._add(i, _C.elements_at(_C.storage(tensor), 0, "uint8", [b["bytes"]], [1]))

    def _add(self, i: int, memory: DeviceTensor) -> None:
        self.memory[i] = memory
        self.numbers[self.recorder.buffer_number(memory)] = i

    def _view(self, i: int, offset: int, dtype: str, shape: list[int], strides: list[int]) -> DeviceTensor:
        """A view of a buffer. A temporary is made when it is first needed, if no call has returned it."""
        if not 0 <= i < len(self.contents["buffers"]):
            raise ShapeError(f"there is no buffer {i}")
        if i not in self.memory:
            b = self.contents["buffers"][i]
            self._add(i, self.recorder.buffer(b["name"], False, b["bytes"], 0, False))
        return _C.elements_at(self.memory[i], offset, dtype, shape, strides)

    def _make_node(self, node: _Contents) -> None:
        ports = {name: view for name, _, _, *view in node["ports"]}

        def tensor(name: str) -> DeviceTensor | None:
            return self._view(*ports[name]) if name in ports else None

        self.where = node["where"]
        count = self.recorder.node_count()
        handle = self._handle(node["handle"])
        results = RecordedCall(node["text"], tensor, node["algo"] or None, handle).make()
        if self.recorder.node_count() != count + 1:
            raise ShapeError("the call is not one node")
        for name, result in results.items():
            buffer = ports[name][0] if name in ports else -1
            if buffer in self.memory:
                raise ShapeError(f"the call makes {name}, which is buffer {buffer} that exists")
            if buffer >= 0:
                self._add(buffer, _C.storage(result))
                self.recorder.rename(result, self.contents["buffers"][buffer]["name"])
        self.recorder.set_numbers([int(word, 16) for word in node["args"].split(" ")], node["dynamic"])
        self.recorder.rewritten(node.get("rewrites", ""))
        self._compare(node)

    def _compare(self, node: _Contents) -> None:
        """Compares the node that was made with that of the file."""
        made = self.recorder.last_node()
        made["handle"] = _options(made["handle"])
        for port in made["ports"]:
            port[3] = self.numbers.get(port[3], -1)
            b = self.contents["buffers"][port[3]]
            if port[2] != "read" and b["read_only"]:
                raise ShapeError(f"it writes {port[0]}, which lies in the read-only input {short(b['name'])}")
        if made == node:
            return
        key = next(k for k in {**made, **node} if made.get(k) != node.get(k))
        here, there = (str(n.get(key))[:2000] for n in (made, node))
        found = f"its {key} {'are' if key.endswith('s') else 'is'} {there!r} in the file, but {here!r} for this call"
        version = self.contents["version"]
        if version != __version__:
            found += f" in version {__version__}; version {short(version)} has saved the file; record the graph again"
        raise NotSupported(found)

    def _handle(self, options: _Contents | None) -> Handle:
        if options is None:
            return self.handle
        key = str(options)
        if {*options} != {*_OPTIONS}:
            raise ShapeError(f"a call has the options {', '.join(_OPTIONS)}; got {short(options)}")
        if key not in self.handles:
            self.handles[key] = Handle(self.device, **options)
        return self.handles[key]


def _plain(graph: _C.Graph) -> _Contents:
    contents: _Contents = graph.contents()
    for node in contents["nodes"]:
        node["handle"] = _options(node["handle"])
    return contents


def _options(handle: Handle | None) -> _Contents | None:
    """The options of a handle that a call has for itself."""
    return None if handle is None else {name: getattr(handle, name) for name in _OPTIONS}


def _is_in_archive(b: _Contents) -> bool:
    return b["kind"] == "constant" and "number" not in b


def _make_inputs(contents: _Contents) -> None:
    """Makes an input of each constant. It keeps its name, unless an input has that name."""
    taken = {*contents["dynamic"], *(name for name, *_ in contents["inputs"] + contents["outputs"])}
    for b in contents["buffers"]:
        if not _is_in_archive(b):
            continue
        while b["name"] in taken:
            b["name"] += "_"
        taken.add(b["name"])
        contents["inputs"].append([b["name"], *b.pop("tensor")])
        b["kind"] = "input"


def _check_constants(contents: _Contents, memory: dict[str, DeviceTensor]) -> None:
    """Raises NotSupported for constants that would be other tensors after loading."""
    written = {p[3] for n in contents["nodes"] for p in n["ports"] if p[2] != "read"}
    most = 16 if contents["device"] == "cuda" else 8
    for i, b in enumerate(contents["buffers"]):
        if not _is_in_archive(b):
            continue
        what = f"the constant {b['name']}, {b['bytes']} bytes,"
        if b["residue"] % most:
            raise NotSupported(f"{what} begins at no multiple of {most} bytes; pass a copy, or constants='inputs'")
        for other, t in memory.items() if i in written else ():
            if other != b["name"] and _C.share_memory(t, memory[b["name"]]):
                raise NotSupported(f"{what} is written, and shares memory with {other}; pass constants='inputs'")


def _flat(memory: DeviceTensor, b: _Contents) -> DeviceTensor:
    """The elements of a constant: in its shape if they are in row-major order there, else in the order of memory."""
    _, offset, dtype, shape, strides = b["tensor"]
    tensor = _C.elements_at(memory, offset, dtype, shape, strides)
    return tensor if tensor.is_contiguous() else _C.elements_at(memory, 0, dtype, [tensor.size], [1])


def _digest(tensors: dict[str, DeviceTensor]) -> str:
    """The checksum of tensors on the host."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].nbytes} ".encode())
        digest.update(bits(tensors[name]).data)
    return digest.hexdigest()


def _checksum(contents: _Contents) -> str:
    rest = {key: value for key, value in contents.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _text(contents: _Contents) -> str:
    """The contents as JSON, with a line for each node and each buffer."""
    lines = []
    for key, value in contents.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        lines.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _check(contents: _Contents) -> None:
    """Raises NotSupported for another format, and ShapeError for contents that save() has not written."""
    if contents["format"] != _FORMAT:
        by = f"version {short(contents.get('version'))} has saved it as {short(contents['format'])!r}"
        raise NotSupported(f"{by}; version {__version__} reads {_FORMAT!r} alone; record the graph again")
    if contents["sha256"] != _checksum(contents):
        raise ShapeError("the file is damaged: its contents do not have its checksum; save the graph again")


def _read_constants(path: str, contents: _Contents, device: str) -> dict[str, DeviceTensor]:
    names = {b["name"] for b in contents["buffers"] if _is_in_archive(b)}
    tensors = {}
    if names:
        if not os.path.exists(path):
            raise ShapeError(f"its constants are in {short(path)}, which does not exist; copy it there, too")
        _check_archive(path)
        tensors = files.load(path, device="cpu")
    if {*tensors} != names or _digest(tensors) != contents["constants"]:
        raise ShapeError(f"{short(path)} does not have the constants of this graph; save the graph again")
    return {name: t.to(device=device) for name, t in tensors.items()}


def _check_archive(path: str) -> None:
    """files.load() trusts the sizes that an archive states. Without compression, none exceeds that of the archive."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            entries, size = archive.infolist(), os.fstat(file.fileno()).st_size
    except Exception as error:  # zipfile raises errors of many types, also OSError
        raise ShapeError(f"{short(path)} is damaged: {short(str(error))}") from error
    if any(e.compress_type != zipfile.ZIP_STORED or e.file_size > size for e in entries):
        raise ShapeError(f"{short(path)} has compressed arrays; save the graph again")


def _beside(path: str) -> str:
    return os.path.splitext(path)[0] + ".npz"


@contextmanager
def _explained(call: str, path: str) -> Iterator[None]:
    """Errors name the call and the file. Those of a damaged file, which have many types, become ours."""
    damaged = ("is damaged, or no file of Graph.save()", ShapeError)
    what, kind = damaged if call == "load" else ("cannot describe this graph", NotSupported)
    try:
        yield
    except Error as error:
        raise type(error)(f"{call}: {short(path)}: {error}") from error
    except MemoryError as error:
        raise OutOfMemory(f"{call}: {short(path)} needs more than the memory of the host") from error
    except OSError:
        raise
    except Exception as error:
        raise kind(f"{call}: {short(path)} {what}: {type(error).__name__} {short(str(error))}") from error
