# SPDX-License-Identifier: Apache-2.0
"""Saved graphs: what a loaded graph computes and shows, and what load() refuses.

test_every_engine.py saves and loads the recording of every case line.
"""

from __future__ import annotations

import copy
import json
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import FAMILIES, load
from support import reloaded
from test_every_engine import sample_of, tensors_of
from test_graph import drawn, on, random_function, same

import pyminidnn as dnn
from pyminidnn import graph_files

Contents = dict[str, Any]


def block(x: Any, w: Any, offset: Any, b: Any) -> dict[str, Any]:
    """Of several families, with several results of one call, a constant `b`, numbers and a dynamic number."""
    y = dnn.activation_forward(dnn.matmul(x, w, bias=b), "gelu_tanh") * 0.5
    y, mean, _ = dnn.layer_norm_forward(dnn.dropout_forward(y, 0.25, seed=7, offset=offset + 3))
    return {"y": y, "mean": mean, "column": (y + 1.5)[:, 1:2]}


def recorded(device: str, dtype: str = "float32") -> tuple[dnn.Graph, dnn.DeviceTensor]:
    """The graph of block(), and its constant."""
    b = on(device, 16, seed=5).to(dtype=dtype)
    with dnn.record(device=device) as g:
        x, w = g.input("x", (8, 12), dtype), g.input("w", (12, 16), dtype)
        for name, t in block(x, w, g.dynamic("offset"), b).items():
            g.output(name, t)
    return g, b


def arguments(device: str, dtype: str = "float32") -> dict[str, Any]:
    x, w = on(device, 8, 12, seed=1), on(device, 12, 16, seed=2)
    return {"x": x.to(dtype=dtype), "w": w.to(dtype=dtype), "offset": 9}


def assert_same_runs(first: dnn.Graph, second: dnn.Graph, **tensors: Any) -> None:
    results = second.run(**tensors)
    for name, wanted in first.run(**tensors).items():
        assert same(results[name], wanted), f"{name} differs"


def read(path: Path) -> Contents:
    contents: Contents = json.loads(path.read_text())
    return contents


