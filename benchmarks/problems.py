# SPDX-License-Identifier: Apache-2.0
"""A case line as calls on random tensors of torch: ours, and those of torch.

    problem = Problem("conv forward f32 x=8x64x28x28:nhwc w=64x64x3x3 pad=1", "cpu")
    problem.ours()                     # the public function, with the arguments that Graph.load would pass
    problem.theirs()["nhwc"]()         # torch's calls, by the layout of its images; torch_calls.py

Sequences have their full lengths, because torch has no other form of them without a copy.
"""

from __future__ import annotations

import math
import unittest.mock
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from case_line import DTYPES, Case, Operand, parse
from runner import as_list
from torch_calls import Call, Tensors, torch_call

import pyminidnn as dnn
from pyminidnn import graph_calls

# Functions of images. A user of torch keeps the images of a network in NCHW or NHWC, whichever is faster.
OF_IMAGES = ("conv", "pooling", "batch_norm", "lrn")
ORDERS = {"nchw": {n: torch.contiguous_format for n in (3, 4, 5)},
          "nhwc": {4: torch.channels_last, 5: torch.channels_last_3d}}  # fmt: skip
OUTPUTS = torch.empty(0, 0, 0, 0, device="meta")  # stands for a tensor that our call makes
GATES = {"lstm": 4, "gru": 3}


def dtype_of(name: str) -> torch.dtype:
    return getattr(torch, DTYPES.get(name, name))  # type: ignore[no-any-return]


