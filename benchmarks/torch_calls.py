# SPDX-License-Identifier: Apache-2.0
"""The call of torch that computes the problem of a case line. The tests compare its results with the oracle, and
bench_drawn.py times it.

    call = torch_call(parse("softmax forward f32 x=4x1000 axis=1"), {"x": torch.randn(4, 1000)})
    (y,) = call()    # results in the order of ours

The tensors have the names of the ports of our call. All that torch prepares, such as the graph of a gradient, is
prepared here, so the call is torch's operation alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from case_line import Case
from torch import Tensor
from torch.nn import functional

Tensors = dict[str, Tensor]
Call = Callable[[], Any]

aten: Any = torch.ops.aten
EPS = 1e-5  # of norms; our default
DROPOUT, SMOOTHING = 0.5, 0.5  # where the problem has them; the same as in graph_calls.py


def torch_call(case: Case, t: Tensors) -> Call | None:
    """None if torch has no function for the problem, or defines it differently."""
    function = FAMILIES.get(case.family)
    return None if function is None else function(case, t)


def cast(case: Case, y: Tensor) -> Tensor:
    """The result in its dtype, unless the tests compute it in float64."""
    wanted = "to" in case.attributes and y.dtype == getattr(torch, case.dtype)
    return y.to(getattr(torch, case.out_dtype)) if wanted else y


def gradient(results: Tensor, leaves: list[Tensor], dy: Tensor) -> Call:
    """The backward call alone. The forward call was made."""
    return partial(torch.autograd.grad, results, leaves, dy, retain_graph=True, allow_unused=True)


def leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


def each(value: int | tuple[int, ...], rank: int) -> list[int]:
    """An attribute of each spatial dimension."""
    return list(value) if isinstance(value, tuple) else [value] * rank


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "leaky_relu": functional.leaky_relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "elu": functional.elu, "gelu": functional.gelu, "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "softplus": functional.softplus, "silu": functional.silu, "hardswish": functional.hardswish,
    "mish": functional.mish,
}  # fmt: skip


def activation(case: Case, t: Tensors) -> Call | None:
    mode, x = case.words[0], t["x"]
    if mode not in ACTIVATIONS:
        return None
    f = ACTIVATIONS[mode]
    if case.direction == "forward":
        return lambda: [f(x)]
    dy = t["dy"]
    if mode in ("tanh", "sigmoid"):
        return partial(getattr(aten, f"{mode}_backward"), dy, f(x))
    return {
        "relu": lambda: aten.threshold_backward(dy, x, 0),
        "leaky_relu": lambda: aten.leaky_relu_backward(dy, x, 0.01, False),
        "elu": lambda: aten.elu_backward(dy, 1.0, 1.0, 1.0, False, x),
        "gelu": lambda: aten.gelu_backward(dy, x),
        "gelu_tanh": lambda: aten.gelu_backward(dy, x, approximate="tanh"),
        "softplus": lambda: aten.softplus_backward(dy, x, 1.0, 20.0),
        "silu": lambda: aten.silu_backward(dy, x),
        "hardswish": lambda: aten.hardswish_backward(dy, x),
        "mish": lambda: aten.mish_backward(dy, x),
    }[mode]


def attention(case: Case, t: Tensors) -> Call | None:
    """Windows and slopes become a mask, which torch reads. Sequences have full lengths, and packed ones equal lengths,
    so they are a batch. The bias has the dtype of q, as torch requires."""
    given, words = case.attributes, case.words
    if "pages" in given or {"softcap", "sink"} & set(words):
        return None
    q, k, v = (sequences(t[n], given) for n in "qkv")
    causal, mask = mask_of(case, t, q.shape[2], k.shape[2])
    if mask is not None and not seen(mask).any(-1).all():
        return None  # rows that see no column are NaN in torch
    options: dict[str, Any] = {"is_causal": causal, "scale": -1.0 if "negative_scale" in words else 1.0}
    options |= {"dropout_p": DROPOUT if "dropout" in words else 0.0, "enable_gqa": q.shape[1] != k.shape[1]}
    f = functional.scaled_dot_product_attention
    if case.direction != "backward":
        return lambda: [packed(f(q, k, v, mask, **options), given)]
    leaves = [leaf(x) for x in (q, k, v)]
    o = f(*leaves, mask, **options)
    if "bias_gradient" in words:
        if mask is None or {"alibi", "left", "right"} & set(given):
            return None
        leaves.append(leaf(mask))
        o = f(*leaves, **options)
    call = gradient(o, leaves, sequences(t["do"], given))
    return lambda: [packed(g, given) for g in call()]


def sequences(x: Tensor, given: dict[str, str]) -> Tensor:
    """[B, H, S, D] of packed sequences of equal lengths [1, H, rows, D]."""
    return x.unflatten(2, (int(given["packed"]), -1))[0].movedim(1, 0) if "packed" in given else x


def packed(x: Tensor, given: dict[str, str]) -> Tensor:
    """[rows, H, D] of packed sequences."""
    return x.movedim(1, 2).flatten(0, 1) if "packed" in given else x


def seen(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask > -torch.inf


def mask_of(case: Case, t: Tensors, rows: int, columns: int) -> tuple[bool, Tensor | None]:
    """Whether torch's own causal mask is the one of the case, and otherwise the mask, or None."""
    given, q, bias, alibi = case.attributes, t["q"], t.get("bias"), t.get("alibi")
    decode = case.direction == "decode"
    shift = columns - rows if decode or "bottom_right" in case.words else 0
    left, right = (int(given[n]) if n in given else None for n in ("left", "right"))
    right = 0 if decode and rows > 1 else right
    if bias is None and alibi is None and left is None and (right is None or (right == 0 and shift == 0)):
        return right == 0, None
    behind = torch.arange(rows, device=q.device)[:, None] + shift - torch.arange(columns, device=q.device)
    mask = bias if bias is None or bias.dtype == torch.bool else bias.to(q.dtype)
    if left is not None or right is not None:
        near = torch.ones_like(behind, dtype=torch.bool)
        near = near if left is None else near & (behind <= left)
        near = near if right is None else near & (behind >= -right)
        mask = near if mask is None else mask & near if mask.dtype == torch.bool else mask.where(near, -torch.inf)
    if alibi is not None:
        slopes = -alibi.reshape(-1, q.shape[1], 1, 1) * behind.abs()
        slopes = slopes.to(q.dtype)
        mask = slopes if mask is None else slopes.where(mask, -torch.inf) if mask.dtype == torch.bool else mask + slopes
    return False, mask


