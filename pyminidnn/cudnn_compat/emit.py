# SPDX-License-Identifier: Apache-2.0
"""The calls of pyminidnn that compute each node: products, functions of elements, reductions and views.

A function of elements is computed in one dtype, the working dtype: that of all tensors of the node if they have the
same, else float32 (float64 if one is a double, an integer type if all are integers). The result is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import cast as typed

from .._C import DeviceTensor
from ..creation import arange
from ..ops.activation import activation_backward, activation_forward
from ..ops.conv import conv_backward_data, conv_backward_filter, conv_forward, conv_forward_statistics
from ..ops.matmul import matmul
from ..ops.pointwise import maximum, minimum, pointwise
from ..ops.reduce import reduce
from ..ops.transform import concat
from ..ops.transform import slice as view_of_slice
from .emit_attention import ATTENTION
from .emit_norm import NORMS
from .enums import cudnnGraphNotSupportedError
from .inference import slices_of, unsupported
from .nodes import Node
from .pointwise import COMPARISONS, GRADIENTS
from .replay import FLOATING, Emit, Replay, cast, expanded
from .tensors import Tensor

Results = Sequence[DeviceTensor | None]
_SMALL = ("int8", "uint8")
_LARGEST = {"int8": 128, "uint8": 255}
# Integers of this size and below are exact as sums in float32. A convolution may use sums and differences of products
# (Winograd), so it gets a margin of 2^6.
_EXACT_PRODUCT, _EXACT_CONV = 2**24, 2**18


def working(r: Replay, tensors: Sequence[Tensor | None]) -> str:
    """The working dtype of a node with these tensors."""
    dtypes = {r.dtype(t) for t in tensors if t is not None}
    if len(dtypes) == 1 and "bool" not in dtypes:
        return dtypes.pop()
    if "float64" in dtypes:
        return "float64"
    if dtypes & set(FLOATING) or "bool" in dtypes:
        return "float32"
    return "int64" if "int64" in dtypes else "int32"


# ---- products


def _operands(
    r: Replay, a: Tensor | None, b: Tensor | None, out: Tensor | None
) -> tuple[str, DeviceTensor, DeviceTensor]:
    """The dtype of a product of floats, and the operands in it."""
    dtypes = {r.dtype(a), r.dtype(b)}
    if len(dtypes) == 1 and dtypes <= set(FLOATING):
        dtype = dtypes.pop()
    elif dtypes <= {*FLOATING, *_SMALL}:
        dtype = "float64" if "float64" in dtypes else "float32"
    else:
        raise cudnnGraphNotSupportedError(f"products of {' and '.join(sorted(dtypes))} are not supported ({r.where})")
    return dtype, cast(r.value(a), dtype), cast(r.value(b), dtype)


def _destination(r: Replay, t: Tensor | None, dtype: str) -> DeviceTensor:
    """Where a product of this dtype is written: memory of the result, or a temporary of its strides."""
    accepted = (dtype, "float32") if dtype in ("float16", "bfloat16") else (dtype,)
    wanted = r.dtype(t)
    memory = r.out(t, *accepted)
    if memory is not None:
        return memory
    # 16-bit products that become another 16-bit type, an integer or a double are rounded once, from float32.
    return r.new(t, wanted if wanted in accepted else accepted[-1])


def _integers(r: Replay, a: Tensor | None, b: Tensor | None) -> bool:
    return r.dtype(a) in _SMALL and r.dtype(b) in _SMALL


def _exactly(
    r: Replay, a: Tensor | None, b: Tensor | None, terms: int, limit: int
) -> tuple[DeviceTensor, DeviceTensor]:
    """8-bit integers as floats in which all sums of `terms` products are exact."""
    largest = terms * _LARGEST[r.dtype(a)] * _LARGEST[r.dtype(b)]
    dtype = "float32" if largest < limit else "float64"
    return cast(r.value(a), dtype), cast(r.value(b), dtype)


def _epilogue(r: Replay, added: Sequence[Tensor | None]) -> tuple[DeviceTensor | None, DeviceTensor | None]:
    """The bias, as a vector, and the residual of a node that with_epilogues() made."""
    bias, residual = added or (None, None)
    vector = None if bias is None else r.value(bias)
    return (
        None if vector is None else vector.reshape((vector.size,)),
        None if residual is None else r.value(residual),
    )


def _matmul(r: Replay, n: Node) -> Results:
    a, b, *added = n.inputs
    (y,) = n.outputs
    if n.attributes["padding"]:
        raise unsupported(n, f"padding={n.attributes['padding']} is not supported; only 0 is")
    if _integers(r, a, b):
        x, w = _exactly(r, a, b, r.shape(a)[-1], _EXACT_PRODUCT)
        return [matmul(x, w, algo=r.algo(n), handle=r.exact)]
    dtype, x, w = _operands(r, a, b, y)
    bias, c = _epilogue(r, added)
    options: dict[str, Any] = {"bias": bias, "activation": n.attributes.get("activation"), "algo": r.algo(n)}
    return [matmul(x, w, c=c, beta=0.0 if c is None else 1.0, out=_destination(r, y, dtype), **options)]


def _options(r: Replay, n: Node) -> dict[str, Any]:
    a = n.attributes
    return {
        "stride": a["stride"],
        "dilation": a["dilation"],
        "padding": list(zip(a["pre_padding"], a["post_padding"], strict=True)),
        "mode": a["mode"].lower(),
        "algo": r.algo(n),
    }


def _conv_fprop(r: Replay, n: Node) -> Results:
    image, weight, *added = n.inputs
    y = n.outputs[0]
    options = _options(r, n) | {"groups": r.shape(image)[1] // r.shape(weight)[1]}
    if _integers(r, image, weight):
        terms = r.known[typed(Tensor, weight)].dim[1:]
        count = 1
        for size in terms:
            count *= size
        x, w = _exactly(r, image, weight, count, _EXACT_CONV)
        return [conv_forward(x, w, handle=r.exact, **options)]
    dtype, x, w = _operands(r, image, weight, y)
    options |= {"activation": n.attributes.get("activation"), "out": _destination(r, y, dtype)}
    if len(n.outputs) == 3:  # genstats has joined
        return conv_forward_statistics(x, w, *_epilogue(r, added), **options)
    return [conv_forward(x, w, *_epilogue(r, added), **options)]


def _conv_dgrad(r: Replay, n: Node) -> Results:
    loss, weight = n.inputs
    (dx,) = n.outputs
    dtype, dy, w = _operands(r, loss, weight, dx)
    groups = r.shape(dx)[1] // r.shape(weight)[1]
    return [conv_backward_data(dy, w, r.shape(dx), groups=groups, out=_destination(r, dx, dtype), **_options(r, n))]


def _conv_wgrad(r: Replay, n: Node) -> Results:
    image, loss = n.inputs
    (dw,) = n.outputs
    dtype, x, dy = _operands(r, image, loss, dw)
    groups = r.shape(image)[1] // r.shape(dw)[1]
    return [conv_backward_filter(dy, x, r.shape(dw), groups=groups, out=_destination(r, dw, dtype), **_options(r, n))]


# ---- functions of elements

_SAME = [
    "abs", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal", "ceil", "floor", "sin", "cos", "tan", "erf",
    "add", "sub", "mul", "div", "pow", "add_square",
]  # fmt: skip
_OTHER_NAMES = {"bias": "add", "scale": "mul", "max": "maximum", "min": "minimum"}
POINTWISE = {**{name: name for name in _SAME}, **_OTHER_NAMES}
# Functions that integers do not have: they are computed in float32.
_OF_FLOATS = {"exp", "log", "sqrt", "rsqrt", "reciprocal", "ceil", "floor", "sin", "cos", "tan", "erf", "tanh", "div"}
_ACTIVATIONS = {
    "tanh": "tanh", "sigmoid": "sigmoid", "elu": "elu", "gelu": "gelu", "gelu_approx_tanh": "gelu_tanh",
    "softplus": "softplus",
}  # fmt: skip


def _floating(dtype: str) -> str:
    return dtype if dtype in FLOATING else "float32"


def _inputs(r: Replay, n: Node, dtype: str) -> list[DeviceTensor]:
    """The inputs in the working dtype, broadcast to the result by the call that reads them."""
    return [cast(r.value(t), dtype) for t in n.inputs]


def _function(r: Replay, n: Node) -> Results:
    op = POINTWISE[n.kind]
    dtype = working(r, [*n.inputs, *n.outputs])
    if op in _OF_FLOATS:
        dtype = _floating(dtype)
    return [pointwise(typed(Any, op), *_inputs(r, n, dtype), out=_fit(r, n, dtype))]


def _fit(r: Replay, n: Node, dtype: str) -> DeviceTensor | None:
    return r.out(n.outputs[0], dtype)


def _mod(r: Replay, n: Node) -> Results:
    dtype = working(r, [*n.inputs, *n.outputs])
    a, b = _inputs(r, n, dtype)
    size = pointwise("mod", pointwise("abs", a), pointwise("abs", b))
    if dtype in FLOATING:
        return [pointwise("copysign", size, a)]
    return [pointwise("mul", size, pointwise("sign", a))]


def _identity(r: Replay, n: Node) -> Results:
    return [r.value(n.inputs[0])]


def _comparison(r: Replay, n: Node) -> Results:
    op = {"cmp_neq": "ne"}.get(n.kind, n.kind[4:])
    return [pointwise(typed(Any, op), *_inputs(r, n, working(r, n.inputs)), out=_fit(r, n, "bool"))]


def _logical(r: Replay, n: Node) -> Results:
    inputs = _inputs(r, n, "bool")
    return [pointwise(typed(Any, n.kind), *inputs, out=_fit(r, n, "bool"))]


def _select(r: Replay, n: Node) -> Results:
    a, b, mask = n.inputs
    dtype = working(r, [a, b, *n.outputs])
    values = [cast(r.value(t), dtype) for t in (a, b)]
    return [pointwise("where", cast(r.value(mask), "bool"), *values, out=_fit(r, n, dtype))]


def _gen_index(r: Replay, n: Node) -> Results:
    shape, axis = r.shape(n.inputs[0]), n.attributes["axis"]
    if not 0 <= axis < len(shape):
        raise ValueError(f"gen_index: axis must be a dimension of the input {list(shape)}; got {axis}")
    line = arange(shape[axis], dtype="int32", device=r.device)
    return [line.as_strided(shape, [int(i == axis) for i in range(len(shape))])]


def _activation(r: Replay, n: Node) -> Results:
    dtype = _floating(working(r, [*n.inputs, *n.outputs]))
    (x,) = _inputs(r, n, dtype)
    return [activation_forward(x, typed(Any, _ACTIVATIONS[n.kind]), out=_fit(r, n, dtype))]


def _activation_backward(r: Replay, n: Node) -> Results:
    dtype, dy, x = _of_gradient(r, n)
    mode = typed(Any, _ACTIVATIONS[n.kind.removesuffix("_backward")])
    return [activation_backward(dy, x, x, mode, out=_fit(r, n, dtype))]


def _of_gradient(r: Replay, n: Node) -> tuple[str, DeviceTensor, DeviceTensor]:
    """The working dtype, and loss and input in it, with one shape."""
    dtype = _floating(working(r, [*n.inputs, *n.outputs]))
    dy, x = _inputs(r, n, dtype)
    if dy.shape != x.shape:
        shape = r.shape(n.outputs[0])
        dy, x = expanded(dy, shape), expanded(x, shape)
    return dtype, dy, x


def _relu(r: Replay, n: Node) -> Results:
    slope, lower, upper = (n.attributes[k] for k in ("slope", "lower", "upper"))
    dtype = _floating(working(r, [*n.inputs, *n.outputs]))
    (x,) = _inputs(r, n, dtype)
    out = _fit(r, n, dtype)
    if lower == 0 and upper is None:
        if slope == 0:
            return [activation_forward(x, "relu", out=out)]
        return [activation_forward(x, "leaky_relu", alpha=slope, out=out)]
    if slope == 0:
        y = maximum(x, lower, out=out if upper is None else None)
    else:
        line = pointwise("add", pointwise("mul", pointwise("sub", x, lower), slope), lower)
        y = pointwise("where", pointwise("le", x, lower), line, x, out=out if upper is None else None)
    return [y if upper is None else minimum(y, upper, out=out)]


def _relu_backward(r: Replay, n: Node) -> Results:
    slope, lower, upper = (n.attributes[k] for k in ("slope", "lower", "upper"))
    dtype, dy, x = _of_gradient(r, n)
    out = _fit(r, n, dtype)
    if lower == 0 and upper is None:
        if slope == 0:
            return [activation_backward(dy, x, x, "relu", out=out)]
        return [activation_backward(dy, x, x, "leaky_relu", alpha=slope, out=out)]
    below = pointwise("mul", dy, slope)
    dx = pointwise("where", pointwise("le", x, lower), below, dy, out=out if upper is None else None)
    return [dx if upper is None else pointwise("where", pointwise("ge", x, upper), 0.0, dx, out=out)]


def _swish(r: Replay, n: Node) -> Results:
    beta = n.attributes["beta"]
    dtype = _floating(working(r, [*n.inputs, *n.outputs]))
    (x,) = _inputs(r, n, dtype)
    if beta == 1:
        return [activation_forward(x, "silu", out=_fit(r, n, dtype))]
    x = cast(x, "float64" if dtype == "float64" else "float32")
    return [pointwise("mul", x, activation_forward(pointwise("mul", x, beta), "sigmoid"))]


def _swish_backward(r: Replay, n: Node) -> Results:
    # swish(x) = silu(beta x) / beta, so its derivative is that of silu at beta x.
    beta = n.attributes["beta"]
    dtype, dy, x = _of_gradient(r, n)
    if beta != 1:
        wide = "float64" if dtype == "float64" else "float32"
        dy, x = cast(dy, wide), pointwise("mul", cast(x, wide), beta)
        return [activation_backward(dy, x, x, "silu")]
    return [activation_backward(dy, x, x, "silu", out=_fit(r, n, dtype))]


# ---- reductions and views

_REDUCTIONS = {
    "ADD": "sum", "MUL": "prod", "MIN": "min", "MAX": "max", "AMAX": "amax", "AVG": "mean", "NORM1": "norm1",
    "NORM2": "norm2", "MUL_NO_ZEROS": "prod",
}  # fmt: skip


def _reduction(r: Replay, n: Node) -> Results:
    (x,), (y,) = n.inputs, n.outputs
    mode = n.attributes["mode"]
    shape, wanted = r.shape(x), r.shape(y)
    if len(shape) != len(wanted) or any(w not in (1, s) for s, w in zip(shape, wanted, strict=True)):
        raise ValueError(f"reduction ({n.where}): the result {list(wanted)} must have 1 or the size of the input "
                         f"{list(shape)} in each dimension")  # fmt: skip
    axes = [i for i, (s, w) in enumerate(zip(shape, wanted, strict=True)) if s != w]
    value = cast(r.value(x), working(r, [x, y]))
    if mode == "MUL_NO_ZEROS":
        value = pointwise("where", pointwise("eq", value, 0), 1, value)
    if not axes:  # nothing shrinks; modes of magnitudes still take them
        return [pointwise("abs", value) if mode in ("AMAX", "NORM1", "NORM2") else value]
    out = r.out(y, value.dtype) if value.dtype in FLOATING else None
    return [reduce(value, typed(Any, _REDUCTIONS[mode]), axis=axes, keepdims=True, out=out)]


def _genstats(r: Replay, n: Node) -> Results:
    x = r.value(n.inputs[0])
    value = cast(x, "float64" if x.dtype == "float64" else "float32")  # reduce() returns the dtype of its input
    axes = [i for i in range(value.ndim) if i != 1]
    outs = [r.out(t, value.dtype) for t in n.outputs]
    modes: tuple[Any, Any] = ("sum", "sumsq")
    return [reduce(value, mode, axis=axes, keepdims=True, out=out) for mode, out in zip(modes, outs, strict=True)]


def _slice(r: Replay, n: Node) -> Results:
    starts, stops, steps = zip(*slices_of(n, r.shape(n.inputs[0])), strict=True)
    return [view_of_slice(r.value(n.inputs[0]), starts, stops, steps)]


def _reshape(r: Replay, n: Node) -> Results:
    (x,), (y,) = n.inputs, n.outputs
    d = r.known[typed(Tensor, y)]
    if n.attributes["mode"] == "LOGICAL":
        return [r.value(x).reshape(d.dim)]
    return [r.as_described(x).as_strided(d.dim, d.stride)]


def _transpose(r: Replay, n: Node) -> Results:
    return [r.value(n.inputs[0]).permute(*n.attributes["permutation"])]


def _concatenate(r: Replay, n: Node) -> Results:
    (y,) = n.outputs
    dtype = working(r, n.inputs)
    return [concat([cast(r.value(t), dtype) for t in n.inputs], n.attributes["axis"], out=r.out(y, dtype))]


EMITTERS: dict[str, Emit] = {
    **dict.fromkeys(POINTWISE, _function),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys([f"{kind}_backward" for kind in GRADIENTS], _activation_backward),
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(["logical_and", "logical_or", "logical_not"], _logical),
    "mod": _mod,
    "identity": _identity,
    "binary_select": _select,
    "gen_index": _gen_index,
    "relu": _relu,
    "relu_backward": _relu_backward,
    "swish": _swish,
    "swish_backward": _swish_backward,
    "matmul": _matmul,
    "conv_fprop": _conv_fprop,
    "conv_dgrad": _conv_dgrad,
    "conv_wgrad": _conv_wgrad,
    "reduction": _reduction,
    "genstats": _genstats,
    "slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
    **NORMS,
    **ATTENTION,
}
