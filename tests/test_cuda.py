# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show: streams, graph capture, memory shared with torch, and errors after which everything still
works."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
from support import values_of

import pyminidnn as dnn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def test_torch_shares_memory_both_ways() -> None:
    x = torch.randn(4, 8, 5, 5, device="cuda").to(memory_format=torch.channels_last)
    t = dnn.asarray(x)
    assert (t.data_ptr, t.layout, t.device) == (x.data_ptr(), "NHWC", "cuda:0")
    y = dnn.activation_forward(t, "relu")
    back = torch.from_dlpack(y)
    assert back.data_ptr() == y.data_ptr
    assert back.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(back, torch.relu(x))


def test_cuda_array_interface() -> None:
    x = dnn.asarray(np.arange(6, dtype="float32").reshape(2, 3), device="cuda:0")
    as_torch = torch.as_tensor(x, device="cuda")  # torch reads x through __cuda_array_interface__ or DLPack
    assert as_torch.data_ptr() == x.data_ptr

    class Other:
        __cuda_array_interface__ = x.__cuda_array_interface__

    assert dnn.asarray(Other()).data_ptr == x.data_ptr


def test_calls_wait_for_the_streams_of_their_inputs() -> None:
    """A long kernel on the producer's stream must end before another stream reads its result. In both directions."""
    stream = torch.cuda.Stream()
    handle = dnn.Handle("cuda:0", stream=stream)
    big = torch.randn(1 << 26, device="cuda")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # keeps the stream busy for about 50 ms
        late = big * 2
    with torch.cuda.stream(stream):
        y = dnn.activation_forward(late, "identity", handle=handle)
    with handle:
        there = torch.from_dlpack(y)  # torch's current stream waits for the handle's stream
    assert torch.equal(there, big * 2)


def test_memory_in_use_on_another_stream_is_not_reused() -> None:
    """A tensor is used by another stream and dropped: its block must not be overwritten while that stream still reads
    it."""
    x = dnn.full((1 << 24,), 1.0, device="cuda:0")
    pointer = x.data_ptr
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        shared = torch.from_dlpack(x)
        torch.cuda._sleep(100_000_000)
        copy = shared + 0
    del x, shared
    y = dnn.full((1 << 24,), 2.0, device="cuda:0")
    assert y.data_ptr != pointer, "the block is set aside until the device has been waited for"
    torch.cuda.synchronize()
    assert (copy == 1).all()
    before = dnn.memory_stats("cuda:0")["cached_bytes"]
    assert before >= 1 << 26
    dnn.empty_cache("cuda:0")
    assert dnn.memory_stats("cuda:0")["cached_bytes"] == 0


def test_a_stream_may_be_dropped_before_its_tensors() -> None:
    """Freed blocks are reused on their stream, so the stream must live as long as they do. Otherwise the driver would
    be called with a destroyed stream."""
    cupy = pytest.importorskip("cupy")
    handle = dnn.Handle("cuda:0", stream=cupy.cuda.Stream(non_blocking=True))
    with handle:  # the calls of one handle run on one stream, in order
        kept = dnn.activation_forward(dnn.full((1 << 20,), -1.0, device="cuda:0"), "relu")
        dropped = dnn.activation_forward(kept, "relu")
    other = cupy.cuda.Stream(non_blocking=True)
    with other:
        there = cupy.from_dlpack(kept)
    del dropped, handle, other
    dnn.empty_cache("cuda:0")
    np.testing.assert_array_equal(kept.numpy(), 0)
    del there, kept
    dnn.empty_cache("cuda:0")
    assert dnn.memory_stats("cuda:0")["cached_bytes"] == 0


