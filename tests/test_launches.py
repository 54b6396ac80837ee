# SPDX-License-Identifier: Apache-2.0
"""Builds and launches plans of CUDA engines without a GPU. A fake driver (cpp/fake_driver.cpp) rejects the launches
that the real driver would reject, and computes nothing. Needs NVRTC and a C++ compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyminidnn import _C

HERE = Path(__file__).parent
BEGIN = """
import ctypes, numpy as np, pyminidnn as dnn
fake = ctypes.CDLL("libcuda.so.1")
ctypes.c_ulong.in_dll(fake, "fake").value = 1 << 36  # bytes that are free
"""


@pytest.fixture(scope="module")
def run_on_fake_gpu(tmp_path_factory: pytest.TempPathFactory) -> object:
    compiler = shutil.which("c++")
    if not compiler or _C.why_no_nvrtc():
        pytest.skip(_C.why_no_nvrtc() or "there is no C++ compiler to make the fake driver by")
    folder = tmp_path_factory.mktemp("driver")
    source, library = HERE / "cpp" / "fake_driver.cpp", folder / "libcuda.so.1"
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    path = ":".join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))

    def run(code: str, arch: int = 90) -> None:
        environment = {**os.environ, "LD_LIBRARY_PATH": path, "FAKE_GPU": str(arch)}
        done = subprocess.run([sys.executable, "-c", BEGIN + code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("arch", [80, 90, 120])
def test_gradients_of_rows(arch: int, run_on_fake_gpu: object) -> None:
    """Static and dynamic shared memory together, at sizes where their sum is about 48 KB, and about the most that a
    block can have."""
    run_on_fake_gpu(
        """
for columns in (*range(97, 16500, 404), 767, 1501, 3001, 6001, 12001, 8192, 16384):
    x, scale = dnn.zeros((64, columns), device="cuda:0"), dnn.zeros((columns,), device="cuda:0")
    mean = dnn.zeros((64,), device="cuda:0")
    for call, saved in ((dnn.layer_norm_backward, (mean, mean)), (dnn.rms_norm_backward, (mean,))):
        (report, *_) = dnn.explain(call, x, x, scale, *saved)
        for engine in (e.name for e in report.engines if not e.why_not):
            call(x, x, scale, *saved, algo=engine)
""",
        arch,
    )


def test_the_engine_of_packed_sequences(run_on_fake_gpu: object) -> None:
    """The estimates count the rows there are, not batch * max_q rows. On an H100, wgmma is the fastest."""
    run_on_fake_gpu("""
q = dnn.zeros((23000, 16, 128), dtype="bfloat16", device="cuda:0")
cu = dnn.zeros((33,), dtype="int32", device="cuda:0")
for size in (23000, 2600, 720):
    packed = {"cu_q": cu, "cu_kv": cu, "max_q": size, "max_kv": size}
    o, lse = dnn.zeros(q.shape, dtype="bfloat16", device="cuda:0"), dnn.zeros((16, 23000), device="cuda:0")
    (forward, *_), (backward, *_) = (dnn.explain(call, *x, **packed) for call, x in (
        (dnn.attention_forward, (q, q, q)), (dnn.attention_backward, (q, q, q, q, o, lse))))
    assert forward.chosen == "cuda.attention.wgmma", forward
    assert backward.chosen == "cuda.attention.wgmma_backward", backward
""")


def test_ctc_losses(run_on_fake_gpu: object) -> None:
    """Every engine, with targets of all sizes, one after the other or not."""
    run_on_fake_gpu(
        """
for labels in (0, 31, 32, 64, 255, 256, 3000):
    for shape in ((4, labels), (4 * labels,)):
        for dtype in ("float32", "float64"):
            x, targets = dnn.zeros((5, 4, 9), dtype=dtype, device="cuda:0"), dnn.zeros(shape, dtype="int64", device="cuda:0")
            given = x, targets, *(dnn.zeros((4,), dtype="int32", device="cuda:0") for _ in range(2))
            (report,) = dnn.explain(dnn.ctc_loss_forward, *given, logits=True)
            engines = [e.name for e in report.engines if not e.why_not]
            assert ("cuda.ctc.wavefront" in engines) == (dtype != "float64")
            for engine in engines:
                loss, saved = dnn.ctc_loss_forward(*given, logits=True, algo=engine)
                dnn.ctc_loss_backward(loss, *given, saved, logits=True, algo=engine)
"""
    )


def test_nothing_compiles_when_a_plan_runs(run_on_fake_gpu: object) -> None:
    """explain() builds the plan. The call that follows compiles nothing, whatever the alignment of its tensors."""
    run_on_fake_gpu("""
from pyminidnn import _C
x = dnn.zeros((4096,), dtype="uint8", device="cuda:0")
index = dnn.asarray(np.array([3, 1, 2])).to(device="cuda:0")
def rows(first):  # 16 bytes of each 32, beginning anywhere
    return x.as_strided((8, 16), (32, 1), first)
def table(first):
    return x.as_strided((8, 16), (16, 1), first)
