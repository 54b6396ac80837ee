# SPDX-License-Identifier: Apache-2.0
"""Attention of pyminidnn.cudnn_compat: sdpa and sdpa_backward against the oracle, attention_forward and torch."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import reference
from attention_problems import backward_results, forward_results
from reference import rounded
from support import Result, assert_close, framed, tensor, values_of
from test_cudnn_compat import BFLOAT16, FLOAT, HALF, Program, drawn, image, new

import pyminidnn as dnn
import pyminidnn.cudnn_compat as cudnn
from pyminidnn.cudnn_compat.emit_attention import slopes

KINDS = {"float32": FLOAT, "float16": HALF, "bfloat16": BFLOAT16}
B, H, SQ, SK, D = 2, 6, 9, 13, 16
TOP_LEFT, BOTTOM_RIGHT = cudnn.diagonal_alignment.TOP_LEFT, cudnn.diagonal_alignment.BOTTOM_RIGHT
# A sequence without padding, and one with; a sequence whose length of q is 0.
LENGTHS, NO_ROWS = (np.array([9, 4]), np.array([13, 5])), (np.array([9, 0]), np.array([7, 13]))
SEED, OFFSET = 123456, 2**32 + 789


def eighths(shape: tuple[int, ...], seed: int = 7) -> np.ndarray:
    """Random multiples of 1/8, which all dtypes hold."""
    return np.random.default_rng(seed).integers(-16, 17, shape) / 8


def padding(lengths: tuple[np.ndarray, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    of_q, of_kv = (n.reshape(B, 1, 1, 1) for n in lengths)
    there = {"use_padding_mask": True, "seq_len_q": of_q, "seq_len_kv": of_kv}
    return there, {"q_lengths": lengths[0], "kv_lengths": lengths[1]}


def joined(*options: tuple[dict[str, Any], dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    there, here = zip(*options, strict=True)
    return {k: v for d in there for k, v in d.items()}, {k: v for d in here for k, v in d.items()}


SINK = eighths((H,), 1)
CAUSAL: Any = ({"use_causal_mask": True}, {"causal": True})
# Options of sdpa, and the same options of attention_forward. Arrays are tensors of the graph.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no option: the scale is 1": ({}, {}),
    "scale": ({"attn_scale": -0.3}, {"scale": -0.3}),
    "causal": CAUSAL,
    "causal from the last column": ({"use_causal_mask_bottom_right": True}, {"causal": True, "align": "bottom_right"}),
    "right bound": ({"diagonal_band_right_bound": 2}, {"window": (None, 2)}),
    "window of the diagonal only": ({"sliding_window_length": 1, "use_causal_mask": True}, {"window": (0, 0)}),
    "window of 4": ({"diagonal_band_left_bound": 4, "diagonal_band_right_bound": 0}, {"window": (3, 0)}),
    "window that hides all of some rows": (
        {"diagonal_alignment": BOTTOM_RIGHT, "diagonal_band_left_bound": 4, "diagonal_band_right_bound": 1},
        {"window": (3, 1), "align": "bottom_right"},
    ),
    "lengths": padding(LENGTHS),
    "a sequence without rows": padding(NO_ROWS),
    "lengths, causal from the last column": joined(
        padding(LENGTHS), ({"use_causal_mask_bottom_right": True}, {"causal": True, "align": "bottom_right"})
    ),
    "bias for each head": ({"bias": eighths((1, H, SQ, SK))}, {"bias": eighths((1, H, SQ, SK))}),
    "bias for each column": ({"bias": eighths((B, 1, 1, SK))}, {"bias": eighths((B, 1, 1, SK))}),
    "alibi": joined(CAUSAL, ({"use_alibi_mask": True}, {"alibi": np.array(slopes(H))})),
    "dropout": ({"dropout": (0.25, SEED, OFFSET)}, {"dropout": 0.25}),
    "sink": ({"sink_token": SINK.reshape(1, H, 1, 1)}, {"sink": SINK}),
    "many": joined(
        CAUSAL, padding(LENGTHS), ({"attn_scale": 0.25, "sink_token": SINK.reshape(1, H, 1, 1)}, {"scale": 0.25, "sink": SINK}),
        ({"bias": eighths((B, H, SQ, SK))}, {"bias": eighths((B, H, SQ, SK))}),
    ),
}  # fmt: skip


def oracle(options: dict[str, Any]) -> dict[str, Any]:
    made = {"scale": 1.0} | options
    if made.get("dropout"):
        made["keep"] = reference.attention_keep((B, H, SQ, SK), made["dropout"], seed=SEED, offset=OFFSET)
    return made


def operands(dtype: str, kv_heads: int = H, value: int = D) -> dict[str, np.ndarray]:
    shapes = {"q": (B, H, SQ, D), "k": (B, kv_heads, SK, D), "v": (B, kv_heads, SK, value)}
    return {n: drawn(shape, dtype, i, 0.7) for i, (n, shape) in enumerate(shapes.items())}


def put(p: Program, values: np.ndarray, dtype: str, order: str = "bhsd") -> Any:
    """A tensor of the graph with these values, which lie in memory in this order."""
    if order == "bshd":
        array = tensor(values.swapaxes(1, 2), dtype, p.device).permute(0, 2, 1, 3)
    else:
        array = tensor(values, dtype, p.device)
    t = p.g.tensor(dim=array.shape, stride=array.strides, data_type=array.dtype)
    p.pack[t] = array
    return t


def options_of(p: Program, options: dict[str, Any], bias_dtype: str) -> dict[str, Any]:
    """The options with tensors for arrays, and for seed and offset."""
    made = dict(options)
    for name, value in options.items():
        if name == "dropout":
            made[name] = (value[0], *(put(p, np.full((1, 1, 1, 1), n), "int64") for n in value[1:]))
        elif isinstance(value, np.ndarray):
            made[name] = put(p, value, {"bias": bias_dtype, "sink_token": "float32"}.get(name, "int32"))
    return made


def forward(
    device: str, arrays: dict[str, np.ndarray], dtype: str, options: dict[str, Any], order: str = "bhsd"
) -> tuple[list[dnn.DeviceTensor], Program]:
    """o and stats [B, H, Sq] of a graph with one sdpa."""
    p = Program(device, KINDS[dtype])
    q, k, v = (put(p, arrays[n], dtype, order) for n in "qkv")
    o, stats = p.g.sdpa(q, k, v, generate_stats=True, **options_of(p, options, dtype))
    got = p.run((o, KINDS[dtype]), (stats, FLOAT))
    assert got[1].shape == (*arrays["q"].shape[:3], 1)
    return [got[0], got[1].reshape(arrays["q"].shape[:3])], p


def gradients(
    device: str, arrays: dict[str, np.ndarray], dtype: str, options: dict[str, Any], order: str, bias_dtype: str
) -> tuple[list[dnn.DeviceTensor], Program]:
    """dq, dk and dv of a graph with one sdpa_backward; then dbias and dsink if there are a bias and a sink."""
    p = Program(device, KINDS[dtype])
    named = [put(p, arrays[n], dtype, order) for n in ("q", "k", "v", "o", "do")]
    stats = put(p, arrays["lse"][..., None], "float32")
    made = options_of(p, options, bias_dtype)
    frames = []
    for name, of in (("bias", "dBias"), ("sink_token", "dSink_token")):
        if name in made:
            dtype_of = bias_dtype if name == "bias" else "float32"
            frames.append(framed(made[name].get_dim(), made[name].get_stride(), dtype_of, device))
            made[of] = p.g.tensor(made[name].get_dim(), made[name].get_stride(), made[name].get_data_type())
            p.pack[made[of]] = frames[-1][0]
    dq, dk, dv = p.g.sdpa_backward(*named, stats, **made)
    got = p.run(*((t, KINDS[dtype]) for t in (dq, dk, dv)))
    assert all(untouched() for _, untouched in frames)
    return [*got, *(memory for memory, _ in frames)], p


def with_results(arrays: dict[str, np.ndarray], dtype: str, here: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays, and o, lse and do, the gradient of o."""
    o, lse = reference.attention_forward(*(arrays[n] for n in "qkv"), **here)
    further = {"do": drawn(o.shape, dtype, 9), "o": rounded(o, dtype), "lse": rounded(lse, "float32")}
    return arrays | further


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_options_of_sdpa(name: str, dtype: str, device: str) -> None:
    there, here = CASES[name]
    arrays, options = operands(dtype), oracle(here)
    for order in ("bhsd", "bshd"):
        got, _ = forward(device, arrays, dtype, there, order)
        for a, b in zip(got, forward_results(dtype, arrays, options, device != "cpu"), strict=True):
            assert_close(a, b, order)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_options_of_the_gradient(name: str, dtype: str, device: str) -> None:
    there, here = CASES[name]
    options = oracle(here)
    arrays = with_results(operands(dtype), dtype, options)
    for order, bias_dtype in (("bhsd", "float32"), ("bshd", dtype)):
        got, _ = gradients(device, arrays, dtype, there, order, bias_dtype)
        backward = options | ({"bias_gradient": True} if "bias" in options else {})
        results = backward_results(dtype, arrays, backward, device != "cpu", bias_dtype)
        for a, b in zip(got, results, strict=True):
            assert_close(a, Result(b.want.reshape(a.shape), np.reshape(b.tolerance, a.shape)), order)


