# SPDX-License-Identifier: Apache-2.0
"""Calls every public function, method and constructor with arbitrary arguments. A call must return a result, or raise
an error that tells the caller what to do. It must not crash, hang or change its inputs.

    python tests/fuzz_calls.py --seconds 60 --seed 1 --workers 2 --calls 100000    # ends at the first of the two limits
    python tests/fuzz_calls.py --seed 1 --only 4711                                # that call alone, in this process

The public namespace is read at run time, so each new public function is covered. The name of a parameter determines
the values that are drawn for it. Call number i of a seed is the same for any number of workers. Calls run in batches
in forked children. If a child dies of a signal or does not return, its current call is a failure, and it is printed.
"""

from __future__ import annotations

import argparse
import atexit
import inspect
import itertools
import json
import math
import os
import random
import re
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # set before imports, since NumPy and pyminidnn read these variables when they are imported
    os.environ.setdefault("PYMINIDNN_CACHE_DIR", tempfile.mkdtemp(prefix="pyminidnn-fuzz-"))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The number of threads in each child process. By default, a large machine starts so many threads that their stacks
    # exceed MEMORY_BYTES.
    os.environ.setdefault("OMP_NUM_THREADS", "3")
    # The child processes use no GPU, because a CUDA driver reserves more address space than MEMORY_BYTES.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
from conftest import set_checks

import pyminidnn as dnn
from pyminidnn import _C, array_api
from pyminidnn.refusals import mentions, short

SECONDS_PER_CALL = 60  # far longer than any correct call takes, even on a busy machine
CALLS_PER_CHILD = 500
# The number of bytes that a child process may allocate after its start. Larger allocations fail at once, so no time is
# spent on filling them.
MEMORY_BYTES = 2**30


# ---- the public functions, methods and constructors that are called


def signature_of(f: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters without self."""
    return [p for p in inspect.signature(f).parameters.values() if p.name != "self"]


def methods_of(kind: type) -> dict[str, Callable[..., Any]]:
    names = [n for n in dir(kind) if not n.startswith("_") or n in ("__dlpack__", "__array__", "__len__", "__bool__")]
    return {f"{kind.__name__}.{n}": getattr(kind, n) for n in names if callable(getattr(kind, n))}


FUNCTIONS = {n: f for n, f in vars(dnn).items() if callable(f) and not n.startswith("_") and not inspect.isclass(f)}
STANDARD = {f"array_api.{n}": getattr(array_api, n) for n in array_api.__all__ if callable(getattr(array_api, n))}
METHODS = methods_of(dnn.DeviceTensor) | methods_of(dnn.Handle)
CONSTRUCTORS: dict[str, Callable[..., Any]] = {"DeviceTensor": dnn.DeviceTensor, "Handle": dnn.Handle}
CALLABLES = FUNCTIONS | STANDARD | METHODS | CONSTRUCTORS
PARAMETERS = {n: signature_of(f.__init__ if n in CONSTRUCTORS else f) for n, f in CALLABLES.items()}  # type: ignore[misc]


# ---- random arguments of the calls

FOLDER = Path(
    tempfile.mkdtemp(prefix="pyminidnn-fuzz-files-")
)  # a folder for the files that save() writes and load() reads
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
dnn.save(FOLDER / "saved.npz", {"x": np.ones(3)})
(FOLDER / "damaged.npz").write_bytes((FOLDER / "saved.npz").read_bytes()[:-30])


class Mine(Exception):
    """The exception that the objects below raise. It must reach the caller unchanged."""


class Raises:
    """Has every protocol, and each of them raises."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise Mine

    __array__ = __dlpack__ = __dlpack_device__ = __len__ = __iter__ = __getitem__ = __index__ = __float__ = _raise
    __bool__ = __eq__ = __str__ = _raise
    __hash__ = object.__hash__


class BadRepr:
    def __repr__(self) -> str:
        raise Mine


class Endless:
    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, _: int) -> int:
        return 1


