# SPDX-License-Identifier: Apache-2.0
"""Random problems as case lines: of every family, with every layout, dtype, direction and attribute.

    rng = rng_of("conv", 7)
    draw("conv", rng)    # "conv backward_data f32 dy=2x96x29x29:nhwc w=96x64x3x3 dx=2x64x57x57:nhwc stride=2 pad=1"

The distribution. Batches are log-uniform up to `Limits.batch`. Channels are sizes of common networks in 7 of 10
problems, else log-uniform up to 2,048. Half of the spatial sizes are common ones, odd ones among them, else they are
log-uniform up to 300 (4,000 in one dimension, 40 in three); 6 of 10 planes are squares. Of dtypes, 3 of 7 are float32,
2 bfloat16, 1 float16, 1 float64. About half of the images are channels last, and a few tensors have gaps between their
rows. Attributes are drawn one by one: windows, strides, paddings, groups, masks, activations, and so on.

`Limits` are what differs between users: the tests draw problems that the float64 oracle computes in about a second
(ORACLE), and bench_drawn.py draws those of networks (NETWORKS). A problem beyond a limit is made smaller: its batch
first, then its spatial sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Rng = np.random.Generator
T = TypeVar("T")

CHANNELS = (1, 2, 3, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 240, 256, 320, 384, 512, 672, 960, 1024,
            1280, 2048)  # fmt: skip
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 14, 16, 19, 28, 32, 35, 56, 64, 75, 112, 113, 128, 150, 224, 256, 300)


@dataclass(frozen=True)
class Limits:
    """The approximate largest size of a problem."""

    batch: int
    elements: int  # elements of a tensor
    functions: int  # elements of a tensor of activation, pad, random and local contrast norm
    copies: int  # elements of a tensor of transform, whose oracle loops over elements in Python
    products: int  # multiplications of a convolution or matrix product
    attention: int  # multiplications of one of the products of attention
    recurrent: int  # multiplications of recurrent layers
    pooled: int  # elements of the windows of pooling
    steps: int  # of recurrent layers
    sequences: int  # of recurrent layers
    rows: int  # steps times sequences of ctc


ORACLE = Limits(batch=64, elements=2_000_000, functions=500_000, copies=150_000, products=150_000_000,
                attention=60_000_000, recurrent=15_000_000, pooled=20_000_000, steps=60, sequences=24,
                rows=3000)  # fmt: skip
# By device: a call takes at most about 50 ms on two cores of a CPU, and some ms on an H100 (20 GFLOP, 60 M elements).
NETWORKS = {
    "cpu": Limits(batch=256, elements=8_000_000, functions=8_000_000, copies=8_000_000, products=1_000_000_000,
                  attention=300_000_000, recurrent=200_000_000, pooled=200_000_000, steps=250, sequences=64,
                  rows=12_000),
    "cuda": Limits(batch=256, elements=60_000_000, functions=60_000_000, copies=60_000_000, products=10_000_000_000,
                   attention=5_000_000_000, recurrent=5_000_000_000, pooled=2_000_000_000, steps=500, sequences=256,
                   rows=60_000),
}  # fmt: skip
CHANNELS_LAST = {3: ":nwc", 4: ":nhwc", 5: ":ndhwc"}


def one_of(rng: Rng, choices: Sequence[T]) -> T:
    return choices[int(rng.integers(len(choices)))]


def chance(rng: Rng, p: float) -> bool:
    return bool(rng.random() < p)


def log_uniform(rng: Rng, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high + 0.49))))


def size(rng: Rng, most: int = 300) -> int:
    """A size of a spatial dimension: one that is common in networks, or any."""
    return min(most, one_of(rng, SIZES) if chance(rng, 0.5) else log_uniform(rng, 1, most))


def channels(rng: Rng, most: int = 2048) -> int:
    usual = [c for c in CHANNELS if c <= most]
    return one_of(rng, usual) if chance(rng, 0.7) else log_uniform(rng, 1, most)


def floating(rng: Rng) -> str:
    return one_of(rng, ("f32", "f32", "f32", "bf16", "bf16", "f16", "f64"))


def arithmetic(rng: Rng, dtype: str, to_float32: float) -> str:
    """How a product is computed and written. `to_float32` is the probability of a float32 result of 16-bit operands."""
    if dtype == "f32":
        return " math=ieee" if chance(rng, 0.7) else ""
    return " to=f32" if dtype in ("bf16", "f16") and chance(rng, to_float32) else ""


def limited(shape: list[int], most: float, keep: int = 1) -> list[int]:
    """The shape with at most `most` elements: its batch shrinks first, then its spatial sizes; dimension `keep`, the
    channels, shrinks last."""
    order = [0, *range(2, len(shape)), *([keep] if len(shape) > 1 else [])]
    for i in order:
        rest = math.prod(shape) // max(shape[i], 1)
        if rest * shape[i] > most:
            shape[i] = max(1, int(most // max(rest, 1)))
    return shape


def image(rng: Rng, limits: Limits, rank: int | None = None, most: float | None = None) -> list[int]:
    """[N, C, spatial...], in most cases with two spatial dimensions. It has at most `most` elements, or those of the
    limits."""
    rank = rank or one_of(rng, (3, 4, 4, 4, 4, 4, 5))
    largest = {3: 4000, 4: 300, 5: 40}[rank]
    spatial = [size(rng, largest) for _ in range(rank - 2)]
    if chance(rng, 0.6):
        spatial = spatial[:1] * len(spatial)
    return limited([log_uniform(rng, 1, limits.batch), channels(rng), *spatial], most or limits.elements)


def dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def layout(rng: Rng, shape: Sequence[int], last: float = 0.45, gaps: float = 0.06) -> str:
    """Channels first, channels last, or rows with gaps between them."""
    if chance(rng, gaps) and len(shape) > 1 and all(shape):
        strides, step = [1] * len(shape), shape[-1] + int(rng.integers(1, 9))
        for i in range(len(shape) - 2, -1, -1):
            strides[i], step = step, step * shape[i]
        return f"{dims(shape)}:s{','.join(map(str, strides))}"
    return dims(shape) + (CHANNELS_LAST.get(len(shape), "") if chance(rng, last) else "")


def per_dimension(values: Sequence[Any]) -> str:
    return ",".join(map(str, values[:1] if len(set(values)) == 1 else values))


def window_of(
    rng: Rng, spatial: Sequence[int], choices: Sequence[int]
) -> tuple[list[int], list[int], list[tuple[int, int]], list[int]]:
    """Window, stride, padding and dilation for each spatial dimension."""
    equal = chance(rng, 0.85)
    count = 1 if equal else len(spatial)
    window = [one_of(rng, choices) for _ in range(count)] * (len(spatial) if equal else 1)
    stride = [one_of(rng, (1, 1, 1, 2, 2, 3, 4)) for _ in range(count)] * (len(spatial) if equal else 1)
    dilation = [one_of(rng, (1, 1, 1, 1, 1, 2, 3))] * len(spatial)
    padding = []
    for w, d in zip(window, dilation, strict=True):
        half = (w - 1) * d // 2
        before = one_of(rng, (0, half, half, half, int(rng.integers(0, half + 2))))
        padding.append((before, before if chance(rng, 0.9) else int(rng.integers(0, half + 2))))
    return window, stride, padding, dilation


def spatial_text(stride: list[int], padding: list[tuple[int, int]], dilation: list[int], usual: list[int]) -> str:
    text = f" stride={per_dimension(stride)}" if stride != usual else ""
    sides = [str(b) if a == b else f"{b}:{a}" for b, a in padding]
    text += f" pad={per_dimension(sides)}" if any(s != "0" for s in sides) else ""
    return text + (f" dilation={per_dimension(dilation)}" if any(d != 1 for d in dilation) else "")


def output(
    spatial: Sequence[int], window: list[int], stride: list[int], padding: list[tuple[int, int]], dilation: list[int]
) -> list[int] | None:
    sizes = [
        (b + n + a - d * (w - 1) - 1) // s + 1
        for n, w, s, (b, a), d in zip(spatial, window, stride, padding, dilation, strict=True)
    ]
    return sizes if min(sizes) > 0 else None


def conv(rng: Rng, limits: Limits) -> str | None:
    shape = image(rng, limits)
    rank = len(shape)
    direction = one_of(
        rng, ("forward", "forward", "backward_data", "backward_filter", "backward_bias", "forward_statistics")
    )
    dtype = floating(rng)
    if direction == "backward_bias":
        return f"conv backward_bias {dtype} dy={layout(rng, shape)}"
    kind = one_of(rng, ("full", "full", "full", "pointwise", "depthwise", "grouped"))
    window, stride, padding, dilation = window_of(rng, shape[2:], (1, 2, 3, 3, 3, 5, 7))
    if kind == "pointwise":
        window, padding, dilation = [1] * (rank - 2), [(0, 0)] * (rank - 2), [1] * (rank - 2)
    filters, groups = channels(rng), 1
    if kind == "depthwise":
        groups = shape[1]
        filters = shape[1] * one_of(rng, (1, 1, 1, 2))
    elif kind == "grouped":
        groups = one_of(rng, [g for g in (2, 3, 4, 8, 16, 32) if shape[1] % g == 0] or [1])
        filters = max(1, filters // groups) * groups
    spatial = output(shape[2:], window, stride, padding, dilation)
    if spatial is None:
        return None
    taps = math.prod(window)
    products = shape[0] * filters * math.prod(spatial) * shape[1] // groups * taps
    if products > limits.products:
        shape[0] = max(1, shape[0] * limits.products // products)
        products = shape[0] * filters * math.prod(spatial) * shape[1] // groups * taps
    if products > 2 * limits.products and groups == 1:
        filters = max(1, filters * limits.products // products)
    y, w = [shape[0], filters, *spatial], [filters, shape[1] // groups, *window]
    most = limits.elements
    if math.prod(y) > 2 * most or math.prod(w) > 2 * most or math.prod(y) * taps > 100 * most:
        return None
    tail = spatial_text(stride, padding, dilation, [1] * (rank - 2)) + (f" groups={groups}" if groups > 1 else "")
    if chance(rng, 0.1):
        tail += " mode=convolution"
    last = chance(rng, 0.5)

    def of(shape: Sequence[int]) -> str:
        return layout(rng, shape, last=0.95 if last else 0.05, gaps=0.04)

    if direction == "backward_data":
        text = f"dy={of(y)} w={of(w)} dx={dims(shape)}"
    elif direction == "backward_filter":
        text = f"dy={of(y)} x={of(shape)} dw={dims(w)}"
    else:
        text = f"x={of(shape)} w={of(w)}"
        if chance(rng, 0.3):
            tail = f" residual={of(y)}" + tail
        if chance(rng, 0.5):
            tail += " bias"
        if chance(rng, 0.4):
            tail += f" activation={one_of(rng, ('relu', 'relu', 'leaky_relu', 'tanh', 'sigmoid', 'gelu', 'silu'))}"
    tail += arithmetic(rng, dtype, to_float32=0.15)
    return f"conv {direction} {dtype} {text}{tail}"


def matmul(rng: Rng, limits: Limits) -> str | None:
    m, n, k = (log_uniform(rng, 1, 2048) if chance(rng, 0.5) else channels(rng) for _ in range(3))
    batch = [log_uniform(rng, 1, 48)] if chance(rng, 0.35) else []
    while math.prod(batch) * m * n * k > limits.products:
        if batch and batch[0] > 1:
            batch[0] //= 2
        else:
            m, n, k = (max(1, v * 3 // 4) for v in (m, n, k))
    dtype = floating(rng)

    def matrix(rows: int, columns: int) -> str:
        text = dims([*batch, rows, columns])
        if chance(rng, 0.35):  # a transposed matrix
            return text + ":s" + ",".join(map(str, [*([rows * columns] * len(batch)), 1, rows]))
        if chance(rng, 0.1):  # a matrix with gaps between its rows
            pitch = columns + int(rng.integers(1, 17))
            return text + ":s" + ",".join(map(str, [*([rows * pitch] * len(batch)), pitch, 1]))
        return text

    text = f"matmul forward {dtype} a={matrix(m, k)} b={matrix(k, n)}"
    if chance(rng, 0.25):
        text += f" c={dims([*batch, m, n])}"
    if chance(rng, 0.4):
        text += " bias"
    if chance(rng, 0.3):
        text += f" activation={one_of(rng, ('relu', 'gelu', 'silu', 'tanh'))}"
    return text + arithmetic(rng, dtype, to_float32=0.2)


def pooling(rng: Rng, limits: Limits) -> str | None:
    shape = image(rng, limits)
    direction, dtype = one_of(rng, ("forward", "backward")), floating(rng)
    mode = one_of(rng, ("max", "max", "max", "avg", "avg_exclude_padding", "lp"))
    head = f"pooling {direction} {dtype} {mode} x={layout(rng, shape)}"
    norm = f" norm={one_of(rng, (1, 2, 3))}" if mode == "lp" else ""
    if chance(rng, 0.12):
        sizes = [max(1, int(rng.integers(1, min(n, 40) + 1))) for n in shape[2:]]
        if math.prod(shape) * 4 > limits.pooled:
            return None
        return f"{head} size={per_dimension(sizes)}{norm}"
    window, stride, padding, dilation = window_of(rng, shape[2:], (1, 2, 2, 3, 3, 3, 4, 5, 7))
    if chance(rng, 0.1):
        window, stride, padding, dilation = (
            list(shape[2:]),
            [1] * (len(shape) - 2),
            [(0, 0)] * (len(shape) - 2),
            [1] * (len(shape) - 2),
        )
    spatial = output(shape[2:], window, stride, padding, dilation)
    if spatial is None or shape[0] * shape[1] * math.prod(spatial) * math.prod(window) > limits.pooled:
        return None
    text = f"{head} window={per_dimension(window)}{spatial_text(stride, padding, dilation, window)}"
    if chance(rng, 0.15):
        text += " ceil"
    text += norm
    if mode == "max" and chance(rng, 0.35):
        text += f" indices={one_of(rng, ('i32', 'i64'))}"
    return text


def attention(rng: Rng, limits: Limits) -> str | None:
    direction = one_of(rng, ("forward", "forward", "backward", "backward", "decode"))
    dtype, d = floating(rng), one_of(rng, (16, 32, 64, 64, 64, 72, 80, 96, 128, 128, 192, 256))
    d = d if chance(rng, 0.8) else log_uniform(rng, 1, 300)
    dv = d if chance(rng, 0.85) else log_uniform(rng, 1, 300)
    batch, kv_heads, group = log_uniform(rng, 1, 16), log_uniform(rng, 1, 12), one_of(rng, (1, 1, 1, 2, 3, 4, 8))
    rows, columns = log_uniform(rng, 1, 1500), log_uniform(rng, 1, 1500)
    columns = rows if chance(rng, 0.5) else columns
    if direction == "decode":
        rows, columns = one_of(rng, (1, 1, 1, 2, 5, 16)), log_uniform(rng, 1, 4000)
    heads = kv_heads * group
    most = limits.attention / max(d, dv)  # of scores; the oracle has about ten arrays of that size
    while batch * heads * rows * columns > most:
        if batch > 1:
            batch //= 2
        elif kv_heads > 1:
            kv_heads //= 2
            heads = kv_heads * group
        else:
            rows, columns = max(1, rows * 3 // 4), max(1, columns * 3 // 4)
    packed = direction != "decode" and chance(rng, 0.2)
    page = one_of(rng, (16, 16, 32, 64)) if direction == "decode" and chance(rng, 0.4) else 0
    bshd = chance(rng, 0.5)

    def of(name: str, b: int, h: int, s: int, size: int) -> str:
        text = f" {name}={dims((b, h, s, size))}"
        if not bshd or min(h, s, size) == 1:
            return text
        return f"{text}:s{h * s * size},{size},{h * size},1"

    q_rows, kv_rows, b = (rows * batch, columns * batch, 1) if packed else (rows, columns, batch)
    if page:
        pages = -(-columns // page)
        columns = pages * page
        kv_rows, b = page, log_uniform(rng, 1, pages * batch)
    text = f"attention {direction} {dtype}" + of("q", 1 if packed else batch, heads, q_rows, d)
    text += of("k", b, kv_heads, kv_rows, d) + of("v", b, kv_heads, kv_rows, dv)
    causal = direction != "decode" and chance(rng, 0.5)
    if chance(rng, 0.2):
        text += f" left={int(rng.integers(0, rows + columns))}"
    if direction != "decode":
        text += " right=0" if causal else f" right={int(rng.integers(0, rows + columns))}" if chance(rng, 0.1) else ""
        text += " bottom_right" if chance(rng, 0.3) else ""
    gradient = ""
    if direction != "decode" and chance(rng, 0.25):
        kind = one_of(rng, ("bool", "f32", dtype))
        full = (batch, heads, rows, columns)
        text += f" bias={kind}:{dims([1 if chance(rng, 0.4) else n for n in full])}"
        gradient = " bias_gradient" if direction == "backward" and kind != "bool" and chance(rng, 0.5) else ""
    text += f" alibi={one_of(rng, (f'{heads}', f'{batch}x{heads}'))}" if chance(rng, 0.15) else ""
    text += "".join(f" {word}" for word in ("softcap", "sink") if chance(rng, 0.15))
    if direction != "decode":
        text += " dropout" if chance(rng, 0.15) else ""
        text += "".join(f" {word}" for word in ("q_lengths", "kv_lengths") if not packed and chance(rng, 0.2))
    text += f" packed={batch} max={rows},{columns}" if packed else ""
    text += f" pages={batch}x{pages}" if page else ""
    text += gradient + (" negative_scale" if chance(rng, 0.05) else "")
    return text + (" math=ieee" if dtype == "f32" and chance(rng, 0.7) else "")


def rnn(rng: Rng, limits: Limits) -> str | None:
    direction = one_of(rng, ("forward", "forward", "backward_data", "backward_weights"))
    mode, dtype = one_of(rng, ("lstm", "lstm", "gru", "gru", "relu", "tanh")), floating(rng)
    steps, batch = log_uniform(rng, 1, limits.steps), log_uniform(rng, 1, limits.sequences)
    layers = one_of(rng, (1, 1, 1, 2, 3))
    inputs, hidden = (channels(rng, 192) for _ in range(2))
    both, packed = chance(rng, 0.4), chance(rng, 0.25)
    of_step = layers * (1 + both) * hidden * (inputs + 3 * hidden) * {"lstm": 4, "gru": 3}.get(mode, 1)
    while steps * batch * of_step > limits.recurrent:
        if batch > 1:
            batch //= 2
        elif steps > 1:
            steps //= 2
        else:
            return None
    shape = (steps, batch, inputs)
    x = dims((int(rng.integers(steps, steps * batch + 1)), inputs)) if packed else dims(shape)
    if not packed and steps > 1 and batch > 1 and chance(rng, 0.3):
        x += f":s{inputs},{steps * inputs},1"
    words = [f"layers={layers}"] if layers > 1 else []
    words += [f"steps={steps}", f"batch={batch}"] if packed else []
    words += ["bidirectional"] if both else []
    words += ["no_bias"] if chance(rng, 0.2) else []
    words += ["reset_before"] if mode == "gru" and chance(rng, 0.4) else []
    data, lstm = direction == "backward_data", mode == "lstm"
    words += ["h0"] if chance(rng, 0.5) else []
    words += ["c0"] if lstm and direction != "backward_weights" and chance(rng, 0.5) else []
    words += ["dhn"] if data and chance(rng, 0.5) else []
    words += ["dcn"] if data and lstm and chance(rng, 0.5) else []
    words += ["lengths"] if not packed and chance(rng, 0.4) else []
    words += ["dropout"] if layers > 1 and chance(rng, 0.4) else []
    words += ["clip"] if lstm and direction != "backward_weights" and chance(rng, 0.2) else []
    words += ["training"] if direction == "forward" and chance(rng, 0.5) else []
    words += ["accumulate"] if direction == "backward_weights" and chance(rng, 0.3) else []
    words += ["math=ieee"] if dtype == "f32" and chance(rng, 0.7) else []
    return " ".join([f"rnn {direction} {dtype} x={x} mode={mode} hidden={hidden}", *words])


def softmax(rng: Rng, limits: Limits) -> str | None:
    if chance(rng, 0.5):
        rows, cols = log_uniform(rng, 1, 20_000), log_uniform(rng, 1, 150_000)
        shape, axis = limited([rows, cols], limits.elements, keep=1), 1
    else:
        shape = image(rng, limits)
        axis = one_of(rng, (1, 1, 1, len(shape) - 1, 0))
    dtype, direction = floating(rng), one_of(rng, ("forward", "backward"))
    log = " log" if chance(rng, 0.4) else ""
    if direction == "backward":
        return f"softmax backward {dtype} y={layout(rng, shape)} axis={axis}{log}"
    text = f"softmax forward {dtype} x={layout(rng, shape)}"
    if chance(rng, 0.25):
        text += f" {one_of(rng, ('keep', 'mask'))}={dims(shape)}"
    return text + f" axis={axis}{log}" + (" scaled" if chance(rng, 0.2) else "")


def loss(rng: Rng, limits: Limits) -> str | None:
    if chance(rng, 0.7):
        shape, axis = limited([log_uniform(rng, 1, 20_000), log_uniform(rng, 2, 60_000)], limits.elements, keep=1), 1
    else:
        shape, axis = image(rng, limits, 4), 1
    text = f"loss {one_of(rng, ('forward', 'backward'))} {floating(rng)} x={layout(rng, shape, gaps=0.02)} axis={axis}"
    text += f" reduction={one_of(rng, ('none', 'sum', 'mean'))}"
    if chance(rng, 0.2) and shape[1] > 5:
        text += " ignore=5"
    if chance(rng, 0.3):
        text += " classes=i32"
    return text + (" smoothed" if chance(rng, 0.3) else "")


def batch_norm(rng: Rng, limits: Limits) -> str | None:
    direction = one_of(rng, ("training", "inference", "backward"))
    text = f"batch_norm {direction} {floating(rng)} x={layout(rng, image(rng, limits))}"
    if chance(rng, 0.15):
        return text + " per_activation"
    if direction != "backward" and chance(rng, 0.3):
        text += " add" + (" relu" if chance(rng, 0.7) else "")
    elif chance(rng, 0.2):
        text += " relu"
    return text + (" running" if direction == "training" and chance(rng, 0.3) else "")


def layer_norm(rng: Rng, limits: Limits) -> str | None:
    dtype, direction = floating(rng), one_of(rng, ("forward", "backward"))
    kind = one_of(rng, ("layer", "rms", "group", "group"))
    head = f"layer_norm {kind}_{direction} {dtype}"
    if kind != "group" and chance(rng, 0.7):
        shape = limited([log_uniform(rng, 1, 20_000), log_uniform(rng, 2, 100_000)], limits.elements, keep=1)
        return f"{head} x={layout(rng, shape)} axis=1"
    shape = image(rng, limits)
    if kind != "group":
        return f"{head} x={layout(rng, shape)} axis={int(rng.integers(1, len(shape)))}"
    groups = one_of(rng, [g for g in (1, 2, 4, 8, 16, 32, shape[1]) if shape[1] % g == 0])
    return f"{head} x={layout(rng, shape)} groups={groups}"


def lrn(rng: Rng, limits: Limits) -> str | None:
    kind, direction, dtype = one_of(rng, ("lrn", "lcn")), one_of(rng, ("forward", "backward")), floating(rng)
    shape = image(rng, limits) if kind == "lrn" else image(rng, limits, 4, limits.functions)
    size = int(rng.integers(1, 12)) if kind == "lrn" else one_of(rng, (3, 5, 7, 9))
    return f"lrn {kind}_{direction} {dtype} x={layout(rng, shape)} size={size}"


def activation(rng: Rng, limits: Limits) -> str | None:
    modes = (
        "relu",
        "clipped_relu",
        "leaky_relu",
        "tanh",
        "sigmoid",
        "elu",
        "gelu",
        "gelu_tanh",
        "softplus",
        "silu",
        "hardswish",
        "mish",
    )
    head = f"activation {one_of(rng, ('forward', 'backward'))} {floating(rng)} {one_of(rng, modes)}"
    return f"{head} x={layout(rng, image(rng, limits, most=limits.functions))}"


def pointwise(rng: Rng, limits: Limits) -> str | None:
    op = one_of(
        rng,
        (
            "neg",
            "exp",
            "sqrt",
            "abs",
            "add",
            "mul",
            "sub",
            "div",
            "maximum",
            "lt",
            "eq",
            "multiply_add",
            "clamp",
            "lerp",
        ),
    )
    arity = {"neg": 1, "exp": 1, "sqrt": 1, "abs": 1, "multiply_add": 3, "clamp": 3, "lerp": 3}.get(op, 2)
    reals = ("exp", "sqrt", "div", "lerp")
    dtype = floating(rng) if op in reals or chance(rng, 0.7) else one_of(rng, ("i8", "u8", "i32", "i64"))
    shape = image(rng, limits, most=limits.elements / 2)
    text = f"pointwise {op} {dtype} a={layout(rng, shape)}"
    for name in "bc"[: arity - 1]:
        if chance(rng, 0.3):  # b or c has one value per channel, or one value per position of the last dimension
            strides = [0] * len(shape)
            strides[one_of(rng, (1, len(shape) - 1))] = 1
            text += f" {name}={dims(shape)}:s{','.join(map(str, strides))}"
        else:
            text += f" {name}={layout(rng, shape)}"
    return text


def reduce(rng: Rng, limits: Limits) -> str | None:
    mode = one_of(
        rng, ("sum", "mean", "max", "min", "norm1", "norm2", "sumsq", "amax", "any", "all", "argmax", "argmin")
    )
    dtype = floating(rng) if chance(rng, 0.8) else one_of(rng, ("i8", "u8", "i32", "i64"))
    if dtype[0] in "iu" and mode in ("mean", "norm2"):
        return None
    if chance(rng, 0.4):
        shape = limited([log_uniform(rng, 1, 100_000), log_uniform(rng, 1, 100_000)], limits.elements)
    else:
        shape = image(rng, limits)
    axes = sorted(set(map(int, rng.integers(0, len(shape), int(rng.integers(1, len(shape) + 1))))))
    return f"reduce {mode} {dtype} x={layout(rng, shape)} axes={','.join(map(str, axes))}"


def ctc(rng: Rng, limits: Limits) -> str | None:
    steps, batch, classes = log_uniform(rng, 1, 600), log_uniform(rng, 1, 40), log_uniform(rng, 1, 6000)
    while steps * batch > limits.rows or steps * batch * classes > limits.elements:
        steps, batch, classes = max(1, steps * 3 // 4), max(1, batch * 3 // 4), max(1, classes * 3 // 4)
    longest = 0 if classes == 1 or chance(rng, 0.05) else log_uniform(rng, 1, max(steps, 2))
    dtype, direction = floating(rng), one_of(rng, ("forward", "backward"))
    text = f"ctc {direction} {dtype} x={layout(rng, (steps, batch, classes), last=0.1)}"
    text += f" targets={longest * batch if chance(rng, 0.3) else f'{batch}x{longest}'}"
    text += f" reduction={one_of(rng, ('none', 'sum', 'mean'))}"
    if classes > 1 and chance(rng, 0.3):
        text += f" blank={int(rng.integers(1, classes))}"
    words = ("logits", "zero_infinity", "labels=i32", "input_lengths=i32", "target_lengths=i32")
    return text + "".join(f" {word}" for word in words if chance(rng, 0.7 if word == "logits" else 0.2))


def transform(rng: Rng, limits: Limits) -> str | None:
    kind = one_of(rng, ("copy", "scale"))
    shape = image(rng, limits, most=limits.copies)
    dtype = floating(rng)
    text = f"transform {kind} {dtype} x={layout(rng, shape)}"
    if chance(rng, 0.5):
        to = one_of(rng, [t for t in ("f32", "bf16", "f16", "f64") if t != dtype])
        text += f" to={to}"
    return text + (f" out={layout(rng, shape, last=0.8, gaps=0)}" if chance(rng, 0.5) else "")


def pad(rng: Rng, limits: Limits) -> str | None:
    shape = image(rng, limits, most=limits.functions)
    widths = [(0, 0), (0, 0), *((int(rng.integers(0, 9)), int(rng.integers(0, 9))) for _ in shape[2:])]
    mode = one_of(rng, ("constant", "replicate", "reflect"))
    if mode == "reflect" and any(max(w) >= n for w, n in zip(widths, shape, strict=True)):
        return None
    if not any(map(any, widths)):
        return None
    sides = [str(b) if a == b else f"{b}:{a}" for b, a in widths]
    dtype = one_of(rng, ("f32", "bf16", "u8", "f64"))
    return f"pad forward {dtype} x={layout(rng, shape)} pad={','.join(sides)} mode={mode}"


def gather(rng: Rng, limits: Limits) -> str | None:
    kind = one_of(rng, ("forward", "backward"))
    shape = [log_uniform(rng, 1, 3000), log_uniform(rng, 1, 3000)]
    shape = limited(shape, limits.elements / 2)
    axis = one_of(rng, (0, 0, 0, 1))
    index = log_uniform(rng, 1, max(1, min(5000, limits.elements // 2 // shape[1 - axis])))
    dtype = floating(rng) if kind == "backward" else one_of(rng, ("f32", "bf16", "u8", "i64"))
    return f"gather {kind} {dtype} x={dims(shape)} index={index} axis={axis}" + (
        " indices=i32" if chance(rng, 0.5) else ""
    )


def random(rng: Rng, limits: Limits) -> str | None:
    kind = one_of(rng, ("uniform", "normal", "dropout"))
    shape = image(rng, limits, most=limits.functions)
    return f"random {kind} {floating(rng)} {'x' if kind == 'dropout' else 'y'}={dims(shape)}"


FAMILIES: dict[str, Callable[[Rng, Limits], str | None]] = {
    f.__name__: f
    for f in (
        activation,
        attention,
        batch_norm,
        conv,
        ctc,
        gather,
        layer_norm,
        loss,
        lrn,
        matmul,
        pad,
        pointwise,
        pooling,
        random,
        reduce,
        rnn,
        softmax,
        transform,
    )
}


def rng_of(family: str, seed: int) -> Rng:
    """The random numbers of a family's problems for a seed."""
    return np.random.default_rng([seed, *family.encode()])


def draw(family: str, rng: Rng, limits: Limits = ORACLE) -> str:
    """A case line. A line whose parts do not fit together is drawn again."""
    while True:
        if line := FAMILIES[family](rng, limits):
            return line
