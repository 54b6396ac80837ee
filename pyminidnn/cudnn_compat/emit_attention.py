# SPDX-License-Identifier: Apache-2.0
"""The calls of pyminidnn that compute the attention of a pygraph.

Lengths, sinks and statistics are vectors here, in int32 and in float32 (float64 for doubles), so they are reshaped and
cast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._C import DeviceTensor
from ..conversion import asarray, full
from ..ops.attention import attention_backward, attention_decode, attention_forward
from ..ops.gather import gather
from ..ops.pointwise import maximum, minimum, pointwise
from ..ops.random import dropout_forward
from ..ops.transform import slice as view_of_slice
from .inference import columns_of, unsupported
from .nodes import INPUTS, Node
from .replay import FLOATING, Emit, Replay, cast
from .tensors import Tensor

Results = Sequence[DeviceTensor | None]
Given = Mapping[str, Tensor | None]
_LARGEST_SEED = 2**63 - 1


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def slopes(heads: int) -> list[float]:
    """ALiBi's slopes as in cudnn-frontend: 2^(-8 i / n) for i from 1 to n, where n is the largest power of 2 that is
    not above the number of heads; then 2^(-4 i / n) for i = 1, 3, 5, ..."""
    n = 1 << (heads.bit_length() - 1)
    return [2 ** (-8 * (i + 1) / n) for i in range(n)] + [2 ** (-4 * (2 * i + 1) / n) for i in range(heads - n)]


def _lengths(r: Replay, t: Tensor) -> DeviceTensor:
    return cast(r.value(t), "int32").reshape((r.shape(t)[0],))


def _seeds(r: Replay, given: Given) -> dict[str, int]:
    """The values of seed and offset. Negative ones are mapped to numbers that pyminidnn accepts."""
    tensors = {name: given[name] for name in ("seed", "offset")}
    return {name: int(r.numbers[t]) & _LARGEST_SEED for name, t in tensors.items() if t is not None}


def _options(r: Replay, n: Node, given: Given) -> dict[str, Any]:
    """The options that attention_forward and attention_backward share, but for the bias and dropout."""
    a, q, scale, sink = n.attributes, given["q"], given["attn_scale"], given["sink_token"]
    heads, wide = r.shape(q)[1], _wide(r.dtype(q))
    options: dict[str, Any] = {
        "scale": a["scale"] if scale is None else r.number(scale),
        "causal": a["right"] == 0,
        "align": a["alignment"].lower(),
        "window": (a["left"], a["right"]),
        "algo": r.algo(n),
    }
    if a["alibi"]:
        options["alibi"] = asarray(np.array(slopes(heads), wide), device=r.device)
    if sink is not None:
        options["sink"] = cast(r.value(sink), wide).reshape((heads,))
    for option, name in (("q_lengths", "seq_len_q"), ("kv_lengths", "seq_len_kv")):
        t = given[name]
        if t is not None:
            options[option] = _lengths(r, t)
    return options


def _bias(r: Replay, n: Node, given: Given, gradient: Tensor | None) -> DeviceTensor | None:
    """The bias, in float32 if q's dtype would round it or its gradient."""
    bias = given["bias"]
    if bias is None:
        return None
    if r.dtype(bias) not in FLOATING:
        raise unsupported(n, f"bias is {r.dtype(bias)}; floats are supported")
    dtypes = {r.dtype(t) for t in (given["q"], bias, gradient) if t is not None}
    return cast(r.value(bias), dtypes.pop() if len(dtypes) == 1 else _wide(r.dtype(given["q"])))


def _dropout(r: Replay, n: Node, given: Given) -> dict[str, Any]:
    return {"dropout": n.attributes["dropout"], **_seeds(r, given)}


