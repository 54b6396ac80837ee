# SPDX-License-Identifier: Apache-2.0
"""Problems of attention for the tests: operands and options, their results by the oracle with tolerances, and the samples
of case lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import reference
from cases import DTYPES as SHORT
from cases import Case, Operand, generator
from reference import EPS, SUBNORMAL
from reference.attention import add_heads, part, summed
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}  # for each accumulator, the smallest normal number
TF32 = 2.0**-10  # relative error of a TF32 product
INTEGERS = ("q_lengths", "kv_lengths", "cu_q", "cu_kv", "lengths", "pages")
OPTIONAL = ("bias", "alibi", "sink", *INTEGERS)  # the options that are tensors
Arrays = dict[str, np.ndarray]


# ---- Tolerances. They are twice the rounding errors of an engine that has P, dS and the results in the dtype, and
# scores, sums and lse in the accumulator. Errors of different columns are independent, so they add up like a random walk.
# A sum below the normal numbers of the accumulator may become 0 after each addition, as in the products of AMX.


def score_error(s: Any, each: np.ndarray, acc: str, tf32: bool) -> np.ndarray:
    """The error of score - each, where `each` is the maximum or lse of a row: the relative error of exp()."""
    products = np.abs(s.scale) * (np.abs(s.q) @ np.abs(s.k).swapaxes(1, 2))
    t = np.abs(np.where(np.isfinite(s.scores), s.scores, 0))
    each = np.abs(np.where(np.isfinite(each), each, 0))[..., None]
    size = np.sqrt(s.q.shape[-1] + 4) * products + 4 * (t + np.abs(s.capped) + each) + 8
    return EPS[acc] * size + tf32 * TF32 * products


def rounding(x: np.ndarray, dtype: str) -> np.ndarray:
    """The error of numbers that are rounded to the dtype. Those below the normal ones of the accumulator may become 0."""
    return EPS[dtype] * np.abs(x) + max(SUBNORMAL[dtype], NORMAL[reference.accumulator(dtype)]) * (x != 0)


def walk(errors: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """The error of sums of products, in which one factor of each product has an independent error."""
    return 2 * np.sqrt(errors**2 @ factors**2)


def forward_results(dtype: str, arrays: Arrays, options: dict[str, Any], tf32: bool) -> list[Result]:
    """o and lse, from the oracle."""
    acc, layout = reference.accumulator(dtype), options.get("layout", "bhsd")
    q, k, v = (arrays[n] for n in "qkv")
    o, lse = reference.attention_forward(q, k, v, **options)
    o_error, lse_error = np.zeros(o.shape), np.zeros(lse.shape)
    packed = options.get("cu_q") is not None
    o_rows = o_error.swapaxes(1, 2) if layout == "bshd" and not packed else o_error
    lse_rows = lse_error.T if packed else lse_error
    for s in reference.attention_sequences(q, k, v, **options):
        p, each = s.softmax()
        n = s.k.shape[1] + 4
        error = score_error(s, each, acc, tf32)
        lse_of = (p * error).sum(-1) + EPS[acc] * (np.sqrt(n) + 2 * np.abs(np.where(np.isfinite(each), each, 0)))
        part(lse_rows, s.rows)[...] = lse_of
        kept = p if s.kept is None else p * s.kept
        size, value = kept @ np.abs(s.v), np.abs(kept @ s.v)
        found = walk(rounding(kept, dtype), s.v) + (kept * error) @ np.abs(s.v) + lse_of[..., None] * value
        found += (EPS[acc] * np.sqrt(n) + tf32 * TF32) * size + EPS[dtype] * value + NORMAL[acc] * n
        part(o_rows, s.rows)[...] = found
    return [Result(o, o_error), Result(lse, lse_error)]


def gradient_errors(
    s: Any, rows: Sequence[np.ndarray], dtype: str, softcap: float, tf32: bool, group: int
) -> dict[str, np.ndarray]:
    """The errors of the gradients of one sequence, for `rows` of do, o and lse. The errors of k and v are those of each
    head of q. Their roundings of P and dS are apart, because heads add them like a random walk."""
    g, out, lse = rows
    acc = reference.accumulator(dtype)
    p, kept, error = s.probability(lse), 1.0 if s.kept is None else s.kept, score_error(s, lse, acc, tf32)
    dp, dp_size = kept * (g @ s.v.swapaxes(1, 2)), kept * (np.abs(g) @ np.abs(s.v).swapaxes(1, 2))
    total, total_size = (part.sum(-1)[..., None] for part in (g * out, np.abs(g * out)))
    width = np.sqrt(s.v.shape[-1] + 4)
    dz, slope = p * (dp - total), 1 - (s.capped / softcap) ** 2 if softcap else np.ones_like(p)
    of_dz = np.abs(dz) * error + p * (
        EPS[acc] * (width * (dp_size + total_size) + 2 * np.abs(dp)) + tf32 * TF32 * dp_size
    )
    of_dz += NORMAL[acc] * (np.abs(dp) + np.abs(total))
    ds, of_ds = dz * slope, of_dz * slope + np.abs(dz) * (4 * EPS[acc] + (error if softcap else 0))
    along_k, along_q = (EPS[acc] * np.sqrt(n + 4) + tf32 * TF32 for n in (s.k.shape[1], s.q.shape[1] * group))
    ds_t, of_ds_t, pk = ds.swapaxes(1, 2), of_ds.swapaxes(1, 2), (p * kept).swapaxes(1, 2)
    scale, (lost_q, lost_k) = np.abs(s.scale), (NORMAL[acc] * n for n in s.scores.shape[1:])
    found = {
        "dq": scale * (walk(rounding(ds, dtype), s.k) + (of_ds + along_k * np.abs(ds)) @ np.abs(s.k) + lost_k),
        "dk": scale * ((of_ds_t + along_q * np.abs(ds_t)) @ np.abs(s.q) + lost_q),
        "dk rounding": scale * walk(rounding(ds_t, dtype), s.q),
        "dv": (pk * (error.swapaxes(1, 2) + along_q)) @ np.abs(g) + lost_q,
        "dv rounding": walk(rounding(pk, dtype), g),
        "dz": of_dz,
        "size of dz": np.abs(dz),
    }
    if s.sink is not None:
        finite = np.abs(np.where(np.isfinite(lse), lse, 0))
        relative = EPS[acc] * (4 * (np.abs(s.sink) + finite) + 8 + np.sqrt(s.q.shape[1]))
        each = np.abs(total[..., 0]) * relative + EPS[acc] * width * total_size[..., 0]
        found["dsink"] = (s.sink_probability(lse) * each).sum(-1)
    return found


def backward_results(dtype: str, arrays: Arrays, options: dict[str, Any], tf32: bool, bias_dtype: str) -> list[Result]:
    """dq, dk, dv, and dbias and dsink if the call has them."""
    acc, layout = reference.accumulator(dtype), options.get("layout", "bhsd")
    do, q, k, v, o, lse = (arrays[n] for n in ("do", "q", "k", "v", "o", "lse"))
    want = reference.attention_backward(do, q, k, v, o, lse, **options)
    bias_gradient = options.pop("bias_gradient", False)
    packed = options.get("cu_q") is not None
    bhsd = packed or layout == "bhsd"
    do, o = (a if bhsd else a.swapaxes(1, 2) for a in (do, o))
    lse = lse.T if packed else lse
    errors = [np.zeros(a.shape) for a in want]
    dq, dk, dv = (a if bhsd else a.swapaxes(1, 2) for a in errors[:3])
    squares = {"dk": np.zeros(dk.shape), "dv": np.zeros(dv.shape)}  # of the errors of roundings
    heads, sizes = dq.shape[1], (options["max_q"], options["max_kv"]) if packed else (dq.shape[2], dk.shape[2])
    sequences = reference.attention_sequences(q, k, v, **options)
    of_dz, size_of_dz = (np.zeros((len(sequences), heads, *sizes)) for _ in range(2))
    for s in sequences:
        rows = [part(a, s.rows) for a in (do, o, lse)]
        found = gradient_errors(s, rows, dtype, options.get("softcap", 0.0), tf32, heads // max(dk.shape[1], 1))
        part(dq, s.rows)[...] = found["dq"]
        for name, error in (("dk", dk), ("dv", dv)):
            add_heads(part(error, s.columns), found[name])
            add_heads(part(squares[name], s.columns), found[f"{name} rounding"] ** 2)
        m, n = s.scores.shape[1:]
        of_dz[s.number, :, :m, :n], size_of_dz[s.number, :, :m, :n] = found["dz"], found["size of dz"]
        if s.sink is not None:
            errors[-1] += found["dsink"]
    dk += np.sqrt(squares["dk"])
    dv += np.sqrt(squares["dv"])
    if bias_gradient:
        own = np.shape(options["bias"])
        terms = EPS[acc] * np.sqrt(of_dz.size / max(int(np.prod(own)), 1))
        errors[3] = summed(of_dz, own) + terms * summed(size_of_dz, own)
    dtypes = [dtype] * 3 + [bias_dtype] * bias_gradient + [acc] * ("sink" in options)
    return [Result(w, e + EPS[t] * np.abs(w)) for w, e, t in zip(want, errors, dtypes, strict=True)]


# ---- A call: its arrays in the form of the public function, and its numbers


@dataclass
class Problem:
    """`arrays` are q, k, v (in decode, k and v are the caches), in backward also do, o and lse, and the options that
    are tensors. `numbers` are the other options."""

    direction: str
    dtype: str
    arrays: Arrays
    numbers: dict[str, Any]
    bias_dtype: str = "float32"

    def oracle_options(self) -> dict[str, Any]:
        options = {n: a for n, a in self.arrays.items() if n in OPTIONAL} | self.numbers
        p, seed, offset = (options.pop(n, 0) for n in ("dropout", "seed", "offset"))
        if self.direction == "decode":
            options |= {"kv_lengths": options.pop("lengths"), "align": "bottom_right"}
            options |= {"window": (options.get("window"), 0), "layout": options.get("layout", "bshd")}
            options.pop("pages", None)
        if p:
            keep = reference.attention_keep(self.scores_shape(), p, seed=seed, offset=offset)
            options |= {"dropout": p, "keep": keep}
        return options

    def scores_shape(self) -> tuple[int, ...]:
        """[B, H, Sq, Sk]."""
        q, k = self.arrays["q"].shape, self.arrays["k"].shape
        if "cu_q" in self.arrays:
            return (len(self.arrays["cu_q"]) - 1, q[1], self.numbers["max_q"], self.numbers["max_kv"])
        rows = 1 if self.numbers.get("layout") == "bshd" else 2
        return (q[0], q[3 - rows], q[rows], k[rows])

    def results(self, tf32: bool = False) -> list[Result]:
        tf32, options = tf32 and self.dtype == "float32", self.oracle_options()
        if self.direction == "backward":
            return backward_results(self.dtype, self.arrays, options, tf32, self.bias_dtype)
        arrays = dict(self.arrays)
        if self.direction == "decode":
            arrays |= {n: reference.attention_cache(arrays[n], arrays.get("pages"), options["layout"]) for n in "kv"}
        return forward_results(self.dtype, arrays, options, tf32)

    def dtypes(self) -> dict[str, str]:
        acc = reference.accumulator(self.dtype)
        bias = "bool" if self.arrays.get("bias", np.zeros(0)).dtype == bool else self.bias_dtype
        return {"alibi": acc, "sink": acc, "lse": acc, "bias": bias} | dict.fromkeys(INTEGERS, "int32")

    def tensors(self, device: str) -> dict[str, dnn.DeviceTensor]:
        dtypes = self.dtypes()
        return {n: tensor(a, dtypes.get(n, self.dtype), device) for n, a in self.arrays.items()}

    def call(self, t: dict[str, dnn.DeviceTensor], **more: Any) -> Sequence[dnn.DeviceTensor]:
        options = {n: t[n] for n in OPTIONAL if n in t} | self.numbers | more
        if self.direction == "backward":
            return dnn.attention_backward(*(t[n] for n in ("do", "q", "k", "v", "o", "lse")), **options)
        function = dnn.attention_decode if self.direction == "decode" else dnn.attention_forward
        return function(t["q"], t["k"], t["v"], **options)

    def engines(self, t: dict[str, dnn.DeviceTensor], **more: Any) -> list[str]:
        """The engines that run the call. An empty result has none."""
        reports = [r for r in dnn.explain(self.call, t, **more) if r.problem.startswith("attention ")]
        return [e.name for r in reports for e in r.engines if not e.why_not]

    def check(self, device: str, only: Callable[[str], bool] = bool) -> dict[str, list[np.ndarray]]:
        """Compares every engine, or those whose name passes `only`, with the oracle. Returns the results of each."""
        t, results, found = self.tensors(device), self.results(), {}
        for engine in filter(only, self.engines(t)):
            outputs = self.call(t, algo=engine)
            for got, want in zip(outputs, results, strict=True):
                assert_close(got, want, f"{engine} {self.direction}")
            found[engine] = [values_of(got) for got in outputs]
        return found

    def backward(self, bias_gradient: bool = False, seed: int = 0) -> Problem:
        """The backward call of a forward call, for a random gradient of o."""
        q, k, v = (self.arrays[n] for n in "qkv")
        o, lse = reference.attention_forward(q, k, v, **self.oracle_options())
        do = reference.rounded(np.random.default_rng(seed).normal(size=o.shape), self.dtype)
        acc = reference.accumulator(self.dtype)
        given = {"do": do, "o": reference.rounded(o, self.dtype), "lse": reference.rounded(lse, acc)}
        numbers = self.numbers | ({"bias_gradient": True} if bias_gradient else {})
        return Problem("backward", self.dtype, self.arrays | given, numbers, self.bias_dtype)


def problem(
    dtype: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...] | None = None,
    *,
    direction: str = "forward",
    bias_dtype: str = "",
    **options: Any,
) -> Problem:
    """A forward or decode call with random q, k and v. Options that are arrays are rounded to their dtype."""
    rng = np.random.default_rng([*q, *k])
    arrays = {n: reference.rounded(rng.normal(size=s), dtype) for n, s in (("q", q), ("k", k), ("v", v or k))}
    acc, bias_dtype = reference.accumulator(dtype), bias_dtype or reference.accumulator(dtype)
    numbers = {}
    for name, value in options.items():
        if name not in OPTIONAL:
            numbers[name] = value
        elif name in INTEGERS or np.asarray(value).dtype == bool:
            arrays[name] = np.asarray(value)
        else:
            arrays[name] = reference.rounded(value, bias_dtype if name == "bias" else acc)
    return Problem(direction, dtype, arrays, numbers, bias_dtype)


# ---- The samples of case lines


def sample(case: Case) -> Sample:
    """The tensors of a case line are [B, H, S, D]. The call gets them packed, or in one of the two layouts."""
    rng = generator(case)
    arrays = {n: normal(case, rng, n) for n in "qkv"}
    packed, decode = "packed" in case.attributes, case.direction == "decode"
    numbers, options, dtypes = options_of(case, rng, arrays)
    if packed:
        public = lambda a: a.transpose(0, 2, 1, 3)[0]
        shown = lambda t: t.permute((0, 2, 1, 3)).squeeze(0)
    elif rng.random() < 0.3:
        numbers["layout"] = "bshd"
        public, shown = (lambda a: a.swapaxes(1, 2)), (lambda t: t.permute((0, 2, 1, 3)))
    else:
        numbers |= {"layout": "bhsd"} if decode else {}
        public = shown = lambda a: a
    forward = Problem("decode" if decode else "forward", case.dtype, {n: public(a) for n, a in arrays.items()} | options,
                      numbers, dtypes.get("bias", "float32"))  # fmt: skip
    made = forward
    if case.direction == "backward":
        made = forward.backward("bias_gradient" in case.words, seed=int(rng.integers(2**31)))
        own = (lambda a: a.swapaxes(0, 1)[None]) if packed else public  # the way back
        arrays |= {"do": own(made.arrays["do"]), "o": own(made.arrays["o"])}
        options["lse"] = made.arrays["lse"]
    ieee = "math" in case.attributes

    def call(t: dict[str, dnn.DeviceTensor], algo: str, out: None = None) -> Sequence[dnn.DeviceTensor]:
        given = {n: shown(x) if n in arrays else x for n, x in t.items()}
        more: dict[str, Any] = {"algo": algo, "handle": dnn.Handle(device=t["q"].device, math="ieee") if ieee else None}
        if not decode and case.direction == "forward" and "o" in case.operands:
            more["out"] = shown(strided(case.operands["o"], case.dtype, t["q"].device))
        return made.call(given, **more)

    every = forward.dtypes()
    return Sample(arrays | options, call, made.results(not ieee), {n: t for n, t in every.items() if n in options})


def normal(case: Case, rng: np.random.Generator, name: str) -> np.ndarray:
    """Random values for an operand, equal along dimensions of stride 0."""
    operand = case.operands[name]
    strides = operand.strides or operand.shape
    distinct = [1 if s == 0 else n for n, s in zip(operand.shape, strides, strict=True)]
    return np.broadcast_to(reference.rounded(rng.normal(size=distinct), case.dtype), operand.shape)


def strided(operand: Operand, dtype: str, device: str) -> dnn.DeviceTensor:
    strides = operand.strides or tensor(np.zeros(operand.shape), "int8", "cpu", operand).strides
    reach = sum(s * (n - 1) for s, n in zip(strides, operand.shape, strict=True)) + 1
    return dnn.empty((reach,), dtype=dtype, device=device).as_strided(operand.shape, strides, 0)


def options_of(case: Case, rng: np.random.Generator, arrays: Arrays) -> tuple[dict[str, Any], Arrays, dict[str, str]]:
    """The options of a case line: numbers, arrays, and the dtype of the bias."""
    given, words, decode = case.attributes, case.words, case.direction == "decode"
    (batch, heads, rows, _), columns = arrays["q"].shape, arrays["k"].shape[2]
    acc = reference.accumulator(case.dtype)
    left, right = (int(given[n]) if n in given else None for n in ("left", "right"))
    numbers: dict[str, Any] = {"scale": -0.3} if "negative_scale" in words else {}
    options: Arrays = {}
    dtypes = {}
    if decode and left is not None:
        numbers["window"] = left
    elif (left, right) == (None, 0):
        numbers["causal"] = True
    elif left is not None or right is not None:
        numbers["window"] = (left, right)
    if "bottom_right" in words:
        numbers["align"] = "bottom_right"
    if "bias" in given:
        operand = case.operands["bias"]
        dtypes["bias"] = SHORT[given["bias"]]
        distinct = [1 if s == 0 else n for n, s in zip(operand.shape, operand.strides or operand.shape, strict=True)]
        bias = rng.random(distinct) < 0.7 if dtypes["bias"] == "bool" else rng.normal(size=distinct)
        bias = bias if dtypes["bias"] == "bool" else reference.rounded(bias, dtypes["bias"])
        options["bias"] = np.broadcast_to(bias, operand.shape)
    if "alibi" in given:
        options["alibi"] = reference.rounded(rng.random([int(n) for n in given["alibi"].split("x")]) / 4, acc)
    if "softcap" in words:
        numbers["softcap"] = 1.5
    if "sink" in words:
        options["sink"] = reference.rounded(rng.normal(size=heads), acc)
    if "dropout" in words:
        numbers |= {"dropout": 0.25, "seed": int(rng.integers(2**62)), "offset": int(rng.integers(2**40))}
    if "q_lengths" in words:
        options["q_lengths"] = lengths(rng, batch, rows)
    if "kv_lengths" in words:
        options["kv_lengths"] = lengths(rng, batch, columns)
    if "pages" in given:
        shape = [int(n) for n in given["pages"].split("x")]
        options["pages"] = rng.integers(0, len(arrays["k"]), shape)
        columns *= shape[1]
    if decode:
        options["lengths"] = lengths(rng, batch, columns)
    if "packed" in given:
        most = case.integers("max", 0)
        assert isinstance(most, tuple)
        numbers |= dict(zip(("max_q", "max_kv"), most, strict=True))
        options["cu_q"] = ends(rng, int(given["packed"]), rows, most[0])
        options["cu_kv"] = ends(rng, int(given["packed"]), columns, most[1])
    return numbers, options, dtypes


def lengths(rng: np.random.Generator, count: int, most: int) -> np.ndarray:
    """Lengths of sequences. The first is the longest possible, the third is 0."""
    found = rng.integers(0, most + 1, count)
    found[:1] = most
    found[2:3] = 0
    return found


def ends(rng: np.random.Generator, count: int, rows: int, most: int) -> np.ndarray:
    """Where packed sequences end. The first has length `most`, the second is empty, and some rows are in none."""
    found = lengths(rng, count, most)
    found[1:2] = 0
    while found.sum() > rows:
        found[found.argmax()] //= 2
    return int(rng.integers(rows - found.sum() + 1)) + np.cumsum([0, *found])
