# SPDX-License-Identifier: Apache-2.0
"""Infers sizes, strides and element types of the tensors of a pygraph that the user has not set.

A rule returns the sizes and strides of the results of a node. What the user has set has priority over a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .enums import DTYPE_OF, NOT_SET, cudnnGraphNotSupportedError, data_type, tensor_reordering
from .nodes import INPUTS, Node
from .pointwise import BINARY_AB, BINARY_INPUTS, COMPARISONS, GRADIENTS, UNARY
from .tensors import Described, Tensor, channels_last, ordered_like, row_major

Sizes = tuple[int, ...]
# The sizes and the strides of a result. A rule returns None for sizes that only the user knows.
Shape = tuple["Sizes | None", "Callable[[Sizes], Sizes]"]
Rule = Callable[[Node, Sequence["Described | None"]], list[Shape]]
# New sizes and strides of tensors, which replace what the user has set.
Overrides = Mapping[Tensor, tuple[Sizes, Sizes]]


def broadcast(shapes: Iterable[Sizes], where: str) -> Sizes:
    """The common shape of NumPy's broadcasting. `where` names the node in the error."""
    shape: list[int] = []
    for other in shapes:
        rank = max(len(shape), len(other))
        pairs = zip([1] * (rank - len(shape)) + shape, (1,) * (rank - len(other)) + other, strict=True)
        merged = []
        for a, b in pairs:
            if a != b and 1 not in (a, b):
                raise ValueError(f"{where}: sizes {shape} and {list(other)} cannot be broadcast to one shape")
            merged.append(b if a == 1 else a)
        shape = merged
    return tuple(shape)


