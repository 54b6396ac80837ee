# SPDX-License-Identifier: Apache-2.0
"""Problems of recurrent layers for the tests: operands and options, their results by the oracle with tolerances, and the
samples of case lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import reference
from cases import Case, Operand, generator
from reference import EPS, SUBNORMAL
from reference import rnn as oracle
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
MODES = ["relu", "tanh", "lstm", "gru"]
TF32 = 2.0**-10  # relative error of a TF32 product
STATES = ("h0", "c0", "dhn", "dcn")
INTEGERS = ("lengths", "batch_sizes")
Arrays = dict[str, np.ndarray]


# ---- Tolerances. Errors of a step reach all later ones. The oracle computes them: it runs on several copies of each
# sequence, and adds a random error to each number that an engine rounds. The tolerance of an element is six times the
# root mean square of the differences that these errors make: of its own copies, and of all elements of its step.


class Errors(oracle.Exact):
    """Adds errors as large as those of an engine that stores pre, h and dgates in the dtype, has gates of that precision,
    and all else in the dtype of sums."""

    def __init__(self, dtype: str, tf32: bool, rng: np.random.Generator) -> None:
        self.dtype, self.rng, self.tf32 = dtype, rng, TF32 * tf32
        self.own, self.acc = EPS[dtype], EPS[reference.accumulator(dtype)]

    def uniform(self, v: np.ndarray, size: np.ndarray) -> np.ndarray:
        return v + self.rng.uniform(-1, 1, v.shape) * size

    def product(self, a: np.ndarray, w: np.ndarray, b: Any, stored: bool = False) -> np.ndarray:
        v, size = a @ w + b, np.sqrt(a**2 @ w**2 + np.square(b))
        v = v + self.rng.standard_normal(v.shape) * size * (self.acc * np.sqrt(w.shape[0] + 4) + self.tf32)
        return self.stored(v) if stored else v

    def gate(self, v: np.ndarray) -> np.ndarray:
        return self.uniform(v, self.own * np.abs(v) + 4 * self.acc)

    def state(self, v: np.ndarray) -> np.ndarray:
        return self.uniform(v, 4 * self.acc * np.abs(v))

    def stored(self, v: np.ndarray) -> np.ndarray:
        return self.uniform(v, self.own / 2 * np.abs(v) + SUBNORMAL[self.dtype])


class Rounded(oracle.Exact):
    """Rounds as the errors above are: to check that tolerances are those of rounding."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.acc = dtype, reference.accumulator(dtype)

    def product(self, a: np.ndarray, w: np.ndarray, b: Any, stored: bool = False) -> np.ndarray:
        return reference.rounded(a @ w + b, self.dtype if stored else self.acc)

    def gate(self, v: np.ndarray) -> np.ndarray:
        return reference.rounded(v, self.dtype)

    def state(self, v: np.ndarray) -> np.ndarray:
        return reference.rounded(v, self.acc)

    def stored(self, v: np.ndarray) -> np.ndarray:
        return reference.rounded(v, self.dtype)


def allowed(want: np.ndarray, found: np.ndarray, dtype: str, along: tuple[int, ...]) -> np.ndarray:
    """The tolerance. `found` has the results of copies [copies, ...want]; `along`: the dimensions of want whose elements
    have errors of one kind."""
    squares = (found - want) ** 2
    elements = squares.mean(0)
    count = np.maximum((elements > 0).sum(along, keepdims=True), 1)
    return 6 * np.sqrt(elements + elements.sum(along, keepdims=True) / count) + EPS[dtype] * np.abs(want)


