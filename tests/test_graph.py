# SPDX-License-Identifier: Apache-2.0
"""Recordings and graphs: what they compute, what they refuse, and what they leave as it was.

test_every_engine.py compares every case line of every family with its recording.
"""

from __future__ import annotations

import copy
import pickle
import re
import threading
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import _C


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def on(device: str, *shape: int, seed: int = 0) -> dnn.DeviceTensor:
    return dnn.asarray(drawn(*shape, seed=seed), device=device)


def same(a: dnn.DeviceTensor, b: dnn.DeviceTensor) -> bool:
    return a.shape == b.shape and a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()


def mlp(x: Any, w: Any, b: Any, r: Any) -> dnn.DeviceTensor:
    return dnn.add(dnn.activation_forward(dnn.matmul(x, w, bias=b), "gelu_tanh"), r)


def mlp_arguments(device: str, seed: int = 0) -> list[dnn.DeviceTensor]:
    shapes = ((8, 16), (16, 32), (32,), (8, 32))
    return [on(device, *s, seed=seed + i) for i, s in enumerate(shapes)]


def test_a_graph_by_hand_gives_the_bits_of_the_calls(device: str) -> None:
    x, w, b, r = mlp_arguments(device)
    with dnn.record(device=device, rounding="each") as g:
        y = mlp(g.input("x", (8, 16)), g.input("w", (16, 32)), b, r)
        g.output("y", y)
    for seed in (0, 50):
        x, w, *_ = mlp_arguments(device, seed)
        assert same(g.run(x=x, w=w)["y"], mlp(x, w, b, r))


def test_temporaries_are_numbered(device: str) -> None:
    """Also if several inputs are one tensor."""
    square = dnn.fuse(lambda a, b: dnn.exp(dnn.add(dnn.mul(a, b), a)))
    x = on(device, 4)
    text = square.graph(x, x).text()
    assert "%0 = " in text and "%1 = " in text and "%2" not in text


def test_a_bound_graph_computes_again_in_the_same_memory(device: str) -> None:
    x, w, b, r = mlp_arguments(device)
    with dnn.record(device=device, rounding="each") as g:
        g.output("y", mlp(g.input("x", (8, 16)), w, b, r))
    out = dnn.empty((8, 32), device=device)
    call = g.bind(x=x, y=out)
    assert call()["y"].data_ptr == out.data_ptr and same(out, mlp(x, w, b, r))
    x[...] = on(device, 8, 16, seed=9)
    call()
    assert same(out, mlp(x, w, b, r))
    before = dnn.memory_stats(device)["allocations"]
    call()
    assert dnn.memory_stats(device)["allocations"] == before, "a bound call allocates"


def test_fuse_records_once_for_each_signature(device: str) -> None:
    recorded = []

    @dnn.fuse
    def f(x: Any, mode: str = "relu", factor: float = 1.0) -> dict[str, Any]:
        recorded.append((x.shape, mode))
        return {"y": dnn.activation_forward(x, mode) * factor, "same": x, "word": mode, "pair": (x[0], [x.T])}

    x = on(device, 4, 6)
    for _ in range(3):
        r = f(x)
        assert same(r["y"], dnn.relu(x)) and r["same"] is x and r["word"] == "relu"
        assert r["pair"][0].data_ptr == x.data_ptr and same(r["pair"][1][0], x.T)
    f(x, "tanh"), f(x, mode="tanh"), f(on(device, 5, 6)), f(x.T), f(x, factor=0.0), f(x, factor=-0.0)
    f(x.to(dtype="float16"))
    assert len(recorded) == 8
    f.clear()
    f(x)
    assert len(recorded) == 9


def test_fuse_takes_arrays_of_numpy(device: str) -> None:
    f = dnn.fuse(mlp, rounding="each")
    arrays = [t.numpy() for t in mlp_arguments(device)]
    assert same(f(*arrays), mlp(*arrays))
    x, *others = mlp_arguments(device)
    y = f(arrays[0], *others)  # a host array goes to the device of the others
    assert y.device == device and same(y, mlp(x, *others))
    with dnn.Handle(device):
        assert f(*arrays).device == device


