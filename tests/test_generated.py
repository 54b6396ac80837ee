# SPDX-License-Identifier: Apache-2.0
"""The generated kernels of regions: 40 usual regions are compiled for three architectures, without a GPU."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pyminidnn as dnn
from pyminidnn import _C

ARCHITECTURES = ("sm_80", "sm_90a", "sm_120")
ROWS, COLUMNS = 4096, 1024
DTYPES = ("float32", "bfloat16", "float16")

REGIONS: dict[str, Callable[..., Any]] = {
    "sigmoid(a + b c)": lambda x, b, r: dnn.activation_forward(dnn.multiply_add(x, r, b), "sigmoid"),
    "bias, gelu_tanh, residual": lambda x, b, r: dnn.activation_forward(x + b, "gelu_tanh") + r,
    "bias, gelu, residual": lambda x, b, r: dnn.activation_forward(x + b, "gelu") + r,
    "silu gate": lambda x, b, r: dnn.mul(dnn.activation_forward(x, "silu"), r),
    "scale, bias, relu": lambda x, b, r: dnn.relu(x * b + b),
    "dropout after gelu": lambda x, b, r: dnn.dropout_forward(
        dnn.activation_forward(x + b, "gelu"), 0.1, seed=7, offset=1
    ),
    "two dropouts": lambda x, b, r: dnn.dropout_forward(dnn.dropout_forward(x, 0.1, seed=1) + r, 0.2, seed=2),
    "gradient of gelu": lambda x, b, r: dnn.activation_backward(x, r, r, "gelu") * 0.5,
    "gradient of silu": lambda x, b, r: dnn.activation_backward(x + r, r, r, "silu"),
    "clamp, square, sum": lambda x, b, r: dnn.clamp(x, -1.0, 1.0) ** 2 + r,
    "two results": lambda x, b, r: (x + b, dnn.exp(x + b)),
    "where": lambda x, b, r: dnn.where(x > b, x, r * 2.0),
    "eight nodes": lambda x, b, r: dnn.tanh(dnn.abs(x - b) * 3.0 + r) / (dnn.square(r) + 1.0),
}
MIXED: dict[str, Callable[..., Any]] = {"to bfloat16": lambda x, b, r: (x * b + r).to(dtype="bfloat16") * 2.0}


# Regions of rows: functions of x, of the scale and bias of a norm in float32, and of r.
ROW_REGIONS: dict[str, Callable[..., Any]] = {
    "layer norm, gelu, dropout": lambda x, s, b, r: dnn.dropout_forward(
        dnn.activation_forward(dnn.layer_norm_forward(x, s, b)[0], "gelu"), 0.1, seed=3
    ),
    "residual, RMS norm, gelu_tanh": lambda x, s, b, r: dnn.activation_forward(
        dnn.rms_norm_forward(x + r, s)[0], "gelu_tanh"
    ),
    "gelu, layer norm": lambda x, s, b, r: dnn.layer_norm_forward(dnn.activation_forward(x, "gelu") + r, s, b)[0],
    "scaled softmax": lambda x, s, b, r: dnn.mul(dnn.softmax_forward(x * 0.5 + r), r),
    "gradient of softmax": lambda x, s, b, r: dnn.softmax_backward(x, r) * 0.5,
    "x rsqrt(mean(x x))": lambda x, s, b, r: x * dnn.rsqrt(dnn.mean(dnn.square(x), axis=-1, keepdims=True) + 1e-5),
    "norm, softmax": lambda x, s, b, r: dnn.softmax_forward(dnn.layer_norm_forward(x, s, b)[0]),
}


def attributes(cubin: bytes) -> Iterator[tuple[int, int]]:
    """The attributes of kernels in a cubin: number and value. 0x2F: registers, 0x11: bytes of the stack frame."""
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * size) for i in range(count)]
    for header in headers:
        begin = headers[names][4] + header[0]
        if cubin[begin : cubin.index(b"\0", begin)] == b".nv.info":
            for match in re.finditer(
                rb"\x04(.)\x08\x00....(....)", cubin[header[4] : header[4] + header[5]], re.DOTALL
            ):
                yield match[1][0], struct.unpack("<I", match[2])[0]


def sources() -> Iterator[tuple[str, str]]:
    handle = dnn.Handle("cpu", threads=1)
    for name, function in [*REGIONS.items(), *MIXED.items()]:
        for dtype in DTYPES if name in REGIONS else DTYPES[:1]:
            with dnn.record(handle=handle) as g:
                x, r = (g.input(n, (ROWS, COLUMNS), dtype) for n in "xr")
                results = function(x, g.input("b", (COLUMNS,), dtype), r)
                for i, y in enumerate(results if isinstance(results, tuple) else (results,)):
                    g.output(f"y{i}", y)
            yield f"{name}, {dtype}", g.source(handle=handle)


def test_usual_regions_compile_without_spills() -> None:
    if why := _C.why_no_nvrtc():
        pytest.skip(why)
    all_sources = dict(sources())
    assert len(all_sources) == 40
    for name, source in all_sources.items():
        lines = re.findall(r"^    const \w+ v\d+ = ", source, re.MULTILINE)
        assert len(lines) > 1, f"{name} is not one region:\n{source}"

    def compiled(work: tuple[str, str, str]) -> str:
        name, source, arch = work
        found = dict(attributes(_C.compile_region(source, arch)))
        blocks = int(re.findall(r"kMinBlocks = (\d+)", source)[0])
        good = 0 < found[0x2F] <= 65536 // (256 * blocks) and found[0x11] == 0
        return "" if good else f"{name}, {arch}: {found[0x2F]} registers, {found[0x11]} bytes of stack\n{source}"

    work = [(name, source, arch) for name, source in all_sources.items() for arch in ARCHITECTURES]
    with ThreadPoolExecutor(2) as pool:
        assert not [text for text in pool.map(compiled, work) if text]


def test_usual_regions_of_rows_compile_without_spills() -> None:
    """A thread has a part of a row in its registers, which must hold it."""
    if why := _C.why_no_nvrtc():
        pytest.skip(why)

    def compiled(work: tuple[str, str, str]) -> str:
        name, dtype, arch = work
        with dnn.record(device="cpu") as g:
            x, r = (g.input(n, (ROWS, COLUMNS), dtype) for n in "xr")
            g.output("y", ROW_REGIONS[name](x, *(g.input(n, (COLUMNS,), "float32") for n in "sb"), r))
        source = g.source()
        assert "graph_rows in cuda/graph/row_reduction.cu" in source
        found = dict(attributes(_C.compile_region(source, arch)))
        most = 96 if arch == "sm_120" else int(re.findall(r"kRegisters = (\d+)", source)[0])
        good = 0 < found[0x2F] <= most and found[0x11] == 0
        return (
            "" if good else f"{name}, {dtype}, {arch}: {found[0x2F]} registers, {found[0x11]} bytes of stack\n{source}"
        )

    work = [(n, t, arch) for n in ROW_REGIONS for t in ("float32", "bfloat16") for arch in ARCHITECTURES]
    with ThreadPoolExecutor(2) as pool:
        assert not [text for text in pool.map(compiled, work) if text]


def test_values_that_are_kept_are_computed() -> None:
    """A thread may read a value from its registers after a statistic only if it has put it there before."""
    from test_graph import on
    from test_regions import random_layers

    found = 0
    for seed in range(60):
        graph = dnn.fuse(random_layers(seed)).graph(on("cpu", 6, 8, seed=seed))
        for i in range(len(graph.explain())):
            try:
                source = graph.source(i + 1)
            except dnn.NotSupported:
                continue
            found += "graph_rows" in source
            read, put = (set(re.findall(rf"x.template {verb}<(\d+)>", source)) for verb in ("kept", "keep"))
            assert read == put, source
    assert found > 20


def test_rows_without_whole_vectors_compile() -> None:
    if why := _C.why_no_nvrtc():
        pytest.skip(why)
    with dnn.record(device="cpu") as g:
        x = g.input("x", (5, 7), "bfloat16")
        g.output("y", dnn.dropout_forward(dnn.softmax_forward(x * 2.0), 0.5, seed=1))
    found = dict(attributes(_C.compile_region(g.source(), "sm_90a", by_vectors=False)))
    assert 0 < found[0x2F] <= 96


def test_the_source_of_a_region() -> None:
    with dnn.record(device="cpu") as g:
        x, b = g.input("x", (ROWS, COLUMNS), "bfloat16"), g.input("b", (COLUMNS,), "bfloat16")
        g.output("y", dnn.activation_forward(dnn.add(x, b), "silu"))
    source = g.source()
    assert "using Loads = Types<minidnn::bfloat16, minidnn::bfloat16>;" in source
    assert "const float v0 = PointwiseOp<Pointwise::add>::of(" in source
    assert "x.template store<0>(v1);" in source
    with pytest.raises(dnn.ShapeError, match=r"source: region must be 1 to 1; got 2"):
        g.source(2)


def test_a_kernel_serves_all_shapes() -> None:
    """The kernel cache is keyed by the source. Its first lines are comments that the cache does not see."""

    def code(*shape: int) -> str:
        x, b = dnn.ones(shape, dtype="float16"), dnn.ones(shape[-1:], dtype="float16")
        lines = dnn.fuse(lambda x, b: dnn.tanh(x + b) * 0.5).source(x, b).splitlines()
        return "\n".join(line for line in lines if not line.startswith("// "))

    assert code(4, 8) == code(3, 5, 7) and "8" not in re.sub(r"kWidth = 8", "", code(4, 8))


def test_regions_without_generated_code_say_why() -> None:
    f = dnn.fuse(dnn.matmul)
    with pytest.raises(dnn.NotSupported, match=r"source: no code is generated for all nodes together: matmul is"):
        f.source(dnn.ones((4, 8)), dnn.ones((8, 4)))