@pytest.mark.parametrize("kv_heads, value", [(3, 24), (1, 16)])
def test_grouped_heads_and_values_of_another_size(kv_heads: int, value: int, device: str) -> None:
    arrays = with_results(operands("float16", kv_heads, value), "float16", oracle({}))
    got, _ = forward(device, arrays, "float16", {}, "bshd")
    for a, b in zip(got, forward_results("float16", arrays, oracle({}), False), strict=True):
        assert_close(a, b)
    got, _ = gradients(device, arrays, "float16", {}, "bshd", "float16")
    for a, b in zip(got, backward_results("float16", arrays, oracle({}), False, "float16"), strict=True):
        assert_close(a, b)


def test_the_bits_are_those_of_attention_forward(device: str) -> None:
    there, here = CASES["many"]
    arrays = operands("bfloat16")
    (o, stats), _ = forward(device, arrays, "bfloat16", there)
    q, k, v = (tensor(arrays[n], "bfloat16", device) for n in "qkv")
    dtypes = {"bias": "bfloat16", "sink": "float32", "q_lengths": "int32", "kv_lengths": "int32"}
    options = {n: tensor(a, dtypes[n], device) if n in dtypes else a for n, a in here.items()}
    for got, want in zip((o, stats), dnn.attention_forward(q, k, v, **options), strict=True):
        assert np.array_equal(values_of(got), values_of(want))