def test_a_fused_method_has_its_object() -> None:
    class Layer:
        def __init__(self, w: dnn.DeviceTensor) -> None:
            self.w = w

        @dnn.fuse
        def __call__(self, x: dnn.DeviceTensor) -> dnn.DeviceTensor:
            return dnn.matmul(x, self.w)

    first, second = Layer(on("cpu", 3, 4)), Layer(on("cpu", 3, 4, seed=5))
    x = on("cpu", 2, 3)
    assert same(first(x), dnn.matmul(x, first.w)) and same(second(x), dnn.matmul(x, second.w))


def test_arguments_that_share_memory_are_another_signature(device: str) -> None:
    @dnn.fuse
    def f(a: Any, b: Any) -> Any:
        dnn.mul(a, a, out=a)
        return dnn.add(a, b)

    for make in (lambda x: (x, x), lambda x: (x, x + 1), lambda x: (x[:2], x[1:3])):
        x, y = on(device, 4, 5), on(device, 4, 5)
        a, b = make(x)
        c, d = make(y)
        dnn.mul(c, c, out=c)
        assert same(f(a, b), dnn.add(c, d)) and same(x, y)


def test_constants_are_kept_by_reference(device: str) -> None:
    w = on(device, 6, 3)

    @dnn.fuse
    def f(x: Any) -> Any:
        return dnn.matmul(x, w)

    x = on(device, 2, 6)
    assert same(f(x), dnn.matmul(x, w))
    w[...] = on(device, 6, 3, seed=8)
    assert same(f(x), dnn.matmul(x, w))


def test_zeros_are_cleared_in_each_run(device: str) -> None:
    @dnn.fuse
    def f(x: Any) -> Any:
        total = dnn.zeros(x.shape, device=x.device)
        for _ in range(3):
            total += x
        return total

    x = on(device, 3, 3)
    assert same(f(x), f(x)) and same(f(x), x + x + x)


def test_running_statistics_change_once_in_a_run_and_not_in_find(device: str) -> None:
    mean, var = dnn.zeros((3,), device=device), dnn.ones((3,), device=device)
    scale, bias = dnn.ones((3,), device=device), dnn.zeros((3,), device=device)
    f = dnn.fuse(lambda x: dnn.batch_norm_forward_training(x, scale, bias, running_mean=mean, running_var=var)[0])
    x = on(device, 2, 3, 4, 4)
    with dnn.Handle(device, max_workspace=2**40):  # other tests have other limits, so they do not use the result
        reports = dnn.find(f, x)
        assert same(mean, dnn.zeros((3,), device=device)) and len(reports) == 1
    y = f(x)
    once = mean.copy()
    expected = dnn.zeros((3,), device=device), dnn.ones((3,), device=device)
    z = dnn.batch_norm_forward_training(x, scale, bias, running_mean=expected[0], running_var=expected[1])[0]
    assert same(y, z) and same(once, expected[0]) and same(var, expected[1])


def test_temporaries_share_memory_without_conflict(device: str) -> None:
    @dnn.fuse(rounding="each")
    def chain(x: Any) -> Any:
        parts = [dnn.relu(x + i) for i in range(6)]
        y = dnn.concat(parts, 1)
        for _ in range(10):
            y = dnn.tanh(y)
        return y.sum(1), y[:, 2:5]

    x = on(device, 64, 100)
    (total, part), (wanted, wanted_part) = chain(x), chain.__wrapped__(x)
    assert same(total, wanted) and same(part, wanted_part)
    most = int(re.findall(r"(\d+) bytes of temporaries", str(chain.graph(x)))[0])
    assert most < 2 * 64 * 600 * 4 + 2 * 64 * 100 * 4 + 2**14, "temporaries that are not in use keep their memory"