def batch_norm(case: Case, t: Tensors) -> Call | None:
    if "per_activation" in case.words:
        return None
    x, scale, relu = t["x"], t["scale"], "relu" in case.words
    if case.direction == "backward":
        dy, y = t["dy"], t.get("y")
        saved = (t["saved_mean"], t["saved_inv_std"])

        def backward() -> Any:
            g = aten.threshold_backward(dy, y, 0) if relu else dy
            return aten.native_batch_norm_backward(g, x, scale, None, None, *saved, True, EPS, [True] * 3)

        return backward
    training = case.direction == "training"
    moments = [t.get("running_mean"), t.get("running_var")] if training else [t["mean"], t["var"]]
    bias, residual = t["bias"], t.get("residual")

    def forward() -> list[Tensor]:
        y = functional.batch_norm(x, *moments, scale, bias, training=training, eps=EPS)
        y = y if residual is None else y.add_(residual)
        return [y.relu_() if relu else y]

    return forward


def conv(case: Case, t: Tensors) -> Call | None:
    of = t["dy"] if "dy" in t else t["x"]
    rank = of.ndim - 2
    if case.direction == "backward_bias":
        return lambda: [of.sum((0, *range(2, rank + 2)))]
    pads = case.padding(rank)
    if case.attributes.get("mode") or any(before != after for before, after in pads):
        return None
    stride, dilation = (each(case.integers(name, 1), rank) for name in ("stride", "dilation"))
    padding = [p for p, _ in pads]
    groups = int(case.attributes.get("groups", 1))
    if case.direction.startswith("backward"):
        wanted = [n in case.operands for n in ("dx", "dw")] + [False]
        x, w = (t[n] if n in t else unread(of, case.operands[f"d{n}"].shape) for n in "xw")
        options = (None, stride, padding, dilation, False, [0] * rank, groups, wanted)
        return lambda: [cast(case, g) for g in aten.convolution_backward(t["dy"], x, w, *options) if g is not None]
    x, w, bias, residual = t["x"], t["w"], t.get("bias"), t.get("residual")
    mode = case.attributes.get("activation")
    if "bias_stride" in case.attributes or (mode and mode not in ACTIVATIONS):
        return None
    f = getattr(functional, f"conv{rank}d")

    def forward() -> list[Tensor]:
        y = f(x, w, bias, stride, padding, dilation, groups)
        y = y if residual is None else y + residual
        y = cast(case, ACTIVATIONS[mode](y) if mode else y)
        if case.direction == "forward":
            return [y]
        dims = (0, *range(2, y.ndim))
        return [y, y.sum(dims, dtype=sums_of(y)), y.to(sums_of(y)).square().sum(dims)]

    return forward