def _pointwise(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    inputs = [d for d in given if d is not None]
    dim = broadcast([d.dim for d in inputs], _at(node))

    def strides(final: Sizes) -> Sizes:
        for d in inputs:
            if d.dim == final:
                return d.stride
        widest = max(inputs, key=lambda d: len(d.dim))
        return ordered_like(final, widest.stride)

    return [(dim, strides)]


def _conv_fprop(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    x, w = _all(given)
    a = node.attributes
    spatial = len(x.dim) - 2
    _check_window(node, spatial)
    if len(w.dim) != len(x.dim) or not w.dim[1] or x.dim[1] % w.dim[1]:
        raise ValueError(f"{_at(node)}: weight {list(w.dim)} does not fit image {list(x.dim)}")
    sizes = [
        (x.dim[2 + i] + a["pre_padding"][i] + a["post_padding"][i] - a["dilation"][i] * (w.dim[2 + i] - 1) - 1)
        // a["stride"][i]
        + 1
        for i in range(spatial)
    ]
    return [((x.dim[0], w.dim[0], *sizes), channels_last)]


def _conv_gradient(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    _check_window(node, len(_all(given)[0].dim) - 2)
    return [(None, channels_last)]


def _matmul(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    a, b = _all(given)
    if len(a.dim) != len(b.dim) or len(a.dim) < 2 or a.dim[-1] != b.dim[-2]:
        raise ValueError(f"{_at(node)}: A {list(a.dim)} and B {list(b.dim)} must be [..., M, K] and [..., K, N]")
    return [((*broadcast([a.dim[:-2], b.dim[:-2]], _at(node)), a.dim[-2], b.dim[-1]), row_major)]


def _reduction(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    return [(_all(given)[0].dim, channels_last)]


def _per_channel(dim: Sizes) -> Sizes:
    return tuple(n if i == 1 else 1 for i, n in enumerate(dim))


def _genstats(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    return [(_per_channel(_all(given)[0].dim), channels_last)] * 2


def slices_of(node: Node, dim: Sizes) -> list[tuple[int, int, int]]:
    """start, stop and step for each dimension of the input of a slice. The stop is not below the start."""
    slices = node.attributes["slices"]
    if len(slices) != len(dim) or any(step is not None and step < 1 for _, _, step in slices):
        raise ValueError(f"{_at(node)}: slices must be {len(dim)} slices with positive steps; got {slices}")
    found = (slice(*s).indices(n) for s, n in zip(slices, dim, strict=True))
    return [(start, max(start, stop), step) for start, stop, step in found]


def _slice(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    (x,) = _all(given)
    ranges = slices_of(node, x.dim)
    dim = tuple(len(range(*r)) for r in ranges)
    return [(dim, lambda _: tuple(s * r[2] for s, r in zip(x.stride, ranges, strict=True)))]


def _reshape(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    return [(None, channels_last)]


def _transpose(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    (x,) = _all(given)
    order: list[int] = node.attributes["permutation"]
    if sorted(order) != list(range(len(x.dim))):
        raise ValueError(f"{_at(node)}: permutation must have each of the {len(x.dim)} dimensions once; got {order}")
    dim: Sizes | None = tuple(x.dim[i] for i in order)
    return [(dim, lambda _: tuple(x.stride[i] for i in order))]


def _concatenate(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    inputs, axis = _all(given), node.attributes["axis"]
    first = inputs[0]
    if not 0 <= axis < len(first.dim) or any(
        len(d.dim) != len(first.dim) or any(i != axis and n != first.dim[i] for i, n in enumerate(d.dim))
        for d in inputs
    ):
        raise ValueError(f"{_at(node)}: the inputs must have equal sizes except in dimension {axis}")
    dim = tuple(sum(d.dim[i] for d in inputs) if i == axis else n for i, n in enumerate(first.dim))
    return [(dim, lambda final: ordered_like(final, first.stride))]


def _like(d: Described) -> Shape:
    return d.dim, lambda final: d.stride if final == d.dim else ordered_like(final, d.stride)


def _batchnorm(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    x = _all(given)[0]
    return [_like(x)] + [(_per_channel(x.dim), channels_last)] * 4


def _batchnorm_inference(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    return [_like(_all(given)[0])]


def normalized(node: Node, x: Described, scale: Described) -> list[int]:
    """The dimensions that a norm of rows normalizes: those in which scale is not 1, for adalayernorm without 0."""
    if len(x.dim) != len(scale.dim) or any(s not in (1, n) for s, n in zip(scale.dim, x.dim, strict=True)):
        raise ValueError(f"{_at(node)}: scale {list(scale.dim)} must have 1 or the size of input {list(x.dim)}")
    first = 1 if node.kind.startswith("ada") else 0
    return [i for i, n in enumerate(scale.dim) if n != 1 and i >= first]


def _rows(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    x, scale = _all(given)[:2]
    inside = normalized(node, x, scale)
    dim = tuple(1 if i in inside else n for i, n in enumerate(x.dim))
    return [_like(x)] + [(dim, lambda final: ordered_like(final, x.stride))] * 2


def _instancenorm(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    x = _all(given)[0]
    return [_like(x)] + [((*x.dim[:2], *(1 for _ in x.dim[2:])), channels_last)] * 2


def _norm_backward(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    _, x, scale = _all(given)[:3]
    dx: Shape = (x.dim, lambda final: x.stride if final == x.dim else channels_last(final))
    return [dx, (scale.dim, channels_last), (scale.dim, channels_last)]


def columns_of(node: Node, cache: Sizes, table: Described | None) -> int:
    """The number of columns of attention: the rows of k, or those of the pages in a row of the table."""
    rows: int = cache[2]
    if table is None:
        return rows
    most = rows * table.dim[2]
    used: int | None = node.attributes["max_seq_len_kv"]
    if used is not None and used > most:
        raise ValueError(f"{_at(node)}: paged_attention_max_seq_len_kv must be at most {most}, the rows of "
                         f"{table.dim[2]} pages; got {used}")  # fmt: skip
    return most if used is None else used


def _attention_sizes(node: Node, given: Sequence[Described | None]) -> tuple[dict[str, Described], Sizes, int]:
    """The inputs by name, [B, H, Sq, Sk] and Dv. Raises ValueError for sizes that do not fit."""
    t = {name: d for name, d in zip(INPUTS[node.kind], given, strict=True) if d is not None}
    for name, d in t.items():
        if len(d.dim) != 4 and name not in ("attn_scale", "seed", "offset"):
            raise ValueError(f"{_at(node)}: {name} must have 4 dimensions; got {list(d.dim)}")
    (b, h, rows, size), k, v = t["q"].dim, t["k"].dim, t["v"].dim
    tables = [t.get("k_table"), t.get("v_table")]
    columns = [columns_of(node, d, table) for d, table in zip((k, v), tables, strict=True)]
    batches = [b if table else d[0] for d, table in zip((k, v), tables, strict=True)]
    if not k[1] or h % k[1] or not v[1] or h % v[1] or batches != [b, b] or k[3] != size or columns[0] != columns[1]:
        raise ValueError(
            f"{_at(node)}: q, k and v must be [B, H, Sq, D], [B, Hk, Sk, D] and [B, Hk, Sk, Dv], with H a multiple of "
            f"Hk{', and k and v [pages, Hk, page size, D or Dv] with tables' if any(tables) else ''}; "
            f"got {list(t['q'].dim)}, {list(k)} and {list(v)}"
        )
    if k[1] != v[1]:
        raise unsupported(node, f"k has {k[1]} heads and v has {v[1]}; equal numbers of heads are supported")
    scores = (b, h, rows, columns[0])
    wanted = {
        **dict.fromkeys(["seq_len_q", "seq_len_kv"], (b, 1, 1, 1)),
        **dict.fromkeys(["o", "dO"], (b, h, rows, v[3])),
        **{f"{name}_table": (b, 1, *table.dim[2:3], 1) for name, table in zip("kv", tables, strict=True) if table},
        "sink_token": (1, h, 1, 1),
        "stats": (b, h, rows, 1),
    }
    for name, dim in wanted.items():
        if name in t and t[name].dim != dim:
            raise ValueError(f"{_at(node)}: {name} must be {list(dim)}; got {list(t[name].dim)}")
    if "bias" in t and any(n not in (1, s) for n, s in zip(t["bias"].dim, scores, strict=True)):
        raise ValueError(f"{_at(node)}: each dimension of bias must be 1 or that of {list(scores)}; "
                         f"got {list(t['bias'].dim)}")  # fmt: skip
    return t, scores, v[3]


def _sdpa(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    t, scores, size = _attention_sizes(node, given)
    o: Shape = ((*scores[:3], size), lambda final: ordered_like(final, t["q"].stride))
    return [o, ((*scores[:3], 1), row_major), (scores, row_major)]


def _sdpa_backward(node: Node, given: Sequence[Described | None]) -> list[Shape]:
    t, scores, _ = _attention_sizes(node, given)
    further = [(t[name].dim if name in t else None, row_major) for name in ("bias", "sink_token")]
    return [*(_like(t[name]) for name in "qkv"), *further, (scores, row_major)]


RULES: dict[str, Rule] = {
    **dict.fromkeys([*UNARY, *BINARY_AB, *BINARY_INPUTS, *COMPARISONS], _pointwise),
    **dict.fromkeys([f"{kind}_backward" for kind in (*GRADIENTS, "relu", "swish")], _pointwise),
    **dict.fromkeys(["bias", "scale", "relu", "swish", "gen_index", "binary_select"], _pointwise),
    **dict.fromkeys(["conv_dgrad", "conv_wgrad"], _conv_gradient),
    **dict.fromkeys(["layernorm", "adalayernorm", "rmsnorm"], _rows),
    **{
        f"{norm}_backward": _norm_backward
        for norm in ("batchnorm", "layernorm", "adalayernorm", "rmsnorm", "instancenorm")
    },
    "conv_fprop": _conv_fprop,
    "matmul": _matmul,
    "reduction": _reduction,
    "genstats": _genstats,
    "slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "batchnorm": _batchnorm,
    "batchnorm_inference": _batchnorm_inference,
    "instancenorm": _instancenorm,
    "sdpa": _sdpa,
    "sdpa_backward": _sdpa_backward,
}
# Results of these nodes have the element type of the input unless the user sets another one.
_KEEP_TYPE = ("slice", "reshape", "transpose", "concatenate")


def infer(
    nodes: Sequence[Node], io: Any, intermediate: Any, overrides: Overrides | None = None
) -> dict[Tensor, Described]:
    """The description of each tensor of the nodes, in the order of the nodes.

    io            data_type of tensors in memory for which none is set
    intermediate  the same for virtual tensors

    Raises ValueError for what is missing or contradictory, cudnnGraphNotSupportedError for element types that are not
    supported.
    """
    known: dict[Tensor, Described] = {}
    for node in nodes:
        for t in node.inputs:
            if t is not None and t not in known:
                known[t] = _input(node, t, io, overrides)
        given = [None if t is None else known[t] for t in node.inputs]
        shapes = RULES[node.kind](node, given)
        for t, (dim, strides) in zip(node.outputs, shapes, strict=False):
            if t is not None:
                inherited = given[0].kind if node.kind in _KEEP_TYPE and given[0] else NOT_SET
                known[t] = _output(node, t, dim, strides, (io, intermediate, inherited), overrides)
    return known


def _input(node: Node, t: Tensor, io: Any, overrides: Overrides | None) -> Described:
    if t.virtual:
        raise ValueError(f"{_at(node)}: {t.label()} is virtual, and no node of this graph makes it")
    dim, stride = overrides[t] if overrides and t in overrides else (t.dim, t.stride)
    if not dim:
        raise ValueError(f"{_at(node)}: the sizes of {t.label()} are not set; call set_dim()")
    return _checked(node, t, dim, stride or row_major(dim), io if t.kind is NOT_SET else t.kind)


def _output(
    node: Node,
    t: Tensor,
    dim: Sizes | None,
    strides: Callable[[Sizes], Sizes],
    kinds: tuple[Any, Any, Any],
    overrides: Overrides | None,
) -> Described:
    io, intermediate, inherited = kinds
    wanted, stride = overrides[t] if overrides and t in overrides else (t.dim, t.stride)
    final = wanted or dim
    if final is None:
        raise ValueError(f"{_at(node)}: the sizes of its result must be set; call set_dim()")
    if dim is not None and final != dim and node.kind != "reduction":
        raise ValueError(f"{_at(node)}: {t.label()} has the sizes {list(final)}; the node makes {list(dim)}")
    kind = t.kind
    if kind is NOT_SET:
        kind = inherited if inherited is not NOT_SET else intermediate if t.virtual else io
    return _checked(node, t, final, stride or strides(final), kind)


def _checked(node: Node, t: Tensor, dim: Sizes, stride: Sizes, kind: Any) -> Described:
    if len(dim) != len(stride) or len(dim) > 8 or min(dim) < 0 or min(stride) < 0:
        raise ValueError(
            f"{_at(node)}: {t.label()} must have 1 to 8 sizes and as many strides, none negative; "
            f"got {list(dim)} and {list(stride)}"
        )
    if kind is NOT_SET:
        raise ValueError(
            f"{_at(node)}: the data_type of {t.label()} is not set; call set_data_type(), or pass "
            f"{'intermediate_data_type' if t.virtual else 'io_data_type'} to pygraph()"
        )
    if kind not in DTYPE_OF:
        raise unsupported(node, f"{t.label()} has the data_type {kind.name}, and 8-bit and 4-bit floats and packed "
                                "integers are not supported")  # fmt: skip
    if t.reordering is not tensor_reordering.NONE or t.vector[0] != 1 or t.ragged is not None:
        raise unsupported(node, f"{t.label()} is ragged, reordered or packed, which is not supported")
    return Described(tuple(dim), tuple(stride), kind)


def unsupported(node: Node, why: str) -> cudnnGraphNotSupportedError:
    """The error for a node that is not supported. `why` is a clause."""
    return cudnnGraphNotSupportedError(f"{_at(node)}: {why}")


def check_compute(node: Node, default: Any) -> None:
    """Raises cudnnGraphNotSupportedError for a compute type other than FLOAT, DOUBLE and INT32."""
    compute = default if node.compute is NOT_SET else node.compute
    if compute not in (NOT_SET, data_type.FLOAT, data_type.DOUBLE, data_type.INT32, data_type.BOOLEAN):
        raise unsupported(node, f"compute_data_type {compute.name} is not supported; FLOAT is (DOUBLE for doubles)")


def _at(node: Node) -> str:
    return f"{node.label()} ({node.where})" if node.where else node.label()


def _all(given: Sequence[Described | None]) -> list[Described]:
    return [d for d in given if d is not None]


def _check_window(node: Node, spatial: int) -> None:
    for name in ("pre_padding", "post_padding", "stride", "dilation"):
        values = node.attributes[name]
        if len(values) != spatial:
            raise ValueError(f"{_at(node)}: {name} must have {spatial} numbers, one for each spatial dimension; "
                             f"got {values}")  # fmt: skip
        if any(v < (0 if "padding" in name else 1) for v in values):
            raise ValueError(f"{_at(node)}: {name} must be {'0 or more' if 'padding' in name else 'positive'}; "
                             f"got {values}")  # fmt: skip