def test_dynamic_offsets(device: str) -> None:
    recorded = []

    @dnn.fuse(dynamic=("offset",))
    def f(x: Any, offset: int) -> Any:
        recorded.append(1)
        return dnn.dropout_forward(dnn.dropout_forward(x, 0.5, seed=1, offset=offset), 0.2, seed=offset + 5, offset=3)

    x = on(device, 50, 50)
    for offset in (0, 7, 2**40):
        wanted = dnn.dropout_forward(dnn.dropout_forward(x, 0.5, seed=1, offset=offset), 0.2, seed=offset + 5, offset=3)
        assert same(f(x, offset=offset), wanted)
    assert len(recorded) == 1
    with dnn.record(device=device) as g:
        n = g.dynamic("n")
        g.output("y", dnn.random_uniform((5,), seed=n - 1, device=device))
    assert same(g.run(n=4)["y"], dnn.random_uniform((5,), seed=3, device=device))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda n: n * 2,
        lambda n: n + 1.5,
        lambda n: bool(n),
        lambda n: n == 3,
        lambda n: -n,
        lambda n: n + n,
        lambda n: float(n),
    ],
)
def test_a_dynamic_number_has_no_value_in_a_recording(misuse: Callable[[Any], Any]) -> None:
    with pytest.raises(dnn.DTypeError, match="n"), dnn.record() as g:
        misuse(g.dynamic("n"))
    assert not _C.recording()


def test_a_dynamic_number_is_no_size() -> None:
    with pytest.raises(dnn.Error), dnn.record() as g:
        dnn.softmax_forward(g.input("x", (3, 4)), axis=g.dynamic("n"))
    assert not _C.recording()


def test_gather_checks_indices_in_each_run() -> None:
    f = dnn.fuse(lambda x, i: dnn.gather(x, i))
    x, good, bad = on("cpu", 4, 3), np.array([0, 3]), np.array([0, 4])
    assert same(f(x, good), dnn.gather(x, good))
    with pytest.raises(dnn.ShapeError, match=r"index must be from -4 to 3.*; recorded in line \d+ of test_graph.py"):
        f(x, bad)


MEMORY: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda t: t.numpy(),
    "__array__": np.asarray,
    "memoryview": memoryview,
    "__dlpack__": lambda t: t.__dlpack__(),
    "data_ptr": lambda t: t.data_ptr,
    "item": lambda t: t.sum().item(),
    "__float__": lambda t: float(t.sum()),
    "__bool__": lambda t: bool(t.sum()),
    "tolist": lambda t: t.tolist(),
    "pickle": pickle.dumps,
    "contains": lambda t: 3.0 in t,
}


@pytest.mark.parametrize("name", MEMORY)
def test_a_stand_in_has_no_memory(name: str, device: str) -> None:
    if device != "cpu" and name in ("__array__", "memoryview"):
        pytest.skip("needs host memory")
    with pytest.raises((dnn.DeviceError, BufferError)) as error, dnn.record(device=device) as g:
        MEMORY[name](dnn.relu(g.input("x", (3, 3))))
    # The buffer protocol wraps every error in a BufferError.
    text = f"{error.value} {error.value.__cause__}"
    assert re.search(r"%\d \(\w+ out, line \d+ of test_graph.py\) is recorded, not computed", text)
    assert not _C.recording() and same(dnn.relu(on(device, 2, 2)), dnn.maximum(on(device, 2, 2), 0))


def test_a_stand_in_shows_its_description() -> None:
    with dnn.record() as g:
        y = dnn.relu(g.input("x", (3, 3)))
        assert repr(y) == "DeviceTensor(shape=(3, 3), dtype='float32', layout='contiguous', recorded, device='cpu')"
        assert copy.copy(y).shape == (3, 3)