ANYTHING: tuple[Callable[[], Any], ...] = (
    object, Raises, BadRepr, Endless, itertools.count, lambda: itertools.repeat(dnn.zeros(1)), lambda: "text", lambda: b"bytes", lambda: 1j,
    dict, lambda: {1}, lambda: 2.5, lambda: -1, lambda: None, lambda: True, lambda: [[1], [2, 3]], lambda: ("a",),
    lambda: np.zeros(3, "c8"), lambda: range(3), lambda: print, lambda: "\0", lambda: "\ud800", lambda: "a" * 5000, lambda: 10**400,
    lambda: 10**6000, lambda: float("nan"), lambda: np.float32(1.5), lambda: np.int64(2), lambda: np.array(2), lambda: np.array(1.5),
    lambda: np.datetime64(1, "s"), lambda: [None], lambda: np.ma.masked, lambda: Ellipsis, lambda: np.array([], object),
    lambda: dnn.zeros((2, 3)), lambda: dnn.Handle(), lambda: NotImplemented, lambda: slice(3), lambda: [Raises()], lambda: type,
)  # fmt: skip
# No sizes between ordinary and huge ones: such tensors would fit in memory, but calls would take a long time.
HUGE = (2**31, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 2**70, -(2**31), -(2**63), -(2**63) - 1)
REALS = ("float32", "float64", "float16", "bfloat16")
WORDS = ("relu", "tanh", "max", "avg", "convolution", "NCHW", "NHWC", "NDHWC", "contiguous", "strided", "reference",
         "direct", "dirct", "nothing", "", "cpu", "reference:", "dense:tile=1", "cpu.conv.direct", "\0", "relu\0", "\ud800")  # fmt: skip
DEVICES = ("cpu", "cuda:0", "cuda", "cuda:99", "cuda:-1", "gpu", "", "cuda:99999999999", "cpu\0")
LENGTHS = ("q_lengths", "kv_lengths", "cu_q", "cu_kv", "lengths", "pages", "batch_sizes")  # int32 on the device
RECURRENT = ("weights", "tensor", "h0", "c0", "dhn", "dcn", "dgates", "reserve")  # contiguous, of recurrent layers
MODES = {
    "activation": ("relu", "tanh", "gelu", "softplus", "mish", "elu", "clipped_relu"),
    "conv": ("cross_correlation", "convolution"),
    "pool": ("max", "avg", "avg_exclude_padding", "lp"),
    "reduce": ("sum", "mean", "prod", "max", "min", "amax", "norm2", "argmax", "any"),
    "pad": ("constant", "replicate", "reflect"),
}
FLAGS = ("include_initial", "log", "ceil_mode", "per_activation", "keepdims", "dresidual", "transpose_a", "transpose_b", "copy", "deterministic",
         "endpoint", "causal", "bias_gradient", "bidirectional", "reset_after", "training", "flat", "accumulate",
         "zero_infinity", "logits")  # fmt: skip
NUMBERS = (
    "alpha",
    "beta",
    "eps",
    "momentum",
    "value",
    "p",
    "low",
    "high",
    "std",
    "label_smoothing",
    "k",
    "fill_value",
    "correction",
    "min",
    "max",
    "softcap",
    "dropout",
)
INTEGERS = (
    "axis",
    "dim",
    "groups",
    "offset",
    "max_workspace",
    "threads",
    "seed",
    "norm",
    "ignore_index",
    "size",
    "n",
    "m",
    "num",
    "n_rows",
    "n_cols",
    "repeats",
    "source",
    "destination",
    "shift",
    "max_q",
    "max_kv",
    "blank",
)
ARRAYS = ("x", "data", "input", "x1", "x2", "condition", "sorter", "prepend", "append", "y", "dy", "w", "a", "b", "c", "bias", "residual", "scale", "mean", "var", "out", "obj", "mask", "target", "lse",
          "inv_std", "inv_rms", "indices", "index", "means", "saved_mean", "saved_inv_std", "running_mean", "running_var", "q", "k", "v", "do", "o",
          "k_cache", "v_cache", "alibi", "sink", "targets", "input_lengths", "target_lengths", "dloss", *LENGTHS, *RECURRENT)  # fmt: skip
STRIDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda a: a,
    "fortran": np.asfortranarray,
    "backwards": lambda a: a[::-1] if a.ndim else a,
    "gaps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim and len(a) else a,
    "overlapping": lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (a.itemsize,) * a.ndim),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), "u1")[1:].view(a.dtype).reshape(a.shape) if a.size else a,
}