def _mask(r: Replay, n: Node, given: Given, dump: Tensor | None) -> DeviceTensor | None:
    """Which elements dropout keeps."""
    if dump is None:
        return None
    *rows, columns = r.shape(dump)
    # Rows of the random numbers of attention have a multiple of 4 elements.
    ones = full((*rows, -(-columns // 4) * 4), 1.0, dtype="float32", device=r.device)
    seeds = _seeds(r, given)
    kept = dropout_forward(ones, n.attributes["dropout"], seed=seeds.get("seed", 0), offset=seeds.get("offset", 0))
    return view_of_slice(pointwise("ne", kept, 0.0), [0] * 4, [*rows, columns])


def _cache(r: Replay, n: Node, t: Tensor | None, table: Tensor | None) -> DeviceTensor:
    """k or v of all sequences. Its pages are copied one after the other if there is a table of pages."""
    cache = r.value(t)
    if table is None:
        return cache
    pages, heads, rows, size = r.shape(t)
    batch, _, count, _ = r.shape(table)
    # The entries beyond the length of a sequence may have any value.
    index = minimum(maximum(cast(r.value(table), "int32"), 0), pages - 1).reshape((batch, count))
    copied = gather(cache.permute(1, 0, 2, 3), index, axis=1)  # [heads, batch, count, rows, size]
    whole = copied.reshape((heads, batch, count * rows, size)).permute(1, 0, 2, 3)
    used = columns_of(n, r.known[t].dim, r.known[table])  # type: ignore[index]
    return view_of_slice(whole, [0] * 4, [batch, heads, used, size])


def _decodes(r: Replay, n: Node, given: Given) -> bool:
    """Whether attention_decode computes the node: one row of q, and pages that k and v share."""
    a, table, k, v = n.attributes, given["k_table"], given["k"], given["v"]
    if table is None or table is not given["v_table"] or given["bias"] is not None or a["dropout"]:
        return False
    if r.shape(given["q"])[2] != 1 or r.shape(k)[2] % 16 or r.shape(k)[:3] != r.shape(v)[:3]:
        return False
    unbounded = a["left"] is None and a["right"] is None
    return not a["alibi"] and (unbounded or a["alignment"] == "BOTTOM_RIGHT")


def _decode(r: Replay, n: Node, given: Given) -> tuple[DeviceTensor, DeviceTensor]:
    options = _options(r, n, given)
    table = given["k_table"]
    assert table is not None
    batch, _, count, _ = r.shape(table)
    used = columns_of(n, r.shape(given["k"]), r.known[table])
    index = cast(r.value(table), "int32").reshape((batch, count))
    q, k, v = (r.value(given[name]) for name in "qkv")
    o, lse = attention_decode(
        q, k, v, lengths=minimum(options["kv_lengths"], used), pages=index, scale=options["scale"],
        window=n.attributes["left"], sink=options.get("sink"), layout="bhsd", algo=options["algo"],
    )  # fmt: skip
    # attention_decode has no lengths of q. A sequence whose length of q is 0 has a row of padding.
    real = pointwise("gt", options["q_lengths"], 0)
    out = r.out(n.outputs[0], o.dtype)
    return (
        pointwise("where", real.reshape((batch, 1, 1, 1)), o, 0.0, out=out),
        pointwise("where", real.reshape((batch, 1, 1)), lse, -float("inf")),
    )


def _sdpa(r: Replay, n: Node) -> Results:
    given: Given = dict(zip(INPUTS["sdpa"], n.inputs, strict=True))
    o, _, dump = n.outputs
    if _decodes(r, n, given):
        return [*_decode(r, n, given), _mask(r, n, given, dump)]
    q = r.value(given["q"])
    k, v = (_cache(r, n, given[name], given[f"{name}_table"]) for name in "kv")
    options = _options(r, n, given) | _dropout(r, n, given)
    result, lse = attention_forward(q, k, v, bias=_bias(r, n, given, None), out=r.out(o, q.dtype), **options)
    return [result, lse, _mask(r, n, given, dump)]


def _sdpa_backward(r: Replay, n: Node) -> Results:
    given: Given = dict(zip(INPUTS["sdpa_backward"], n.inputs, strict=True))
    *_, dbias, dsink, dump = n.outputs
    q, k, v = (r.value(given[name]) for name in "qkv")
    o, do = (cast(r.value(given[name]), q.dtype) for name in ("o", "dO"))
    lse = cast(r.value(given["stats"]), _wide(q.dtype)).reshape(tuple(q.shape[:3]))
    options = _options(r, n, given) | _dropout(r, n, given)
    dq, dk, dv, *rest = attention_backward(
        do, q, k, v, o, lse, bias=_bias(r, n, given, dbias), bias_gradient=dbias is not None, **options
    )
    of_bias = rest.pop(0) if dbias is not None else None
    of_sink = rest.pop(0) if rest and dsink is not None else None
    return [dq, dk, dv, of_bias, of_sink, _mask(r, n, given, dump)]


ATTENTION: dict[str, Emit] = {"sdpa": _sdpa, "sdpa_backward": _sdpa_backward}