def test_doubles(device: str) -> None:
    """The arithmetic is float64, and so are the gradients. stats may be DOUBLE, too."""
    kind = cudnn.data_type.DOUBLE
    arrays = {n: np.random.default_rng(i).normal(size=a.shape) for i, (n, a) in enumerate(operands("float32").items())}
    p = Program(device, kind, kind, kind)
    q, k, v = (put(p, arrays[n], "float64") for n in "qkv")
    o, stats = p.g.sdpa(q, k, v, generate_stats=True, use_causal_mask=True)
    dq, *_ = p.g.sdpa_backward(q, k, v, o, q, stats, use_causal_mask=True)
    got = p.run((o, kind), (stats, kind), (dq, kind))
    want = forward_results("float64", arrays, oracle({"causal": True}), False)
    for a, b in zip(got, want, strict=False):
        assert_close(a.reshape(b.want.shape), b)
    arrays |= {"do": arrays["q"], "o": want[0].want, "lse": want[1].want}
    (of_q, *_) = backward_results("float64", arrays, oracle({"causal": True}), False, "float64")
    assert_close(got[2], Result(of_q.want, 2 * np.asarray(of_q.tolerance) + 1e-12))


def test_results_are_written_without_copies(device: str) -> None:
    """A graph with one node is one call, which writes all results to the memory of the user."""
    there, here = CASES["causal"]
    arrays = with_results(operands("float16"), "float16", oracle(here))
    for order in ("bhsd", "bshd"):
        _, p = forward(device, arrays, "float16", there, order)
        _, of_gradient = gradients(device, arrays, "float16", there, order, "float16")
        for g in (p.g, of_gradient.g):
            (recording,) = g._recordings.values()
            assert str(recording).startswith(f"graph {device}: 1 node, 0 bytes")


def test_slopes_of_alibi() -> None:
    """2^(-8 i / n) for a power of 2; further heads have slopes between those."""
    assert slopes(8) == [2.0**-i for i in range(1, 9)]
    assert slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert slopes(1) == [2.0**-8]


def test_results_that_are_left_out(device: str) -> None:
    p = Program(device)
    q, k, v = (put(p, a, "float16") for a in operands("float16").values())
    o, stats = p.g.sdpa(q, k, v, True)
    assert stats is None
    assert not p.g.nodes[0].outputs[1]
    (got,) = p.run((o, FLOAT))  # o may have another type than q
    want, _ = forward_results("float16", operands("float16"), oracle({}), False)
    assert_close(got, want)


def test_strides_of_results(device: str) -> None:
    """o has the order of q unless the user sets strides."""
    p = Program(device)
    arrays = operands("float16")
    q, k, v = (put(p, a, "float16", "bshd") for a in arrays.values())
    o, stats = p.g.sdpa(q, k, v, generate_stats=True)
    other, _ = p.g.sdpa(q, k, v, generate_stats=False)
    other.set_stride([H * D * SQ, 1, H, H * SQ])
    got = p.run((o, HALF), (stats, FLOAT), (other, HALF))
    assert o.get_stride() == [SQ * H * D, D, H * D, 1]
    assert stats.get_stride() == [H * SQ, SQ, 1, 1]
    assert [t.name for t in (o, stats)] == ["sdpa.0::O", "sdpa.0::Stats"]
    want, _ = forward_results("float16", arrays, oracle({}), False)
    assert_close(got[0], want)
    assert_close(got[2], want)


def test_o_may_replace_q(device: str) -> None:
    p = Program(device)
    arrays = operands("float16")
    q, k, v = (put(p, a, "float16") for a in arrays.values())
    o, _ = p.g.sdpa(q, k, v, generate_stats=False)
    o.set_output(True)
    p.g.build([cudnn.heur_mode.A])
    p.g.execute(p.pack | {o: p.pack[q]}, None)
    assert_close(p.pack[q], forward_results("float16", arrays, oracle({}), False)[0])


def test_attention_of_products_in_one_graph(device: str) -> None:
    """q, k and v are virtual, with the strides of heads in a row. o is an operand of a product."""
    x, w = drawn((B, 8, 12), "float16", 1), drawn((3, 12, 12), "float16", 2, 0.5)
    p = Program(device, HALF, HALF)
    a = p.put(x)
    heads = []
    for i in range(3):
        product = p.g.matmul(a, p.put(w[i : i + 1]))
        split = p.g.reshape(product, reshape_mode=cudnn.reshape_mode.LOGICAL).set_dim([B, 8, 3, 4])
        heads.append(p.g.transpose(split, [0, 2, 1, 3]))
    o, _ = p.g.sdpa(*heads, generate_stats=False, attn_scale=0.5, use_causal_mask=True)
    (got,) = p.run((o, HALF))
    q, k, v = (rounded(x @ w[i], "float16").reshape(B, 8, 3, 4).swapaxes(1, 2) for i in range(3))
    want, _ = forward_results(
        "float16", dict(zip("qkv", (q, k, v), strict=True)), {"scale": 0.5, "causal": True}, False
    )
    # A product that is rounded to the other side changes q, k or v by 2^-10 of its size.
    assert_close(got, Result(want.want, want.tolerance + 2.0**-8 * np.abs(v).max()))