def test_a_recording_shows_the_values_of_constants(device: str) -> None:
    """The text of a long tensor is that of its edges, which calls put together."""
    shown = {dtype: dnn.arange(2000, dtype=dtype, device=device) for dtype in ("float32", "bfloat16")}
    wanted = {dtype: repr(t) for dtype, t in shown.items()}
    with dnn.record(device=device) as g:
        assert {dtype: repr(t) for dtype, t in shown.items()} == wanted
        g.output("y", dnn.relu(shown["float32"]))
    assert len(g._ended().nodes) == 1


def test_stand_ins_end_with_their_recording() -> None:
    with dnn.record() as g:
        y = dnn.relu(g.input("x", (3, 3)))
    with pytest.raises(dnn.DeviceError, match="belongs to a recording that is not active"):
        dnn.relu(y)
    with pytest.raises(dnn.DeviceError, match="belongs to another recording"), dnn.record():
        dnn.relu(y)
    with pytest.raises(dnn.DeviceError, match="belongs to a recording that is not active|is recorded, not computed"):
        g.run(x=y)


def test_a_stand_in_of_another_thread_is_refused() -> None:
    errors: list[Exception] = []
    with dnn.record() as g:
        y = dnn.relu(g.input("x", (3, 3)))

        def use() -> None:
            try:
                dnn.relu(y)
            except dnn.DeviceError as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "not active on this thread" in str(errors[0])


