# SPDX-License-Identifier: Apache-2.0
"""Any arguments at all, at every public function: a right answer or a pyminidnn error, never a crash, a hang or another
exception, and inputs stay as they were.

The package's namespace is walked, so a new function is covered as soon as it is public; what its parameters get is decided
by their names. PYMINIDNN_FUZZ=1000 draws a thousand random examples for each function instead of the few fixed ones.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, example, given, note, settings  # noqa: F401
from hypothesis import strategies as st

import pyminidnn as dnn
from pyminidnn import _C

FUZZ = int(os.environ.get("PYMINIDNN_FUZZ", 0))
NO_DEFAULT = object()


@dataclass
class Parameter:
    name: str
    default: Any = NO_DEFAULT
    keyword_only: bool = False
    variadic: bool = False


def parameters(f: Callable[..., Any]) -> list[Parameter]:
    """From the signature, or the first line of the docstring that pybind11 writes."""
    try:
        signature = inspect.signature(f)
    except ValueError:
        inside = re.match(r"\w+\((.*)\) ->", f.__doc__ or "")
        assert inside, f"{f} has neither a signature nor pybind11's docstring"
        found, keyword_only = [], False
        for text in re.split(r", (?=\*|\w+:)", inside[1]):  # not the commas inside Sequence[...] and the like
            keyword_only |= text == "*"
            if ":" in text and not text.startswith("self:"):
                default = None if text.endswith("= None") else "set" if " = " in text else NO_DEFAULT
                found.append(Parameter(text.split(":")[0], default, keyword_only))
        return found
    return [
        Parameter(p.name, NO_DEFAULT if p.default is p.empty else p.default, p.kind is p.KEYWORD_ONLY,
                  p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
        for p in signature.parameters.values()
    ]  # fmt: skip


FUNCTIONS = {n: f for n, f in vars(dnn).items() if callable(f) and not n.startswith("_") and not inspect.isclass(f)}
METHODS = {f"DeviceTensor.{n}": getattr(dnn.DeviceTensor, n) for n in dir(dnn.DeviceTensor)
           if (not n.startswith("_") or n == "__dlpack__") and callable(getattr(dnn.DeviceTensor, n))}  # fmt: skip
CONSTRUCTORS = {
    "DeviceTensor": [Parameter("shape"), *(Parameter(n, "set", True) for n in ("dtype", "layout", "device"))],
    "Handle": [
        Parameter("device", "cpu"),
        *(Parameter(n, None, True) for n in ("stream", "max_workspace", "threads")),
        *(Parameter(n, "set", True) for n in ("deterministic", "math")),
    ],
}


# ---- values: each with whether its Python type is plainly wrong for the parameter, so that a TypeError is in order

Value = tuple[Any, bool]


def fits(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    return st.one_of(*strategies).map(lambda v: (v, False))


def wrong(*values: Any) -> st.SearchStrategy[Value]:
    return st.sampled_from(values).map(lambda v: (v, True))


ANYTHING = (
    object(),
    "text",
    b"bytes",
    1j,
    {},
    {1},
    2.5,
    -1,
    None,
    True,
    [[1], [2, 3]],
    ("a",),
    np.zeros(3, "c8"),
    range(3),
    print,
)
# Nothing between: a size that neither fits the machine nor is refused would take its time.
HUGE = (2**31, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 2**70, -(2**31), -(2**63), -(2**63) - 1)
SMALL = st.one_of(st.integers(0, 3), st.integers(-3, 9))
INTEGER = st.one_of(SMALL, SMALL, SMALL, SMALL.map(np.int64), st.sampled_from(HUGE))
SIZES = st.one_of(st.lists(st.integers(0, 6), max_size=5), st.lists(INTEGER, max_size=10)).flatmap(
    lambda v: st.sampled_from([v, tuple(v)])
)
REALS = ("float32", "float64", "float16", "bfloat16")
WORDS = ("relu", "tanh", "gelu", "softplus", "clipped_relu", "max", "avg", "avg_exclude_padding", "cross_correlation",
         "convolution", "NCHW", "NHWC", "NCW", "NDHWC", "contiguous", "strided", "reference", "direct", "nothing", "", "cpu")  # fmt: skip
DEVICES = ("cpu", "cpu", "cpu", "cuda:0", "cuda", "cuda:99", "cuda:-1", "gpu", "")
TEXT = st.one_of(st.sampled_from(WORDS), st.text(max_size=5))

STRIDED = {
    "plain": lambda a: a,
    "fortran": np.asfortranarray,
    "backwards": lambda a: a[::-1] if a.ndim else a,
    "gaps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim and len(a) else a,
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), "u1")[1:].view(a.dtype).reshape(a.shape) if a.size else a,
}


class Context:
    """What the arguments of one call have in common: a dtype, shapes that fit each other, and how much of it is nonsense."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], function: str = ""):
        self.draw = draw
        self.nonsense = draw(st.sampled_from([0, 0, 0, 1, 2, 4, 10]))  # of 20 arguments
        self.dtype = draw(st.sampled_from(REALS))
        n, c, h, w, k = (draw(st.integers(low, high)) for low, high in ((0, 3), (1, 5), (3, 7), (2, 7), (1, 4)))
        rank = draw(st.sampled_from([4, 4, 4, 3, 5]))
        self.image, self.weights = (n, c, h, w, 2)[:rank], (k, c, 3, 2, 1)[:rank]
        self.result = {
            "conv": (n, k, h - 2, w - 1, 2)[:rank],
            "pool": (n, c, *(v // 2 for v in (h, w, 2)[: rank - 2])),
        }.get(function.split("_")[0], self.image)
        self.channels, self.matrices = c, ((h, w), (w, k), (h, k))
        self.numbers = {"softmax": ("scale",), "random": ("mean",)}.get(function.split("_")[0], ())
        self.out = {"conv_forward": self.result, "conv_backward_filter": self.weights, "conv_backward_bias": (k,),
                    "pool_forward": self.result, "matmul": (h, k)}.get(function, self.image)  # fmt: skip

    def odd(self) -> bool:
        return self.draw(st.integers(1, 20)) <= self.nonsense

    def shape(self, name: str) -> tuple[int, ...]:
        usual = {"w": self.weights, "w_shape": self.weights, "a": self.matrices[0], "b": self.matrices[1], "c": self.matrices[2],
                 "dy": self.result, "y": self.result, "residual": self.result, "out": self.out}.get(name, self.image)  # fmt: skip
        if name in ("scale", "mean", "var", "bias") or name.startswith(("saved", "running")):
            usual = (self.channels,)
        others = st.one_of(
            st.just(self.image), st.just((self.channels,)), st.lists(st.integers(0, 5), max_size=5).map(tuple)
        )
        return self.draw(others) if self.odd() else usual

    def array(self, name: str) -> Value:
        draw = self.draw
        if self.odd() and draw(st.booleans()):
            return draw(wrong(*ANYTHING))
        shape, dtype = self.shape(name), self.dtype
        if self.odd():
            dtype = draw(st.sampled_from([*_C.dtypes, "uint16", "complex64"]))
        values = np.resize(np.array([0.5, -1.0, 2.0, 0.0, 3.0, 1.5, -0.25, 100.0, np.nan, np.inf]), shape)
        with np.errstate(all="ignore"):
            array = values.astype("float32" if dtype == "bfloat16" else dtype)
        array = np.asarray(STRIDED[draw(st.sampled_from(list(STRIDED)))](array))
        kind = draw(st.sampled_from(["numpy", "tensor", "tensor", "channels last", "view", "list"]))
        if dtype in ("uint16", "complex64") or (kind == "numpy" and dtype != "bfloat16"):
            if self.odd():
                array.flags.writeable = False
            return array, False
        if kind == "list" and dtype == "float64":
            return array.tolist(), False
        t = dnn.asarray(array, dtype=dtype)
        if kind == "channels last" and 3 <= t.ndim <= 5:
            t = t.to(layout=("NWC", "NHWC", "NDHWC")[t.ndim - 3])
        if kind == "view" and t.ndim > 1:  # columns beside each other
            t = (
                t.permute((1, 0, *range(2, t.ndim)))
                .to(layout="contiguous", copy=True)
                .permute((1, 0, *range(2, t.ndim)))
            )
        return t, False

    def value(self, p: Parameter) -> Value:
        usual, odd = self.strategies(p)
        return self.draw(odd if self.odd() else usual)

    def strategies(self, p: Parameter) -> tuple[st.SearchStrategy[Value], st.SearchStrategy[Value]]:
        """What a parameter of that name is given, and what else it may be given."""
        name = p.name
        if name in ("mode", "activation", "layout", "algo", "family", "level", "math"):
            return fits(st.sampled_from(USUAL_WORDS[name])), st.one_of(fits(TEXT), wrong(5, [], b"relu", None))
        if name == "device":
            return fits(st.just("cpu")), st.one_of(
                fits(st.sampled_from(DEVICES), st.text(max_size=4)), wrong(0, [], b"cpu", None)
            )
        if name == "dtype":
            odd = fits(st.sampled_from(["uint16", np.float32, np.dtype(">f8"), bool, int, "f32"]), st.text(max_size=4))
            return fits(st.sampled_from([*_C.dtypes, "bf16"])), st.one_of(odd, wrong(*ANYTHING))
        if name in ("shape", "x_shape", "w_shape", "axes", "strides"):
            usual = self.shape(name)
            return fits(st.sampled_from([usual, list(usual), np.array(usual)])), st.one_of(
                fits(SIZES), wrong("23", None, 5, (1.5,), object(), {})
            )
        if name in ("stride", "padding", "dilation"):
            odd = fits(INTEGER, st.lists(st.one_of(INTEGER, st.tuples(SMALL, SMALL)), max_size=4))
            return fits(st.integers(1, 2)), st.one_of(odd, wrong("2", None, 2.5, object(), [[1, 2, 3]], (None,)))
        if name == "window":
            return fits(st.just(2)), st.one_of(
                fits(INTEGER, st.lists(INTEGER, max_size=4)), wrong("2", None, 2.5, object())
            )
        if name in ("axis", "groups", "offset", "max_workspace", "threads", "seed", "norm", "ignore_index"):
            return fits(st.just(1)), st.one_of(fits(INTEGER), wrong("1", 2.5, [], object()))
        if name in NUMBERS or name in self.numbers:
            return fits(st.floats(0, 1)), st.one_of(fits(st.floats(), SMALL, st.sampled_from([np.float32(0.5), True, *HUGE])),
                                                    wrong("1", [], 1j, object()))  # fmt: skip
        if name in FLAGS:
            return fits(st.booleans()), wrong("yes", [], 2, object())
        if name == "handle":
            closed = dnn.Handle()
            closed.close()
            handles = [None, dnn.Handle(), dnn.Handle(max_workspace=0, deterministic=True)]
            return fits(st.sampled_from(handles)), st.one_of(fits(st.just(closed)), wrong(5, "cpu"))
        if name in ("max_version", "dl_device"):
            return fits(st.just((1, 0))), st.one_of(
                fits(st.tuples(INTEGER, INTEGER)), wrong("1", (1,), [], (None, 1), 5)
            )
        if name == "stream":
            return fits(st.none()), st.one_of(fits(INTEGER), wrong("1", 2.5, [], object()))
        if name in ARRAYS or name.startswith(("saved_", "running_")):
            return st.just(name).map(self.array), st.just(name).map(self.array)
        anything = wrong(*ANYTHING, *HUGE)  # a parameter this test does not know: TypeErrors are in order
        return anything, anything


FLAGS = (
    "log", "ceil_mode", "per_activation", "keepdims", "dresidual", "transpose_a", "transpose_b", "copy",
    "deterministic"
)  # fmt: skip
NUMBERS = (
    "alpha", "beta", "eps", "momentum", "value", "p", "low", "high", "std", "label_smoothing"
)  # fmt: skip
ARRAYS = (
    "x", "y", "dy", "w", "a", "b", "c", "bias", "residual", "scale", "mean", "var", "out", "obj", "mask", "target",
    "lse", "inv_std", "inv_rms", "indices"
)  # fmt: skip
USUAL_WORDS = {"mode": ("relu", "tanh", "gelu", "max", "avg", "cross_correlation", "sum", "argmax"), "activation": ("relu", None), "math": ("ieee",),
               "layout": ("NCHW", "NHWC", None), "algo": (None, "reference"), "family": ("transform", None), "level": ("off",)}  # fmt: skip


def arguments(context: Context, wanted: list[Parameter]) -> tuple[list[Any], dict[str, Any], bool]:
    """Positional and keyword arguments, and whether one is plainly of a wrong type."""
    positional, keywords, any_wrong = [], {}, False
    for p in wanted:
        if p.variadic or (p.default is not NO_DEFAULT and context.draw(st.integers(0, 2))):
            continue
        value, is_wrong = context.value(p)
        any_wrong |= is_wrong
        if p.keyword_only or p.default is not NO_DEFAULT:
            keywords[p.name] = value
        else:
            positional.append(value)
    if keywords.get("out") is not None and positional and context.draw(st.integers(0, 3)) == 0:
        keywords["out"] = positional[0]  # in place
    return positional, keywords, any_wrong


def look_at(result: Any) -> None:
    """A result is to be usable."""
    if isinstance(result, (list, tuple)):
        for r in result:
            look_at(r)
    if isinstance(result, dnn.DeviceTensor) and result.size < 1_000_000:
        assert result.to(dtype="float64").numpy().shape == result.shape
        assert repr(result)


def written(keywords: dict[str, Any]) -> list[np.ndarray]:
    return [
        np.asarray(v)
        for k, v in keywords.items()
        if (k == "out" or k.startswith("running_")) and isinstance(v, np.ndarray)
    ]


def throw_at(
    f: Callable[..., Any], wanted: list[Parameter], draw: Callable[[st.SearchStrategy[Any]], Any], on: list[Any]
) -> None:
    if any(p.variadic for p in wanted):  # explain() and find(): of another function
        inner = draw(st.sampled_from([dnn.activation_forward, dnn.transform, dnn.conv_forward]))
        on, wanted = [inner], parameters(inner)
    context = Context(draw, (on[0] if on and callable(on[0]) else f).__name__)
    positional, keywords, any_wrong = arguments(context, wanted)
    note(f"{f.__name__}(*{on + positional}, **{keywords})")
    outputs = written(keywords)
    inputs = [
        a
        for a in (*positional, *keywords.values())
        if isinstance(a, np.ndarray) and not any(np.may_share_memory(a, o) for o in outputs)
    ]
    before = [a.tobytes() for a in inputs]
    try:
        look_at(f(*on, *positional, **keywords))
    except dnn.Error as error:
        assert str(error)
    except TypeError as error:
        assert any_wrong, f"TypeError without a value of a wrong type: {error}"
    except (
        BufferError
    ):  # what the DLPack protocol asks of __dlpack__: ours, or NumPy's when it is asked for a byte-swapped array
        assert f.__name__ in ("__dlpack__", "from_dlpack")
    for a, b in zip(inputs, before, strict=True):
        assert a.tobytes() == b, "an input was changed"


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(240 + FUZZ, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    dnn.set_log_level("off")


def fuzz(test: Callable[..., None]) -> Callable[..., None]:
    few = settings(max_examples=40, derandomize=True) if not FUZZ else settings(max_examples=FUZZ)
    return settings(few, deadline=None, database=None, suppress_health_check=list(HealthCheck))(test)


@pytest.mark.parametrize("name", FUNCTIONS)
@fuzz
@given(data=st.data())
def test_function(name: str, data: st.DataObject) -> None:
    throw_at(FUNCTIONS[name], parameters(FUNCTIONS[name]), data.draw, [])


@pytest.mark.parametrize("name", METHODS)
@fuzz
@given(data=st.data())
def test_method(name: str, data: st.DataObject) -> None:
    tensor, _ = Context(data.draw).array("x")
    if isinstance(tensor, dnn.DeviceTensor):
        throw_at(METHODS[name], parameters(METHODS[name]), data.draw, [tensor])


@pytest.mark.parametrize("name", CONSTRUCTORS)
@fuzz
@given(data=st.data())
def test_constructor(name: str, data: st.DataObject) -> None:
    throw_at(getattr(dnn, name), CONSTRUCTORS[name], data.draw, [])


def test_the_walk_finds_what_is_public() -> None:
    assert {"transform", "asarray", "memory_stats", "explain"} <= set(FUNCTIONS)
    assert {"DeviceTensor.to", "DeviceTensor.as_strided", "DeviceTensor.__dlpack__"} <= set(METHODS)
    assert [p.name for p in parameters(dnn.memory_stats)] == ["device"]
    assert [p.name for p in parameters(dnn.DeviceTensor.to)] == ["device", "dtype", "layout", "copy"]
    assert [p.name for p in parameters(dnn.DeviceTensor.as_strided)] == ["shape", "strides", "offset"]