def write(path: Path, contents: Contents) -> None:
    """Writes contents with their checksum, as someone hostile would."""
    path.write_text(json.dumps(contents | {"sha256": graph_files._checksum(contents)}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_loaded_graph_is_like_the_recorded_one(dtype: str, device: str, tmp_path: Path) -> None:
    g, b = recorded(device, dtype)
    g.save(tmp_path / "block.json")
    archive = np.load(tmp_path / "block.npz", allow_pickle=False)
    assert archive.files == ["c0"] and archive["c0"].shape == (16,)
    loaded = dnn.Graph.load(tmp_path / "block.json", device=device)
    given = arguments(device, dtype)
    assert_same_runs(g, loaded, **given)
    assert str(loaded) == str(g) and repr(loaded) == repr(g)
    first, second = [re.sub(r"[\d.]+ us|0x\w+", "", r.why()) for r in (g, loaded)]
    assert first == second and re.search(r"line \d+ of test_graph_files.py", first)
    assert (loaded.dot(), loaded.svg()) == (g.dot(), g.svg())
    assert [r.problem for r in loaded.explain()] == [r.problem for r in g.explain()]
    out = dnn.empty((8, 16), dtype=dtype, device=device)
    assert same(loaded.bind(**given, y=out)()["y"], g.run(**given)["y"])
    b *= 2  # the loaded graph has constants of its own
    with pytest.raises(AssertionError, match="differs"):
        assert_same_runs(g, loaded, **given)
    again = reloaded(loaded)
    assert str(again) == str(g)
    assert_same_runs(loaded, again, **given)


def test_a_loaded_graph_keeps_measurements_and_rounding(device: str) -> None:
    x = on(device, 64, 64)
    for rounding in ("fused", "each"):
        f = dnn.fuse(lambda x: dnn.exp(dnn.tanh(x) + x), rounding=rounding)  # type: ignore[call-overload]
        loaded = reloaded(f.graph(x))
        assert loaded.why() == f.graph(x).why()
        with dnn.Handle(device, max_workspace=2**40):  # other tests have other limits, so they do not use the result
            assert [r.chosen for r in loaded.find()] == [r.chosen for r in f.graph(x).explain()]
        assert_same_runs(f.graph(x), loaded, x0=x)


def test_constants_as_inputs(device: str, tmp_path: Path) -> None:
    g, b = recorded(device)
    g.save(tmp_path / "g.json", constants="inputs")
    assert [p.name for p in tmp_path.iterdir()] == ["g.json"]
    loaded = dnn.Graph.load(tmp_path / "g.json", device=device)
    given = arguments(device)
    results = loaded.run(**given, c0=b)
    assert all(same(results[name], t) for name, t in g.run(**given).items())
    with pytest.raises(dnn.ShapeError, match="'c0' is an input"):
        loaded.run(**given)
    w = on(device, 4, 6)
    with dnn.record(device=device) as g:
        g.output("y", dnn.matmul(dnn.matmul(g.input("c0", (3, 6)), w.T), w[1:3, :4].T))
    assert str(reloaded(g)) == str(g)  # an input and a constant have one name
    g.save(tmp_path / "g.json", constants="inputs")
    loaded = dnn.Graph.load(tmp_path / "g.json", device=device)
    x, wanted = on(device, 3, 6), g.run(c0=on(device, 3, 6))["y"]
    (shape,) = (shape for name, _, shape, *_ in loaded._ended().inputs if name == "c0_")
    assert same(loaded.run(c0=x, c0_=w.T if shape == (6, 4) else w.reshape(shape))["y"], wanted)


def test_a_part_of_a_constant(device: str, tmp_path: Path) -> None:
    """Of a large tensor, the bytes behind the last that is used are not saved."""
    large = on(device, 1000, 8)
    with dnn.record(device=device) as g:
        g.output("y", g.input("x", (4, 8)) + large[2:6])
        g.output("t", large[1].T)
    g.save(tmp_path / "g.json")
    loaded = dnn.Graph.load(tmp_path / "g.json", device=device)
    assert (tmp_path / "g.npz").stat().st_size < 1000
    assert_same_runs(g, loaded, x=on(device, 4, 8))


def test_written_tensors(device: str, tmp_path: Path) -> None:
    """Constants and inputs that a graph writes, views of one input, an output that is an input."""
    mean, var = dnn.zeros((3,), device=device), dnn.ones((3,), device=device)

    def f(x: Any, part: Any) -> Any:
        part += 1
        y = dnn.batch_norm_forward_training(x, mean * 0 + 1, mean * 0, running_mean=mean, running_var=var)
        return y[0], part.T, dnn.concat([x[:, :1], y[0]], 1)

    first, second = on(device, 4, 3, 5), on(device, 4, 3, 5)
    graph = dnn.fuse(f).graph(first, first[1:3])
    loaded = reloaded(graph)
    assert str(loaded) == str(graph)
    for _ in range(2):
        results = graph.run(x0=first, x1=first[1:3])
        for name, t in loaded.run(x0=second, x1=second[1:3]).items():
            assert same(t, results[name])
        assert same(first, second)
    frozen = drawn(4)
    frozen.setflags(write=False)
    dnn.fuse(dnn.relu).graph(frozen).save(tmp_path / "g.json")
    assert read(tmp_path / "g.json")["buffers"][0]["read_only"]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family(family: str) -> None:
    for case in {(c.direction, c.words): c for c in load(family) if "out" not in c.operands}.values():
        sample = sample_of(case)
        tensors = tensors_of(case, sample, "cpu")
        graph = dnn.fuse(sample.call).graph(tensors, algo=None)
        assert str(reloaded(graph)) == str(graph), case


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_random_graphs(first: int, device: str) -> None:
    for seed in range(first, first + 10):
        shape = (int(np.random.default_rng(seed).integers(1, 9)), 7)
        x, y = on(device, *shape, seed=seed), on(device, *shape, seed=seed + 1)
        graph = dnn.fuse(random_function(seed), rounding="each").graph(x, y)
        loaded = reloaded(graph)
        assert str(loaded) == str(graph)
        a, b, c, d = x.copy(), y.copy(), x.copy(), y.copy()  # the function may write its arguments
        results, wanted = loaded.run(x0=a, x1=b), graph.run(x0=c, x1=d)
        assert all(same(results[name], t) for name, t in wanted.items()) and same(a, c) and same(b, d)


def test_calls_with_options_of_their_own(device: str) -> None:
    h = dnn.Handle(device, math="ieee", max_workspace=2**30, deterministic=True)
    x = on(device, 16, 16)
    algo = "reference" if device == "cpu" else "simt"
    f = dnn.fuse(lambda x: dnn.tanh(dnn.matmul(dnn.matmul(x, x, handle=h), x, algo=algo)))
    text = str(reloaded(f.graph(x)))
    assert text == str(f.graph(x)) and "math=ieee\n" in text and f"algo={algo}" in text
    with dnn.Handle(device, math="ieee"):
        text = str(reloaded(f.graph(x)))
        assert text == str(f.graph(x)) and text.count("math=ieee") == 2


def test_an_old_layout_is_refused() -> None:
    """The file is that of a version whose problem of a matmul had no field for the alignment."""
    path = Path(__file__).parent / "cases" / "graph_of_another_version.json"
    text = r"node 0 \('matmul .*its problem is '0 2 .* version '0.0.9' has saved the file; record the graph again"
    with pytest.raises(dnn.NotSupported, match=text):
        dnn.Graph.load(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    recorded("cpu")[0].save(tmp_path / "g.json")
    write(tmp_path / "g.json", read(tmp_path / "g.json") | {"format": "pyminidnn graph 7", "version": "9.1"})
    with pytest.raises(dnn.NotSupported, match=r"version '9.1' has saved it as .*graph 7.*record the graph again"):
        dnn.Graph.load(tmp_path / "g.json")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_tensor_that_is_not_read(layout: str) -> None:
    """The file has only the text of the problem for x, which leaves out strides of dimensions of one element."""
    channel = dnn.asarray(drawn(2, 1, 8, 6)).to(layout=layout)
    dy = dnn.asarray(drawn(2, 1, 4, 3))
    y, indices = dnn.pool_forward_with_indices(channel, 2)
    image = dnn.asarray(drawn(2, 5, 8, 6)).to(layout=layout)[:1, :1]
    with dnn.record() as g:
        g.output("dx", dnn.pool_backward(g.input("dy", dy.shape), channel, y, 2, indices=indices))
        g.output("dimage", dnn.pool_backward(g.input("dz", (1, 1, 4, 3)), image, y[:1], 2, mode="avg"))
    results = g.run(dy=dy, dz=dy[:1])
    for name, again in reloaded(g).run(dy=dy, dz=dy[:1]).items():
        np.testing.assert_array_equal(again.numpy(), results[name].numpy())


def test_what_save_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g, _ = recorded("cpu")
    for path in ("g.npz", "g", "g\0.json"):
        with pytest.raises(dnn.ShapeError, match=r"save: path must be a file name that ends in .json"):
            g.save(path)
    with pytest.raises(dnn.DTypeError, match="path must be a str"):
        g.save(3)  # type: ignore[arg-type]
    for constants in ("archive", 1, None):
        with pytest.raises(dnn.ShapeError, match="constants must be 'file' or 'inputs'"):
            g.save(tmp_path / "g.json", constants=constants)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        g.save(tmp_path / "no" / "g.json")
    with pytest.raises(dnn.DeviceError, match="no nodes yet"):
        dnn.record().save(tmp_path / "g.json")
    memory = np.zeros(8, "float32")
    a, b = dnn.asarray(memory), dnn.asarray(memory[2:])
    with dnn.record() as g:
        dnn.mul(g.input("x", (8,)), 2, out=a)
        g.output("y", b + 1)
    with pytest.raises(dnn.NotSupported, match=r"is written, and shares memory with c\d; pass constants='inputs'"):
        g.save(tmp_path / "g.json")

    # save() makes the calls of the file once more.
    def refuse(*_: object) -> None:
        raise dnn.NotSupported("its text differs")

    monkeypatch.setattr("pyminidnn.graph_files._Rebuilding._compare", refuse)
    with pytest.raises(dnn.NotSupported, match=r"a file cannot describe this graph: node 0 \('.*'\): its text differs"):
        recorded("cpu")[0].save(tmp_path / "g.json")
    assert list(tmp_path.iterdir()) == []


def test_devices(tmp_path: Path) -> None:
    recorded("cpu")[0].save(tmp_path / "g.json")
    with pytest.raises(dnn.DeviceError, match=r"load: .*g.json.*was recorded on cpu; it cannot run on 'cuda:0'"):
        dnn.Graph.load(tmp_path / "g.json", device="cuda:0")
    if dnn.device_count():
        with dnn.Handle("cuda"):
            assert "graph cpu" in str(dnn.Graph.load(tmp_path / "g.json"))
    with dnn.record(), pytest.raises(dnn.DeviceError, match="recordings do not nest"):
        dnn.Graph.load(tmp_path / "g.json")


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Replaces text in a file, and corrects the checksum."""

    def change(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        assert old in text
        write(path, json.loads(text.replace(old, new)))

    return change


def buffer(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        contents = read(folder / "g.json")
        (b,) = (b for b in contents["buffers"] if b["name"] == name)
        b |= changes
        write(folder / "g.json", contents)

    return change


def port(node: int, name: str, at: int, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        contents = read(folder / "g.json")
        (p,) = (p for p in contents["nodes"][node]["ports"] if p[0] == name)
        p[at] = value
        write(folder / "g.json", contents)

    return change


def node(i: int, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        contents = read(folder / "g.json")
        contents["nodes"][i] |= changes
        write(folder / "g.json", contents)

    return change


def order(folder: Path) -> None:
    contents = read(folder / "g.json")
    contents["nodes"] = contents["nodes"][::-1]
    write(folder / "g.json", contents)


def pickled(folder: Path) -> None:
    with zipfile.ZipFile(folder / "g.npz", "w") as archive, archive.open("c0.npy", "w") as entry:
        np.lib.format.write_array(entry, np.array([Trap()] * 16, dtype=object), allow_pickle=True)


class Trap:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was executed",))


def compressed(folder: Path) -> None:
    np.savez_compressed(folder / "g.npz", c0=np.zeros(2**20, "float32"))


def cut(file: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: len(data) // 2])

    return change


OPTIONS = {"deterministic": False, "math": "ieee", "max_workspace": None, "threads": None}
HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut off": (cut("g.json"), "is damaged, or no file of Graph.save"),
    "empty": (lambda f: (f / "g.json").write_bytes(b""), "is damaged, or no file of Graph.save"),
    "binary": (lambda f: (f / "g.json").write_bytes(b"\xff\xfe\0"), "is damaged, or no file of Graph.save"),
    "nested": (lambda f: (f / "g.json").write_text("[" * 100_000), "damaged.*RecursionError"),
    "a long number": (lambda f: (f / "g.json").write_text("9" * 10_000), "is damaged, or no file of Graph.save"),
    "a list": (lambda f: (f / "g.json").write_text("[]"), "is damaged, or no file of Graph.save"),
    "no checksum": (
        lambda f: (f / "g.json").write_text((f / "g.json").read_text().replace("gelu_tanh", "gelu")),
        "contents do not have its checksum",
    ),
    "negative size": (buffer("%1", bytes=-4), "not possible"),
    "huge size": (buffer("%1", bytes=2**62), "exceed the range"),
    "size beyond int64": (buffer("%1", bytes=2**80), "bytes"),
    "too small": (buffer("x", bytes=100), "does not lie in a buffer of 100 bytes"),
    "inputs do not cover it": (buffer("x", bytes=8000), "has 8000 bytes, of which the inputs reach 384"),
    "another kind": (buffer("x", kind="temporary"), "does not lie in the memory of an input"),
    "a kind that does not exist": (buffer("x", kind="pipe"), "is of the kind 'pipe'"),
    "a constant that is an input": (buffer("c0", kind="input"), "does not have the constants|the inputs reach 0"),
    "a longer constant": (buffer("c0", bytes=2**40), "does not lie in a buffer"),
    "a number of many elements": (buffer("c1", bytes=2**20), "does not lie in a buffer"),
    "port outside": (port(0, "a", 4, 384), r"node 0 \('matmul.*does not lie in a buffer of 384 bytes"),
    "negative offset": (port(0, "a", 4, -4), "does not lie in a buffer"),
    "misaligned": (port(0, "a", 4, 2), "does not lie in a buffer"),
    "strides leave the buffer": (port(0, "a", 7, [13, 1]), "does not lie in a buffer"),
    "strides overflow": (port(0, "a", 7, [2**62, 1]), "reaches beyond 2.63 bytes"),
    "negative shape": (port(0, "a", 6, [-8, 12]), "negative size"),
    "many dimensions": (port(0, "a", 6, [1] * 40), "dimensions"),
    "another shape": (port(0, "a", 6, [12, 8]), "node 0"),
    "another dtype": (port(0, "a", 5, "float64"), "node 0"),
    "a dtype that does not exist": (port(0, "a", 5, "float7"), "a dtype must be one of"),
    "a buffer that does not exist": (port(0, "a", 3, 99), "there is no buffer 99"),
    "another word": (port(0, "a", 1, 3), "its ports are"),
    "another access": (port(0, "y", 2, "read"), "its ports are"),
    "another port": (port(0, "bias", 0, "c"), "node 0"),
    "read before written": (port(1, "x", 3, 8), "which no recorded call has written"),
    "cyclic": (order, "which no recorded call has written"),
    "writes a read-only input": (port(2, "y", 3, 0), "node 2"),
    "another family": (node(0, family="conv"), "its family is"),
    "a family that does not exist": (node(0, text="os forward f32"), "there is no function 'os'"),
    "another activation": (node(1, text="activation forward f32 tanhh x=8x16"), "mode must be one of"),
    "fewer words": (node(0, args="0 0"), "args must have 8 words; got 2"),
    "an address": (node(0, args="7f0000000000 0 0 0 0 3ff0000000000000 0 0"), "its args are"),
    "a flag": (node(0, problem="1 2 3"), "its problem is '1 2 3' in the file"),
    "a matmul with a seed": (node(0, dynamic=[[5, 0, 0]]), "cannot be dynamic number 0"),
    "a dynamic number that does not exist": (node(3, dynamic=[[3, 7, 0]]), "cannot be dynamic number 7"),
    "the least addend": (node(3, dynamic=[[3, 0, -(2**63)]]), "dynamic number 0 plus -9223372036854775808"),
    "a large addend": (node(3, dynamic=[[3, 0, 2**40]]), r"dynamic number 0 plus \d+"),
    "an engine that does not exist": (node(0, algo="magic"), "names no engine"),
    "options": (node(0, handle=OPTIONS | {"math": "fp8"}), "math must be 'tf32' or 'ieee'"),
    "a stream": (node(0, handle=OPTIONS | {"stream": 1234}), "a call has the options"),
    "no constants": (lambda f: (f / "g.npz").unlink(), "does not exist; copy it there"),
    "constants cut off": (cut("g.npz"), "damaged"),
    "other constants": (lambda f: dnn.save(f / "g.npz", {"c0": on("cpu", 16)}), "does not have the constants"),
    "other names": (lambda f: dnn.save(f / "g.npz", {"c9": on("cpu", 16)}), "does not have the constants"),
    "compressed constants": (compressed, "has compressed arrays"),
    "pickled constants": (pickled, "damaged|elements of object"),
    "a twin": (replaced("g.json", '["w", ', '["x", '), "must have a name of its own"),
    "no identifier": (replaced("g.json", '["w", ', '["w w", '), "must have a name of its own"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files(what: str, tmp_path: Path) -> None:
    change, text = HOSTILE[what]
    recorded("cpu")[0].save(tmp_path / "g.json")
    dnn.Graph.load(tmp_path / "g.json")
    change(tmp_path)
    with pytest.raises(dnn.Error, match=f"load: .*g.json.*{text}|load: path .*g.npz.*{text}"):
        dnn.Graph.load(tmp_path / "g.json")
    assert not dnn._C.recording()


def test_hostile_write_to_a_read_only_input(tmp_path: Path) -> None:
    x = drawn(3, 4)
    graph = dnn.fuse(lambda x: dnn.activation_forward(x, "relu", out=x)).graph(x)
    graph.save(tmp_path / "g.json")
    buffer("x0", read_only=True)(tmp_path)
    with pytest.raises(dnn.ShapeError, match="read-only"):
        dnn.Graph.load(tmp_path / "g.json")


def saved_graphs(folder: Path) -> list[tuple[Path, dnn.Graph, dict[str, Any]]]:
    """A file of each family, of block() and of random graphs, with the graph and its arguments."""
    graphs: list[tuple[dnn.Graph, dict[str, Any]]] = [(recorded("cpu")[0], arguments("cpu"))]
    for family in FAMILIES:
        case = next(c for c in load(family) if "out" not in c.operands)
        sample = sample_of(case)
        tensors = tensors_of(case, sample, "cpu")
        named = {f"x{i}": t for i, t in enumerate(tensors.values())}
        graphs.append((dnn.fuse(sample.call).graph(tensors, algo=None), named))
    for seed in range(4):
        x, y = on("cpu", 5, 7, seed=seed), on("cpu", 5, 7, seed=seed + 1)
        graphs.append((dnn.fuse(random_function(seed)).graph(x, y), {"x0": x, "x1": y}))
    named_graphs = [(folder / f"{i}.json", graph, given) for i, (graph, given) in enumerate(graphs)]
    for path, graph, _ in named_graphs:
        graph.save(path)
    return named_graphs


def test_hostile_bytes(tmp_path: Path) -> None:
    """Changes of bytes, numbers and lines of a file: it loads as it was, or not at all."""
    rng = random.Random(0)
    numbers = ["0", "-1", "9" * 30, "1e999", "null", "[]", '"x"', "4294967296"]
    loaded = 0
    for path, graph, given in saved_graphs(tmp_path):
        text = path.read_text()
        for _ in range(25):
            kind, at = rng.randrange(5), rng.randrange(len(text))
            found = rng.choice(list(re.finditer(r"\d+", text)))
            if kind == 0:  # flip
                changed = text[:at] + chr(ord(text[at]) ^ 1 << rng.randrange(7)) + text[at + 1 :]
            elif kind == 1:  # delete
                changed = text[:at] + text[at + rng.randrange(1, 30) :]
            elif kind == 2:  # cut off
                changed = text[:at]
            elif kind == 3:  # another number
                changed = text[: found.start()] + rng.choice(numbers) + text[found.end() :]
            else:  # two lines swapped
                lines = text.splitlines()
                i, k = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[i], lines[k] = lines[k], lines[i]
                changed = "\n".join(lines)
            path.write_bytes(changed.encode("utf-8", "surrogatepass"))
            try:
                again = dnn.Graph.load(path)
            except dnn.Error:
                continue
            loaded += 1
            given = {name: t if isinstance(t, int) else t.copy() for name, t in given.items()}
            assert str(again) == str(graph)
            other = {name: t if isinstance(t, int) else t.copy() for name, t in given.items()}
            results = again.run(**other)
            assert all(same(results[name], t) for name, t in graph.run(**given).items())
    assert loaded < 100


def test_hostile_archives(tmp_path: Path) -> None:
    """Changes of bytes of the constants: the graph loads as it was, or not at all."""
    rng = random.Random(2)
    graph, given = recorded("cpu")[0], arguments("cpu")
    graph.save(tmp_path / "g.json")
    data = (tmp_path / "g.npz").read_bytes()
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(data))] = rng.choice([0, 1, 127, 255, rng.randrange(256)])
        (tmp_path / "g.npz").write_bytes(bytes(changed[: rng.choice([len(data), rng.randrange(len(data))])]))
        try:
            loaded = dnn.Graph.load(tmp_path / "g.json")
        except dnn.Error:
            continue
        assert_same_runs(graph, loaded, **given)


INTEGERS = [0, 1, -1, 2, 3, 8, 16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63), 2**63, 10**30]
OTHERS = [None, True, "", [], {}, "x", 1.5, float("nan"), [1] * 9, "float16", "bool", "input", "constant", "read"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in nested dicts and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, v in items for p in places(v, (*path, key)))]


def mutated(contents: Contents, rng: random.Random) -> Contents:
    """Changes one value: a number, a word of a text, an item of a list, or a value of another place or type."""
    contents = copy.deepcopy(contents)
    every = [p for p in places(contents) if p and p[0] not in ("sha256", "format")]

    def at(path: tuple[Any, ...]) -> Any:
        value: Any = contents
        for key in path:
            value = value[key]
        return value

    *parents, key = rng.choice(every)
    parent = at(tuple(parents))
    value, kind = parent[key], rng.random()
    if kind < 0.15:
        parent[key] = copy.deepcopy(at(rng.choice(every)))
    elif kind < 0.25:
        parent[key] = copy.deepcopy(rng.choice(OTHERS))
    elif type(value) is int:
        parent[key] = rng.choice([value + 1, -value, 2 * value, value ^ 1 << rng.randrange(40), rng.choice(INTEGERS)])
    elif isinstance(value, str):
        words = value.split(" ")
        i = rng.randrange(len(words))
        words[i] = rng.choice([rng.choice(words), words[i] + "1", words[i][1:], words[i].replace("x", "9x"), ""])
        parent[key] = " ".join(words)
    elif isinstance(value, list) and value:
        i = rng.randrange(len(value))
        value[i : i + rng.randrange(2)] = [copy.deepcopy(rng.choice(value))] * rng.randrange(2)
    elif isinstance(value, dict) and value:
        del value[rng.choice(list(value))]
    return contents


def test_hostile_contents(tmp_path: Path) -> None:
    """Changes of values, with a new checksum: a file loads and runs, or raises an error of ours."""
    rng = random.Random(1)
    loaded = 0
    for path, _, given in saved_graphs(tmp_path):
        contents = read(path)
        for _ in range(40):
            write(path, mutated(contents, rng))
            try:
                graph = dnn.Graph.load(path)
                loaded += 1
                graph.run(**given)
            except dnn.Error:
                pass
    assert 50 < loaded < 400