# ---- numbers and dropout


def test_a_scale_may_be_passed_by_value(device: str) -> None:
    arrays = operands("float16")
    p = Program(device)
    q, k, v = (put(p, a, "float16") for a in arrays.values())
    scale = p.number(0.5)
    o, _ = p.g.sdpa(q, k, v, generate_stats=False, attn_scale=scale)
    for value in (0.5, -1.25):
        p.pack[scale] = np.full((1, 1, 1, 1), value, "float32")
        (got,) = p.run((o, HALF))
        assert_close(got, forward_results("float16", arrays, {"scale": value}, False)[0])


@pytest.mark.parametrize("seed, offset", [(SEED, OFFSET), (2**62 + 1, 0), (-5, 3)])
def test_seed_and_mask_of_dropout(seed: int, offset: int, device: str) -> None:
    """execute() reads seed and offset from the memory of the device in each call. The mask is that of the forward call
    and of its gradient."""
    p = Program(device)
    q, k, v = (put(p, a, "float16") for a in operands("float16").values())
    seeds = [p.g.tensor([1, 1, 1, 1], [1, 1, 1, 1], cudnn.data_type.INT64) for _ in range(2)]
    masks = [p.g.tensor([B, H, SQ, SK], [H * SQ * SK, SQ * SK, SK, 1], FLOAT) for _ in range(2)]
    o, stats = p.g.sdpa(q, k, v, generate_stats=True, dropout=(0.4, *seeds), rng_dump=masks[0])
    stats.set_data_type(FLOAT)
    results = p.g.sdpa_backward(q, k, v, o, q, stats, dropout=(0.4, *seeds), rng_dump=masks[1])
    for t in (o, *results):
        t.set_output(True)
    p.g.build([cudnn.heur_mode.A])
    known = {t: dnn.zeros((B, H, n, D), dtype="float16", device=device) for t, n in zip(
        (o, *results), (SQ, SQ, SK, SK), strict=True)}  # fmt: skip
    for s in (seed, seed + 1):
        memory = {t: dnn.zeros((B, H, SQ, SK), device=device) for t in masks}
        numbers = {
            t: dnn.asarray(np.full(1, n, "int64"), device=device) for t, n in zip(seeds, (s, offset), strict=True)
        }
        p.g.execute(p.pack | known | memory | numbers, None)
        want = reference.attention_keep((B, H, SQ, SK), 0.4, seed=s & (2**63 - 1), offset=offset)
        for t in masks:
            assert np.array_equal(values_of(memory[t]), want)
    assert 0.2 < 1 - want.mean() < 0.6


def test_seeds_at_addresses(device: str) -> None:
    """The addresses of seed and offset are those of the device, in order of uids, as for other tensors."""
    p = Program(device)
    arrays = operands("float16")
    q, k, v = (put(p, a, "float16") for a in arrays.values())
    options = options_of(p, {"dropout": (0.25, SEED, OFFSET)}, "float16")
    o, _ = p.g.sdpa(q, k, v, generate_stats=False, **options)
    o.set_output(True)
    p.g.build([cudnn.heur_mode.A])
    p.pack[o] = dnn.zeros((B, H, SQ, D), dtype="float16", device=device)
    pointers = {t.get_uid(): array.data_ptr for t, array in p.pack.items()}
    p.g.execute(pointers, None)
    assert_close(p.pack[o], forward_results("float16", arrays, oracle({"dropout": 0.25}), False)[0])
    with pytest.raises(ValueError, match="is a number, so it must have one element"):
        p.g.execute(p.pack | {options["dropout"][1]: dnn.zeros(2, dtype="int64", device=device)}, None)


def test_a_saved_graph_keeps_all_options(device: str) -> None:
    p = Program(device)
    there, here = joined(CASES["window of 4"], CASES["dropout"], CASES["lengths"], CASES["sink"])
    arrays = operands("float16")
    tensors = [put(p, a, "float16").set_uid(i + 1) for i, a in enumerate(arrays.values())]
    made = options_of(p, there, "float16")
    o, _ = p.g.sdpa(*tensors, generate_stats=False, **made)
    o.set_output(True).set_uid(99)
    p.g.build([cudnn.heur_mode.A])
    loaded = cudnn.pygraph()
    loaded.deserialize(p.handle, p.g.serialize())
    out = dnn.zeros((B, H, SQ, D), dtype="float16", device=device)
    loaded.execute({t.get_uid(): a for t, a in p.pack.items()} | {99: out}, None)
    assert_close(out, forward_results("float16", arrays, oracle(here), False)[0])


def test_plans_of_attention(device: str) -> None:
    """A plan for each engine that can compute the node; the results of all plans are right."""
    arrays = operands("float16")
    p = Program(device)
    q, k, v = (put(p, a, "float16") for a in arrays.values())
    o, _ = p.g.sdpa(q, k, v, generate_stats=False, use_causal_mask=True)
    o.set_output(True)
    p.g.build([cudnn.heur_mode.A])
    p.g.build_plans(cudnn.build_plan_policy.ALL)
    names = [p.g.get_plan_name_at_index(i) for i in range(p.g.get_execution_plan_count())]
    assert {f"{device.split(':')[0]}.attention.{e}" for e in (("generic",) if device != "cpu" else ("flash", "reference"))
            } <= set(names)  # fmt: skip
    for i in range(len(names)):
        out = dnn.zeros((B, H, SQ, D), dtype="float16", device=device)
        p.g.execute_plan_at_index(p.pack | {o: out}, None, i)
        assert_close(out, forward_results("float16", arrays, oracle({"causal": True}), False)[0], names[i])