for first in (0, 1, 2, 4, 8):
    for call, algo in ((lambda algo: dnn.transform(rows(first), algo=algo), "cuda.transform.batched_memcpy"),
                       (lambda algo: dnn.pad(table(first), ((0, 0), (16, 16)), algo=algo), "cuda.pad.vectorized"),
                       (lambda algo: dnn.gather(table(first), index, axis=0, algo=algo), "cuda.gather.contiguous_rows")):
        (report,) = dnn.explain(call, algo)
        assert not next(e for e in report.engines if e.name == algo).why_not
        before = _C.cache_stats()
        call(algo)
        assert _C.cache_stats() == before, (algo, first)
""")


def test_a_first_phase_without_taps(run_on_fake_gpu: object) -> None:
    """With a 1x1 filter, a stride and padding, the first phase of dx has no taps."""
    run_on_fake_gpu("""
for dtype in ("bfloat16", "float32"):
    for dy, shape, padding in (((2, 64, 5, 9), (2, 64, 9, 16), (0, 1)), ((2, 64, 2, 1), (2, 64, 1, 1), (1, 0))):
        x, w = dnn.zeros(dy, dtype=dtype, device="cuda:0"), dnn.zeros((64, 64, 1, 1), dtype=dtype, device="cuda:0")
        call = lambda algo: dnn.conv_backward_data(x, w, shape, stride=2, padding=padding, algo=algo)
        (report,) = dnn.explain(call, None)
        for engine in (e.name for e in report.engines if not e.why_not):
            call(engine)
""")


def test_layouts_that_kernels_would_misread(run_on_fake_gpu: object) -> None:
    """Engines refuse these layouts. On a GPU, test_every_engine.py computes the problems."""
    run_on_fake_gpu("""
def why_not(engine, call, *arguments, **keywords):
    (report,) = dnn.explain(call, *arguments, **keywords)
    return next(e.why_not for e in report.engines if e.name == engine)
x = dnn.zeros((2, 16, 7, 5), layout="NHWC", device="cuda:0")
scale, mean = dnn.zeros((16, 7, 5), device="cuda:0"), dnn.zeros((2,), device="cuda:0")
assert "scale and bias in the memory" in why_not("cuda.layer_norm.persistent_rows", dnn.layer_norm_forward, x, scale, scale, axis=1)
assert "scale and bias in the memory" in why_not("cuda.layer_norm.persistent_rows", dnn.rms_norm_forward, x, scale, axis=1)
for engine in ("persistent_rows", "two_pass"):
    got = why_not(f"cuda.layer_norm.{engine}", dnn.layer_norm_backward, x, x, scale, mean, mean, axis=1)
    assert "scale and bias in the memory" in got, got
for channels, fits in ((1, False), (2, False), (8, True)):
    x = dnn.zeros((2, 4 * channels, 9, 9), dtype="bfloat16", layout="NHWC", device="cuda:0")
    dy = dnn.zeros((2, 64, 9, 9), dtype="bfloat16", layout="NHWC", device="cuda:0")
    got = why_not("cuda.conv.wgmma", dnn.conv_backward_filter, dy, x, (64, channels, 3, 3), padding=1, groups=4)
    assert fits == (not got) and ("multiples of 16 bytes" in got or not got), got
""")


def test_a_graph_compiles_each_kernel_once(run_on_fake_gpu: object) -> None:
    """The first run builds the plans of all steps on several threads. Two of the three regions have the same kernel."""
    run_on_fake_gpu("""
from pyminidnn import _C
def chains(a, b, c):
    return dnn.tanh(a * a), dnn.tanh(b * b), dnn.relu(c) * c
fused = dnn.fuse(chains)
x = [dnn.zeros((8, 16 + i), device="cuda:0") for i in range(3)]
before = _C.cache_stats()["nvrtc"]
fused(*x)
assert len(fused.graph(*x)._ended().regions(None)) == 3
assert _C.cache_stats()["nvrtc"] == before + 2, _C.cache_stats()
fused(*x)
assert _C.cache_stats()["nvrtc"] == before + 2, _C.cache_stats()
""")


def test_a_scattered_operand_is_not_fused_into_a_product(run_on_fake_gpu: object) -> None:
    """One value for each row is read in single elements, so two kernels are faster than one; a bias of columns and a
    whole matrix are read in vectors."""
    run_on_fake_gpu("""
x, w = dnn.zeros((8192, 1024), device="cuda:0"), dnn.zeros((1024, 1024), device="cuda:0")
for c, count in ((x[:, :1], 2), (x[:1], 1), (x, 1)):
    graph = dnn.fuse(lambda x, w, c: dnn.matmul(x, w) + c).graph(x, w, c)
    assert len(graph._ended().regions(None)) == count, (c.shape, graph.why())
""")


def test_attention_on_hopper(run_on_fake_gpu: object) -> None:
    """Tensor maps and launches of tiles that are not full, of one tile, of many, and of packed sequences."""
    run_on_fake_gpu(
        """
