# SPDX-License-Identifier: Apache-2.0
"""Calls captured into CUDA graphs, by torch and by the driver's functions. A replay gives the result of a plain call,
even after all other memory has been allocated, written and freed. A graph's memory is released when the graph is
destroyed."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from support import values_of

import pyminidnn as dnn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SHAPE = (4, 16, 20, 20)


class TorchGraph:
    """A graph captured by torch.cuda.graph."""

    def __init__(self, mode: str = "global") -> None:
        self.graph, self.stream, self.mode = torch.cuda.CUDAGraph(), torch.cuda.Stream(), mode

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode=self.mode):
            yield

    def replay(self) -> None:
        self.graph.replay()
        torch.cuda.synchronize()

    def destroy(self) -> None:
        self.graph.reset()


class DriverGraph:
    """The same with the driver's functions. The CUgraph is destroyed immediately after instantiation: only the
    CUgraphExec remains."""

    MODES = ("global", "thread_local", "relaxed")

    def __init__(self, mode: str = "global") -> None:
        self.driver, self.stream, self.mode = ctypes.CDLL("libcuda.so.1"), torch.cuda.Stream(), mode
        self.address, self.executable = ctypes.c_void_p(self.stream.cuda_stream), ctypes.c_void_p()

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.driver, name)(*arguments)
        assert result == 0, f"{name}: error {result}"

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        torch.cuda.synchronize()
        self.call("cuStreamBeginCapture_v2", self.address, self.MODES.index(self.mode))
        yield
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", self.address, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(self.executable), graph, ctypes.c_ulonglong(0))
        self.call("cuGraphDestroy", graph)

    def replay(self) -> None:
        self.call("cuGraphLaunch", self.executable, self.address)
        torch.cuda.synchronize()

    def destroy(self) -> None:
        self.call("cuGraphExecDestroy", self.executable)


def array(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape or SHAPE).astype("float32")


def poison(handle: dnn.Handle, *more_sizes: int) -> list[dnn.DeviceTensor]:
    """Writes NaN to the memory that can be allocated, in tensors of the sizes that are used here. Half of these tensors
    are kept."""
    kept = []
    with handle:
        for size in (*more_sizes, int(np.prod(SHAPE)), int(np.prod(SHAPE)) // 2, 64, 1152):
            tensors = [dnn.full((size,), float("nan"), device="cuda:0") for _ in range(8)]
            kept += tensors[::2]
    handle.synchronize()
    return kept


def replays_are_right(
    graph: TorchGraph | DriverGraph, x: dnn.DeviceTensor, y: dnn.DeviceTensor, want: Callable[[np.ndarray], np.ndarray],
    handle: dnn.Handle, *sizes: int,
) -> None:  # fmt: skip
    for seed in range(3):
        kept = poison(handle, *sizes)
        value = array(seed + 10)
        dnn.transform(dnn.asarray(value).to(device="cuda:0"), out=x)
        torch.cuda.synchronize()
        graph.replay()
        np.testing.assert_allclose(values_of(y), want(value), rtol=1e-5, atol=1e-5)
        assert all(np.isnan(values_of(t)).all() for t in kept), "a replay wrote into another tensor"


@pytest.fixture(autouse=True)
def memory_comes_back() -> Iterator[None]:
    """Checks that memory is released. A thread of the driver releases a graph's memory, shortly after the graph is
    destroyed."""
    before = dnn.memory_stats("cuda:0")["allocated_bytes"]
    yield
    gc.collect()
    for _ in range(100):
        if (now := dnn.memory_stats("cuda:0")["allocated_bytes"]) <= before:
            return
        time.sleep(0.05)
    raise AssertionError(f"{now} bytes are allocated, {before} were before the test")


BY = {
    "torch": TorchGraph,
    "torch, thread_local": lambda: TorchGraph("thread_local"),
    "torch, relaxed": lambda: TorchGraph("relaxed"),
    "driver": DriverGraph,
    "driver, thread_local": lambda: DriverGraph("thread_local"),
    "driver, relaxed": lambda: DriverGraph("relaxed"),
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("with_out", [False, True])
def test_workspace_and_outputs(with_out: bool, by: str) -> None:
    """Every convolution engine with workspace, with `out` and without; intermediate results are dropped."""
    x, w = dnn.asarray(array(0)).to(device="cuda:0"), dnn.asarray(array(1, 16, 16, 3, 3)).to(device="cuda:0")
    (report,) = dnn.explain(dnn.conv_forward, x, w, padding=1)
    engines = [e for e in report.engines if not e.why_not and e.workspace_bytes]
    assert engines, "an engine with workspace"
    for engine in engines:
        graph = BY[by]()
        handle = dnn.Handle("cuda:0", stream=graph.stream)
        out = dnn.empty(SHAPE, device="cuda:0") if with_out else None

        def step(on: dnn.Handle | None = None, out: object = None, algo: str = engine.name) -> dnn.DeviceTensor:
            middle = dnn.conv_forward(x, w, padding=1, algo=algo, handle=on)
            middle = dnn.activation_forward(middle, "tanh", handle=on)
            return dnn.conv_forward(middle, w, padding=1, algo=algo, out=out, handle=on)

        def want(value: np.ndarray, step: Callable[[], dnn.DeviceTensor] = step) -> np.ndarray:
            # replays_are_right() calls this function while x has the value `value`.
            return values_of(step())

        # The first call compiles and loads the kernels, before the capture begins.
        step(handle)
        with graph.capture():
            y = step(handle, out)
        replays_are_right(graph, x, y, want, handle, engine.workspace_bytes // 4)
        graph.destroy()


@pytest.mark.parametrize("by", ["torch", "driver"])
def test_a_tensor_freed_during_the_capture(by: str) -> None:
    """Tensors made before the capture, on the captured stream and on another stream; used in the capture, and dropped
    in it or after it."""
    graph = BY[by]()
    handle = dnn.Handle("cuda:0", stream=graph.stream)
    x = dnn.asarray(array(0)).to(device="cuda:0")
    there = dnn.asarray(array(2)).to(device="cuda:0")
    with handle:
        here, later = dnn.asarray(array(3)).to(device="cuda:0"), dnn.asarray(array(4)).to(device="cuda:0")
        unused = dnn.asarray(array(5)).to(device="cuda:0")
        dnn.add(x, here)
        torch.cuda.synchronize()
        with graph.capture():
            y = dnn.add(x, here)
            del here
            y = dnn.add(y, there)
            del there, unused
            y = dnn.add(y, later)
    del later
    constant = array(2).astype("float64") + array(3) + array(4)
    replays_are_right(graph, x, y, lambda value: value + constant, handle)
    graph.destroy()


@pytest.mark.parametrize("by", ["torch", "driver"])
def test_two_streams_in_one_capture(by: str) -> None:
    graph, side = BY[by](), torch.cuda.Stream()
    main, second = dnn.Handle("cuda:0", stream=graph.stream), dnn.Handle("cuda:0", stream=side)
    x = dnn.asarray(array(0)).to(device="cuda:0")

    def step() -> dnn.DeviceTensor:
        doubled = dnn.add(x, x, handle=main)
        side.wait_stream(graph.stream)
        tripled = dnn.add(doubled, x, handle=second)
        cube = dnn.mul(tripled, tripled, handle=second)
        graph.stream.wait_stream(side)
        del tripled
        return dnn.add(cube, doubled, handle=main)

    step()
    with graph.capture():
        y = step()
    replays_are_right(graph, x, y, lambda v: 9.0 * v.astype("float64") ** 2 + 2.0 * v, second)
    replays_are_right(graph, x, y, lambda v: 9.0 * v.astype("float64") ** 2 + 2.0 * v, main)
    graph.destroy()


@pytest.mark.parametrize("by", ["torch", "driver"])
def test_lifetimes_of_graphs_and_tensors(by: str) -> None:
    """A tensor that outlives its graph, a graph that outlives its tensors, and a tensor of one graph used by
    another."""
    first, second = BY[by](), BY[by]()
    one, two = (dnn.Handle("cuda:0", stream=g.stream) for g in (first, second))
    x = dnn.asarray(array(0)).to(device="cuda:0")
    dnn.add(x, x, handle=one)
    with first.capture():
        y = dnn.add(x, x, handle=one)
    with second.capture():
        z = dnn.mul(y, x, handle=two)
    first.replay()
    replays_are_right(first, x, y, lambda v: 2.0 * v, two)
    second.replay()
    np.testing.assert_allclose(values_of(z), 2.0 * array(12).astype("float64") ** 2, rtol=1e-5)
    first.destroy()
    poisoned = poison(one)
    np.testing.assert_allclose(values_of(y), 2.0 * array(12), rtol=1e-6)  # y is valid after its graph was destroyed
    del y, z  # y and z are freed; the second graph still exists
    poisoned += poison(two)
    second.replay()
    assert all(np.isnan(values_of(t)).all() for t in poisoned)
    second.destroy()


def test_a_failed_capture_releases_its_memory() -> None:
    graph = TorchGraph()
    handle = dnn.Handle("cuda:0", stream=graph.stream)
    x = dnn.asarray(array(0)).to(device="cuda:0")
    dnn.add(x, x, handle=handle)
    with pytest.raises(RuntimeError, match="in the middle"), graph.capture():
        dnn.add(x, x, handle=handle)
        raise RuntimeError("in the middle")
    torch.cuda.synchronize()
    np.testing.assert_allclose(values_of(dnn.add(x, x, handle=handle)), 2.0 * array(0))


def test_a_bound_graph_of_recorded_calls_is_captured() -> None:
    captured = TorchGraph()
    handle = dnn.Handle("cuda:0", stream=captured.stream)
    w = dnn.asarray(np.random.default_rng(1).standard_normal((64, 32)).astype("float32"), device="cuda:0")
    with dnn.record(device="cuda:0", rounding="each") as recorded:
        y = dnn.softmax_forward(dnn.activation_forward(dnn.matmul(recorded.input("x", (8, 64)), w), "gelu"))
        recorded.output("y", y)
    x, y = torch.randn(8, 64, device="cuda"), torch.empty(8, 32, device="cuda")
    torch.cuda.synchronize()
    call = recorded.bind(x=x, y=y, handle=handle)
    call()
    with captured.capture():
        call()
    for _ in range(3):
        x.copy_(torch.randn(8, 64, device="cuda"))
        y.zero_()
        torch.cuda.synchronize()
        captured.replay()
        wanted = dnn.softmax_forward(dnn.activation_forward(dnn.matmul(x, w), "gelu"))
        assert bytes(y.cpu().numpy()) == bytes(wanted.numpy())
    captured.destroy()


@pytest.mark.parametrize("algo", ["cuda.attention.mma", "cuda.attention.generic"])
@pytest.mark.parametrize("heads", [(4, 4), (32, 8)])
def test_a_decoding_step_is_replayed_with_other_lengths_and_pages(heads: tuple[int, int], algo: str) -> None:
    """Between replays, all memory that can be allocated is overwritten: a kernel must clear its counters itself."""
    captured, rng = TorchGraph(), np.random.default_rng(0)
    handle = dnn.Handle("cuda:0", stream=captured.stream)

    def random(*shape: int) -> dnn.DeviceTensor:
        return dnn.asarray(rng.normal(size=shape), dtype="float16", device="cuda:0")

    q, out = random(2, 1, heads[0], 64), random(2, 1, heads[0], 64)
    caches = [random(64, 32, heads[1], 64) for _ in range(2)]
    lengths, pages = (dnn.zeros(shape, dtype="int32", device="cuda:0") for shape in ((2,), (2, 32)))

    def step(**options: object) -> dnn.DeviceTensor:
        return dnn.attention_decode(q, *caches, lengths=lengths, pages=pages, **options)[0]

    step(algo=algo, out=out, handle=handle)
    with captured.capture():
        step(algo=algo, out=out, handle=handle)
    for lengths_now in ((1, 1024), (700, 33), (0, 512)):
        kept = poison(handle, 1 << 20)
        lengths[:] = np.array(lengths_now, dtype="int32")
        pages[:] = rng.permutation(64).reshape(2, 32).astype("int32")
        torch.cuda.synchronize()
        captured.replay()
        want = values_of(step(algo="cuda.attention.generic"))
        np.testing.assert_allclose(values_of(out), want, rtol=2e-3, atol=2e-3)
        assert all(np.isnan(values_of(t)).all() for t in kept), "a replay wrote into another tensor"
    captured.destroy()