class Arguments:
    """The context of the arguments of one call: a dtype, shapes that fit each other, and the share of nonsense."""

    def __init__(self, rng: random.Random, function: str, nonsense: int | None = None):
        self.rng, self.function = rng, function.removeprefix("array_api.")
        self.family = self.function.split("_")[0]
        self.family = {"adaptive": "pool", "global": "pool"}.get(self.family, self.family)
        # The average number of nonsense arguments among 20.
        self.nonsense = rng.choice([0, 0, 0, 1, 2, 4, 10]) if nonsense is None else nonsense
        self.dtype = rng.choice(REALS)
        n, c, h, w, k = (rng.randint(low, high) for low, high in ((0, 3), (1, 5), (3, 7), (2, 7), (1, 4)))
        rank = rng.choice([4, 4, 4, 3, 5])
        self.image = (n, c, h, w, 2)[:rank]
        self.required: tuple[str, ...] = ()  # optional parameters that the shapes need
        self.shapes = self.usual_shapes(n, c, h, w, k, rank)

    def usual_shapes(self, n: int, c: int, h: int, w: int, k: int, rank: int) -> dict[str, tuple[int, ...]]:
        image, channels = self.image, ("scale", "bias", "mean", "var", "inv_std", "saved_mean", "saved_inv_std",
                                       "running_mean", "running_var")  # fmt: skip
        if self.family == "conv":
            filters, result = (k, c, 3, 2, 1)[:rank], (n, k, h - 2, w - 1, 2)[:rank]
            out = {"conv_backward_filter": filters, "conv_backward_bias": (k,), "conv_backward_data": image}
            shapes = {"w": filters, "w_shape": filters, "dy": result, "residual": result, "bias": (k,)}
            return shapes | {"out": out.get(self.function, result)}
        if self.family == "pool":
            spatial = (h, w, 2)[: rank - 2]
            result = (n, c, *(1 if self.function.startswith("global") else v // 2 for v in spatial))
            return {
                "dy": result,
                "y": result,
                "indices": result,
                "out": result if "forward" in self.function else image,
            }
        if self.family == "attention":
            return self.attention_shapes(h, w)
        if self.family == "rnn":
            return self.recurrent_shapes(h)
        if self.family == "matmul":
            return {"a": (h, w), "b": (w, k), "c": (h, k), "bias": (k,), "out": (h, k)}
        if self.family == "cross":
            rows = image[:1] + image[2:]
            return {"target": rows, "lse": rows, "dy": self.rng.choice([(), rows])}
        if self.family == "ctc":
            sequences, labels = image[1], self.rng.choice([(image[1], 3), (image[1] * 3,)])
            shapes = dict.fromkeys(("x", "out"), image[:3]) | dict.fromkeys(
                ("input_lengths", "target_lengths"), (sequences,)
            )
            shapes |= dict.fromkeys(("alpha", "exponents"), (image[0] * 7 * sequences,)) | {"lse": image[:2]}
            return shapes | {"targets": labels, "dloss": self.rng.choice([(), (sequences,)])}
        if self.family in ("layer", "rms"):
            return {"mean": image[:-1], "inv_std": image[:-1], "inv_rms": image[:-1], "scale": image[-1:], "bias": image[-1:]}  # fmt: skip
        if self.family in ("group", "instance"):
            groups = (n, 1 if self.family == "group" else c)
            return {"mean": groups, "inv_std": groups, "scale": (c,), "bias": (c,)}
        if self.function in ("meshgrid", "searchsorted"):
            return {"arrays": (3,), "x1": (5,), "sorter": (5,)}
        if self.family == "gather":
            return {"index": (2,), "dy": (2, *image[1:]), "out": image if "backward" in self.function else (2, *image[1:])}  # fmt: skip
        return dict.fromkeys(channels, (c,)) if self.family == "batch" else {}

    def attention_shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """Two sequences of 4 heads of 3 elements; k and v have 2 heads. Some are packed, and some caches have pages."""
        special = self.rng.random() < 0.3
        if self.function == "attention_decode":
            self.required = ("pages",) if special else ()
            q, cache = (2, rows, 4, 3), (3, 16, 2, 3) if special else (2, columns, 2, 3)
            shapes = {"lengths": (2,), "pages": (2, 3)} | dict.fromkeys(("k_cache", "v_cache"), cache)
        else:
            self.required = ("cu_q", "cu_kv", "max_q", "max_kv") if special else ()
            q, k = ((rows, 4, 3), (columns, 2, 3)) if special else ((2, 4, rows, 3), (2, 2, columns, 3))
            shapes = {"lse": (4, rows) if special else q[:3], "bias": self.rng.choice([(4, 1, 1), (2, 1, 1, 1), (1,)])}
            shapes |= dict.fromkeys("kv", k) | dict.fromkeys(("cu_q", "cu_kv"), (3,))
            shapes |= dict.fromkeys(("q_lengths", "kv_lengths"), (2,))
        return shapes | dict.fromkeys(("q", "o", "do", "out"), q) | {"alibi": (4,), "sink": (4,)}

    def recurrent_shapes(self, steps: int) -> dict[str, tuple[int, ...]]:
        """Sequences of elements of size 3, with 5 units. The weights fit the options that `recurrent` has."""
        r, batch = self.rng, 2
        layers, directions, bias = r.choice([1, 1, 2]), r.choice([1, 2]), r.random() < 0.7
        mode, reset_after = r.choice([("lstm", True), ("gru", True), ("gru", False), ("relu", True), ("tanh", True)])
        self.recurrent = {"mode": mode, "hidden_size": 5, "layers": layers, "bidirectional": directions == 2, "bias": bias,
                          "reset_after": reset_after, "layout": "tnc", "clip": 0.5 if mode == "lstm" and r.random() < 0.5 else None}  # fmt: skip
        self.required = tuple(self.recurrent)
        gates, packed = {"lstm": 4, "gru": 3}.get(mode, 1), r.random() < 0.2
        self.weights = [
            shape
            for layer in range(layers)
            for _ in range(directions)
            for shape in ((gates * 5, 5 * directions if layer else 3), (gates * 5, 5), (gates * 5,), (gates * 5,))[
                : 4 if bias else 2
            ]
        ]
        rows, saved = batch * steps, 4 if mode == "gru" else gates
        size, sums = {"float64": (8, 8), "float32": (4, 4)}.get(self.dtype, (2, 4))
        parts = [layers * saved * size, layers * sums * (mode == "lstm"), (layers - 1) * size]
        each = rows * directions * 5
        of_gates = (3 if mode == "gru" and not reset_after else saved) * 5
        before: tuple[int, ...] = (rows,) if packed else (steps, batch)
        shapes = {"x": (*before, 3), "dgates": (layers, directions, *before, of_gates), "lengths": (batch,)}
        shapes |= dict.fromkeys(("y", "dy"), (*before, 5 * directions)) | {"batch_sizes": (steps,)}
        shapes |= dict.fromkeys(("h0", "c0", "dhn", "dcn"), (layers * directions, batch, 5))
        shapes |= {
            "reserve": (sum(-(-part * each // 16) * 16 for part in parts),),
            "tensor": (sum(map(math.prod, self.weights)),),
        }
        self.required += ("batch_sizes", "batch") if packed else ()
        return shapes | {"out": shapes["y" if "forward" in self.function else "x"]}

    def odd(self) -> bool:
        return self.rng.randint(1, 20) <= self.nonsense

    def integer(self) -> Any:
        r = self.rng
        return r.choice([r.randint(0, 3), r.randint(0, 3), r.randint(-3, 9), np.int64(r.randint(0, 3)), np.array(1), r.choice(HUGE)])  # fmt: skip

    def integers(self, most: int) -> Any:
        r = self.rng
        values = [r.randint(0, 6) if r.random() < 0.8 else self.integer() for _ in range(r.randint(0, most))]
        return r.choice([list, tuple, lambda v: np.array(v, object), lambda v: [v]])(values)

    def anything(self) -> Any:
        return self.rng.choice(ANYTHING)()

    def shape(self, name: str) -> tuple[int, ...]:
        if self.odd():
            few = tuple(self.rng.randint(0, 5) for _ in range(self.rng.randint(0, 5)))
            return self.rng.choice([self.image, self.image[1:2], few])
        return self.shapes.get(name, self.image)

    def array(self, name: str) -> Any:
        r = self.rng
        if self.odd() and r.random() < 0.5:
            return self.anything()
        shape, dtype = self.shape(name), self.dtype
        if name in ("target", "index", "indices", "sorter", "targets", "input_lengths", "target_lengths"):
            dtype = r.choice(["int64", "int32"])
        elif name in LENGTHS:
            dtype = "int32"
        elif name == "reserve":
            dtype = "uint8"
        elif name in ("alibi", "sink", "dloss", "alpha", "exponents"):
            dtype = "float64" if dtype == "float64" else "float32"
        elif name == "condition" or (self.function == "where" and name == "a"):
            dtype = "bool"
        elif self.family in ("bitwise", "left", "right"):
            dtype = "int8"
        elif (self.family in ("layer", "rms", "group", "instance", "batch") and name in self.shapes) or name == "lse":
            dtype = "float64" if dtype == "float64" else "float32"
        if self.odd():
            dtype = r.choice([*_C.dtypes, "uint16", "complex64", "longdouble", "object", "U3", "M8[s]", "f4,i4"])
        values = np.resize(np.array([0.5, -1.0, 2.0, 0.0, 3.0, 1.5, -0.25, 100.0, np.nan, np.inf]), shape)
        if dtype in ("int64", "int32") and not self.odd():
            values = np.resize(np.array([0, 1, 0, 2, 1]) % max(1, self.image[1 if name == "target" else 0]), shape)
        if dtype not in _C.dtypes:
            return np.zeros(shape, dtype)
        with np.errstate(invalid="ignore"):  # a cast of NaN to an integer would warn
            array = values.astype("float32" if dtype == "bfloat16" else dtype)
        whole = {
            "attention": (*LENGTHS, "lse"),
            "ctc": ("input_lengths", "target_lengths", "alpha", "exponents", "lse"),
            "rnn": (*LENGTHS, *RECURRENT),
        }.get(self.family, ())
        plain = name in whole and not self.odd()  # others are refused
        array = np.asarray(STRIDED["plain" if plain or r.random() < 0.5 else r.choice(list(STRIDED))](array))
        if self.odd():
            return r.choice([lambda a: np.ma.masked_array(a, mask=False), memoryview, np.ndarray.tolist, np.ravel])(
                array
            )
        kind = r.choice(["numpy", "tensor", "tensor", "channels last", "view", "list"])
        if kind == "numpy" and dtype != "bfloat16":
            if self.odd():
                array.flags.writeable = False
            return array
        if kind == "list" and dtype == "float64":
            return array.tolist()
        t = dnn.asarray(array, dtype=dtype)
        if kind == "channels last" and 3 <= t.ndim <= 5:
            t = t.to(layout=("NWC", "NHWC", "NDHWC")[t.ndim - 3])
        if kind == "view" and t.ndim > 1:  # a permuted copy, so that the second dimension is the contiguous one
            order = (1, 0, *range(2, t.ndim))
            t = t.permute(order).to(layout="contiguous", copy=True).permute(order)
        return t

    def attention_option(self, name: str, odd: bool) -> tuple[Any] | None:
        """The value, in a tuple, of an option that only attention has, or that means something else there."""
        r, decode = self.rng, self.function == "attention_decode"
        if name == "k":
            return (self.array(name),)
        if odd and name in ("align", "layout"):
            return (r.choice(WORDS),)
        if name in ("align", "layout"):
            return (r.choice(("top_left", "bottom_right")) if name == "align" else "bshd" if decode else "bhsd",)
        if name == "window":
            left, right = (self.integer() if odd else r.choice([None, 0, 2]) for _ in range(2))
            return (left if decode else (left, right),)
        if name == "scale":
            return (self.anything() if odd else r.choice([None, 0.5, -1.0, 0]),)
        if not odd and name in ("pages", "cu_q", "cu_kv", "max_q", "max_kv") and name not in self.required:
            return (None,)
        if not odd and name in ("q_lengths", "kv_lengths") and self.required:
            return (None,)
        return None

    def recurrent_option(self, name: str, odd: bool) -> tuple[Any] | None:
        """The value, in a tuple, of an option of recurrent layers."""
        r, weights = (
            self.rng,
            name == "weights" or (name == "out" and self.function in ("rnn_backward_weights", "rnn_pack")),
        )
        if name == "batch_sizes":
            steps = self.shapes[name][0]
            return (r.choice([[2] * steps, self.array(name)]) if odd or name in self.required else None,)
        if name == "batch":
            return (self.integer() if odd else 2 if name in self.required else None,)
        if name == "lengths" and "batch" in self.required and not odd:
            return (None,)
        if name in ("c0", "dcn") and self.recurrent["mode"] != "lstm" and not odd:
            return (None,)
        if weights and ((self.function == "rnn_pack" and name == "out") or r.random() < 0.3):
            return (self.array("tensor"),)
        if weights:
            found = []
            for shape in self.weights:
                self.shapes["weights"] = shape
                found.append(self.array("weights"))
            return (found,)
        if name in self.recurrent and not odd:
            return (self.recurrent[name],)
        if name in ("layers", "hidden_size"):
            return (self.integer(),)
        if name == "layout":
            return (r.choice(WORDS),)
        if name == "clip":
            return (r.choice([0.0, -1.0, np.nan, True, *HUGE]),)
        return None

    def value(self, name: str) -> Any:
        """A value for the parameter of that name."""
        r, odd = self.rng, self.odd()
        if odd and r.random() < 0.5:
            return self.anything()
        if self.family == "attention" and (chosen := self.attention_option(name, odd)) is not None:
            return chosen[0]
        if self.family == "rnn" and (chosen := self.recurrent_option(name, odd)) is not None:
            return chosen[0]
        if name in ("mode", "activation", "layout", "algo", "family", "level", "math", "op", "reduction"):
            usual = {"mode": MODES.get(self.family, WORDS), "activation": ("relu", None), "math": ("ieee", "tf32"),
                     "layout": ("contiguous", None), "algo": (None, "reference"), "family": ("transform", None),
                     "level": ("off",), "op": _C.pointwise_names(), "reduction": ("mean", "sum", "none")}  # fmt: skip
            return r.choice(WORDS) if odd else r.choice(usual[name])
        if self.family in ("arange", "linspace", "eye") and name in ("start", "stop", "step", "k"):
            return self.integer() if odd else r.randint(1, 9) if self.family == "eye" else r.choice([1, 2.5, 9])
        if name == "device":
            return r.choice(DEVICES) if odd else "cpu"
        if name in ("dtype", "index_dtype"):
            nonsense = [
                "uint16",
                np.float32,
                np.dtype(">f8"),
                np.dtype("f4,i4"),
                bool,
                int,
                "f32",
                "float32\0",
                "x" * 500,
            ]
            return r.choice(nonsense) if odd else r.choice([*_C.dtypes, "bf16"]) if name == "dtype" else "int64"
        if name in ("shape", "x_shape", "w_shape", "axes", "strides", "start", "stop", "step", "sizes", "widths"):
            if odd or (name in ("sizes", "widths") and r.random() < 0.5):
                return self.integers(10) if r.random() < 0.5 else self.integer()
            rank = len(self.image)
            if self.function == "tensordot":
                return rank
            usual = {"axes": tuple(range(rank)), "start": (0,) * rank, "step": (1,) * rank, "sizes": (0, self.image[0]),
                     "widths": ((1, 0),) * rank}.get(name, self.shapes.get(name, self.image))  # fmt: skip
            return r.choice([tuple, list, np.array])(usual)
        if name in ("stride", "padding", "dilation", "window"):
            pairs = [(self.integer(), self.integer()) for _ in range(r.randint(0, 4))]
            return r.choice([self.integer(), self.integers(4), pairs]) if odd else 2 if self.family == "pool" else 1
        if name == "repetitions":
            return self.integers(4) if odd else (2, 1)
        if name in ("indexing", "side", "kind"):
            usual = {"indexing": ("xy", "ij"), "side": ("left", "right"), "kind": ("bool", "numeric", array_api.int8)}
            return r.choice(WORDS) if odd else r.choice(usual[name])
        if name in ("from_", "to", "type", "arrays_and_dtypes"):
            return r.choice([array_api.float32, "int8", np.dtype("int64"), self.array("x")])
        if name == "tensors" or (name == "arrays" and self.function in ("concat", "stack")):
            arrays = [self.array("x") for _ in range(r.randint(0, 3))]
            return dict(zip("abc", arrays, strict=False)) if self.family == "save" else arrays
        if name == "saved":
            return [self.array(n) for n in ("alpha", "exponents", "lse")[: 3 if self.odd() else r.choice((2, 3))]]
        if name == "path":
            return FOLDER / r.choice(("saved.npz", "damaged.npz", "absent.npz") if odd else ("saved.npz",))
        if name in FLAGS:
            return r.choice([np.True_, 2, None]) if odd else r.random() < 0.5
        if name == "handle":
            closed = dnn.Handle()
            closed.close()
            return closed if odd else r.choice([None, dnn.Handle(), dnn.Handle(max_workspace=0, deterministic=True)])
        if name in ("max_version", "dl_device"):
            return (self.integer(), self.integer()) if odd else (1, 0)
        if name == "stream":
            return self.integer() if odd else None
        if name == "size" and self.family == "pool":
            return self.integers(4) if odd else tuple(v // 2 for v in self.image[2:])
        if name in INTEGERS:
            return self.integer() if odd else -1 if self.family in ("layer", "rms") else 1
        if name in NUMBERS or (name in ("scale", "mean") and self.family in ("softmax", "random")):
            return r.choice([-1.0, np.nan, np.inf, 1e300, np.float32(0.5), True, 3, *HUGE]) if odd else r.random()
        if name in ARRAYS or name == "arrays":
            return self.array(name)
        # None of the rules above covers the parameter's name.
        return self.anything()


@dataclass
class Call:
    name: str
    f: Callable[..., Any]
    parameters: list[inspect.Parameter]
    # Arguments before the random ones: the object of a method, or the function that find() or explain() calls.
    on: list[Any] = field(default_factory=list)
    positional: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = [short(v) for v in self.on + self.positional] + [f"{k}={short(v)}" for k, v in self.keywords.items()]
        return re.sub(r" at 0x[0-9a-f]+", "", f"{self.name}({', '.join(given)})")


def drawn_call(rng: random.Random, name: str | None = None, nonsense: int | None = None) -> Call:
    name = name or rng.choice(list(CALLABLES))
    call = Call(name, CALLABLES[name], PARAMETERS[name])
    function = name
    if name in ("explain", "find"):  # explain(f, ...) and find(f, ...) take another function f and its arguments
        function = rng.choice(list(FUNCTIONS))
        if function in ("explain", "find") or rng.random() < 0.1:
            call.positional = [v for v in [Arguments(rng, "").anything()] if not callable(v)]
            return call
        call.on, call.parameters = [FUNCTIONS[function]], PARAMETERS[function]
    draw = Arguments(rng, function, nonsense)
    if name.startswith("Handle."):
        call.on = [dnn.Handle()]
    while name.startswith("DeviceTensor.") and not call.on:
        receiver = draw.array("x")
        call.on = [receiver] if isinstance(receiver, dnn.DeviceTensor) else []
    for p in call.parameters:
        # zeros(shape, *sizes) accepts either a shape or sizes.
        if p.kind is p.VAR_POSITIONAL and call.positional and rng.random() < 0.9:
            continue
        if p.kind is p.VAR_KEYWORD or (
            p.kind is not p.VAR_POSITIONAL
            and p.default is not p.empty
            and p.name not in draw.required
            and rng.random() < 0.67
        ):
            continue
        if p.kind is p.KEYWORD_ONLY or p.default is not p.empty:
            call.keywords[p.name] = draw.value(p.name)
        elif rng.random() < 0.003:
            break  # this argument and all later ones are missing
        else:
            call.positional.append(draw.value(p.name))
    if call.keywords.get("out") is not None and call.positional and rng.random() < 0.25:
        # With this `out`, the call writes its result to its first input.
        call.keywords["out"] = call.positional[0]
    if rng.random() < 0.003:
        call.keywords["nonsense"] = 1
    return call


# ---- the execution of a call, and the checks of its result or error


def fault_of(call: Call, error: Exception) -> str | None:
    """Why an error must not be shown to a caller, or None. Rule: an error is one of the six kinds, its text begins
    with the name of the public function, and names one of its parameters."""
    name = call.on[0].__name__ if call.on and callable(call.on[0]) else call.name.rpartition(".")[2]
    text = str(error)
    if isinstance(error, Mine):
        return None
    if isinstance(error, FileNotFoundError) and name == "load":
        return None
    # This library, or the array that was passed, may raise a BufferError of __dlpack__ or from_dlpack.
    if isinstance(error, BufferError) and name in ("__dlpack__", "from_dlpack"):
        return None
    if type(error) is TypeError and re.match(rf"(wrapper |DeviceTensor\.)?{name}\(\) (got|missing|takes) ", text):
        return None  # Python itself raises this error if arguments of a function do not match its parameters
    if not isinstance(error, dnn.Error) or type(error) is dnn.Error:
        return f"{type(error).__name__} is none of the six kinds"
    if not text.startswith((f"{name}: ", f"{call.name.partition('.')[0]}: ")):
        return f"the text does not begin with {name}"
    names = [p.name for p in call.parameters]
    if call.name.startswith("DeviceTensor."):
        # An error text of a method may name its object, "the tensor". An error text of cuda() may name "device",
        # although cuda() has no such parameter.
        names += ["the tensor", "device"] if names else []
    if names and not mentions(text, names) and "keyword" not in text and "positional" not in text:
        return "the text names no argument"
    if "arguments. The following" in text or any(len(line) > 500 for line in text.splitlines()):
        return "the text is too long"
    return None


def look_at(result: Any) -> None:
    """Checks that a result can be used."""
    if isinstance(result, (list, tuple)):
        for r in result:
            look_at(r)
    if isinstance(result, dnn.DeviceTensor) and 0 < result.size < 1_000_000:
        assert result.to(dtype="float64").numpy().shape == result.shape
        assert repr(result)


def outcome_of(call: Call) -> tuple[str, str | None]:
    """The outcome of the call as text, and what is wrong about it."""
    outputs = [np.asarray(v) for k, v in call.keywords.items()
               if (k == "out" or k.startswith("running_")) and isinstance(v, np.ndarray)]  # fmt: skip
    inputs = [a for a in (*call.positional, *call.keywords.values())
              if isinstance(a, np.ndarray) and not any(np.may_share_memory(a, o) for o in outputs)]  # fmt: skip
    before = [np.asarray(a).tobytes() for a in inputs]
    outcome, fault = "a result", None
    try:
        result = call.f(*call.on, *call.positional, **call.keywords)
    except Exception as error:
        outcome, fault = type(error).__name__, fault_of(call, error)
        if fault:
            where = traceback.extract_tb(error.__traceback__)[-1]
            fault += f": {error} [{os.path.basename(where.filename)}: {where.name}]"
    else:
        look_at(result)
    finally:
        dnn.set_log_level("off")
    if any(np.asarray(a).tobytes() != b for a, b in zip(inputs, before, strict=True)):
        fault = "an input was changed"
    return outcome, fault


def call_number(seed: int, i: int) -> Call:
    return drawn_call(random.Random(f"{seed}:{i}"))


# ---- the processes that run the calls


def tell(pipe: int, what: Any) -> None:
    os.write(pipe, json.dumps(what).encode() + b"\n")


def child(seed: int, first: int, end: int, pipe: int) -> None:
    """Makes calls, and writes one line before and one after each call."""
    with open("/proc/self/statm") as f:
        in_use = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for i in range(first, end):
        tell(pipe, i)
        call = call_number(seed, i)
        outcome, fault = outcome_of(call)
        tell(pipe, [outcome, fault and fault[:2000], str(call) if fault else ""])


@dataclass
class Worker:
    """A forked child, and the state of its messages."""

    pid: int
    pipe: int
    next: int  # number of the call after the last call that this child has started
    end: int
    heard: float
    rest: bytes = b""


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """Runs work(file) in a child. Returns the child's process number, and the file that reads its output."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            warnings.simplefilter("ignore")
            work(write)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    return pid, read


def described(seed: int, i: int) -> str:
    """The call as text. A separate child makes it, since drawing the arguments may be what crashed."""
    pid, read = forked(lambda write: tell(write, str(call_number(seed, i))))
    with os.fdopen(read, "rb") as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else "its arguments cannot be drawn"


class Fuzz:
    """Keeps children running until the time or the calls are used up, and collects their messages."""

    def __init__(self, seed: int, seconds: float, calls: int, workers: int):
        self.seed, self.deadline, self.calls, self.workers = seed, time.monotonic() + seconds, calls, workers
        self.outcomes: Counter[str] = Counter()
        # For each error text without its numbers and other varying parts, the calls that failed with it.
        self.faults: dict[str, list[str]] = {}
        self.running: dict[int, Worker] = {}
        self.select = selectors.DefaultSelector()

    def run(self) -> None:
        first = 0
        while True:
            while len(self.running) < self.workers and first < self.calls and time.monotonic() < self.deadline:
                self.start(first, min(first + CALLS_PER_CHILD, self.calls))
                first += CALLS_PER_CHILD
            if not self.running:
                return
            for key, _ in self.select.select(timeout=1):
                self.hear(self.running[key.fd])
            for worker in self.running.values():
                if time.monotonic() - worker.heard > SECONDS_PER_CALL:
                    os.kill(worker.pid, signal.SIGKILL)
                    worker.heard = time.monotonic()

    def start(self, first: int, end: int) -> None:
        worker = Worker(*forked(lambda write: child(self.seed, first, end, write)), first, end, time.monotonic())
        self.running[worker.pipe] = worker
        self.select.register(worker.pipe, selectors.EVENT_READ)

    def hear(self, worker: Worker) -> None:
        data = os.read(worker.pipe, 1 << 16)
        worker.heard = time.monotonic()
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if isinstance(said, int):
                worker.next = said + 1
            else:
                outcome, fault, text = said
                self.add(outcome, fault, worker.next - 1, text)
        if not data:
            self.end(worker)

    def end(self, worker: Worker) -> None:
        self.select.unregister(worker.pipe)
        os.close(worker.pipe)
        del self.running[worker.pipe]
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if code == 0:
            return
        outcome = f"no answer in {SECONDS_PER_CALL} s" if code == -signal.SIGKILL else f"the child ended with {code}"
        last = worker.next - 1
        self.add(outcome, outcome, last, described(self.seed, last))
        if worker.next < worker.end:
            self.start(worker.next, worker.end)

    def add(self, outcome: str, fault: str | None, i: int, text: str) -> None:
        self.outcomes[outcome] += 1
        if fault:
            general = re.sub(r"'[^']*'|\[[^]]*\]|\([^)]*\)|0x[0-9a-f]+|\d+", "N", fault)[:200]
            self.faults.setdefault(general, []).append(f"--seed {self.seed} --only {i}: {text}\n      {fault}")

    def report(self) -> str:
        lines = [f"seed {self.seed}: {self.outcomes.total()} calls"]
        lines += [f"{n:9d}  {outcome}" for outcome, n in self.outcomes.most_common()]
        lines += [f"{sum(map(len, self.faults.values()))} failures of {len(self.faults)} kinds"]
        for general, calls in sorted(self.faults.items(), key=lambda item: -len(item[1])):
            lines += [f"{len(calls):9d}  {general}", f"    {calls[0]}"]
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="none: a fresh one, which is printed")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--calls", type=int, default=sys.maxsize)
    parser.add_argument("--only", type=int, help="the number of a call: it is made in this process")
    given = parser.parse_args()
    set_checks()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    if given.only is not None:
        call = call_number(seed, given.only)
        print(call, flush=True)
        outcome, fault = outcome_of(call)
        print(fault or outcome)
        return fault is not None
    fuzz = Fuzz(seed, given.seconds, given.calls, given.workers)
    fuzz.run()
    print(fuzz.report())
    return bool(fuzz.faults)


if __name__ == "__main__":
    sys.exit(main())