def test_per_thread_default_streams() -> None:
    """Handle 2 is a different stream on each thread. Neither thread may be given memory that the other thread's work
    still uses."""
    wrong: list[str] = []

    def work(number: int) -> None:
        handle = dnn.Handle("cuda:0", stream=2)
        with handle:
            x = dnn.full((1 << 22,), float(number), device="cuda:0")
            for i in range(30):
                y = dnn.add(x, x)
                for _ in range(5):
                    y = dnn.add(y, x)
                handle.synchronize()
                if (y.numpy() != 7 * number).any():
                    wrong.append(f"thread {number}, turn {i}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_from_one_gpu_to_another() -> None:
    """Copies wait for the source's stream, and later work waits for the copy. No memory is reused before that."""
    if dnn._C.cuda_device_count() < 2:
        pytest.skip("there is one GPU, and this copies between two")
    streams = [torch.cuda.Stream(device=i) for i in range(2)]
    handles = [dnn.Handle(f"cuda:{i}", stream=streams[i]) for i in range(2)]
    for own_streams in (False, True):
        with contextlib.ExitStack() as stack:
            for handle in handles if own_streams else []:
                stack.enter_context(handle)
            results = []
            for i in range(20):
                if own_streams:
                    with torch.cuda.stream(streams[i % 2]):
                        torch.cuda._sleep(10_000_000)
                x = dnn.full((1 << 22,), float(i), device=f"cuda:{i % 2}")
                for _ in range(4):
                    x = dnn.add(x, x)
                y = x.to(device=f"cuda:{1 - i % 2}", dtype="float64" if i % 3 else None)
                del x
                results.append(dnn.add(y, y))
                assert results[-1].device == f"cuda:{1 - i % 2}"
                del y
            for i, result in enumerate(results):
                assert (values_of(result) == 32 * i).all(), (own_streams, i)


def test_a_graph_captures_calls() -> None:
    x = torch.randn(3, 4, 9, 9, device="cuda")
    w = torch.randn(5, 4, 3, 3, device="cuda")
    conv = dnn.empty((3, 5, 9, 9), device="cuda:0")
    out = dnn.empty((3, 5, 9, 9), device="cuda:0")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    handle = dnn.Handle("cuda:0", stream=stream)
    tx, tw = dnn.asarray(x), dnn.asarray(w)

    def step() -> None:
        dnn.conv_forward(tx, tw, padding=1, algo="direct", out=conv, handle=handle)
        dnn.activation_forward(conv, "relu", out=out, handle=handle)

    # The first call compiles and loads the kernels, before the capture begins.
    step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        step()
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    torch.backends.cudnn.allow_tf32 = False
    want = torch.relu(torch.nn.functional.conv2d(x, w, padding=1))
    assert torch.allclose(torch.from_dlpack(out), want, atol=1e-4)


def test_calls_work_after_out_of_memory() -> None:
    before = dnn.memory_stats("cuda:0")["allocated_bytes"]
    with pytest.raises(dnn.OutOfMemory, match=r"needs 4\.4 TB on cuda:0; .* are free"):
        dnn.empty((1 << 40,), device="cuda:0")
    assert dnn.memory_stats("cuda:0")["allocated_bytes"] == before
    x = dnn.full((8,), -1.0, device="cuda:0")
    np.testing.assert_array_equal(dnn.activation_forward(x, "relu").numpy(), 0)


def test_missing_devices() -> None:
    count = dnn._C.cuda_device_count()
    with pytest.raises(dnn.DeviceError, match=f"no cuda:{count}"):
        dnn.Handle(f"cuda:{count}")
    x = dnn.full((8,), 1.0, device="cuda:0")
    with pytest.raises(dnn.DeviceError, match="x is on cuda:0, the handle is for cpu"):
        dnn.activation_forward(x, "relu", handle=dnn.Handle("cpu"))
    with pytest.raises(dnn.DeviceError, match="dy is on cuda:0, x is on cpu"):
        dnn.activation_backward(x, x.to(device="cpu"), x, "relu")


def test_numpy_arrays_are_copied_to_the_gpu() -> None:
    host = np.array([-1.0, 2.0], "float32")
    with dnn.Handle("cuda:0"):
        assert dnn.activation_forward(host, "relu").device == "cuda:0"
    on_gpu = dnn.asarray(host, device="cuda:0")
    assert dnn.activation_backward(host, on_gpu, host, "relu").device == "cuda:0"
    assert dnn.activation_forward(host, "relu", out=on_gpu).data_ptr == on_gpu.data_ptr
    with pytest.raises(dnn.DeviceError, match="the inputs are on cuda:0, out is on cpu"):
        dnn.activation_forward(on_gpu, "relu", out=host)


def test_numpy_refuses_a_gpu_tensor() -> None:
    x = dnn.full((2,), 1.0, device="cuda:0")
    with pytest.raises(TypeError, match=r"call \.numpy\(\)"):
        np.asarray(x)
    np.testing.assert_array_equal(x.numpy(), 1)


def test_find_measures_and_remembers() -> None:
    x = dnn.full((64, 64), 1.0, device="cuda:0")
    (report,) = dnn.find(dnn.activation_forward, x, "tanh")
    able = [e for e in report.engines if not e.why_not]
    assert len(able) == 2
    assert all(e.measured_us > 0 for e in able)
    fastest = min(able, key=lambda e: e.measured_us)
    assert report.chosen == fastest.name
    assert dnn.explain(dnn.activation_forward, x, "tanh")[0].chosen == fastest.name
