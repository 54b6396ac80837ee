# SPDX-License-Identifier: Apache-2.0
"""python -m pyminidnn selftest: runs every public function on each device and compares the results with NumPy.

It takes seconds, and on a GPU up to some minutes when no kernel is compiled yet. It detects a broken installation,
driver or compiler; other faults are for the test suite. `functional` is not covered: its functions call these.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pyminidnn as dnn

Array = np.ndarray[Any, Any]
Make = Callable[[Array], dnn.DeviceTensor]
# The name of a check, a call, and the expected result. The call receives a function that makes tensors on the device.
Check = tuple[str, Callable[[Make], Any], Any]


def run(device: str | None) -> int:
    """Prints a line per function and device. Returns 0 if all results agree with NumPy, else 1."""
    devices = [device] if device else ["cpu", *(f"cuda:{i}" for i in range(dnn._C.cuda_device_count()))]
    wrong = 0
    for target in devices:
        for name, call, want in checks(target):
            try:
                got = call(lambda array, target=target: dnn.asarray(array, device=target))  # type: ignore[misc]
                error = _difference(got, want)
                fine = error < 1e-5
                verdict = f"{error:.1e}" if fine else f"WRONG, relative error {error:.1e}"
            # A DeviceError means that the device or its driver failed, so all further checks would fail as well.
            except dnn.DeviceError as problem:
                wrong += 1
                print(f"{target:<7} {name:<32}DeviceError: {problem}\n{target:<7} the remaining checks were skipped")
                break
            except dnn.Error as problem:
                fine, verdict = False, f"{type(problem).__name__}: {problem}"
            wrong += not fine
            print(f"{target:<7} {name:<32}{verdict}")
    print(f"{wrong} checks failed" if wrong else "all checks passed")
    return 1 if wrong else 0


def _difference(got: Any, want: Any) -> float:
    """The largest relative error of a tensor; of a list of tensors, joined; or of a number."""

    def joined(results: Any) -> Array:
        each = results if isinstance(results, (list, tuple)) else [results]
        arrays = [r.numpy() if isinstance(r, dnn.DeviceTensor) else r for r in each]
        return np.concatenate([np.asarray(a, "f8").ravel() for a in arrays])

    a, b = joined(got), joined(want)
    return float(np.max(np.abs(a - b) / (1 + np.abs(b)))) if a.size == b.size else math.inf


def checks(device: str) -> Iterator[Check]:
    """All checks. Most inputs are small integers in float32, whose sums are exact."""
    rng = np.random.default_rng(0)

    def data(*shape: int) -> Array:
        return rng.integers(-4, 5, shape).astype("float32")

    yield from _convolutions(data)
    yield from _pooling(data)
    yield from _rows(data)
    yield from _ctc(data)
    yield from _attention(data)
    yield from _recurrent(data)
    yield from _batch_norm(data)
    yield from _norms(data)
    yield from _unary(data(3, 5))
    yield from _binary(data(3, 5), data(3, 5))
    yield from _reductions(data(3, 4, 5))
    yield from _movements(data(2, 3, 4))
    yield from _creations(data(2, 3), device)
    yield from _graphs(data(2, 3), device)
    yield from _random(device)
    yield from _tools(data(2, 3), device)


def _on(f: Callable[..., Any], *arrays: Array, **options: Any) -> Callable[[Make], Any]:
    """The call f(*arrays, **options), with tensors in place of the arrays."""
    return lambda on: f(*map(on, arrays), **options)


def _convolutions(data: Callable[..., Array]) -> Iterator[Check]:
    x, w, dy = data(2, 3, 6, 6), data(4, 3, 3, 3), data(2, 4, 4, 4)
    # The dimensions of `windows` are N and C of x, height and width of y, and height and width of w.
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    y = np.einsum("ncpqrs,kcrs->nkpq", windows, w)
    yield "conv_forward", lambda on: dnn.conv_forward(on(x), on(w)), y
    yield ("conv_forward_statistics", lambda on: dnn.conv_forward_statistics(on(x), on(w)),
           [y, y.sum((0, 2, 3)), (y * y).sum((0, 2, 3))])  # fmt: skip
    yield ("conv_backward_filter", lambda on: dnn.conv_backward_filter(on(dy), on(x), w.shape),
           np.einsum("ncpqrs,nkpq->kcrs", windows, dy))  # fmt: skip
    padded = np.pad(dy, ((0, 0), (0, 0), (2, 2), (2, 2)))
    flipped = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    yield ("conv_backward_data", lambda on: dnn.conv_backward_data(on(dy), on(w), x.shape),
           np.einsum("nkhwrs,kcrs->nchw", flipped, w[:, :, ::-1, ::-1]))  # fmt: skip
    yield "conv_backward_bias", lambda on: dnn.conv_backward_bias(on(dy)), dy.sum((0, 2, 3))
    a, b = data(5, 7), data(7, 3)
    yield "matmul", lambda on: dnn.matmul(on(a), on(b)), a @ b


def _pooling(data: Callable[..., Array]) -> Iterator[Check]:
    x, dy, d_all = data(2, 3, 6, 6), data(2, 3, 3, 3), data(2, 3, 1, 1)
    tiles = x.reshape(2, 3, 3, 2, 3, 2)
    spread = np.repeat(np.repeat(dy, 2, 2), 2, 3) / 4
    flat = tiles.transpose(0, 1, 2, 4, 3, 5).reshape(2, 3, 3, 3, 4).argmax(-1)
    rows, columns = 2 * np.arange(3)[:, None] + flat // 2, 2 * np.arange(3) + flat % 2
    yield "pool_forward max", lambda on: dnn.pool_forward(on(x), (2, 2)), tiles.max((3, 5))
    yield "pool_forward avg", lambda on: dnn.pool_forward(on(x), (2, 2), mode="avg"), tiles.mean((3, 5))
    yield ("pool_forward_with_indices", lambda on: dnn.pool_forward_with_indices(on(x), (2, 2)),
           [tiles.max((3, 5)), 6 * rows + columns])  # fmt: skip
    mode: Any = {"mode": "avg"}
    yield ("pool_backward avg", lambda on: dnn.pool_backward(on(dy), on(x), on(tiles.mean((3, 5))), (2, 2), **mode),
           spread)  # fmt: skip
    yield "adaptive_pool_forward", lambda on: dnn.adaptive_pool_forward(on(x), (3, 3), **mode), tiles.mean((3, 5))
    yield ("adaptive_pool_backward",
           lambda on: dnn.adaptive_pool_backward(on(dy), on(x), on(tiles.mean((3, 5))), **mode), spread)  # fmt: skip
    mean = x.mean((2, 3), keepdims=True)
    yield "global_pool_forward", lambda on: dnn.global_pool_forward(on(x), **mode), mean
    yield ("global_pool_backward", lambda on: dnn.global_pool_backward(on(d_all), on(x), on(mean), **mode),
           np.broadcast_to(d_all / 36, x.shape))  # fmt: skip


def _rows(data: Callable[..., Array]) -> Iterator[Check]:
    x, dy = data(4, 5), data(4, 5)
    e = np.exp(x - x.max(1, keepdims=True), dtype="f8")
    p = e / e.sum(1, keepdims=True)
    lse = np.log(np.exp(x, dtype="f8").sum(1))
    target = np.array([1, 0, 4, 2])
    hit = np.eye(5)[target]
    yield "softmax_forward", lambda on: dnn.softmax_forward(on(x)), p
    yield ("softmax_backward", lambda on: dnn.softmax_backward(on(dy), dnn.softmax_forward(on(x))),
           p * (dy - (dy * p).sum(1, keepdims=True)))  # fmt: skip
    yield ("cross_entropy_forward", lambda on: dnn.cross_entropy_forward(on(x), on(target)),
           [(lse - (x * hit).sum(1)).mean(), lse])  # fmt: skip
    yield ("cross_entropy_backward",
           lambda on: dnn.cross_entropy_backward(on(np.float32(2)), on(x), on(target), on(lse.astype("f4"))),
           2 * (p - hit) / 4)  # fmt: skip
    yield "softmax", lambda on: dnn.softmax(on(x), 1), p
    yield "relu", lambda on: dnn.relu(on(x)), x * (x > 0)
    yield "activation_forward", lambda on: dnn.activation_forward(on(x), "silu"), x / (1 + np.exp(-x.astype("f8")))
    yield "activation_backward", lambda on: dnn.activation_backward(on(dy), on(x), on(x), "relu"), dy * (x > 0)


def _ctc(data: Callable[..., Array]) -> Iterator[Check]:
    """All paths of three steps that read as the labels 1, 2."""
    x = data(3, 1, 3)
    p = np.exp(x[:, 0].astype("f8"))
    p /= p.sum(1, keepdims=True)
    paths = np.array([(1, 2, 0), (1, 0, 2), (0, 1, 2), (1, 1, 2), (1, 2, 2)])
    of_paths = p[np.arange(3), paths].prod(1)
    posterior = (of_paths[:, None, None] * np.eye(3)[paths]).sum(0) / of_paths.sum()
    labels, steps, count = np.array([[1, 2]]), np.array([3]), np.array([2])
    options: dict[str, Any] = {"reduction": "sum", "logits": True}

    def forward(on: Make) -> tuple[dnn.DeviceTensor, tuple[dnn.DeviceTensor, ...]]:
        return dnn.ctc_loss_forward(on(x), on(labels), on(steps), on(count), **options)

    yield "ctc_loss_forward", lambda on: forward(on)[0], -np.log(of_paths.sum())
    yield ("ctc_loss_backward",
           lambda on: dnn.ctc_loss_backward(
               on(np.float32(2)), on(x), on(labels), on(steps), on(count), forward(on)[1], **options),
           2 * (p - posterior)[:, None])  # fmt: skip


def _attention(data: Callable[..., Array]) -> Iterator[Check]:
    """Causal, so the last row of q sees what it sees in a cache of all rows."""
    q, k, v, do = data(2, 4, 5, 8) / 4, data(2, 2, 5, 8) / 4, data(2, 2, 5, 3), data(2, 4, 5, 3)
    every_k, every_v = (np.repeat(a, 2, 1).astype("f8") for a in (k, v))
    z = np.where(np.tri(5, dtype=bool), q @ every_k.swapaxes(2, 3) / math.sqrt(8), -np.inf)
    e = np.exp(z)
    lse, p = np.log(e.sum(3)), e / e.sum(3, keepdims=True)
    o = p @ every_v
    dz = p * (do @ every_v.swapaxes(2, 3) - (do * o).sum(3, keepdims=True)) / math.sqrt(8)
    groups = [a.reshape(2, 2, 2, 5, -1).sum(2) for a in (dz.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ do)]
    yield "attention_forward", _on(dnn.attention_forward, q, k, v, causal=True), [o, lse]
    yield ("attention_backward",
           _on(dnn.attention_backward, do, q, k, v, o.astype("f4"), lse.astype("f4"), causal=True),
           [dz @ every_k, *groups])  # fmt: skip
    cache = [a.swapaxes(1, 2).copy() for a in (q[:, :, 4:], k, v)]
    lengths = np.array([5, 5], "int32")
    yield ("attention_decode", lambda on: dnn.attention_decode(*map(on, cache), lengths=on(lengths)),
           [o[:, :, 4:].swapaxes(1, 2), lse[:, :, 4:]])  # fmt: skip


def _recurrent(data: Callable[..., Array]) -> Iterator[Check]:
    """h = relu(W x + U h) over three steps."""
    x, dy, w, u = data(3, 2, 4), data(3, 2, 5), data(5, 4), data(5, 5)
    h = [np.zeros((2, 5), "f4")]
    for step in x:
        h.append(np.maximum(step @ w.T + h[-1] @ u.T, 0))
    dgates = np.zeros((4, 2, 5), "f4")  # those behind the last step are 0
    for t in (2, 1, 0):
        dgates[t] = (dy[t] + dgates[t + 1] @ u) * (h[t + 1] > 0)
    y, dgates, before = np.stack(h[1:]), dgates[:3], np.stack(h[:3])
    sizes: dict[str, Any] = {"mode": "relu", "hidden_size": 5, "bias": False}

    def results(on: Make) -> Any:
        return dnn.rnn_forward(on(x), [on(w), on(u)], training=True, **sizes)

    flat = np.concatenate([w.ravel(), u.ravel()])
    yield "rnn_forward", lambda on: results(on)[:2], [y, y[2:]]
    yield ("rnn_backward_data",
           lambda on: dnn.rnn_backward_data(on(dy), None, None, on(y), [on(w), on(u)], results(on)[3], **sizes)[:2],
           [dgates @ w, (dgates[0] @ u)[None]])  # fmt: skip
    yield ("rnn_backward_weights",
           lambda on: dnn.rnn_backward_weights(
               on(x), None, on(y), on(dgates[None, None].copy()), results(on)[3], **sizes),
           [np.einsum("tng,tni->gi", dgates, x), np.einsum("tng,tni->gi", dgates, before)])  # fmt: skip
    yield "rnn_pack", lambda on: dnn.rnn_pack([on(w), on(u)], **sizes), flat
    yield "rnn_unpack", lambda on: dnn.rnn_unpack(on(flat), **sizes), [w, u]


def _batch_norm(data: Callable[..., Array]) -> Iterator[Check]:
    x, scale, bias = data(2, 3, 6, 6), data(3), data(3)
    mean, var = x.mean((0, 2, 3), dtype="f8"), x.var((0, 2, 3), dtype="f8")
    per = (1, 3, 1, 1)
    inv_std = 1 / np.sqrt(var + 1e-5)
    x_hat = (x - mean.reshape(per)) * inv_std.reshape(per)
    y = x_hat * scale.reshape(per) + bias.reshape(per)
    statistics = mean.astype("f4"), var.astype("f4"), inv_std.astype("f4")
    yield ("batch_norm_forward_training", lambda on: dnn.batch_norm_forward_training(on(x), on(scale), on(bias)),
           [y, mean, inv_std])  # fmt: skip
    yield ("batch_norm_forward_inference",
           lambda on: dnn.batch_norm_forward_inference(on(x), on(scale), on(bias), *map(on, statistics[:2])),
           y)  # fmt: skip
    yield ("batch_norm_backward",
           lambda on: dnn.batch_norm_backward(on(x), on(x), on(scale), on(statistics[0]), on(statistics[2]))[1:],
           [(x * x_hat).sum((0, 2, 3)), x.sum((0, 2, 3))])  # fmt: skip


def _norms(data: Callable[..., Array]) -> Iterator[Check]:
    """Norms of rows: a row is the last dimension for layer and RMS norm, a group or a channel for the others."""
    x, dy = data(2, 4, 6), data(2, 4, 6)

    def n(array: Array) -> Array:
        """Without the last dimension, in float32."""
        return array[..., 0].astype("f4")

    def norm(rows: Array, d: Array, centred: bool = True) -> tuple[Array, ...]:
        """y, mean, 1 / std and dx over the last dimension, without scale and bias."""
        mean = rows.mean(-1, keepdims=True, dtype="f8") * centred
        inv_std = 1 / np.sqrt(((rows - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        y = (rows - mean) * inv_std
        dx = inv_std * (d - d.mean(-1, keepdims=True) * centred - y * (d * y).mean(-1, keepdims=True))
        return y, mean, inv_std, dx

    y, mean, inv_std, dx = norm(x, dy)
    yield "layer_norm_forward", lambda on: dnn.layer_norm_forward(on(x))[0], y
    yield ("layer_norm_backward",
           lambda on: dnn.layer_norm_backward(on(dy), on(x), None, on(n(mean)), on(n(inv_std)))[0],
           dx)  # fmt: skip
    yield "instance_norm_forward", lambda on: dnn.instance_norm_forward(on(x))[0], y
    yield ("instance_norm_backward",
           lambda on: dnn.instance_norm_backward(on(dy), on(x), None, on(n(mean)), on(n(inv_std)))[0],
           dx)  # fmt: skip
    r_y, _, inv_rms, r_dx = norm(x, dy, centred=False)
    yield "rms_norm_forward", lambda on: dnn.rms_norm_forward(on(x))[0], r_y
    yield "rms_norm_backward", lambda on: dnn.rms_norm_backward(on(dy), on(x), None, on(n(inv_rms)))[0], r_dx
    g_y, g_mean, g_inv_std, g_dx = norm(x.reshape(2, 2, 12), dy.reshape(2, 2, 12))
    yield "group_norm_forward", lambda on: dnn.group_norm_forward(on(x), 2)[0], g_y
    yield ("group_norm_backward",
           lambda on: dnn.group_norm_backward(on(dy), on(x), 2, None, on(n(g_mean)), on(n(g_inv_std)))[0],
           g_dx)  # fmt: skip
    # A window of a single element: y = x (1 + x^2)^-1
    options: dict[str, Any] = {"alpha": 1.0, "beta": 1.0}
    s = 1 + x.astype("f8") ** 2
    for name in ("lrn", "lcn"):
        forward, backward = getattr(dnn, f"{name}_forward"), getattr(dnn, f"{name}_backward")
        yield f"{name}_forward", _on(forward, x, size=1, **options), x / s
        yield f"{name}_backward", _on(backward, dy, x, size=1, **options), dy * (2 - s) / s**2


_UNARY: dict[str, Callable[[Array], Array]] = {
    **{name: getattr(np, name) for name in ("abs", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite")},
    **{name: getattr(np, name) for name in ("isnan", "logical_not", "sign", "signbit", "sin", "sinh", "square", "tan")},
    **{name: getattr(np, name) for name in ("isinf", "tanh", "trunc")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asinh", "atan")},
    "erf": np.vectorize(math.erf, otypes=["f8"]), "neg": np.negative, "round": np.rint,
}  # fmt: skip
_POSITIVE: dict[str, Callable[[Array], Array]] = {
    **{name: getattr(np, name) for name in ("log", "log10", "log1p", "log2", "reciprocal", "sqrt")},
    "acosh": np.arccosh, "rsqrt": lambda a: 1 / np.sqrt(a),
}  # fmt: skip
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    **{name: getattr(np, name) for name in ("copysign", "hypot", "logaddexp", "maximum", "minimum")},
    **{f"logical_{word}": getattr(np, f"logical_{word}") for word in ("and", "or", "xor")},
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "atan2": np.arctan2, "add_square": lambda a, b: a + b * b,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _unary(x: Array) -> Iterator[Check]:
    half, positive, inside = x / 2, np.abs(x) + 1, x / 5
    arcs = {name: getattr(np, f"arc{name[1:]}") for name in ("acos", "asin", "atanh")}
    for functions, a in ((_UNARY, half), (_POSITIVE, positive), (arcs, inside)):
        for name, reference in functions.items():
            yield name, _on(getattr(dnn, name), a), reference(a.astype("f8"))
    numbers = x.astype("int32")
    yield "bitwise_not", lambda on: dnn.bitwise_not(on(numbers)), ~numbers


def _binary(a: Array, b: Array) -> Iterator[Check]:
    divisor = np.abs(b) + 1
    pairs: dict[str, tuple[Any, Array, Array]] = {name: (f, a, b) for name, f in _BINARY.items()}
    pairs |= {"div": (np.divide, a, divisor), "mod": (np.mod, a, divisor), "floor_div": (np.floor_divide, a, divisor),
              "pow": (np.power, divisor, a)}  # fmt: skip
    i, j = a.astype("int32"), b.astype("int32")
    pairs |= {f"bitwise_{word}": (getattr(np, f"bitwise_{word}"), i, j) for word in ("and", "or", "xor")}
    pairs |= {f"{side}_shift": (getattr(np, f"{side}_shift"), i, np.abs(j)) for side in ("left", "right")}
    for name, (reference, first, second) in pairs.items():
        wide = "f8" if first.dtype.kind == "f" else "i8"
        yield name, _on(getattr(dnn, name), first, second), reference(first.astype(wide), second.astype(wide))
    c = np.arange(1, 6, dtype="float32")
    yield "pointwise", lambda on: dnn.pointwise("add", on(a), on(b)), a + b
    yield "clamp", lambda on: dnn.clamp(on(a), on(-c), on(c)), np.clip(a, -c, c)
    yield "lerp", lambda on: dnn.lerp(on(a), on(b), on(c)), a + c * (b - a)
    yield "multiply_add", lambda on: dnn.multiply_add(on(a), on(b), on(c)), a * b + c
    yield "where", lambda on: dnn.where(on(a > 0), on(a), on(b)), np.where(a > 0, a, b)


def _reductions(x: Array) -> Iterator[Check]:
    for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all"):
        yield name, _on(getattr(dnn, name), x, axis=1), getattr(np, name)(x.astype("f8"), 1)
    yield "reduce", lambda on: dnn.reduce(on(x), "norm2", axis=1), np.linalg.norm(x.astype("f8"), axis=1)


def _movements(x: Array) -> Iterator[Check]:
    index = np.array([2, 0, 2])
    yield "transform", lambda on: dnn.transform(on(x), alpha=2, dtype="float64"), 2 * x
    yield "concat", lambda on: dnn.concat([on(x), on(x)], 1), np.concatenate([x, x], 1)
    yield "stack", lambda on: dnn.stack([on(x), on(x)], 1), np.stack([x, x], 1)
    yield "split", lambda on: dnn.split(on(x), [1, 2], 1), [x[:, :1], x[:, 1:]]
    yield "slice", lambda on: dnn.slice(on(x), (0, 1, 0), (2, 3, 4), (1, 1, 2)), x[:, 1:, ::2]
    yield "pad", lambda on: dnn.pad(on(x), 1, value=7), np.pad(x, 1, constant_values=7)
    yield "gather", lambda on: dnn.gather(on(x), on(index), axis=1), x[:, index]
    dx = np.stack([x[:, 1], 0 * x[:, 0], x[:, 0] + x[:, 2]], 1)
    yield "gather_backward", lambda on: dnn.gather_backward(on(x), on(index), x.shape, axis=1), dx


def _creations(x: Array, device: str) -> Iterator[Check]:
    there: dict[str, Any] = {"device": device}
    yield "array", lambda on: dnn.array(x, **there), x
    yield "asarray", lambda on: dnn.asarray(x, **there), x
    yield "tensor", lambda on: dnn.tensor(x, **there), x
    yield "from_dlpack", lambda on: dnn.from_dlpack(on(x)), x
    yield "arange", lambda on: dnn.arange(2, 11, 3, **there), [2, 5, 8]
    yield "linspace", lambda on: dnn.linspace(0, 1, 5, **there), [0, 0.25, 0.5, 0.75, 1]
    yield "eye", lambda on: dnn.eye(2, 3, k=1, **there), np.eye(2, 3, 1)
    yield "zeros", lambda on: dnn.zeros((2, 3), **there), 0 * x
    yield "ones", lambda on: dnn.ones((2, 3), **there), 0 * x + 1
    yield "full", lambda on: dnn.full((2, 3), 7, **there), 0 * x + 7
    yield "empty", lambda on: dnn.empty((2, 3), **there).shape, [2, 3]
    yield "zeros_like", lambda on: dnn.zeros_like(on(x)), 0 * x
    yield "ones_like", lambda on: dnn.ones_like(on(x)), 0 * x + 1
    yield "full_like", lambda on: dnn.full_like(on(x), 7), 0 * x + 7
    yield "empty_like", lambda on: dnn.empty_like(on(x)).shape, [2, 3]

    def saved_and_loaded(on: Make) -> dnn.DeviceTensor:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tensors.npz")
            dnn.save(path, {"x": on(x)})
            return dnn.load(path, **there)["x"]

    yield "save", saved_and_loaded, x
    yield "load", saved_and_loaded, x


def _graphs(x: Array, device: str) -> Iterator[Check]:
    def recorded(on: Make) -> dnn.DeviceTensor:
        with dnn.record(device=device) as graph:
            graph.output("y", dnn.square(graph.input("x", x.shape)) + 1)
        return graph.run(x=on(x))["y"]

    yield "record", recorded, x * x + 1
    yield "fuse", lambda on: dnn.fuse(lambda t: dnn.square(t) + 1)(on(x)), x * x + 1


def _random(device: str) -> Iterator[Check]:
    """The first numbers of Philox 4x32-10 with seed 1, by the definition in docs/ops/random.md."""
    there: dict[str, Any] = {"device": device, "seed": 1}
    yield "random_uniform", lambda on: dnn.random_uniform(4, **there), [0.89025915, 0.89468467, 0.5857259, 0.71126807]
    yield ("random_normal", lambda on: dnn.random_normal(4, **there),
           [0.38040073, -0.29627789, -0.24923342, -1.00383725])  # fmt: skip
    ones, kept = np.ones(8, "float32"), [2, 2, 2, 2, 2, 2, 0, 2]
    yield "dropout_forward", lambda on: dnn.dropout_forward(on(ones), 0.5, seed=1), kept
    yield "dropout_backward", lambda on: dnn.dropout_backward(on(ones), 0.5, seed=1), kept


def _tools(x: Array, device: str) -> Iterator[Check]:
    """Functions that compute nothing. Each expected value is 1, for "it did what it says"."""

    def stats(name: str) -> int:
        return int(dnn.memory_stats(device)[f"{name}_bytes"])

    def counted(_: Make) -> bool:
        tensor = dnn.zeros(1000, device=device)
        return stats("allocated") >= tensor.nbytes

    def peak(_: Make) -> bool:
        tensors = [dnn.zeros(1000, device=device) for _ in range(1000)]
        before = stats("peak_allocated")
        del tensors
        dnn.reset_peak_memory(device)
        return stats("peak_allocated") < before

    def emptied(_: Make) -> bool:
        dnn.empty_cache(device)
        return stats("cached") == 0

    def found(on: Make) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return bool(dnn.find(dnn.exp, on(x))[0].chosen)

    def waited(_: Make) -> bool:
        dnn.synchronize(device)
        return True

    def level(_: Make) -> bool:
        try:
            dnn.set_log_level("loud")  # a valid level would replace the level of PYMINIDNN_LOG
        except dnn.ShapeError:
            return True
        return False

    yield "device_count", lambda on: dnn.device_count() == dnn._C.cuda_device_count(), 1
    yield "synchronize", waited, 1
    yield "engines", lambda on: bool(dnn.engines("conv", device)), 1
    yield "explain", lambda on: bool(dnn.explain(dnn.exp, on(x))[0].chosen), 1
    yield "find", found, 1
    yield "memory_stats", counted, 1
    yield "reset_peak_memory", peak, 1
    yield "empty_cache", emptied, 1
    yield "set_log_level", level, 1