def test_recordings_do_not_nest_and_end_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), dnn.record() as g:
        dnn.relu(g.input("x", (3, 3)))
        raise ZeroDivisionError
    assert not _C.recording()
    with pytest.raises(dnn.DeviceError, match="no nodes yet"):
        g.run(x=drawn(3, 3))
    with pytest.raises(dnn.DeviceError, match="recordings do not nest"), dnn.record(), dnn.record():
        pass
    assert not _C.recording()
    f = dnn.fuse(lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        f(drawn(2))
    assert not _C.recording()


def test_a_fused_function_in_a_recording_is_recorded_with_it() -> None:
    f = dnn.fuse(lambda x: dnn.relu(x))
    with dnn.record() as g:
        g.output("y", f(g.input("x", (3, 3))) + 1)
    assert same(g.run(x=drawn(3, 3))["y"], dnn.relu(drawn(3, 3)) + 1)
    assert "2 nodes" in str(g) or "3 nodes" in str(g)


def test_errors_of_arguments(device: str) -> None:
    with dnn.record(device=device) as g:
        g.output("y", dnn.relu(g.input("x", (3, 4))))
    x = on(device, 3, 4)
    for arguments, text in (
        ({}, "'x' is an input of the graph and was not given"),
        ({"x": x, "z": x}, "no input or output 'z'"),
        ({"x": on(device, 4, 4)}, r"'x' must be float32 \[3, 4\]"),
        ({"x": x.to(dtype="float16")}, "'x' must be float32"),
        ({"x": on(device, 4, 3).T}, "with strides"),
        ({"x": x, "y": x}, "shares memory with 'x'"),
        ({"x": x, "y": dnn.empty((4, 3), device=device)}, "'y' must be float32"),
    ):
        with pytest.raises(dnn.ShapeError, match=text):
            g.run(**arguments)
    with pytest.raises(dnn.DTypeError, match="x must be an array; got 3"):
        g.run(x=3)
    with pytest.raises(dnn.ShapeError, match="already"), dnn.record() as g:
        g.input("x", (3,))
        g.input("x", (3,))
    with pytest.raises(dnn.ShapeError, match="must be a Python identifier"), dnn.record() as g:
        g.input("a b", (3,))
    with pytest.raises(dnn.ShapeError, match="which no recorded call has written"), dnn.record() as g:
        dnn.relu(dnn.empty((3,)))
    with pytest.raises(dnn.DTypeError, match="must be an array or hashable"):
        dnn.fuse(lambda x, y: x)(x, {1})
    with pytest.raises(dnn.ShapeError, match="no parameter"):
        dnn.fuse(lambda x: x, dynamic=("offset",))
    with pytest.raises(dnn.DTypeError, match="must have named parameters"):
        dnn.fuse(type, dynamic=("offset",))
    assert dnn.fuse(type)(x).__name__ == "DeviceTensor"  # type() has no signature


def test_an_output_has_memory_for_what_the_graph_writes(device: str) -> None:
    """An output of few bytes that has as many elements as the memory of the call that makes it."""
    with dnn.record(device=device) as g:
        g.output("y", dnn.relu(g.input("x", (4,))).as_strided((4,), (0,), 0))
    assert same(g.run(x=dnn.ones(4, device=device))["y"], dnn.ones(4, device=device))
    small = dnn.zeros((1,), device=device).as_strided((4,), (0,), 0)
    with pytest.raises(dnn.ShapeError, match="is a part of a larger tensor, so its memory cannot be given"):
        g.run(x=dnn.ones(4, device=device), y=small)


def test_an_input_that_is_written_must_be_writable(device: str) -> None:
    with dnn.record() as g:
        x = g.input("x", (3,))
        dnn.activation_forward(x, "relu", out=x)
        g.output("y", x)
    frozen = drawn(3)
    frozen.setflags(write=False)
    with pytest.raises(dnn.ShapeError, match="read-only, and the graph writes it"):
        g.run(x=frozen)
    x = on("cpu", 3)
    assert g.run(x=x)["y"].data_ptr == x.data_ptr


def test_calls_that_no_result_depends_on_do_not_run(device: str) -> None:
    with dnn.record(device=device) as g:
        x = g.input("x", (4, 4))
        y = dnn.tanh(x)
        dnn.exp(dnn.exp(y))  # nobody reads the result
        z = dnn.zeros((4, 4), device=device)
        z += y
        dnn.mul(x, x, out=x)  # an input is written
        g.output("z", z)
    assert len(g._ended().nodes) == 4, g
    x = on(device, 4, 4)
    wanted = dnn.tanh(x) + 0, x * x
    assert same(g.run(x=x)["z"], wanted[0]) and same(x, wanted[1])


def test_numbers_are_constants(device: str) -> None:
    f = dnn.fuse(lambda x: 2 * x + 1.5)
    x = on(device, 3, 3)
    assert same(f(x), 2 * x + 1.5) and str(f.graph(x)).count("pointwise(") == 2
    assert "transform" not in str(f.graph(x))


def test_empty_tensors(device: str) -> None:
    f = dnn.fuse(lambda x: (dnn.relu(x), dnn.matmul(x, x.T)))
    for got, wanted in zip(f(on(device, 0, 4)), f.__wrapped__(on(device, 0, 4)), strict=True):
        assert got.shape == wanted.shape


def test_threads_share_a_fused_function(device: str) -> None:
    f = dnn.fuse(mlp, rounding="each")
    arguments = mlp_arguments(device)
    wanted = mlp(*arguments)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(50):
            if not same(f(*arguments), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


UNARY = ("tanh", "neg", "abs", "square")
BINARY = ("add", "sub", "mul", "maximum")


def random_function(seed: int) -> Callable[[Any, Any], list[Any]]:
    """A function of 2 to 40 calls on random earlier results: maths, products, views, writes in place, several results."""

    def f(x: Any, y: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        made = [x, y, dnn.tanh(x)]

        def pick() -> Any:
            return made[rng.integers(len(made))]

        for _ in range(rng.integers(2, 40)):
            kind = rng.integers(8)
            a, b = pick(), pick()
            n = min(a.shape[0], b.shape[0])
            if kind == 0:
                made.append(dnn.pointwise(UNARY[rng.integers(4)], a))
            elif kind == 1:
                made.append(dnn.pointwise(BINARY[rng.integers(4)], a[:n], b[:n]))
            elif kind == 2:
                made.append(dnn.softmax_forward(dnn.matmul(a, b, transpose_b=True)[:, :1] * b[:1], axis=1))
            elif kind == 3:
                made.append(a[rng.integers(a.shape[0]) :][: rng.integers(1, 5)] if a.shape[0] > 1 else a)
            elif kind == 4:
                made.append(dnn.concat([a, b], 0)[:9])
            elif kind == 5:
                made.append(dnn.layer_norm_forward(a)[0])
            elif kind == 6:
                made.append(a * float(rng.standard_normal()) + a.mean(axis=1, keepdims=True))
            elif a is not x and a is not y:
                a += 0.5
        return [*made[-3:], made[int(rng.integers(len(made)))].T]

    return f


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_graphs_give_the_bits_of_the_calls(first: int, device: str) -> None:
    for seed in range(first, first + 20):
        f = random_function(seed)
        shape = (int(np.random.default_rng(seed).integers(1, 9)), 7)
        x, y = on(device, *shape, seed=seed), on(device, *shape, seed=seed + 1)
        fused = dnn.fuse(f, rounding="each")
        for _ in range(2):
            # The function may write to a view of x or y.
            a, b, c, d = x.copy(), y.copy(), x.copy(), y.copy()
            for got, wanted in zip((*fused(a, b), a, b), (*f(c, d), c, d), strict=True):
                assert same(got, wanted), f"seed {seed}:\n{fused.graph(x, y)}"
            x = x + 1


def test_the_text_of_a_graph() -> None:
    with dnn.record() as g:
        x, w = g.input("x", (8, 16)), g.input("w", (16, 4))
        g.output("y", dnn.relu(dnn.matmul(x, w)))
    assert str(g).splitlines() == [
        "graph cpu: 2 nodes, 128 bytes of temporaries",
        "  x in f32 8x16",
        "  w in f32 16x4",
        "  %0 = matmul(a=x b=w)  # matmul forward f32 a=8x16 b=16x4",
        "  y = activation(x=%0)  # activation forward f32 relu x=8x4",
        "  out y f32 8x4",
    ]
    assert repr(g) == "Graph(2 inputs, 2 nodes, 1 outputs, device='cpu')"
    for graph in (g, dnn.fuse(dnn.relu).graph(drawn(3))):
        with pytest.raises(dnn.DeviceError, match="the recording has ended"):
            graph.input("z", (3,))


def test_pictures_of_a_graph() -> None:
    w = on("cpu", 16, 4)
    with dnn.record() as g:
        y = dnn.relu(dnn.matmul(g.input("x", (8, 16)), w))
        g.output("y", y + y)
    boxes = [
        "x",
        "constant, 256 bytes",
        "matmul forward f32",
        "activation forward f32 relu",
        "pointwise add f32",
        "float32 8x4",
    ]
    for text in (g.dot(), g.svg()):
        assert all(words in text for words in boxes)
    assert g.dot().count("->") == 6 and g.dot().count("label=") == 13
    root = xml.etree.ElementTree.fromstring(g.svg())
    rectangles = [[float(e.get(k, "")) for k in ("x", "y", "width", "height")] for e in root if e.tag.endswith("rect")]
    assert len(rectangles) == 6 and len([e for e in root if e.tag.endswith("path")]) == 6
    left, top, width, height = (float(v) for v in root.get("viewBox", "").split())
    for i, (x, y0, w0, h0) in enumerate(rectangles):
        assert left <= x and x + w0 <= left + width and top <= y0 and y0 + h0 <= top + height
        for x1, y1, w1, h1 in rectangles[:i]:
            assert x + w0 <= x1 or x1 + w1 <= x or y0 + h0 <= y1 or y1 + h1 <= y0, "boxes overlap"
    assert g._repr_svg_() == g.svg() and dnn.record()._repr_svg_() is None
    with pytest.raises(dnn.DeviceError):
        dnn.record().svg()


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_pictures_of_random_graphs(seed: int) -> None:
    g = dnn.fuse(random_function(seed)).graph(on("cpu", 5, 7), on("cpu", 5, 7))
    rectangles = [e for e in xml.etree.ElementTree.fromstring(g.svg()) if e.tag.endswith("rect")]
    assert len(rectangles) >= str(g).count(" = ") and g.dot().count("shape=") == len(rectangles)