def filled(shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Normal numbers, or small integers."""
    if dtype.is_floating_point:
        return torch.empty(shape, dtype=dtype, device=device).normal_()
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape, device=device).to(dtype)


def empty(operand: Operand, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor with the layout or the strides of an operand."""
    if operand.strides is not None:
        reach = sum(s * max(n - 1, 0) for s, n in zip(operand.strides, operand.shape, strict=True)) + 1
        return torch.empty(reach, dtype=dtype, device=device).as_strided(operand.shape, operand.strides)
    if operand.layout == "contiguous":
        return torch.empty(operand.shape, dtype=dtype, device=device)
    n, c, *spatial = operand.shape
    return torch.empty((n, *spatial, c), dtype=dtype, device=device).movedim(-1, 1)


def distinct(t: torch.Tensor) -> torch.Tensor:
    """The elements that are not repeated along a dimension of stride 0."""
    return t.as_strided([1 if s == 0 else n for n, s in zip(t.shape, t.stride(), strict=True)], t.stride())


class Refused(Exception):
    """Torch has the function, but does not take the problem."""


class Problem:
    def __init__(self, line: str, device: str) -> None:
        self.case, self.device = parse(line), device
        self.dtype = dtype_of(self.case.dtype)
        self.acc = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.handle = dnn.Handle(device, math="ieee" if "math=ieee" in line.split() else "tf32")
        torch.manual_seed(0)
        self.tensors: Tensors = {}
        for name, operand in self.case.operands.items():
            if name not in ("dx", "dw", "out", "index", "targets", "target", "keep", "bias"):
                added = name in ("c", "residual")  # has the dtype of the result
                self.tensors[name] = self.operand(name, operand.shape, dtype_of(self.case.out_dtype) if added else None)
        if add := _OPERANDS.get(self.case.family):
            add(self)
        if "out" in self.case.operands:
            self.tensors["out"] = empty(self.case.operands["out"], dtype_of(self.case.out_dtype), device)

    # ---- Operands

    def operand(self, name: str, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        """Random elements in the layout of an operand of the line. Along dimensions of stride 0, elements are equal."""
        t = empty(self.case.operand(name, tuple(shape)), dtype or self.dtype, self.device)
        memory = distinct(t)
        memory.copy_(filled(memory.shape, t.dtype, self.device))
        return t

    def values(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        return filled(shape, dtype or self.acc, self.device)

    def integers(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.as_tensor(values, device=self.device).to(dtype)

    def forward(self, names: Sequence[str], direction: str, *more: str) -> None:
        """Adds the results of our forward call of the same problem as operands."""
        words = [w for w in self.case.text.split(" ") if w not in ("bias_gradient", "accumulate")]
        case = parse(" ".join([words[0], direction, *words[2:], *more]))
        results = as_list(self.call(replace(case, operands=self.case.operands))())
        found = zip(names, (r for r in flat(results) if r is not None), strict=False)
        self.tensors |= {name: torch.from_dlpack(r) for name, r in found}

    # ---- Calls

    @cached_property
    def ours(self) -> Callable[..., Any]:
        if not {"to", "out"} & {*self.case.attributes, *self.case.operands}:
            return self.call(self.case)
        out = self.tensors.get("out")
        if out is None:
            added = self.tensors.get("c", self.tensors.get("residual"))
            y = torch.from_dlpack(as_list(self.call(self.case)())[0]) if added is None else added
            out = torch.empty_strided(y.shape, y.stride(), dtype=dtype_of(self.case.out_dtype), device=y.device)
        return self.call(self.case, out=dnn.from_dlpack(out))

    def call(self, case: Case, **more: Any) -> Callable[..., Any]:
        """The public function with its arguments and `more`. pyminidnn.graph_calls makes them from the text of a
        problem; here its last call is kept."""
        if case.family == "random" and case.direction != "dropout":
            y = case.operands["y"]
            f = dnn.random_uniform if case.direction == "uniform" else dnn.random_normal
            return partial(f, y.shape, seed=0, dtype=case.dtype, device=self.device, handle=self.handle)
        made: list[Callable[..., Any]] = []
        given = {n: dnn.from_dlpack(t) for n, t in self.tensors.items()}
        unread = {n: torch.empty(o.shape, device="meta") for n, o in case.operands.items() if n not in given}
        if case.family == "gather":  # a gradient has the shape of x
            unread["dx"] = unread.get("x", OUTPUTS)

        class Kept:
            """The public functions."""

            def __getattr__(self, name: str) -> Any:
                def call(*arguments: Any, out: Any = None, **keywords: Any) -> Any:
                    if out is not None and all(isinstance(o, dnn.DeviceTensor) for o in as_list(out)):
                        keywords["out"] = out
                    made.append(partial(getattr(dnn, name), *arguments, **keywords, **more))
                    return made[-1]()

                return call

        class Call(graph_calls.RecordedCall):
            def __getitem__(self, port: str) -> Any:
                return given.get(port, unread.get(port, OUTPUTS))

        with unittest.mock.patch.object(graph_calls, "dnn", Kept()):
            Call(case.text, given.get, None, self.handle).make()
        return made[-1]

    def theirs(self) -> dict[str, Call]:
        """Torch's calls by the order of their images, none if torch has no such function: as in the line, and where it
        is a function of images in the other order, too. Raises what torch raises if it refuses all of them."""
        given, found, refusals = next(iter(self.tensors.values())), {}, []
        for order, formats in {"": {}, **(ORDERS if self.case.family in OF_IMAGES else {})}.items():
            memory = formats.get(given.ndim)
            if order and (memory is None or given.is_contiguous(memory_format=memory)):
                continue
            tensors = {n: t.contiguous(memory_format=memory) if memory and t.ndim == given.ndim else t
                       for n, t in self.tensors.items()}  # fmt: skip
            try:
                call = torch_call(self.case, tensors)
                if call is not None:
                    call()
                    found[order] = call
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                refusals.append(error)
        if refusals and not found:
            raise Refused(str(refusals[0]).partition("\n")[0])
        return found

    @property
    def terms(self) -> float:
        """At least the terms of the longest sum of a result."""
        return max((t.numel() for t in self.tensors.values()), default=1)


def flat(results: Sequence[Any]) -> list[Any]:
    return [r for result in results for r in (flat(result) if isinstance(result, (list, tuple)) else [result])]


# ---- The operands that a line does not name


def _activation(p: Problem) -> None:
    if p.case.direction == "backward":
        p.tensors["dy"] = p.operand("dy", p.tensors["x"].shape)


def _attention(p: Problem) -> None:
    t, given, words = p.tensors, p.case.attributes, p.case.words
    (batch, heads, rows, size), columns = t["q"].shape, t["k"].shape[2]
    t["q"].mul_(size**-0.5)  # because the call of graph_calls.py has the scale 1
    if "bias" in given:
        t["bias"] = p.operand("bias", p.case.operands["bias"].shape, dtype_of(given["bias"]))
        if t["bias"].dtype == torch.bool:
            t["bias"][..., 0] = True
    if "alibi" in given:
        t["alibi"] = p.values([int(n) for n in given["alibi"].split("x")]).abs_()
    if "sink" in words:
        t["sink"] = p.values([heads])
    for name, most in (("q_lengths", rows), ("kv_lengths", columns)):
        if name in words:
            t[name] = p.integers([most] * batch)
    if "pages" in given:
        count, of_sequence = map(int, given["pages"].split("x"))
        t["pages"] = p.integers(torch.arange(count * of_sequence).view(count, of_sequence) % len(t["k"]))
        columns *= of_sequence
    if p.case.direction == "decode":
        t["lengths"] = p.integers([columns] * batch)
    if "packed" in given:
        packed = int(given["packed"])
        for name, total in (("cu_q", rows), ("cu_kv", columns)):
            t[name] = p.integers([i * total // packed for i in range(packed + 1)])
    if p.case.direction == "backward":
        p.forward(("o", "lse"), "forward")
        if "packed" in given:
            t["o"] = t["o"].movedim(0, 1).unsqueeze(0)
        t["do"] = torch.empty_like(t["o"]).normal_()


def _batch_norm(p: Problem) -> None:
    t, x, words = p.tensors, p.tensors["x"], p.case.words
    shape = x.shape[1:] if "per_activation" in words else x.shape[1:2]
    t |= {name: p.values(shape).abs_().add_(0.5) for name in ("scale", "bias")}
    if p.case.direction == "inference":
        t |= {"mean": p.values(shape), "var": p.values(shape).abs_().add_(0.5)}
    if "running" in words:
        t |= {"running_mean": p.values(shape), "running_var": p.values(shape).abs_().add_(0.5)}
    if p.case.direction == "backward":
        dims = (0,) if "per_activation" in words else (0, *range(2, x.ndim))
        var, mean = torch.var_mean(x.to(p.acc), dims, correction=0)
        t |= {"dy": p.operand("dy", x.shape), "saved_mean": mean, "saved_inv_std": (var + 1e-5).rsqrt()}
        if "relu" in words:
            t["y"] = p.operand("y", x.shape).relu_()
    elif "add" in words:
        t["residual"] = p.operand("residual", x.shape)


def _conv(p: Problem) -> None:
    if "bias" in p.case.words:
        p.tensors["bias"] = p.values(p.tensors["w"].shape[:1], p.dtype)


def _ctc(p: Problem) -> None:
    steps, batch, classes = p.tensors["x"].shape
    shape = p.case.operands["targets"].shape
    if "logits" not in p.case.words:
        p.tensors["x"].copy_(p.tensors["x"].to(p.acc).log_softmax(2))
    longest = shape[1] if len(shape) == 2 else shape[0] // batch
    labels = torch.randint(1, max(classes, 2), shape)
    labels = (labels + int(p.case.attributes.get("blank", 0))) % classes
    lengths = [min(longest, steps // 2) if len(shape) == 2 else longest] * batch
    for name, word, values in (("targets", "labels", labels), ("input_lengths", "input_lengths", [steps] * batch),
                               ("target_lengths", "target_lengths", lengths)):  # fmt: skip
        p.tensors[name] = p.integers(values, dtype_of(p.case.attributes.get(word, "i64")))
    if p.case.direction == "backward":
        p.forward(("loss", "alpha", "exponents", "lse"), "forward")
        p.tensors["dloss"] = torch.ones_like(p.tensors.pop("loss"))


def _gather(p: Problem) -> None:
    axis, index = int(p.case.attributes["axis"]), p.case.operands["index"].shape
    x = p.case.operands["x"].shape
    rows = torch.randint(0, x[axis], index)
    p.tensors["index"] = p.integers(rows, dtype_of(p.case.attributes.get("indices", "i64")))
    if p.case.direction == "backward":
        del p.tensors["x"]  # the line has it for its shape
        p.tensors["dy"] = p.values((*x[:axis], *index, *x[axis + 1 :]), p.dtype)


def _layer_norm(p: Problem) -> None:
    kind, _, direction = p.case.direction.partition("_")
    x = p.tensors["x"]
    shape = x.shape[1:2] if kind == "group" else x.shape[int(p.case.attributes["axis"]) :]
    p.tensors["scale"] = p.values(shape).abs_().add_(0.5)
    if kind != "rms":
        p.tensors["bias"] = p.values(shape)
    if direction == "backward":
        p.forward(("y", "inv_std") if kind == "rms" else ("y", "mean", "inv_std"), f"{kind}_forward")
        del p.tensors["y"]
        p.tensors["dy"] = p.operand("dy", x.shape)


def _loss(p: Problem) -> None:
    x = p.tensors["x"]
    classes = dtype_of(p.case.attributes.get("classes", "i64"))
    p.tensors["target"] = p.integers(torch.randint(0, x.shape[1], (x.shape[0], *x.shape[2:])), classes)
    if p.case.direction == "backward":
        p.forward(("loss", "lse"), "forward")
        p.tensors["dy"] = torch.ones_like(p.tensors.pop("loss"))


def _lrn(p: Problem) -> None:
    if p.case.direction.endswith("backward"):
        p.tensors["dy"] = p.operand("dy", p.tensors["x"].shape)


def _matmul(p: Problem) -> None:
    if "bias" in p.case.words:
        p.tensors["bias"] = p.values(p.tensors["b"].shape[-1:], p.dtype)


def _pointwise(p: Problem) -> None:
    if p.case.direction == "sqrt":
        p.tensors["a"].abs_()
    if p.case.direction == "div":  # quotients that are no infinities
        distinct(p.tensors["b"]).abs_().add_(1)


def _pooling(p: Problem) -> None:
    if p.case.direction == "backward":
        p.forward(("y", "indices"), "forward")
        p.tensors["dy"] = torch.empty_like(p.tensors["y"]).normal_()


def _rnn(p: Problem) -> None:
    t, given, words = p.tensors, p.case.attributes, p.case.words
    hidden, layers = int(given["hidden"]), int(given.get("layers", 1))
    both, bias, x = "bidirectional" in words, "no_bias" not in words, t["x"]
    batch = int(given["batch"]) if "batch" in given else x.shape[1]
    gates = GATES.get(given["mode"], 1) * hidden
    for layer in range(layers):
        for end in ("", "_reverse")[: 1 + both]:
            shapes = {"w_ih": (gates, (1 + both) * hidden if layer else x.shape[-1]), "w_hh": (gates, hidden)}
            shapes |= {"b_ih": (gates,), "b_hh": (gates,)} if bias else {}
            t |= {f"{n}_l{layer}{end}": p.values(s, p.dtype).div_(math.sqrt(hidden)) for n, s in shapes.items()}
    weights = {f"d{n}": torch.zeros_like(w) for n, w in t.items() if n != "x"}
    states = ("h0", "c0", "dhn", "dcn")
    t |= {n: p.values((layers * (1 + both), batch, hidden), p.dtype) for n in states if n in words}
    if "lengths" in words:
        t["lengths"] = p.integers([x.shape[0]] * batch)
    if "batch" in given:
        t["batch_sizes"] = p.integers(batch_sizes(x.shape[0], int(given["steps"]), batch))
    if p.case.direction != "forward":
        p.forward(("y", "hn", *(["cn"] if given["mode"] == "lstm" else []), "reserve"), "forward", "training")
        del t["hn"]
        t.pop("cn", None)
        t["dy"] = torch.empty_like(t["y"]).normal_()
    if p.case.direction == "backward_weights":
        words = [w for w in p.case.text.split(" ") if w != "accumulate"]
        data = parse(" ".join([words[0], "backward_data", *words[2:]]))
        results = flat(as_list(p.call(data)()))
        t["dgates"] = torch.from_dlpack([r for r in results if r is not None][-1])
        t |= weights if "accumulate" in p.case.words else {}


def batch_sizes(rows: int, steps: int, batch: int) -> list[int]:
    """Sizes that do not grow, the first of them `batch`, with `rows` as their sum if they can have it."""
    sizes, left = [batch], rows - batch
    for step in range(1, steps):
        sizes.append(max(1, min(sizes[-1], left - (steps - 1 - step), -(-left // (steps - step)))))
        left -= sizes[-1]
    return sizes


def _softmax(p: Problem) -> None:
    axis, log = int(p.case.attributes["axis"]), "log" in p.case.words
    if p.case.direction == "backward":
        y = p.tensors["y"]
        y.copy_(y.to(p.acc).log_softmax(axis) if log else y.to(p.acc).softmax(axis))
        p.tensors["dy"] = p.operand("dy", y.shape)
    for name in {"keep", "mask"} & set(p.case.operands):
        t = p.operand(name, p.case.operands[name].shape, torch.bool if name == "keep" else p.dtype)
        if name == "keep":
            t.select(axis, 0).fill_(True)
        p.tensors["mask"] = t


_OPERANDS: dict[str, Callable[[Problem], None]] = {
    "activation": _activation, "attention": _attention, "batch_norm": _batch_norm, "conv": _conv, "ctc": _ctc,
    "gather": _gather, "layer_norm": _layer_norm, "loss": _loss, "lrn": _lrn, "matmul": _matmul,
    "pointwise": _pointwise, "pooling": _pooling, "rnn": _rnn, "softmax": _softmax,
}  # fmt: skip