def test_deterministic_gradients(device: str) -> None:
    p = Program(device)
    q, k, v, o, do = (put(p, drawn((B, H, SQ, D), "float16", i), "float16") for i in range(5))
    stats = put(p, np.zeros((B, H, SQ, 1)), "float32")
    p.g.sdpa_backward(q, k, v, o, do, stats, use_deterministic_algorithm=True)
    handle = p.g._handle(None)
    assert handle is not None
    assert handle.deterministic
    other = Program(device).g
    other.relu(image(other, 4, 5))
    handle = other._handle(None)
    assert handle is not None
    assert not handle.deterministic


# ---- caches with pages


def paged(values: np.ndarray, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The pages of k or v in random order, with one that no sequence has, and the table [B, 1, n, 1]."""
    batch, heads, length, size = values.shape
    count = -(-length // rows)
    padded = np.full((batch, heads, count * rows, size), np.nan)
    padded[:, :, :length] = values
    pages = padded.reshape(batch, heads, count, rows, size).swapaxes(1, 2).reshape(-1, heads, rows, size)
    order = rng.permutation(batch * count)
    container = np.full((batch * count + 1, heads, rows, size), np.nan)
    container[order] = pages
    return container, order.reshape(batch, 1, count, 1)


@pytest.mark.parametrize("rows, of_q", [(3, SQ), (5, SQ), (16, SQ), (16, 1), (4, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_caches_with_pages(rows: int, of_q: int, causal: bool, device: str) -> None:
    """k and v have tables of their own. Entries of the tables beyond the length may have any value."""
    rng = np.random.default_rng(rows)
    arrays = operands("float16", 3)
    arrays["q"] = arrays["q"][:, :, :of_q]
    lengths = (np.array([of_q, min(of_q, 4)]), np.array([13, 5]))
    p = Program(device)
    inputs, tables = [put(p, arrays["q"], "float16")], []
    for n in "kv":
        container, table = paged(arrays[n], rows, rng)
        for page, anything in zip(range(-(-5 // rows), table.shape[2]), (10**9, -7, 99), strict=False):
            table[1, 0, page] = anything
        inputs.append(put(p, container, "float16"))
        tables.append(put(p, table, "int32"))
    there, here = padding(lengths)
    band = {"use_causal_mask_bottom_right": True} if causal else {}
    bias = eighths((1, 1, of_q, SK))
    o, stats = p.g.sdpa(
        *inputs, generate_stats=True, attn_scale=0.25, bias=put(p, bias, "float16"), paged_attention_k_table=tables[0],
        paged_attention_v_table=tables[1], paged_attention_max_seq_len_kv=SK, **band, **options_of(p, there, "float16"),
    )  # fmt: skip
    got = p.run((o, HALF), (stats, FLOAT))
    options = here | {"scale": 0.25, "bias": bias} | ({"causal": True, "align": "bottom_right"} if causal else {})
    for a, b in zip(got, forward_results("float16", arrays, options, False), strict=True):
        assert_close(a.reshape(b.want.shape), b)


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("sink", [False, True])
def test_decoding_with_pages_that_k_and_v_share(window: int | None, sink: bool, device: str) -> None:
    """attention_decode computes one row of q with pages of a multiple of 16 rows."""
    shapes = {"q": (3, 4, 1, 16), "k": (3, 2, 40, 16), "v": (3, 2, 40, 8)}
    arrays = {n: drawn(s, "float16", i) for i, (n, s) in enumerate(shapes.items())}
    p = Program(device)
    (of_k, table), (of_v, _) = (paged(arrays[n], 16, np.random.default_rng(1)) for n in "kv")
    pages = put(p, table, "int32")
    q, k, v = (put(p, a, "float16") for a in (arrays["q"], of_k, of_v))
    lengths = (np.array([1, 0, 1]), np.array([45, 3, 16]))  # the first one is clamped to 40
    options: dict[str, Any] = {}
    if window:
        options |= {"diagonal_alignment": BOTTOM_RIGHT, "diagonal_band_left_bound": window}
    if sink:
        options["sink_token"] = put(p, np.arange(4.0).reshape(1, 4, 1, 1), "float32")
    o, stats = p.g.sdpa(
        q, k, v, generate_stats=True, paged_attention_k_table=pages, paged_attention_v_table=pages, use_padding_mask=True,
        seq_len_q=put(p, lengths[0].reshape(3, 1, 1, 1), "int32"),
        seq_len_kv=put(p, lengths[1].reshape(3, 1, 1, 1), "int64"), paged_attention_max_seq_len_kv=40, **options,
    )  # fmt: skip
    got = p.run((o, HALF), (stats, FLOAT))
    assert "attention decode" in str(next(iter(p.g._recordings.values())))
    here: dict[str, Any] = {"q_lengths": lengths[0], "kv_lengths": lengths[1], "scale": 1.0}
    here |= {"window": (window - 1, None), "align": "bottom_right"} if window else {}
    here |= {"sink": np.arange(4.0)} if sink else {}
    for a, b in zip(got, forward_results("float16", arrays, here, False), strict=True):
        assert_close(a.reshape(b.want.shape), b)


# ---- torch, and a program in the style of cudnn-frontend's samples


@pytest.mark.torch
@pytest.mark.parametrize("dtype, error", [("float32", 1e-4), ("float16", 5e-3), ("bfloat16", 4e-2)])
@pytest.mark.parametrize("mask", ["none", "causal", "bias"])
def test_the_results_are_those_of_torch(mask: str, dtype: str, error: float) -> None:
    import torch

    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(1)
    shapes = ((2, 6, 33, 24), (2, 3, 47, 24), (2, 3, 47, 24), (2, 6, 33, 24), (1, 6, 33, 47))
    q, k, v, do, bias = (torch.randn(s, generator=generator).to(kind) for s in shapes)
    p = Program("cpu", KINDS[dtype])
    there: dict[str, Any] = {"none": {}, "causal": {"use_causal_mask": True}, "bias": {"bias": p.g.tensor_like(bias)}}[
        mask
    ]
    read = [p.g.tensor_like(t) for t in (q, k, v)]
    o, stats = p.g.sdpa(*read, generate_stats=True, attn_scale=0.2, **there)
    stats.set_output(True).set_data_type(FLOAT)
    of_o = p.g.tensor_like(do)
    results = p.g.sdpa_backward(*read, o, of_o, stats, attn_scale=0.2, **there)
    for t in (o, *results):
        t.set_output(True)
    p.g.build([cudnn.heur_mode.A])
    made = [torch.zeros_like(t) for t in (q, q, k, v)]
    pack = dict(zip((*read, of_o, o, *results), (q, k, v, do, *made), strict=True))
    p.g.execute(pack | {stats: torch.zeros(2, 6, 33, 1)} | ({there["bias"]: bias} if mask == "bias" else {}), None)

    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(
        *leaves, attn_mask=bias.double() if mask == "bias" else None, is_causal=mask == "causal", scale=0.2,
        enable_gqa=True,
    )  # fmt: skip
    wanted = [want, *torch.autograd.grad(want, leaves, do.double())]
    for got, expected in zip(made, wanted, strict=True):
        torch.testing.assert_close(got.double(), expected, atol=error * max(1, expected.abs().max().item()), rtol=0)


@pytest.mark.torch
def test_a_program_that_trains(device: str) -> None:
    """A forward graph that is made from arrays, and a backward graph that is built step by step, as in the samples of
    cudnn-frontend."""
    import torch

    batch, length, heads, size = 2, 64, 4, 32
    where = torch.device(device)
    torch.manual_seed(3)
    q, k, v, do = (torch.randn(batch, length, heads, size, device=where).half().transpose(1, 2) for _ in range(4))
    handle = cudnn.create_handle(device)
    types = {"io_data_type": HALF, "intermediate_data_type": FLOAT, "compute_data_type": FLOAT}
    scale = 1 / math.sqrt(size)
    with cudnn.Graph(
        **types, handle=handle, inputs=["attention::q", "attention::k", "attention::v"], outputs=["o", "stats"]
    ) as graph:
        o, stats = graph.sdpa(
            name="attention", q=q, k=k, v=v, attn_scale=scale, is_inference=False, use_causal_mask=True
        )
        o.set_output(True).set_dim(q.shape).set_stride(q.stride()).set_name("o")
        stats.set_output(True).set_data_type(FLOAT).set_name("stats")
    o_made, stats_made = graph(q, k, v, handle=handle)
    assert o_made.stride() == q.stride()

    g = cudnn.pygraph(handle=handle, **types)
    read = [g.tensor_like(t) for t in (q, k, v, o_made, do, stats_made)]
    gradients = g.sdpa_backward(*read, attn_scale=scale, use_causal_mask=True, name="gradient")
    assert [t.name for t in gradients] == ["gradient::dQ", "gradient::dK", "gradient::dV"]
    for t in gradients:
        t.set_output(True).set_dim(q.shape).set_stride(q.stride())
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    g.check_support()
    g.build_plans()
    made = [torch.empty_like(q) for _ in range(3)]
    pack = dict(zip((*read, *gradients), (q, k, v, o_made, do, stats_made, *made), strict=True))
    workspace = torch.empty(g.get_workspace_size(), device=where, dtype=torch.uint8)
    g.execute(pack, workspace, handle=handle)

    leaves = [t.float().requires_grad_() for t in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, scale=scale)
    torch.testing.assert_close(o_made.float(), want, atol=5e-3, rtol=3e-3)
    for got, expected in zip(made, torch.autograd.grad(want, leaves, do.float()), strict=True):
        torch.testing.assert_close(got.float(), expected, atol=5e-3, rtol=3e-3)
    cudnn.destroy_handle(handle)


@pytest.mark.torch
def test_arrays_for_dropout_in_a_graph_with_arrays() -> None:
    """Arrays in the tuple of dropout are inputs, too."""
    import torch

    q = torch.randn(1, 2, 8, 16).half()
    seed, offset = torch.full((1, 1, 1, 1), 5), torch.full((1, 1, 1, 1), 6)
    with cudnn.Graph(
        io_data_type=HALF, intermediate_data_type=FLOAT, handle=cudnn.create_handle("cpu"),
        inputs=["a::q", "a::dropout.1", "a::dropout.2"], outputs=["a::O"],
    ) as graph:  # fmt: skip
        graph.sdpa(q=q, k=q, v=q, name="a", generate_stats=False, dropout=(0.5, seed, offset))[0].set_output(True)
    got = graph(q, seed, offset)
    t = dnn.asarray(q)
    want, _ = dnn.attention_forward(t, t, t, scale=1.0, dropout=0.5, seed=5, offset=6)
    assert np.array_equal(got.numpy(), want.numpy())


# ---- what is refused


def call(g: Any, kind: str = "sdpa", **changed: Any) -> None:
    """A call that is right but for the arguments that are changed."""
    row = image(g, B, H, SQ, D)
    arguments: dict[str, Any] = {"q": row, "k": image(g, B, H, SK, D), "v": image(g, B, H, SK, D)}
    if kind == "sdpa":
        arguments |= {"generate_stats": True}
    else:
        arguments |= {"o": row, "dO": row, "stats": image(g, B, H, SQ, 1, data_type=FLOAT)}
    made = {n: f(g) if callable(f) else f for n, f in changed.items()}
    getattr(g, kind)(**arguments | made)


def sized(*dim: int) -> Any:
    return lambda g: image(g, *dim)


def seeds(g: Any) -> Any:
    return 1.0, image(g, 1, 1, 1, 1), image(g, 1, 1, 1, 1)


LENGTH = sized(B, 1, 1, 1)


@pytest.mark.parametrize(
    "kind, changed, text",
    [
        ("sdpa", {"generate_stats": None}, "one of generate_stats and is_inference must be True or False; got None"),
        ("sdpa", {"is_inference": True}, "one of generate_stats and is_inference must be True or False"),
        ("sdpa", {"generate_stats": 1}, "one of generate_stats and is_inference must be True or False; got 1"),
        ("sdpa", {"k": None}, "sdpa: each input must be a tensor of a pygraph; got None"),
        ("sdpa", {"q": sized(B, SQ, D)}, "q must have 4 dimensions; got [2, 9, 16]"),
        ("sdpa", {"k": sized(B, 4, SK, D)}, "with H a multiple of Hk; got [2, 6, 9, 16], [2, 4, 13, 16] and [2, 6, 13, 16]"),
        ("sdpa", {"v": sized(B, H, SQ, D)}, "q, k and v must be [B, H, Sq, D], [B, Hk, Sk, D] and [B, Hk, Sk, Dv]"),
        ("sdpa", {"k": sized(1, H, SK, D)}, "q, k and v must be [B, H, Sq, D]"),
        ("sdpa", {"k": sized(B, H, SK, 8)}, "q, k and v must be [B, H, Sq, D]"),
        ("sdpa", {"bias": sized(1, 2, SQ, SK)}, "each dimension of bias must be 1 or that of [2, 6, 9, 13]"),
        ("sdpa", {"sink_token": sized(1, 1, H, 1)}, "sink_token must be [1, 6, 1, 1]; got [1, 1, 6, 1]"),
        ("sdpa", {"rng_dump": sized(B, H, SQ, SQ)}, "has the sizes [2, 6, 9, 9]; the node makes [2, 6, 9, 13]"),
        ("sdpa", {"rng_dump": 3}, "rng_dump must be a tensor in memory; got 3"),
        ("sdpa", {"seq_len_q": LENGTH}, "use_padding_mask, seq_len_q and seq_len_kv must be set together"),
        ("sdpa", {"use_padding_mask": True}, "use_padding_mask, seq_len_q and seq_len_kv must be set together"),
        (
            "sdpa",
            {"use_padding_mask": True, "seq_len_q": LENGTH, "seq_len_kv": sized(1, 1, 1, B)},
            "seq_len_kv must be [2, 1, 1, 1]; got [1, 1, 1, 2]",
        ),
        ("sdpa", {"paged_attention_max_seq_len_kv": 0}, "paged_attention_max_seq_len_kv must be from 1 to 2^31 - 1, or None"),
        ("sdpa_backward", {"max_total_seq_len_q": 1.5}, "max_total_seq_len_q must be an int; got 1.5"),
        ("sdpa", {"attn_scale": "x"}, "attn_scale must be a number; got 'x'"),
        ("sdpa", {"use_causal_mask": True, "diagonal_band_right_bound": 0}, "only one of use_causal_mask"),
        ("sdpa", {"use_causal_mask": True, "use_causal_mask_bottom_right": True}, "only one of use_causal_mask"),
        ("sdpa", {"sliding_window_length": 3, "diagonal_band_left_bound": 3}, "are the same option; set one"),
        ("sdpa", {"sliding_window_length": 0}, "the left bound must be from 1 to 2^31 - 1, or None; got 0"),
        ("sdpa", {"diagonal_band_right_bound": -1}, "the right bound must be from 0 to 2^31 - 1, or None; got -1"),
        ("sdpa", {"diagonal_alignment": 3}, "diagonal_alignment must be a cudnn.diagonal_alignment; got 3"),
        ("sdpa", {"dropout": 0.5}, "dropout must be (probability, seed, offset); got 0.5"),
        ("sdpa", {"dropout": seeds}, "the probability of dropout must be from 0 to below 1; got 1.0"),
        ("sdpa", {"dropout": (0.5, 1, 2)}, "each input must be a tensor of a pygraph; got 1"),
        ("sdpa", {"paged_attention_k_table": sized(B, 1, 2, 1)}, "tables of pages need use_padding_mask=True"),
        (
            "sdpa",
            {"paged_attention_k_table": sized(B, 1, 1, 1), "paged_attention_max_seq_len_kv": 14, "use_padding_mask": True,
             "seq_len_q": LENGTH, "seq_len_kv": LENGTH},
            "paged_attention_max_seq_len_kv must be at most 13, the rows of 1 pages; got 14",
        ),
        (
            "sdpa",
            {"paged_attention_k_table": sized(1, 1, 1, 1), "use_padding_mask": True, "seq_len_q": LENGTH,
             "seq_len_kv": LENGTH},
            "k_table must be [2, 1, 1, 1]; got [1, 1, 1, 1]",
        ),
        ("sdpa_backward", {"dO": sized(B, H, SQ, 8)}, "dO must be [2, 6, 9, 16]; got [2, 6, 9, 8]"),
        ("sdpa_backward", {"stats": sized(B, H, SQ, D)}, "stats must be [2, 6, 9, 1]; got [2, 6, 9, 16]"),
        ("sdpa_backward", {"dBias": sized(1, H, SQ, SK)}, "the gradient of bias needs bias; got None"),
        ("sdpa_backward", {"dSink_token": sized(1, H, 1, 1)}, "the gradient of sink_token needs sink_token; got None"),
        (
            "sdpa_backward",
            {"bias": sized(1, H, SQ, SK), "dBias": sized(1, 1, SQ, SK)},
            "has the sizes [1, 1, 9, 13]; the node makes [1, 6, 9, 13]",
        ),
    ],
)  # fmt: skip
def test_misuse_of_attention(kind: str, changed: dict[str, Any], text: str) -> None:
    g = new()
    with pytest.raises(ValueError, match=re.escape(text)) as raised:
        call(g, kind, **changed)
        g.build([cudnn.heur_mode.A])
    assert kind in str(raised.value)
    assert not g.nodes or re.search(r"\(line \d+ of test_cudnn_compat_sdpa.py\)", str(raised.value))


def virtual(g: Any) -> Any:
    return 0.5, g.relu(image(g, 1, 1, 1, 1)), image(g, 1, 1, 1, 1)


def computed(g: Any) -> Any:
    return 0.5, image(g, 1, 1, 1, 1), g.relu(image(g, 1, 1, 1, 1)).set_output(True)


def by_mask(g: Any) -> Any:
    return image(g, B, H, SQ, SK), image(g, 1, 1, 1, 1)


def ragged(g: Any) -> Any:
    return image(g, B, H, SQ, D).set_ragged_offset(image(g, B + 1, 1, 1, 1, data_type=cudnn.data_type.INT32))


@pytest.mark.parametrize(
    "kind, changed, text",
    [
        ("sdpa", {"block_mask": sized(B, H, 1, 1)}, "sdpa: block_mask is not supported"),
        ("sdpa", {"score_mod": "f"}, "sdpa: score_mod is not supported"),
        ("sdpa", {"score_max": sized(B, H, SQ, 1)}, "sdpa: score_max is not supported"),
        ("sdpa", {"score_sum_exp": sized(B, H, SQ, 1)}, "sdpa: score_sum_exp is not supported"),
        ("sdpa_backward", {"score_mod_bprop": "f"}, "sdpa_backward: score_mod_bprop is not supported"),
        ("sdpa", {"use_alibi_mask": True}, "use_alibi_mask is supported with use_causal_mask only"),
        (
            "sdpa",
            {"use_alibi_mask": True, "use_causal_mask_bottom_right": True},
            "use_alibi_mask is supported with use_causal_mask only",
        ),
        ("sdpa", {"dropout": by_mask}, "dropout by a mask is not supported; (probability, seed, offset) is"),
        ("sdpa", {"dropout": virtual}, "a seed or an offset that a node computes is not supported"),
        ("sdpa", {"dropout": computed}, "a seed or an offset that a node computes is not supported"),
        ("sdpa", {"attn_scale": sized(1, 1, 1, 1)}, "must be passed by value: make it with is_pass_by_value=True"),
        ("sdpa", {"q": ragged}, "is ragged, reordered or packed, which is not supported"),
        ("sdpa", {"k": sized(B, 3, SK, D)}, "k has 3 heads and v has 6; equal numbers of heads are supported"),
        (
            "sdpa",
            {"bias": lambda g: image(g, 1, 1, SQ, SK, data_type=cudnn.data_type.BOOLEAN)},
            "bias is bool; floats are supported",
        ),
        ("sdpa", {"k": lambda g: image(g, B, H, SK, D, data_type=BFLOAT16)}, "sdpa"),
    ],
)
def test_options_of_attention_that_are_not_supported(kind: str, changed: dict[str, Any], text: str) -> None:
    g = new()
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match=re.escape(text)) as raised:
        call(g, kind, **changed)
        g.build([cudnn.heur_mode.A])
    assert re.search(r"\(line \d+ of test_cudnn_compat_sdpa.py\)", str(raised.value))