def copies_of(batch: int) -> int:
    return int(np.clip(64 // max(batch, 1), 4, 32))


def repeated(a: np.ndarray, copies: int, axis: int) -> np.ndarray:
    """[..., N, ...] as [..., copies N, ...]."""
    return np.concatenate([a] * copies, axis)


def apart(a: np.ndarray, copies: int, axis: int) -> np.ndarray:
    """[..., copies N, ...] as [copies, ..., N, ...]."""
    shape = (*a.shape[:axis], copies, a.shape[axis] // copies, *a.shape[axis + 1 :])
    return np.moveaxis(a.reshape(shape), axis, 0)


# ---- A call


@dataclass
class Problem:
    """`arrays` are the operands of the public function but the weights: x, y, dy, dhn, dcn, h0, c0, dgates, lengths,
    batch_sizes. `saved` is the content of the reserve. `options` are the others, as in the public functions."""

    direction: str
    dtype: str
    arrays: Arrays
    weights: list[np.ndarray]
    options: dict[str, Any]
    inputs: int
    saved: oracle.Saved | None = None
    previous: list[np.ndarray] = field(default_factory=list)  # what `accumulate` adds to

    @property
    def network(self) -> oracle.Network:
        return oracle._network(self.weights, self.options)

    def dense(self) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray], np.ndarray, tuple]:
        any_rows = self.arrays["x"] if "x" in self.arrays else self.arrays["y"]
        given = self.options | {n: self.arrays[n] for n in INTEGERS if n in self.arrays}
        return oracle._dense(given, any_rows)

    def keeps(self) -> list[np.ndarray | None]:
        any_rows = self.arrays["x"] if "x" in self.arrays else self.arrays["y"]
        return oracle._keeps(self.network, self.options, any_rows, self.dense()[0])

    def states(self) -> list[np.ndarray]:
        return oracle._states(self.network, self.dense()[3][1], *(self.arrays.get(n) for n in STATES))

    def forward(self, how: oracle.Exact = oracle.EXACT, copies: int = 1) -> tuple[Any, ...]:
        """y [T, N, ...], hn, cn and Saved, on copies of each sequence."""
        dense, _, lengths, _ = self.dense()
        h0, c0, _, _ = (repeated(a, copies, 1) for a in self.states())
        x = repeated(dense(self.arrays["x"]), copies, 1)
        keeps = [k if k is None else repeated(k, copies, 1) for k in self.keeps()]
        return oracle.forward_layers(self.network, x, h0, c0, np.tile(lengths, copies), keeps, self.dtype, how)

    def backward_data(self, how: oracle.Exact = oracle.EXACT, copies: int = 1) -> tuple[np.ndarray, ...]:
        dense, _, lengths, _ = self.dense()
        h0, c0, dhn, dcn = (repeated(a, copies, 1) for a in self.states())
        y, dy = (repeated(dense(self.arrays[n]), copies, 1) for n in ("y", "dy"))
        keeps = [k if k is None else repeated(k, copies, 1) for k in self.keeps()]
        assert self.saved is not None
        saved = oracle.Saved(repeated(self.saved.gates, copies, 3),
                             None if self.saved.cells is None else repeated(self.saved.cells, copies, 3),
                             [repeated(a, copies, 1) for a in self.saved.outputs])  # fmt: skip
        return oracle.backward_layers(
            self.network, dy, dhn, dcn, y, saved, h0, c0, np.tile(lengths, copies), keeps, self.inputs, how
        )

    def computed(self, how: oracle.Exact = oracle.EXACT, copies: int = 1) -> list[np.ndarray]:
        """forward: y, hn, cn, gates, cells; backward_data: dx, dh0, dc0, dgates. All have N as dimension
        `N_AXIS[direction]`."""
        if self.direction == "forward":
            y, hn, cn, saved = self.forward(how, copies)
            return [y, hn, cn, saved.gates, saved.cells, *saved.outputs]
        return list(self.backward_data(how, copies))

    def errors(self, tf32: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The results of computed(), and their tolerances."""
        batch = self.dense()[3][1]
        copies, rng = copies_of(batch), np.random.default_rng(0)
        want = self.computed()
        found = self.computed(Errors(self.dtype, tf32 and self.dtype == "float32", rng), copies)
        axes = {
            3: 1,
            5: 3,
            6: 3,
        }  # N in [T, N, F] or [layers directions, N, H], in [..., T, N, H] and [..., T, N, K, H]
        tolerances = []
        for w, f in zip(want, found, strict=True):
            n = axes[w.ndim]
            along = (n, w.ndim - 1)
            tolerances.append(allowed(w, apart(f, copies, n), self.dtype, along) if w.size else np.zeros(w.shape))
        return want, tolerances

    def results(self, tf32: bool = False) -> list[Result]:
        """Of all outputs but the reserve and those that are None."""
        if self.direction == "backward_weights":
            return self.weight_results(tf32)
        rows, lstm = self.dense()[1], self.options["mode"] == "lstm"
        want, tolerances = self.errors(tf32)
        found = [Result(w, e) for w, e in zip(want, tolerances, strict=True)]
        first = Result(rows(want[0]), rows(tolerances[0]))
        if self.direction == "forward":
            return [first, found[1], *([found[2]] if lstm else [])]
        gates = [oracle.dgates_in_rows(a, rows) for a in (want[3], tolerances[3])]
        return [first, found[1], *([found[2]] if lstm else []), Result(*gates)]

    def weight_results(self, tf32: bool) -> list[Result]:
        acc, tf = EPS[reference.accumulator(self.dtype)], TF32 * (tf32 and self.dtype == "float32")
        net, (dense, _, lengths, shape) = self.network, self.dense()
        of = np.stack([np.stack([dense(g) for g in layer]) for layer in self.arrays["dgates"]])
        of = of.reshape(*of.shape[:4], net.gate_gradients, net.hidden_size)
        pairs = oracle.weight_factors(net, dense(self.arrays["x"]), self.states()[0], dense(self.arrays["y"]), of,
                                      self.saved, lengths, self.keeps(), self.dtype)  # fmt: skip
        results, terms = [], shape[0] * shape[1] + 4
        rounding = EPS[self.dtype] * ("dropout" in self.options)  # of what dropout leaves
        square = lambda a: None if a is None else tuple(map(np.square, a)) if isinstance(a, tuple) else a**2
        for i, (gates, other) in enumerate(pairs):
            want = oracle.summed_products(gates, other, net.hidden_size)
            size = np.sqrt(oracle.summed_products(gates**2, square(other), net.hidden_size))
            error = 6 * size * (acc * np.sqrt(terms) + tf + rounding) + acc * np.sqrt(terms) * np.abs(want)
            if self.previous:
                want = want + self.previous[i]
            results.append(Result(want, error + EPS[self.dtype] * np.abs(want)))
        return results

    # ---- The library

    def tensors(self, device: str) -> dict[str, dnn.DeviceTensor]:
        return {n: tensor(a, self.dtypes().get(n, self.dtype), device) for n, a in self.inputs_by_name().items()}

    def inputs_by_name(self) -> Arrays:
        named = {f"w{i}": w for i, w in enumerate(self.weights)} if self.direction != "backward_weights" else {}
        if self.saved is not None:
            named["reserve"] = bytes_of(self.saved, self.dtype, self.rows()).astype("float64")
        return self.arrays | named

    def rows(self) -> Callable[[np.ndarray], np.ndarray]:
        """[T, N, ...] as rows, as the reserve has them."""
        rows = self.dense()[1]
        return rows if "batch_sizes" in self.arrays else lambda a: a.reshape(-1, *a.shape[2:])

    def dtypes(self) -> dict[str, str]:
        return {"lengths": "int32", "batch_sizes": "int32", "reserve": "uint8"}

    def call(self, t: dict[str, dnn.DeviceTensor], **more: Any) -> Any:
        """The public function. A name "weights" has them as one tensor."""
        options = {n: v for n, v in self.options.items() if n != "clip" or self.direction != "backward_weights"}
        options |= {n: t[n] for n in ("h0", "c0", *INTEGERS) if n in t} | more
        if self.direction == "backward_weights":
            options.pop("c0", None)
            options.pop("h0", None)
            if self.previous and "out" not in options:
                out = [dnn.zeros(w.shape, dtype=self.dtype, device=t["x"].device) for w in self.previous]
                options |= {"out": out, "accumulate": True}
            return dnn.rnn_backward_weights(t["x"], t.get("h0"), t["y"], t["dgates"], t["reserve"], **options)
        weights: Any = t["weights"] if "weights" in t else [t[f"w{i}"] for i in range(len(self.weights))]
        if self.direction == "forward":
            return dnn.rnn_forward(t["x"], weights, **options)
        return dnn.rnn_backward_data(t["dy"], t.get("dhn"), t.get("dcn"), t["y"], weights, t["reserve"], **options)

    def outputs(self, t: dict[str, dnn.DeviceTensor], **more: Any) -> list[dnn.DeviceTensor]:
        """Those that results() has."""
        made = self.call(t, **more)
        if isinstance(made, dnn.DeviceTensor):
            return [made]
        return [r for r in (made[:3] if self.direction == "forward" else made) if r is not None]

    def engines(self, t: dict[str, dnn.DeviceTensor], **more: Any) -> list[str]:
        """The engines that run the call. An empty result has none."""
        reports = [r for r in dnn.explain(self.call, t, **more) if r.problem.startswith("rnn ")]
        return [e.name for r in reports for e in r.engines if not e.why_not]

    def check(self, device: str, **more: Any) -> dict[str, list[np.ndarray]]:
        """Compares every engine with the oracle. Returns the results of each."""
        t, results, found = self.tensors(device), self.results(), {}
        engines = self.engines(t, **more)
        assert engines
        for engine in engines:
            outputs = self.outputs(t, algo=engine, **more)
            for i, (got, want) in enumerate(zip(outputs, results, strict=True)):
                assert_close(got, want, f"{engine} {self.direction} result {i}")
            found[engine] = [values_of(got) for got in outputs]
        return found

    def backward(self, seed: int = 0, without: Sequence[str] = ()) -> Problem:
        """backward_data of a forward call, for random gradients of its results but those in `without`."""
        rng, lstm = np.random.default_rng(seed), self.options["mode"] == "lstm"
        y, hn, _, saved = self.forward()
        rows, acc = self.dense()[1], reference.accumulator(self.dtype)
        r = lambda a, dtype=self.dtype: reference.rounded(a, dtype)
        kept = oracle.Saved(r(saved.gates), r(saved.cells, acc) if lstm else None, [r(a) for a in saved.outputs])
        given = {n: a for n, a in self.arrays.items() if n != "x"} | {
            "y": r(rows(y)),
            "dy": r(rng.normal(size=rows(y).shape)),
        }
        given |= {n: r(rng.normal(size=hn.shape)) for n in ("dhn", "dcn") if (lstm or n == "dhn") and n not in without}
        options = {n: v for n, v in self.options.items() if n != "training"}
        return replace(self, direction="backward_data", arrays=given, options=options, saved=kept)

    def of_weights(self, forward: Problem, accumulate: bool = False) -> Problem:
        """backward_weights behind this call of backward_data, whose forward call is given."""
        dgates = self.backward_data()[3]
        given = {n: a for n, a in forward.arrays.items() if n != "c0"} | {"y": self.arrays["y"]}
        given["dgates"] = reference.rounded(oracle.dgates_in_rows(dgates, self.dense()[1]), self.dtype)
        previous = [np.zeros(w.shape) for w in self.weights] if accumulate else []
        return replace(self, direction="backward_weights", arrays=given, previous=previous)


def bytes_of(saved: oracle.Saved, dtype: str, rows: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A reserve. The bytes between its parts are 255."""
    acc = reference.accumulator(dtype)
    flat = lambda a: np.stack([np.stack([rows(d) for d in layer]) for layer in a])
    parts = [raw(flat(saved.gates), dtype)]
    if saved.cells is not None:
        parts.append(raw(flat(saved.cells), acc))
    if saved.outputs:
        parts.append(raw(np.stack([rows(y) for y in saved.outputs]), dtype))
    return np.concatenate([np.pad(p, (0, -len(p) % 16), constant_values=255) for p in parts])


def parts_of(reserve: np.ndarray, p: Problem) -> list[np.ndarray]:
    """Gates [layers, directions, rows, K, H], cells [layers, directions, rows, H] (LSTM only) and outputs [layers - 1,
    rows, directions H] of a reserve."""
    net, (_, _, _, (steps, batch)) = p.network, p.dense()
    rows = p.arrays["x"].shape[0] if "batch_sizes" in p.arrays else steps * batch
    pair, h = (net.layers, net.directions, rows), net.hidden_size
    shapes: list[tuple[tuple[int, ...], str]] = [((*pair, net.saved_gates, h), p.dtype)]
    if net.mode == "lstm":
        shapes.append(((*pair, h), reference.accumulator(p.dtype)))
    if net.layers > 1:
        shapes.append(((net.layers - 1, rows, net.directions * h), p.dtype))
    found, first = [], 0
    for shape, dtype in shapes:
        size = int(np.prod(shape)) * BYTES[dtype]
        found.append(from_raw(reserve[first : first + size], dtype).reshape(shape))
        first += -(-size // 16) * 16
    assert first == reserve.size
    return found


BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def raw(a: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes of numbers in a dtype."""
    if dtype == "bfloat16":
        return (np.ascontiguousarray(a, "float32").view("uint32") >> 16).astype("uint16").view("uint8").ravel()
    return np.ascontiguousarray(a, dtype).view("uint8").ravel() if a.size else np.zeros(0, "uint8")


def from_raw(data: np.ndarray, dtype: str) -> np.ndarray:
    data = np.ascontiguousarray(data, "uint8")
    if dtype == "bfloat16":
        return (data.view("uint16").astype("uint32") << 16).view("float32").astype("float64")
    return data.view(dtype).astype("float64")


def weight_shapes(
    mode: str, inputs: int, hidden: int, layers: int, directions: int, bias: bool
) -> list[tuple[int, ...]]:
    g, shapes = oracle.GATES[mode] * hidden, []
    for layer in range(layers):
        for _ in range(directions):
            shapes += [(g, directions * hidden if layer else inputs), (g, hidden), *([(g,), (g,)] if bias else [])]
    return shapes


def flattened(weights: Sequence[np.ndarray], bias: bool = True) -> np.ndarray:
    """All matrices, then all biases."""
    return np.concatenate([w.ravel() for rank in ((2, 1) if bias else (2,)) for w in weights if w.ndim == rank])


def problem(
    dtype: str,
    mode: str,
    x: tuple[int, ...],
    hidden: int,
    *,
    h0: bool = False,
    c0: bool = False,
    lengths: Sequence[int] | None = None,
    batch_sizes: Sequence[int] | None = None,
    batch: int | None = None,
    drawn: int = 0,
    spread: float = 1.2,
    **options: Any,
) -> Problem:
    """A forward call with random operands. x is [T, N, I], or [rows, I] with batch_sizes."""
    rng = np.random.default_rng([*x, hidden, drawn])
    layers, directions = options.get("layers", 1), 1 + options.get("bidirectional", False)
    if batch_sizes is not None:
        batch = batch or batch_sizes[0]
    many = batch if batch_sizes is not None else x[1]
    draw = lambda shape: reference.rounded(rng.normal(size=shape), dtype)
    arrays: Arrays = {"x": draw(x)}
    shape = (layers * directions, many, hidden)
    arrays |= {n: draw(shape) for n, given in (("h0", h0), ("c0", c0)) if given}
    if lengths is not None:
        arrays["lengths"] = np.asarray(lengths)
    if batch_sizes is not None:
        arrays["batch_sizes"] = np.asarray(batch_sizes)
        options["batch"] = batch
    size = spread / np.sqrt(hidden)
    shapes = weight_shapes(mode, x[-1], hidden, layers, directions, options.get("bias", True))
    weights = [reference.rounded(rng.uniform(-size, size, s), dtype) for s in shapes]
    return Problem("forward", dtype, arrays, weights, {"mode": mode, "hidden_size": hidden} | options, x[-1])


# ---- The samples of case lines


def batch_sizes_of(rng: np.random.Generator, steps: int, batch: int, rows: int) -> np.ndarray:
    """Sizes that do not grow, from `batch` on, whose sum is at most `rows`, and often less."""
    sizes = np.sort(rng.integers(1, batch + 1, steps))[::-1]
    sizes[:1] = batch
    for i in reversed(range(1, steps)):  # not more rows than there are
        if sizes.sum() > rows:
            sizes[i:] = np.minimum(sizes[i:], 1)
    while sizes.sum() > rows:
        sizes[0] -= 1
    return sizes


def sample(case: Case) -> Sample:
    """x of a case line is [T, N, I]. The call gets it so, or as "ntc", and the weights as a list or as one tensor."""
    rng = generator(case)
    operand, given, words = case.operands["x"], case.attributes, case.words
    mode, hidden = given["mode"], int(given["hidden"])
    options: dict[str, Any] = {"layers": int(given.get("layers", 1)), "bidirectional": "bidirectional" in words,
                               "bias": "no_bias" not in words}  # fmt: skip
    options |= {"reset_after": "reset_before" not in words} if mode == "gru" else {}
    options |= (
        {"dropout": 0.3, "seed": int(rng.integers(2**40)), "offset": int(rng.integers(2**34))}
        if "dropout" in words
        else {}
    )
    options |= {"clip": 0.4} if "clip" in words else {}
    more: dict[str, Any] = {}
    if "steps" in given:
        steps, batch = int(given["steps"]), int(given["batch"])
        more = {"batch_sizes": batch_sizes_of(rng, steps, batch, operand.shape[0]), "batch": batch}
    elif "lengths" in words:
        steps, batch = operand.shape[:2]
        lengths = rng.integers(0, steps + 1, batch)
        lengths[: min(batch, 2)] = [0, steps][: min(batch, 2)]
        more = {"lengths": rng.permutation(lengths)}
    forward = problem(case.dtype, mode, operand.shape, hidden, h0="h0" in words, c0="c0" in words, **more, **options,
                      drawn=int(rng.integers(2**31)))  # fmt: skip
    forward.arrays["x"] = equal_along_zeros(forward.arrays["x"], operand)
    made = forward
    if "training" in words:
        forward.options["training"] = True
    if case.direction != "forward":
        without = [n for n in ("dhn", "dcn") if n not in words]
        made = forward.backward(int(rng.integers(2**31)), without)
        made.arrays["dy"] = equal_along_zeros(made.arrays["dy"], case.operands.get("dy"))
        if case.direction == "backward_weights":
            made = made.of_weights(forward, "accumulate" in words)
    inputs = made.inputs_by_name()
    if made.direction != "backward_weights" and rng.random() < 0.3:
        inputs = {n: a for n, a in inputs.items() if n not in {f"w{i}" for i in range(len(made.weights))}}
        inputs["weights"] = flattened(made.weights, options["bias"])
    ntc = len(operand.shape) == 3 and rng.random() < 0.3
    flat = made.direction == "backward_weights" and not made.previous and rng.random() < 0.4
    shown = (lambda t: t.permute((1, 0, 2))) if ntc else (lambda t: t)
    steps_first = ("x", "y", "dy")

    def call(t: dict[str, dnn.DeviceTensor], algo: str, out: Any = None) -> Sequence[dnn.DeviceTensor]:
        own = {n: shown(a) if n in steps_first and a.ndim == 3 else a for n, a in t.items()}
        on = t["y"].device if "y" in t else t["x"].device
        extra: dict[str, Any] = {"algo": algo, "layout": "ntc" if ntc else "tnc"}
        extra |= {"handle": dnn.Handle(device=on, math="ieee")} if "math" in given else {}
        extra |= {"flat": True} if flat else {}
        if flat and out is not None:
            extra["out"] = out
        name = {"forward": "y", "backward_data": "x"}.get(made.direction)
        if name is not None and case.operands.get(name, Operand(())).strides is not None:
            extra["out"] = shown(strided(case.operands[name], case.dtype, on))
        outputs = made.outputs(own, **extra)
        return [shown(outputs[0]), *outputs[1:]] if made.direction != "backward_weights" else outputs

    results = made.results("math" not in given)
    if flat:
        results = [Result(*(flattened([np.asarray(r) for r in rs], options["bias"])
                            for rs in zip(*((r.want, r.tolerance) for r in results), strict=True)))]  # fmt: skip
    return Sample(inputs, call, results, made.dtypes())


def equal_along_zeros(a: np.ndarray, operand: Operand | None) -> np.ndarray:
    """The values, equal along dimensions of stride 0."""
    if operand is None or operand.strides is None:
        return a
    still = tuple(slice(0, 1) if s == 0 else slice(None) for s in operand.strides)
    return np.broadcast_to(a[still], a.shape)


def strided(operand: Operand, dtype: str, device: str) -> dnn.DeviceTensor:
    """Memory for an operand."""
    strides = operand.strides or operand.shape
    reach = sum(abs(s) * max(n - 1, 0) for s, n in zip(strides, operand.shape, strict=True)) + 1
    low = sum(min(s, 0) * max(n - 1, 0) for s, n in zip(strides, operand.shape, strict=True))
    return dnn.empty((reach,), dtype=dtype, device=device).as_strided(operand.shape, strides, -low)