def run(call, *operands, **options):
    (report, *_) = dnn.explain(call, *operands, **options)
    names = [e.name for e in report.engines if not e.why_not and "wgmma" in e.name]
    for name in names:
        call(*operands, **options, algo=name)
    return names

lengths = dnn.zeros((3,), dtype="int32", device="cuda:0")
for batch, heads, rows, columns, size in ((1, 1, 1, 1, 64), (2, 40, 1000, 333, 64), (3, 4, 130, 2000, 40)):
    q = dnn.zeros((batch, heads, rows, size), dtype="bfloat16", device="cuda:0")
    k = dnn.zeros((batch, 1, columns, size), dtype="bfloat16", device="cuda:0")
    for options in ({}, {"causal": True}, {"q_lengths": lengths[:batch], "kv_lengths": lengths[:batch]}):
        assert run(dnn.attention_forward, q, k, k, **options) == ["cuda.attention.wgmma"]
        o, lse = dnn.attention_forward(q, k, k, **options)
        assert len(run(dnn.attention_backward, o, q, k, k, o, lse, **options)) == 2
cu = dnn.zeros((4,), dtype="int32", device="cuda:0")
q = dnn.zeros((500, 4, 64), dtype="bfloat16", device="cuda:0")
packed = {"cu_q": cu, "cu_kv": cu, "max_q": 300, "max_kv": 10000}
assert run(dnn.attention_forward, q, q, q, **packed)
o, lse = dnn.attention_forward(q, q, q, **packed)
assert len(run(dnn.attention_backward, o, q, q, q, o, lse, **packed)) == 2
"""
    )


def test_recurrent_layers(run_on_fake_gpu: object) -> None:
    """cuda.rnn.generic launches each pass with parameters of the right sizes, for all modes and dtypes."""
    run_on_fake_gpu("""
on = {"device": "cuda:0"}
lengths = dnn.zeros((3,), dtype="int32", **on)
sizes = dnn.zeros((5,), dtype="int32", **on)
for dtype in ("float32", "float16"):
    for mode, gates, options in (("lstm", 4, {"clip": 1.0}), ("gru", 3, {"reset_after": False}), ("tanh", 1, {})):
        for rows, given in (((5, 3), {}), ((5, 3), {"lengths": lengths}), ((11,), {"batch_sizes": sizes, "batch": 3})):
            net = {"mode": mode, "hidden_size": 6, "layers": 2, "dropout": 0.5, **given}
            w = [dnn.zeros(s, dtype=dtype, **on) for s in ((6 * gates, 4), (6 * gates, 6), (6 * gates,), (6 * gates,))]
            w += [w[1], *w[1:]]
            x, dy = (dnn.zeros((*rows, n), dtype=dtype, **on) for n in (4, 6))
            y, hn, cn, reserve = dnn.rnn_forward(x, w, training=True, **net, **options)
            dgates = dnn.rnn_backward_data(dy, hn, cn, y, w, reserve, **net, **options)[3]
            options.pop("clip", None)
            dnn.rnn_backward_weights(x, None, y, dgates, reserve, **net, **options)
assert dnn.explain(dnn.rnn_forward, x, w, **net)[0].chosen == "cuda.rnn.generic"
""")


def test_rnn_by_products(run_on_fake_gpu: object) -> None:
    """The engines of rnn that consist of products and kernels, for rows in the order of steps and of sequences."""
    run_on_fake_gpu("""
import itertools
on = {"device": "cuda:0"}
for (mode, gates), on["dtype"] in itertools.product((("lstm", 4), ("gru", 3), ("tanh", 1)), ("bfloat16", "float32")):
    for layout, directions in (("tnc", 1), ("ntc", 2)):
        net = {"mode": mode, "hidden_size": 64, "layers": 2, "bidirectional": directions == 2, "dropout": 0.5,
               "layout": layout}
        w = []
        for inputs in (8, 64 * directions):
            for _ in range(directions):
                w += [dnn.zeros(s, **on) for s in ((64 * gates, inputs), (64 * gates, 64), (64 * gates,), (64 * gates,))]
        x, dy = (dnn.zeros((5, 3, n), **on) for n in (8, 64 * directions))
        for algo in ("cluster", "persistent", "stepwise_gemm"):
            y, hn, cn, reserve = dnn.rnn_forward(x, w, training=True, algo=algo, **net)
            dgates = dnn.rnn_backward_data(dy, hn, cn, y, w, reserve, algo=algo, **net)[3]
        dnn.rnn_backward_weights(x, None, y, dgates, reserve, algo="weight_products", **net)
# A machine that cannot run all blocks at once.
launch_result = ctypes.c_int.from_address(ctypes.addressof(ctypes.c_ulong.in_dll(fake, "fake")) + 12)
launch_result.value = 720
dnn.rnn_forward(x, w, algo="cluster", **net)
try:
    dnn.rnn_forward(x, w, algo="persistent", **net)
except dnn.DeviceError as error:
    assert "all its blocks must run at once, which cuda.rnn.stepwise_gemm does not need" in str(error), error
else:
    raise AssertionError("not refused")
""")
