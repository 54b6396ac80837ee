# SPDX-License-Identifier: Apache-2.0
"""The CPU engines against torch on the same cores (its images are in NCHW or NHWC, whichever is faster): convolutions,
matrix products, attention, recurrent layers, the CTC loss, operations bound by memory, fused operations, and calls on
tiny tensors. Lists: conv {nchw,nhwc} batch {1,8}, depthwise, matmul, attention, rnn {forward,backward}, ctc, memory
{1,16,256} MB, fused, tiny."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from bench_conv import DEPTHWISE, FIRST, ORDERS, PASSES, RESNET, Case
from bench_ctc import pair
from bench_layer_norm import seen_of_layer_backward
from bench_random import moments
from bench_rnn import Problem
from report import Target
from runner import ARITHMETIC, Row, in_orders, listed, main
from torch.nn import functional

import pyminidnn as dnn

CONVOLUTION, MEMORY = Target(1.1, 0.8), Target(1.3, 0.95)
TARGETS = {
    **{f"conv {order} batch {n}": CONVOLUTION for n in (1, 8) for order in ("nchw", "nhwc")},
    "depthwise": Target(1.5, 1.0),
    "matmul": Target(1.0, 0.85),
    "attention": Target(1.3, 0.6),
    "rnn forward": Target(1.2),
    "rnn backward": Target(1.0),
    "ctc": Target(2.0),
    **{f"memory {mb} MB": MEMORY for mb in (1, 16, 256)},
    "fused": Target(1.3),
    "tiny": Target(1.5),
}
MEMORY_FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
aten: Any = torch.ops.aten


def convolutions() -> Iterator[Row]:
    for n in (1, 8):
        for order in ORDERS:
            for layer in RESNET:
                passes = tuple(p for p in PASSES if layer is not FIRST or p != "backward_data")
                case = Case(replace(layer, batch=n), ARITHMETIC["ieee"], order == "nhwc", "cpu")
                yield from case.rows(f"conv {order} batch {n}", passes)
    for order in ORDERS:
        for layer in DEPTHWISE:
            yield from Case(replace(layer, batch=8), ARITHMETIC["ieee"], order == "nhwc", "cpu").rows("depthwise")


def products() -> Iterator[Row]:
    handle = dnn.Handle("cpu", math="ieee")
    cubes = [(n, n, n) for n in (64, 128, 256, 512, 1024, 2048)]
    skinny = [(1, 2048, 2048), (8, 2048, 2048), (64, 2048, 2048), (2048, 64, 2048), (2048, 2048, 64), (100, 1000, 333)]
    shapes: list[tuple[tuple[int, ...], int, int, int]] = [((), *shape) for shape in cubes + skinny]
    shapes += [((64,), 64, 64, 64), ((12,), 512, 512, 64)]
    for batch, m, n, k in shapes:
        for how in ("nn", "nt", "tn") if not batch else ("nn",):

            @cache
            def operands(batch=batch, m=m, n=n, k=k, how=how) -> Any:  # type: ignore[no-untyped-def]
                a = torch.randn(*batch, k, m).mT if how[0] == "t" else torch.randn(*batch, m, k)
                b = torch.randn(*batch, n, k).mT if how[1] == "t" else torch.randn(*batch, k, n)
                return a, b, dnn.from_dlpack(a), dnn.from_dlpack(b)

            size = "x".join(map(str, (*batch, m, n, k)))
            elements = math.prod(batch) * (m * k + k * n + m * n)
            yield Row(
                f"matmul forward f32 {size} {how}",
                lambda o=operands: dnn.matmul(*o()[2:], handle=handle),
                lambda o=operands: torch.matmul(*o()[:2]),
                bytes=4 * elements,
                flop=2.0 * math.prod(batch) * m * n * k,
                terms=k,
                list="matmul",
                label=f"{size} {how}",
            )


def attention() -> Iterator[Row]:
    """Forward and backward of 4 heads, and one step of a generation with a cache of 4096 rows."""
    peer = functional.scaled_dot_product_attention
    for dtype, short in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        of_dtype: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch."), "list": "attention"}
        for size, length, causal in itertools.product((64, 128), (1024, 4096), (False, True)):
            q, k, v, do = (torch.randn(1, 4, length, size).to(dtype) for _ in range(4))
            ours = [dnn.from_dlpack(t) for t in (q, k, v)]
            o, lse = dnn.attention_forward(*ours, causal=causal)
            leaves = [t.clone().requires_grad_() for t in (q, k, v)]
            flop = 16.0 * length * length * size * (0.5 if causal else 1)
            label = f"{short} d{size} {length}{' causal' if causal else ''}"
            yield Row(
                f"attention forward {label}",
                partial(dnn.attention_forward, *ours, causal=causal),
                partial(peer, q, k, v, is_causal=causal),
                bytes=4 * q.nbytes,
                flop=flop,
                terms=length,
                seen=(lambda results: results[:1], list),
                label=f"forward {label}",
                **of_dtype,
            )
            yield Row(
                f"attention backward {label}",
                partial(dnn.attention_backward, dnn.from_dlpack(do), *ours, o, lse, causal=causal),
                partial(torch.autograd.grad, peer(*leaves, is_causal=causal), leaves, do, retain_graph=True),
                bytes=8 * q.nbytes,
                flop=2.5 * flop,
                terms=length,
                label=f"backward {label}",
                **of_dtype,
            )
        for batch, heads, kv_heads, rows, size in ((1, 32, 8, 1, 128), (8, 32, 8, 1, 128), (1, 16, 16, 1, 64)):
            q, k, v = (
                torch.randn(batch, *s, size).to(dtype) for s in ((heads, rows), (kv_heads, 4096), (kv_heads, 4096))
            )
            lengths = dnn.from_dlpack(torch.full((batch,), 4096, dtype=torch.int32))
            label = f"{short} {batch}x{heads}/{kv_heads} d{size}"
            yield Row(
                f"attention decode {label}",
                partial(dnn.attention_decode, *map(dnn.from_dlpack, (q, k, v)), lengths=lengths, layout="bhsd"),
                partial(peer, q, k, v, enable_gqa=heads != kv_heads),
                bytes=2 * k.nbytes,
                flop=4.0 * batch * heads * rows * 4096 * size,
                terms=4096,
                seen=(lambda results: results[:1], list),
                label=f"decode {label}",
                **of_dtype,
            )


def recurrent() -> Iterator[Row]:
    """Layers for inference, and all their gradients: one sequence and 16, and both directions with lengths."""
    for mode, hidden, batch in itertools.product(("lstm", "gru", "tanh"), (256, 512), (1, 16)):
        p = Problem(mode, hidden, 1, 100, batch, "float32", "cpu")
        yield p.forward("rnn forward")
        yield p.backward("rnn backward")
    lengths = np.random.default_rng(0).integers(20, 101, 16)
    yield Problem("lstm", 256, 1, 100, 16, "float32", "cpu", True, lengths).forward("rnn forward")


def ctc() -> Iterator[Row]:
    for shape in ((1000, 8, 500, 100), (150, 32, 28, 40), (64, 64, 97, 20)):
        for logits in (False, True):
            yield from listed("ctc", pair("cpu", *shape, torch.float32, logits))


def memory(mb: int) -> Iterator[Row]:
    """Operations that read and write each element once or twice."""
    for dtype in (torch.float32, torch.bfloat16):
        short = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
        n = mb * (1 << 20) // dtype.itemsize // (64 * 64 * 64)
        image = torch.randn(max(n, 1), 64, 64, 64 if n else 32).to(dtype)

        def row(
            name: str, ours: Any, peer: Any, moved: float, dtype: torch.dtype = dtype, short: str = short, **same: Any
        ) -> Row:
            return Row(
                f"{name} {short}",
                ours,
                peer,
                bytes=moved,
                dtype=str(dtype).removeprefix("torch."),
                list=f"memory {mb} MB",
                label=f"{name} {short}",
                **same,
            )

        x, dy = image.flatten(), torch.randn(image.numel()).to(dtype)
        t, u = dnn.from_dlpack(x), dnn.from_dlpack(dy)
        size = x.nbytes
        for mode, forward, backward in (
            ("relu", torch.relu, lambda x, dy: aten.threshold_backward(dy, x, 0)),
            ("gelu", functional.gelu, lambda x, dy: aten.gelu_backward(dy, x)),
            ("silu", functional.silu, lambda x, dy: aten.silu_backward(dy, x)),
        ):
            yield row(
                f"activation forward {mode}", partial(dnn.activation_forward, t, mode), partial(forward, x), 2 * size
            )
            yield row(
                f"activation backward {mode}",
                partial(dnn.activation_backward, u, t, dnn.activation_forward(t, mode), mode),
                partial(backward, x, dy),
                3 * size,
            )
        scores, gradient = x.view(-1, 1024), dy.view(-1, 1024)
        s, g, y = dnn.from_dlpack(scores), dnn.from_dlpack(gradient), torch.softmax(scores, 1)
        yield row(
            "softmax forward rows of 1024",
            partial(dnn.softmax_forward, s),
            partial(torch.softmax, scores, 1),
            2 * size,
            terms=1024,
        )
        yield row(
            "softmax backward rows of 1024",
            partial(dnn.softmax_backward, g, dnn.from_dlpack(y)),
            partial(aten._softmax_backward_data, gradient, y, 1, dtype),
            3 * size,
            terms=1024,
        )
        weight = torch.rand(1024) + 0.5
        yield row(
            "layer_norm layer_forward rows of 1024",
            partial(dnn.layer_norm_forward, s, dnn.from_dlpack(weight), dnn.from_dlpack(weight)),
            partial(functional.layer_norm, scores, (1024,), weight.to(dtype), weight.to(dtype)),
            2 * size,
            terms=1024,
        )
        stats = dnn.layer_norm_forward(s)[1:]
        inner = [v.to(dtype) for v in (weight, weight)]
        normal = aten.native_layer_norm(scores, (1024,), *inner, 1e-5)[1:]
        yield row(
            "layer_norm layer_backward rows of 1024",
            partial(dnn.layer_norm_backward, g, s, dnn.from_dlpack(weight), *stats),
            partial(aten.native_layer_norm_backward, gradient, scores, (1024,), *normal, *inner, [True] * 3),
            3 * size,
            terms=max(scores.shape),
            seen=seen_of_layer_backward(x),
        )
        classes = torch.randint(0, 1024, scores.shape[:1])
        loss, lse = dnn.cross_entropy_forward(s, dnn.from_dlpack(classes))
        yield row(
            "loss forward rows of 1024",
            partial(dnn.cross_entropy_forward, s, dnn.from_dlpack(classes)),
            partial(functional.cross_entropy, scores, classes),
            size,
            terms=max(scores.shape),
        )
        logits = scores.detach().requires_grad_()
        yield row(
            "loss backward rows of 1024",
            partial(dnn.cross_entropy_backward, dnn.full((), 1, dtype=loss.dtype), s, dnn.from_dlpack(classes), lse),
            partial(torch.autograd.grad, functional.cross_entropy(logits, classes), logits, retain_graph=True),
            2 * size,
            terms=1024,
        )
        target = torch.empty_like(x)
        wide = {"seed": 1, "dtype": str(dtype).removeprefix("torch.")}
        drawn: dict[str, Any] = {
            "seen": (moments, moments),
            "tolerance": 12 / x.numel() ** 0.5 + torch.finfo(dtype).eps,
        }
        yield row(
            "random dropout",
            partial(dnn.dropout_forward, t, 0.3, seed=1),
            partial(functional.dropout, x, 0.3),
            2 * size,
            **drawn,
        )
        yield row("random uniform", partial(dnn.random_uniform, t.shape, **wide), target.uniform_, size, **drawn)
        yield row("random normal", partial(dnn.random_normal, t.shape, **wide), target.normal_, size, **drawn)
        yield row("reduce sum of all", partial(dnn.reduce, t, "sum"), x.sum, size, terms=x.numel())
        yield row("reduce argmax of all", partial(dnn.reduce, t, "argmax"), x.argmax, size)
        for mode, over in (("sum", torch.sum), ("max", torch.amax), ("argmax", torch.argmax)):
            yield row(
                f"reduce {mode} rows of 1024",
                partial(dnn.reduce, s, mode, axis=1),
                partial(over, scores, 1),
                size,
                terms=1024,
            )
        scale, bias, mean, var = (torch.rand(64) + 0.5 for _ in range(4))
        p = [dnn.from_dlpack(v) for v in (scale, bias, mean, var)]
        images = in_orders(image, dy.view_as(image))
        for order, (i, d) in images.items():
            ti, td = dnn.from_dlpack(i), dnn.from_dlpack(d)
            yield row(
                f"softmax forward channels {order}",
                partial(dnn.softmax_forward, ti),
                partial(torch.softmax, i, 1),
                2 * size,
                terms=64,
            )
            yield row(
                f"batch_norm training {order}",
                partial(dnn.batch_norm_forward_training, ti, *p[:2]),
                {
                    o: partial(functional.batch_norm, v, None, None, scale, bias, training=True)
                    for o, (v, _) in images.items()
                },
                2 * size,
                terms=x.numel() / 64,
            )
            yield row(
                f"batch_norm inference {order}",
                partial(dnn.batch_norm_forward_inference, ti, *p),
                {o: partial(functional.batch_norm, v, mean, var, scale, bias) for o, (v, _) in images.items()},
                2 * size,
            )
            saved = dnn.batch_norm_forward_training(ti, *p[:2])[1:]
            theirs = [torch.from_dlpack(v) for v in saved]
            yield row(
                f"batch_norm backward {order}",
                partial(dnn.batch_norm_backward, td, ti, p[0], *saved),
                {
                    o: partial(
                        aten.native_batch_norm_backward, dv, v, scale, None, None, *theirs, True, 1e-5, [True] * 3
                    )
                    for o, (v, dv) in images.items()
                },
                3 * size,
                terms=x.numel() / 64,
            )
            grouped = [v.to(dtype) for v in (scale, bias)]
            yield row(
                f"layer_norm group_forward {order}",
                partial(dnn.group_norm_forward, ti, 16, *p[:2]),
                partial(functional.group_norm, i, 16, *grouped),
                2 * size,
                terms=x.numel() / 64,
            )
            of_groups = dnn.group_norm_forward(ti, 16, *p[:2])[1:]
            leaves = [v.detach().requires_grad_() for v in (i, *grouped)]
            yield row(
                f"layer_norm group_backward {order}",
                partial(dnn.group_norm_backward, td, ti, 16, p[0], *of_groups),
                partial(
                    torch.autograd.grad, functional.group_norm(leaves[0], 16, *leaves[1:]), leaves, d, retain_graph=True
                ),
                3 * size,
                terms=x.numel() / 64,
            )
            for over, dimensions in (("channels", (1,)), ("pixels", (2, 3)), ("a line", (3,)), ("images", (0, 2, 3))):
                yield row(
                    f"reduce sum over {over} {order}",
                    partial(dnn.reduce, ti, "sum", axis=dimensions),
                    partial(torch.sum, i, dimensions),
                    size,
                    terms=math.prod(i.shape[d] for d in dimensions),
                )
            yield row(
                f"reduce argmax over channels {order}",
                partial(dnn.reduce, ti, "argmax", axis=1),
                partial(torch.argmax, i, 1),
                size,
            )
            for mode, pool, window, stride, pad in (
                ("max", functional.max_pool2d, 3, 2, 1),
                ("avg", functional.avg_pool2d, 2, 2, 0),
            ):
                keywords: dict[str, Any] = {"stride": stride, "padding": pad}
                leaves = {o: v.clone().requires_grad_() for o, (v, _) in images.items()}
                results = {o: pool(leaf, window, **keywords) for o, leaf in leaves.items()}
                gradients = in_orders(torch.randn_like(results[order]))
                yield row(
                    f"pooling forward {mode} {window} {order}",
                    partial(dnn.pool_forward, ti, window, mode=mode, **keywords),
                    {o: partial(pool, v, window, **keywords) for o, (v, _) in images.items()},
                    1.25 * size,
                    terms=window**2,
                )
                yield row(
                    f"pooling backward {mode} {window} {order}",
                    partial(
                        dnn.pool_backward,
                        dnn.from_dlpack(*gradients[order]),
                        ti,
                        dnn.from_dlpack(results[order].detach()),
                        window,
                        mode=mode,
                        **keywords,
                    ),
                    {
                        o: partial(torch.autograd.grad, y, leaves[o], gradients[o], retain_graph=True)
                        for o, y in results.items()
                    },
                    2.25 * size,
                    terms=window**2,
                )
            other = "NHWC" if order == "nchw" else "NCHW"
            yield row(
                f"transform {order} to {other.lower()}",
                lambda ti=ti, other=other: ti.to(layout=other),
                partial(i.contiguous, memory_format=MEMORY_FORMATS[other]),
                2 * size,
                terms=0,
            )
        to, wanted = (torch.bfloat16, "bfloat16") if dtype == torch.float32 else (torch.float32, "float32")
        yield row(f"transform to {wanted}", partial(t.to, dtype=wanted), partial(x.to, to), x.numel() * 6, terms=0)


def fused() -> Iterator[Row]:
    """One call of this library against several calls of eager torch."""
    for n in (1, 8):
        for order in ORDERS:
            for layer in (RESNET[2], RESNET[3], RESNET[16], RESNET[15]):
                case = Case(replace(layer, batch=n), ARITHMETIC["ieee"], order == "nhwc", "cpu")
                bias = torch.randn(layer.filters)
                ours = dnn.from_dlpack(bias)

                def run(case: Case = case, ours: Any = ours) -> Any:
                    t = case.ours
                    return dnn.conv_forward(t.x, t.w, ours, activation="relu", **case.attributes)

                def peer(o: str, case: Case = case, bias: Any = bias) -> Any:
                    t, a = case.theirs[o], case.layer
                    return torch.relu(torch.conv2d(t.x, t.w, bias, a.stride, a.padding))

                yield Row(
                    f"{case.name('forward')} bias activation=relu",
                    run,
                    {o: partial(peer, o) for o in ORDERS},
                    case.bytes("forward"),
                    2.0 * math.prod(case.layer.y) * math.prod(case.layer.w[1:]),
                    terms=case.terms("forward"),
                    list="fused",
                    label=f"{layer.label} {order} {n}",
                )


def tiny() -> Iterator[Row]:
    x, w, m = torch.randn(8, 8, 8, 8), torch.randn(8, 8, 3, 3), torch.randn(8, 8)
    scale, bias, var = torch.rand(8), torch.rand(8), torch.rand(8)
    t, tw, tm, ts, tb, tv = (dnn.from_dlpack(v) for v in (x, w, m, scale, bias, var))
    for name, ours, peer in (
        ("activation relu", lambda: dnn.activation_forward(t, "relu"), lambda: torch.relu(x)),
        ("activation gelu", lambda: dnn.activation_forward(t, "gelu"), lambda: functional.gelu(x)),
        ("softmax channels", lambda: dnn.softmax_forward(t), lambda: torch.softmax(x, 1)),
        (
            "batch_norm inference",
            lambda: dnn.batch_norm_forward_inference(t, ts, tb, tb, tv),
            lambda: functional.batch_norm(x, bias, var, scale, bias),
        ),
        ("pooling max 2", lambda: dnn.pool_forward(t, 2), lambda: functional.max_pool2d(x, 2)),
        ("conv 3x3", lambda: dnn.conv_forward(t, tw, tb, padding=1), lambda: torch.conv2d(x, w, bias, padding=1)),
        ("matmul 8x8", lambda: dnn.matmul(tm, tm), lambda: m @ m),
        ("transform to nhwc", lambda: t.to(layout="NHWC"), lambda: x.contiguous(memory_format=torch.channels_last)),
    ):
        yield Row(f"host: {name} of 8x8x8x8", ours, peer, host=True, list="tiny", label=name)


def rows(device: str) -> Iterator[Row]:
    yield from convolutions()
    yield from products()
    yield from attention()
    yield from recurrent()
    yield from ctc()
    for mb in (1, 16, 256):
        yield from memory(mb)
    yield from fused()
    yield from tiny()


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
