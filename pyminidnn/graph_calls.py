# SPDX-License-Identifier: Apache-2.0
"""Makes a call again from what a recording knows of it: the text of its problem, and its tensors.

A graph is loaded by making its calls again while a recorder writes them down, so a file can do nothing that a caller
could not do, and every check of every call is made. The library never reads a problem's fields from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyminidnn as dnn

from . import _C
from ._C import DeviceTensor, Handle, ShapeError
from .refusals import short

Results = dict[str, DeviceTensor]

_DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "i64": "int64"}


@dataclass
class RecordedCall:
    """A call: the text of its problem, such as "matmul forward f32 a=8x16 b=16x4 bias", its tensors and its options.

    `tensor` returns a tensor by the name of its port, for example "bias" or "out" -- None if the call has no such port.
    Numbers such as alpha and seeds are not part of it: the caller sets them afterwards.
    """

    text: str
    tensor: Callable[[str], DeviceTensor | None]
    algo: str | None
    handle: Handle

    def __post_init__(self) -> None:
        self.family, self.kind, self.dtype, *rest = self.text.split(" ")
        self.words = [word for word in rest if "=" not in word]
        self.attributes = dict(word.split("=", 1) for word in rest if "=" in word)
        self.options: dict[str, Any] = {"algo": self.algo, "handle": self.handle}

    def __getitem__(self, port: str) -> DeviceTensor:
        tensor = self.tensor(port)
        if tensor is None:
            raise ShapeError(f"the call has no tensor {port}")
        return tensor

    def make(self) -> Results:
        """Makes the call. Returns the tensors that it has made by their ports; others were given to it."""
        if self.family not in _CALLS:
            raise ShapeError(f"there is no function {short(self.family)}")
        made: Results | None = _CALLS[self.family](self)
        return made or {}

    def integers(self, name: str, default: int) -> list[int] | int:
        """An attribute such as stride=2 or stride=2,1."""
        return [int(n) for n in self.attributes[name].split(",")] if name in self.attributes else default

    def sides(self) -> list[tuple[int, int]] | int:
        """The attribute pad=1, pad=1,0 or pad=1:2,0."""
        pairs = [side.split(":") for side in self.attributes.get("pad", "0").split(",")]
        return [(int(p[0]), int(p[-1])) for p in pairs] if len(pairs) > 1 or len(pairs[0]) > 1 else int(pairs[0][0])

    def unread(self, name: str) -> DeviceTensor:
        """A tensor that the call does not read, as the text describes it: x=4x5, x=4x5:nhwc or x=4x5:s1,4."""
        sizes, _, order = self.attributes[name].partition(":")
        shape = [int(n) for n in sizes.split("x")]
        options: dict[str, Any] = {"dtype": _DTYPES[self.dtype], "device": self.handle.device}
        if not order.startswith("s"):
            options["layout"] = order.upper() or None
            return dnn.empty(shape, **options)
        strides = [int(n) for n in order[1:].split(",")]
        first = sum((n - 1) * max(-s, 0) for n, s in zip(shape, strides, strict=True))
        last = sum((n - 1) * max(s, 0) for n, s in zip(shape, strides, strict=True))
        return dnn.empty(first + last + 1, **options).as_strided(shape, strides, first)


def _activation(c: RecordedCall) -> None:
    mode: Any
    (mode,) = c.words
    if c.kind == "forward":
        dnn.activation_forward(c["x"], mode, out=c["y"], **c.options)
    else:
        dnn.activation_backward(c["dy"], c["x"], c["x"], mode, out=c["dx"], **c.options)


def _attention(c: RecordedCall) -> Results:
    packed, decode = "packed" in c.attributes, c.kind == "decode"

    def rows(t: DeviceTensor) -> DeviceTensor:
        """Packed rows [rows, H, D]. The ports of a call are [B, H, S, D]."""
        return t.permute((0, 2, 1, 3)).squeeze(0) if packed else t

    q, k, v = (rows(c[name]) for name in ("q", "k", "v"))
    left, right = (int(c.attributes[n]) if n in c.attributes else None for n in ("left", "right"))
    options: dict[str, Any] = {"scale": -1.0 if "negative_scale" in c.words else 1.0, "layout": "bhsd", **c.options}
    options |= {name: c.tensor(name) for name in ("alibi", "sink")}
    options |= {"softcap": 1.0 if "softcap" in c.words else 0.0, "window": left if decode else (left, right)}
    if decode:
        made = dnn.attention_decode(q, k, v, lengths=c["lengths"], pages=c.tensor("pages"), out=c["o"], **options)
        return {"lse": made[1]}
    options |= {name: c.tensor(name) for name in ("bias", "q_lengths", "kv_lengths", "cu_q", "cu_kv")}
    options |= {"align": "bottom_right" if "bottom_right" in c.words else "top_left"}
    options |= {"dropout": 0.5 if "dropout" in c.words else 0.0}
    if packed:
        options |= dict(zip(("max_q", "max_kv"), map(int, c.attributes["max"].split(",")), strict=True))
    if c.kind == "forward":
        return {"lse": dnn.attention_forward(q, k, v, out=rows(c["o"]), **options)[1]}
    options["bias_gradient"] = "bias_gradient" in c.words
    gradients = dnn.attention_backward(rows(c["do"]), q, k, v, rows(c["o"]), c["lse"], **options)
    names = [
        "dq",
        "dk",
        "dv",
        *(["dbias"] if options["bias_gradient"] else []),
        *(["dsink"] if "sink" in c.words else []),
    ]
    return dict(zip(names, gradients, strict=True))


def _batch_norm(c: RecordedCall) -> Results | None:
    relu = "relu" if "relu" in c.words else None
    options: dict[str, Any] = {"per_activation": "per_activation" in c.words, "activation": relu, **c.options}
    if c.kind == "inference":
        given = [c[name] for name in ("x", "scale", "bias", "mean", "var")]
        dnn.batch_norm_forward_inference(*given, residual=c.tensor("residual"), out=c["y"], **options)
        return None
    if c.kind == "training":
        running: dict[str, Any] = {name: c.tensor(name) for name in ("running_mean", "running_var", "residual")}
        results = dnn.batch_norm_forward_training(c["x"], c["scale"], c["bias"], **running, **options)
        return dict(zip(("y", "saved_mean", "saved_inv_std"), results, strict=True))
    given = [c[name] for name in ("dy", "x", "scale", "saved_mean", "saved_inv_std")]
    gradients = dnn.batch_norm_backward(*given, y=c.tensor("y"), dresidual="add" in c.words, **options)
    return dict(zip(("dx", "dscale", "dbias", "dresidual"), gradients, strict=False))


def _conv(c: RecordedCall) -> Results | None:
    if c.kind == "backward_bias":
        dnn.conv_backward_bias(c["dy"], out=c["db"], **c.options)
        return None
    options: dict[str, Any] = {name: c.integers(name, 1) for name in ("stride", "dilation")}
    options |= {"padding": c.sides(), "groups": int(c.attributes.get("groups", "1"))}
    options |= {"mode": c.attributes.get("mode", "cross_correlation"), **c.options}
    if c.kind == "backward_data":
        dnn.conv_backward_data(c["dy"], c["w"], c["dx"].shape, out=c["dx"], **options)
        return None
    if c.kind == "backward_filter":
        dnn.conv_backward_filter(c["dy"], c["x"], c["dw"].shape, out=c["dw"], **options)
        return None
    given = (c["x"], c["w"], c.tensor("bias"), c.tensor("residual"))
    options |= {"activation": c.attributes.get("activation"), "out": c["y"]}
    if c.kind == "forward":
        dnn.conv_forward(*given, **options)
        return None
    _, sums, _ = dnn.conv_forward_statistics(*given, **options)
    return {"sums": sums}


def _ctc(c: RecordedCall) -> Results | None:
    options: dict[str, Any] = {"reduction": c.attributes["reduction"], "blank": int(c.attributes.get("blank", "0"))}
    options |= {name: name in c.words for name in ("zero_infinity", "logits")} | c.options
    x, targets, input_lengths, target_lengths = (c[n] for n in ("x", "targets", "input_lengths", "target_lengths"))
    names = ["alpha", "exponents", *(["lse"] if options["logits"] else [])]
    if c.kind == "backward":
        saved = [c[name] for name in names]
        options["out"] = c["dx"]
        dnn.ctc_loss_backward(c["dloss"], x, targets, input_lengths, target_lengths, saved, **options)
        return None
    loss, tensors = dnn.ctc_loss_forward(x, targets, input_lengths, target_lengths, **options)
    return {"loss": loss, **dict(zip(names, tensors, strict=True))}


def _gather(c: RecordedCall) -> None:
    axis = int(c.attributes["axis"])
    if c.kind == "forward":
        dnn.gather(c["x"], c["index"], axis=axis, out=c["y"], **c.options)
    else:
        dnn.gather_backward(c["dy"], c["index"], c["dx"].shape, axis=axis, out=c["dx"], **c.options)


def _layer_norm(c: RecordedCall) -> Results:
    kind, direction = c.kind.split("_")
    name = "groups" if kind == "group" else "axis"
    options: dict[str, Any] = {name: int(c.attributes[name]), **c.options}
    call = getattr(dnn, f"{kind}_norm_{direction}")
    if direction == "forward":
        results = ("y", "inv_std") if kind == "rms" else ("y", "mean", "inv_std")
        options |= {name: c.tensor(name) for name in (("scale",) if kind == "rms" else ("scale", "bias"))}
        return dict(zip(results, call(c["x"], **options), strict=True))
    results = ("dx", "dscale") if kind == "rms" else ("dx", "dscale", "dbias")
    options |= {"scale": c.tensor("scale"), "inv_rms" if kind == "rms" else "inv_std": c["inv_std"]}
    options |= {} if kind == "rms" else {"mean": c["mean"]}
    return dict(zip(results, call(c["dy"], c["x"], **options), strict=True))


def _loss(c: RecordedCall) -> Results | None:
    options: dict[str, Any] = {"axis": int(c.attributes["axis"]), "reduction": c.attributes["reduction"], **c.options}
    options |= {"ignore_index": int(c.attributes.get("ignore", "-100"))}
    options |= {"label_smoothing": 0.5 if "smoothed" in c.words else 0.0}
    if c.kind == "backward":
        dnn.cross_entropy_backward(c["dy"], c["x"], c["target"], c["lse"], out=c["dx"], **options)
        return None
    loss, lse = dnn.cross_entropy_forward(c["x"], c["target"], **options)
    return {"loss": loss, "lse": lse}


def _lrn(c: RecordedCall) -> Results | None:
    kind, direction = c.kind.split("_")
    size, options = int(c.attributes["size"]), dict(c.options)
    if kind == "lcn":
        options["means"] = c.tensor("means")
    call = getattr(dnn, c.kind)
    if direction == "forward":
        call(c["x"], size, out=c["y"], **options)
        return None
    gradients = call(c["dy"], c["x"], size, out=c["dx"], **options)
    return {"dmeans": gradients[1]} if isinstance(gradients, tuple) else None


def _matmul(c: RecordedCall) -> None:
    added = c.tensor("c")
    options: dict[str, Any] = {"c": added, "beta": 0.0 if added is None else 1.0, "bias": c.tensor("bias")}
    options |= {"activation": c.attributes.get("activation"), **c.options}
    dnn.matmul(c["a"], c["b"], out=c["y"], **options)


def _pad(c: RecordedCall) -> None:
    mode: Any = c.attributes["mode"]
    dnn.pad(c["x"], c.sides(), mode=mode, out=c["y"], **c.options)


def _pointwise(c: RecordedCall) -> None:
    op: Any = c.kind
    dnn.pointwise(op, c["a"], c.tensor("b"), c.tensor("c"), out=c["y"], **c.options)


def _pooling(c: RecordedCall) -> Results | None:
    mode, *words = c.words
    kind: dict[str, Any] = {"mode": mode, "norm": int(c.attributes.get("norm", "2"))}
    options: dict[str, Any] = {"out": c["y" if c.kind == "forward" else "dx"], **c.options}
    x: Any = c.tensor("x")
    y: Any = c.tensor("y")
    if c.kind == "backward":  # it does not read what is no port, for example x and y of averages
        x, y = c.unread("x") if x is None else x, c["dy"] if y is None else y
    if "size" in c.attributes:
        if c.kind == "backward":
            dnn.adaptive_pool_backward(c["dy"], x, y, **kind, **options)
        else:
            dnn.adaptive_pool_forward(x, c.integers("size", 1), **kind, **options)
        return None
    window = c.integers("window", 1)
    options |= {"stride": c.integers("stride", 0) or None, "dilation": c.integers("dilation", 1)}
    options |= {"padding": c.sides(), "ceil_mode": "ceil" in words}
    if c.kind == "backward":
        dnn.pool_backward(c["dy"], x, y, window, indices=c.tensor("indices"), **kind, **options)
    elif "indices" in c.attributes:
        indices: Any = _DTYPES[c.attributes["indices"]]
        return {"indices": dnn.pool_forward_with_indices(x, window, index_dtype=indices, **options)[1]}
    else:
        dnn.pool_forward(x, window, **kind, **options)
    return None


def _random(c: RecordedCall) -> None:
    if c.kind == "dropout":
        dnn.dropout_forward(c["x"], 0.5, seed=0, out=c["y"], **c.options)
    else:
        fill = {"uniform": _C.fill_uniform, "normal": _C.fill_normal}[c.kind]
        fill(c["y"], 0, 0, 0.0, 1.0, c.algo, c.handle)


def _reduce(c: RecordedCall) -> None:
    axes = c.attributes["axes"]
    mode: Any = c.kind
    dnn.reduce(c["x"], mode, axis=() if axes == "none" else c.integers("axes", 0), out=c["y"], **c.options)


def _rnn(c: RecordedCall) -> Results:
    layers, bidirectional, bias = (
        int(c.attributes.get("layers", "1")),
        "bidirectional" in c.words,
        "no_bias" not in c.words,
    )
    names = [
        f"{name}_l{layer}{direction}"
        for layer in range(layers)
        for direction in ("", "_reverse")[: 1 + bidirectional]
        for name in ("w_ih", "w_hh", "b_ih", "b_hh")[: 4 if bias else 2]
    ]
    batch = int(c.attributes["batch"]) if "batch" in c.attributes else None
    options: dict[str, Any] = {"mode": c.attributes["mode"], "hidden_size": int(c.attributes["hidden"]), **c.options}
    options |= {"layers": layers, "bidirectional": bidirectional, "bias": bias, "batch": batch}
    options |= {name: c.tensor(name) for name in ("lengths", "batch_sizes")}
    options |= {"reset_after": "reset_before" not in c.words, "dropout": 0.5 if "dropout" in c.words else 0.0}
    if c.kind == "backward_weights":
        gradients = [c[f"d{name}"] for name in names]
        given = (c["x"], c.tensor("h0"), c["y"], c["dgates"], c["reserve"])
        dnn.rnn_backward_weights(*given, accumulate="accumulate" in c.words, out=gradients, **options)
        return {}
    weights = [c[name] for name in names]
    options |= {"h0": c.tensor("h0"), "c0": c.tensor("c0"), "clip": 1.0 if "clip" in c.words else None}
    results: tuple[DeviceTensor | None, ...]
    if c.kind == "forward":
        results = dnn.rnn_forward(c["x"], weights, training="training" in c.words, out=c["y"], **options)[1:]
        made = zip(("hn", "cn", "reserve"), results, strict=True)
    else:
        states = (c.tensor("dhn"), c.tensor("dcn"))
        results = dnn.rnn_backward_data(c["dy"], *states, c["y"], weights, c["reserve"], out=c["dx"], **options)[1:]
        made = zip(("dh0", "dc0", "dgates"), results, strict=True)
    return {name: tensor for name, tensor in made if tensor is not None}


def _softmax(c: RecordedCall) -> None:
    options: dict[str, Any] = {"axis": int(c.attributes["axis"]), "log": "log" in c.words, **c.options}
    options |= {"scale": 2.0 if "scaled" in c.words else 1.0}
    if c.kind == "forward":
        dnn.softmax_forward(c["x"], mask=c.tensor("mask"), out=c["y"], **options)
    else:
        dnn.softmax_backward(c["dy"], c["y"], out=c["dx"], **options)


def _transform(c: RecordedCall) -> None:
    alpha, beta = {"copy": (1.0, 0.0), "scale": (2.0, 0.0), "accumulate": (2.0, 1.0)}[c.kind]
    dnn.transform(c["x"], alpha=alpha, beta=beta, out=c["y"], **c.options)


_CALLS: dict[str, Callable[[RecordedCall], Any]] = {
    "activation": _activation, "attention": _attention, "batch_norm": _batch_norm, "conv": _conv, "ctc": _ctc,
    "gather": _gather, "layer_norm": _layer_norm, "loss": _loss, "lrn": _lrn, "matmul": _matmul, "pad": _pad,
    "pointwise": _pointwise, "pooling": _pooling, "random": _random, "reduce": _reduce, "rnn": _rnn,
    "softmax": _softmax,
    "transform": _transform,
}  # fmt: skip