def sums_of(y: Tensor) -> torch.dtype:
    """The dtype of sums."""
    return torch.float64 if y.dtype == torch.float64 else torch.float32


def unread(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor whose elements an operation does not read, in the order of `like`."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(like.ndim)
    is_last = last is not None and like.is_contiguous(memory_format=last) and not like.is_contiguous()
    return like.new_zeros(shape).contiguous(memory_format=last if is_last else torch.contiguous_format)


def ctc(case: Case, t: Tensors) -> Call | None:
    """Torch takes float32 log-probabilities. Others are converted, and logits normalised, by calls of their own."""
    x = t["x"] if case.direction == "forward" else leaf(t["x"])
    options: dict[str, Any] = {"blank": int(case.attributes.get("blank", 0)), "reduction": case.attributes["reduction"]}
    options["zero_infinity"] = "zero_infinity" in case.words
    operands = [t[n].long() for n in ("targets", "input_lengths", "target_lengths")]

    def forward() -> list[Tensor]:
        log_p = x if x.dtype == torch.float64 else x.float()
        log_p = log_p.log_softmax(2) if "logits" in case.words else log_p
        return [functional.ctc_loss(log_p, *operands, **options)]

    return forward if case.direction == "forward" else gradient(forward()[0], [x], t["dloss"])


def gather(case: Case, t: Tensors) -> Call | None:
    axis, index = int(case.attributes["axis"]), t["index"]
    if case.direction == "forward":
        x = t["x"]
        return (lambda: [functional.embedding(index, x)]) if axis == 0 else (lambda: [x.index_select(axis, index)])
    dy, shape = t["dy"], case.operands["x"].shape
    if axis == 0:
        return lambda: [aten.embedding_dense_backward(dy, index, shape[0], -1, False)]
    return lambda: [dy.new_zeros(shape).index_add_(axis, index, dy)]


def layer_norm(case: Case, t: Tensors) -> Call | None:
    """Torch requires that the parameters have the dtype of x."""
    kind, _, direction = case.direction.partition("_")
    x = t["x"] if direction == "forward" else leaf(t["x"])
    parameters = [t[n].to(x.dtype) for n in (("scale",) if kind == "rms" else ("scale", "bias"))]
    parameters = parameters if direction == "forward" else [leaf(p) for p in parameters]
    if kind == "group":
        call = partial(functional.group_norm, x, int(case.attributes["groups"]), *parameters, EPS)
    else:
        f = functional.rms_norm if kind == "rms" else functional.layer_norm
        call = partial(f, x, x.shape[int(case.attributes["axis"]) :], *parameters, EPS)
    return (lambda: [call()]) if direction == "forward" else gradient(call(), [x, *parameters], t["dy"])


def loss(case: Case, t: Tensors) -> Call | None:
    if case.attributes["axis"] != "1":
        return None
    x, target = t["x"], t["target"].long()
    options: dict[str, Any] = {"reduction": case.attributes["reduction"]}
    options |= {"ignore_index": int(case.attributes.get("ignore", -100))}
    options |= {"label_smoothing": SMOOTHING if "smoothed" in case.words else 0.0}
    if case.direction == "forward":
        return lambda: [functional.cross_entropy(x, target, **options)]
    x = leaf(x)
    y = functional.cross_entropy(x, target, **options)
    return gradient(y, [x], t["dy"].reshape(y.shape).to(y.dtype))


def lrn(case: Case, t: Tensors) -> Call | None:
    size = int(case.attributes["size"])
    if case.direction.startswith("lcn") or size % 2 == 0:  # torch has other windows of an even size
        return None
    x, f = t["x"], functional.local_response_norm
    if case.direction == "lrn_forward":
        return lambda: [f(x, size)]
    x = leaf(x)
    return gradient(f(x, size), [x], t["dy"])


def matmul(case: Case, t: Tensors) -> Call | None:
    """Torch adds c or the bias in the product if it can."""
    if set(case.attributes) - {"math", "to", "activation"}:
        return None
    a, b, c, bias, mode = t["a"], t["b"], t.get("c"), t.get("bias"), case.attributes.get("activation")
    if mode and mode not in ACTIVATIONS:
        return None
    added = [v for v in (c, bias) if v is not None]
    product: Call = partial(torch.matmul, a, b)
    if added and added[0].dtype == a.dtype:
        product = partial(torch.addmm if a.ndim == 2 else torch.baddbmm, added.pop(0), a, b)

    def call() -> list[Tensor]:
        y = product()
        for v in added:
            y = y + v
        return [cast(case, ACTIVATIONS[mode](y) if mode else y)]

    return call


def pad(case: Case, t: Tensors) -> Call | None:
    x, mode = t["x"], case.attributes["mode"]
    sides = [n for pair in reversed(case.padding(x.ndim)) for n in pair]
    if mode != "constant":  # torch takes those of spatial dimensions
        sides = sides[: 2 * (x.ndim - 2)]
    return lambda: [functional.pad(x, sides, mode)]


POINTWISE: dict[str, Callable[..., Tensor]] = {
    "neg": torch.neg, "exp": torch.exp, "sqrt": torch.sqrt, "abs": torch.abs, "add": torch.add, "mul": torch.mul,
    "sub": torch.sub, "div": torch.div, "maximum": torch.maximum, "lt": torch.lt, "eq": torch.eq,
    "multiply_add": lambda a, b, c: torch.addcmul(c, a, b), "clamp": torch.clamp, "lerp": torch.lerp,
}  # fmt: skip


def pointwise(case: Case, t: Tensors) -> Call | None:
    f = POINTWISE.get(case.direction)
    operands = [t[n] for n in "abc" if n in t]
    return None if f is None else lambda: [f(*operands)]


def pooling(case: Case, t: Tensors) -> Call | None:
    mode, x = case.words[0], t["x"]
    rank, indices = x.ndim - 2, "indices" in case.attributes
    norm = int(case.attributes.get("norm", "2"))
    if mode == "lp" and (norm != 2 or "size" in case.attributes or any(map(any, case.padding(rank)))):
        return None  # torch adds up x ** norm, ours |x| ** norm, and torch has no padding of it
    x = x if case.direction == "forward" else leaf(x)
    name = mode if mode in ("max", "lp") else "avg"
    if "size" in case.attributes:
        if indices:
            return None
        size = case.integers("size", 1)
        call = partial(getattr(functional, f"adaptive_{name}_pool{rank}d"), x, size)
    else:
        window, dilation = (each(case.integers(name, 1), rank) for name in ("window", "dilation"))
        pads = case.padding(rank)
        if any(a != b or a > w // 2 for (a, b), w in zip(pads, window, strict=True)):
            return None
        if mode != "max" and max(dilation) != 1:
            return None
        if rank == 3 and mode != "max" and any(w > n for w, n in zip(window, x.shape[2:], strict=True)):
            return None  # torch refuses windows that are larger than x, even if padding makes them fit
        options: dict[str, Any] = {"ceil_mode": "ceil" in case.words}
        options["stride"] = each(case.integers("stride", tuple(window)), rank)
        padded = {"padding": [p for p, _ in pads]}
        options |= {
            "max": {**padded, "dilation": dilation},
            "avg": {**padded, "count_include_pad": True},
            "avg_exclude_padding": {**padded, "count_include_pad": False},
            "lp": {"norm_type": norm},
        }[mode]
        options |= {"return_indices": True} if indices and case.direction == "forward" else {}
        call = partial(getattr(functional, f"{name}_pool{rank}d"), x, kernel_size=window, **options)
    if case.direction == "forward":
        return call if indices else lambda: [call()]
    y = call()
    # If a maximum is -inf, its window contains only padding. For such a window, torch adds the gradient outside of x's
    # plane (the pixels of a channel).
    return None if y.isinf().any() else gradient(y, [x], t["dy"])


def random(case: Case, t: Tensors) -> Call | None:
    if case.direction == "dropout":
        x = t["x"]
        return lambda: [functional.dropout(x, DROPOUT)]
    y = t["y"]
    return (
        (lambda: [torch.empty_like(y).uniform_()])
        if case.direction == "uniform"
        else (lambda: [torch.empty_like(y).normal_()])
    )


def reduce(case: Case, t: Tensors) -> Call | None:
    x, mode = t["x"], case.direction
    axes = tuple(map(int, case.attributes["axes"].split(",")))
    if mode.startswith("arg"):
        axis = {1: axes[0], x.ndim: None}.get(len(axes), "several")
        f = {"argmax": torch.argmax, "argmin": torch.argmin}[mode]
        return None if axis == "several" else lambda: [f(x, axis)]
    if mode in ("any", "all"):
        return lambda: [getattr(torch, mode)(x, axes)]
    if not x.is_floating_point():
        return {"sum": lambda: [torch.sum(x, axes)], "max": lambda: [torch.amax(x, axes)],
                "min": lambda: [torch.amin(x, axes)]}.get(mode)  # fmt: skip
    norm = torch.linalg.vector_norm
    return {
        "sum": lambda: [torch.sum(x, axes)],
        "mean": lambda: [torch.mean(x, axes)],
        "max": lambda: [torch.amax(x, axes)],
        "min": lambda: [torch.amin(x, axes)],
        "norm1": lambda: [norm(x, 1, axes)],
        "norm2": lambda: [norm(x, 2, axes)],
        "sumsq": lambda: [norm(x, 2, axes).square_()],
        "amax": lambda: [norm(x, torch.inf, axes)],
    }.get(mode)


def rnn(case: Case, t: Tensors) -> Call | None:
    """Layers with weights of torch's layout. backward_data and backward_weights are one call in torch, so only forward
    calls are compared. Lengths are full, so torch needs none."""
    words, given = case.words, case.attributes
    if case.direction != "forward" or {"reset_before", "clip"} & set(words):
        return None
    mode = given["mode"]
    x, hidden, layers = t["x"], int(given["hidden"]), int(given.get("layers", 1))
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
    options: dict[str, Any] = {"nonlinearity": mode} if module is torch.nn.RNN else {}
    options |= {"bias": "no_bias" not in words, "bidirectional": "bidirectional" in words}
    options |= {"dropout": DROPOUT if "dropout" in words else 0.0, "device": x.device, "dtype": x.dtype}
    net = module(x.shape[-1], hidden, layers, **options).train("dropout" in words or "training" in words)
    for name, parameter in net.named_parameters():
        parameter.data.copy_(t[name.replace("weight_", "w_").replace("bias_", "b_")])
    net.flatten_parameters()
    state: Any = t.get("h0")
    if mode == "lstm" and ("h0" in t or "c0" in t):
        shape = (layers * (1 + options["bidirectional"]), x.shape[1] if x.ndim == 3 else int(given["batch"]), hidden)
        state = tuple(t[n] if n in t else x.new_zeros(shape) for n in ("h0", "c0"))
    rows: Any = x
    if "batch" in given:
        sizes = t["batch_sizes"].long().cpu()
        if int(sizes.sum()) != x.shape[0] or int(sizes[0]) != int(given["batch"]):
            return None
        rows = torch.nn.utils.rnn.PackedSequence(x, sizes)

    def forward() -> list[Tensor]:
        with torch.set_grad_enabled("training" in words):
            y, _ = net(rows, state)
        return [y[0] if "batch" in given else y]

    return forward


def softmax(case: Case, t: Tensors) -> Call | None:
    if "scaled" in case.words or "keep" in case.operands or "mask" in case.operands:
        return None
    axis, log = int(case.attributes["axis"]), "log" in case.words
    if case.direction == "forward":
        x, f = t["x"], torch.log_softmax if log else torch.softmax
        return lambda: [f(x, axis)]
    dy, y = t["dy"], t["y"]
    f = aten._log_softmax_backward_data if log else aten._softmax_backward_data
    return lambda: [f(dy, y, axis, y.dtype)]


def transform(case: Case, t: Tensors) -> Call | None:
    """Into a tensor of torch's own, in the order of x, or into `out` if the case has it."""
    x, out, dtype = t["x"], t.get("out"), getattr(torch, case.out_dtype)
    if case.direction == "accumulate":
        return None
    if case.direction == "scale":
        return (lambda: [torch.mul(x, 2.0).to(dtype)]) if out is None else (lambda: [torch.mul(x, 2.0, out=out)])
    if out is not None:
        return lambda: [out.copy_(x)]
    return (lambda: [x.clone()]) if x.dtype == dtype else (lambda: [x.to(dtype)])


FAMILIES: dict[str, Callable[[Case, Tensors], Call | None]] = {
    f.__name__: f
    for f in (activation, attention, batch_norm, conv, ctc, gather, layer_norm, loss, lrn, matmul, pad, pointwise,
              pooling, random, reduce, rnn, softmax, transform)
}  # fmt: skip
