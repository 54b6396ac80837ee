# SPDX-License-Identifier: Apache-2.0
"""Properties of every public function that computes: its defaults, out= over each of its operands, and copies of
arrays. A new function needs a line in CALLS; a test fails until it has one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import reference
from support import values_of

import pyminidnn as dnn
from pyminidnn import _C

Arrays = dict[str, np.ndarray]


@dataclass
class Call:
    """A call with all arrays of a function. `oracle` computes the expected result with the documented defaults. Arrays
    are float64, except for indices, masks and classes."""

    arrays: Arrays
    oracle: Callable[..., Any]
    # The required arguments of the function that are not arrays.
    others: dict[str, Any] = field(default_factory=dict)
    # Arguments that make the function read all of its arrays. An example is beta, without which it does not read c.
    with_all: dict[str, Any] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()  # the names of the operands that may be the same tensor as `out`
    # The names of the operands that the function does not read. `out` may overlap them.
    unread: tuple[str, ...] = ()


RNG = np.random.default_rng(0)
IMAGE, SMALL = (2, 4, 6, 6), (2, 4, 3, 3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2, shape)


def classes(count: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, count, shape)


def row_norm(x: np.ndarray, scale: Any = None, bias: Any = None, *, rows: tuple[int, ...], view: tuple[int, ...], centered: bool = True,
             dy: Any = None, mean: Any = 0.0, inv: Any = None) -> Any:  # fmt: skip
    scale, bias = (np.full(view, d) if v is None else np.reshape(v, view) for v, d in ((scale, 1.0), (bias, 0.0)))
    if dy is None:
        y, m, s = reference.row_norm_forward(x, scale, bias, rows=rows, parameters=view, centered=centered)
        statistics = [v.reshape([x.shape[i] for i in rows] if len(view) != 5 else v.shape[:2]) for v in (m, s)]
        return [y, *(statistics if centered else statistics[1:])]
    return reference.row_norm_backward(dy, x, scale, mean, inv, rows=rows, parameters=view, centered=centered)


def grouped(x: np.ndarray, groups: int) -> np.ndarray:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


X = normal(*IMAGE)
Y_POOL = reference.pool_forward(X, 2)
INDICES = reference.pool_indices(X, 2)
LOGITS, TARGET = normal(5, 7), classes(7, 5)
MEAN_ROWS, INV_ROWS = normal(2, 4, 6), positive(2, 4, 6)


def local(axes: tuple[int, ...]) -> Callable[..., Any]:
    def forward(x: np.ndarray, size: int, means: Any = None) -> Any:
        return reference.local_norm_forward(x, size, axes=axes, means=means_of(x, size, axes, means))[0]

    return forward


def means_of(x: np.ndarray, size: int, axes: tuple[int, ...], means: Any) -> Any:
    return 0.0 if means is None else means


def local_backward(axes: tuple[int, ...]) -> Callable[..., Any]:
    return lambda dy, x, size, means=None: reference.local_norm_backward(
        dy, x, size, axes=axes, means=means_of(x, size, axes, means)
    )[0]


ATTENDED = {"q": normal(2, 4, 5, 8), "k": normal(2, 2, 6, 8), "v": normal(2, 2, 6, 3)}
ATTENTION = reference.attention_forward(**ATTENDED)
LENGTHS = np.array([3, 5], "int32")
CTC = {"x": reference.log_softmax(normal(6, 2, 5))[0], "targets": np.array([[1, 1, 3], [4, 2, 1]]),
       "input_lengths": np.array([6, 6]), "target_lengths": np.array([3, 3])}  # fmt: skip


def rnn_weights(flat: np.ndarray, **sizes: Any) -> list[np.ndarray]:
    return [w.numpy() for w in dnn.rnn_unpack(flat, **sizes)]


# An LSTM, and a layer of relu. Numbers of elements are odd, so that a reserve begins at a multiple of 16 bytes where it
# overlaps `out` by one element.
LSTM, RELU = {"mode": "lstm", "hidden_size": 3}, {"mode": "relu", "hidden_size": 3}
OF_LSTM = {"x": normal(5, 3, 3), "weights": normal(12 * (3 + 3 + 2))}
OF_RELU = {"x": normal(5, 3, 4), "weights": normal(3 * (4 + 3 + 2))}
Y_LSTM, *_, LSTM_SAVED = reference.rnn_forward(OF_LSTM["x"], rnn_weights(OF_LSTM["weights"], **LSTM), **LSTM)
Y_RELU, *_, RELU_SAVED = reference.rnn_forward(OF_RELU["x"], rnn_weights(OF_RELU["weights"], **RELU), **RELU)
LSTM_RESERVE, RELU_RESERVE = (
    dnn.rnn_forward(**a, **o, training=True)[3].numpy() for a, o in ((OF_LSTM, LSTM), (OF_RELU, RELU))
)


def rnn_weights(flat: np.ndarray, **sizes: Any) -> list[np.ndarray]:
    return [w.numpy() for w in dnn.rnn_unpack(flat, **sizes)]


# An LSTM, and a layer of relu. Numbers of elements are odd, so that a reserve begins at a multiple of 16 bytes where it
# overlaps `out` by one element.
LSTM, RELU = {"mode": "lstm", "hidden_size": 3}, {"mode": "relu", "hidden_size": 3}
OF_LSTM = {"x": normal(5, 3, 3), "weights": normal(12 * (3 + 3 + 2))}
OF_RELU = {"x": normal(5, 3, 4), "weights": normal(3 * (4 + 3 + 2))}
Y_LSTM, *_, LSTM_SAVED = reference.rnn_forward(OF_LSTM["x"], rnn_weights(OF_LSTM["weights"], **LSTM), **LSTM)
Y_RELU, *_, RELU_SAVED = reference.rnn_forward(OF_RELU["x"], rnn_weights(OF_RELU["weights"], **RELU), **RELU)
LSTM_RESERVE, RELU_RESERVE = (
    dnn.rnn_forward(**a, **o, training=True)[3].numpy() for a, o in ((OF_LSTM, LSTM), (OF_RELU, RELU))
)

CALLS: dict[str, Call] = {
    "activation_forward": Call({"x": X}, reference.activation_forward, {"mode": "gelu"}, in_place=("x",)),
    "activation_backward": Call({"dy": normal(*IMAGE), "x": X, "y": X}, reference.activation_backward, {"mode": "gelu"},
                                in_place=("dy", "x"), unread=("y",)),
    "attention_forward": Call(
        {**ATTENDED, "bias": normal(5, 6), "alibi": positive(4), "sink": normal(4), "q_lengths": LENGTHS, "kv_lengths": LENGTHS},
        reference.attention_forward),
    "attention_backward": Call(dict(zip(("do", "o", "lse"), (normal(2, 4, 5, 3), *ATTENTION), strict=True)) | ATTENDED,
                               reference.attention_backward),
    "attention_decode": Call(
        {"q": normal(2, 3, 4, 8), "k_cache": normal(2, 16, 2, 8), "v_cache": normal(2, 16, 2, 3), "lengths": LENGTHS,
         "pages": np.array([[1], [0]], "int32"), "alibi": positive(4), "sink": normal(4)}, reference.attention_decode),
    "rnn_forward": Call(
        {**OF_LSTM, "h0": normal(1, 3, 3), "c0": normal(1, 3, 3), "lengths": np.array([4, 0, 5], "int32")},
        lambda x, weights, **o: reference.rnn_forward(x, rnn_weights(weights, **o), **o)[:3], LSTM),
    "rnn_backward_data": Call(
        {"dy": normal(5, 3, 3), "dhn": normal(1, 3, 3), "dcn": normal(1, 3, 3), "y": Y_LSTM, "weights": OF_LSTM["weights"],
         "reserve": LSTM_RESERVE},
        lambda dy, dhn, dcn, y, weights, reserve, **o: reference.rnn_backward_data(
            dy, dhn, dcn, y, rnn_weights(weights, **o), LSTM_SAVED, **o), LSTM),
    "rnn_backward_weights": Call(
        {"x": OF_RELU["x"], "h0": normal(1, 3, 3), "y": Y_RELU, "dgates": normal(1, 1, 5, 3, 3), "reserve": RELU_RESERVE},
        lambda reserve, **o: reference.rnn_backward_weights(saved=RELU_SAVED, **o), RELU, with_all={"flat": True}),
    "conv_forward": Call({"x": X, "w": normal(3, 4, 2, 2), "bias": normal(3), "residual": normal(2, 3, 5, 5)},
                         reference.conv_forward, in_place=("residual",)),
    "conv_forward_statistics": Call(
        {"x": X, "w": normal(3, 4, 2, 2), "bias": normal(3), "residual": normal(2, 3, 5, 5)},
        lambda **a: [y := reference.conv_forward(**a), y.sum((0, 2, 3)), (y**2).sum((0, 2, 3))], in_place=("residual",)),
    "conv_backward_data": Call({"dy": normal(2, 3, 5, 5), "w": normal(3, 4, 2, 2)}, reference.conv_backward_data, {"x_shape": IMAGE}),
    "conv_backward_filter": Call({"dy": normal(2, 3, 5, 5), "x": X}, reference.conv_backward_filter, {"w_shape": (3, 4, 2, 2)}),
    "conv_backward_bias": Call({"dy": X}, reference.conv_backward_bias),
    "matmul": Call({"a": normal(5, 4), "b": normal(4, 6), "c": normal(5, 6), "bias": normal(6)}, reference.matmul,
                   with_all={"beta": 0.5}, in_place=("c",)),
    "pool_forward": Call({"x": X}, reference.pool_forward, {"window": 2}),
    "pool_forward_with_indices": Call({"x": X}, lambda x, window: [reference.pool_forward(x, window), reference.pool_indices(x, window)],
                                      {"window": 2}),
    "pool_backward": Call({"dy": normal(*Y_POOL.shape), "x": X, "y": Y_POOL, "indices": INDICES},
                          lambda indices=None, **a: reference.pool_backward(**a), {"window": 2}),
    "adaptive_pool_forward": Call({"x": X}, reference.adaptive_pool_forward, {"size": 3}),
    "adaptive_pool_backward": Call({"dy": normal(*SMALL), "x": X, "y": Y_POOL}, reference.adaptive_pool_backward),
    "global_pool_forward": Call({"x": X}, lambda x: reference.adaptive_pool_forward(x, 1)),
    "global_pool_backward": Call({"dy": normal(2, 4, 1, 1), "x": X, "y": X.max((2, 3), keepdims=True)}, reference.adaptive_pool_backward),
    "softmax_forward": Call({"x": X, "mask": X > -1}, reference.softmax_forward, in_place=("x",)),
    "softmax_backward": Call({"dy": normal(*IMAGE), "y": reference.softmax_forward(X)}, reference.softmax_backward,
                             in_place=("dy", "y")),
    "cross_entropy_forward": Call({"x": LOGITS, "target": TARGET}, reference.cross_entropy_forward),
    "cross_entropy_backward": Call(
        {"dy": np.array(0.7), "x": LOGITS, "target": TARGET, "lse": np.log(np.exp(LOGITS).sum(1))},
        lambda lse, **a: reference.cross_entropy_backward(**a), in_place=("x",)),
    "ctc_loss_forward": Call(CTC, lambda **a: [reference.ctc_loss_forward(**a), *reference.ctc_saved(**a)]),
    "ctc_loss_backward": Call({"dloss": np.array(0.7), **CTC}, lambda saved, **a: reference.ctc_loss_backward(**a),
                              {"saved": reference.ctc_saved(**CTC)}),
    "batch_norm_forward_training": Call(
        {"x": X, "scale": normal(4), "bias": normal(4), "residual": normal(*IMAGE)},
        lambda residual=None, **a: (lambda y, *rest: [y if residual is None else y + residual, *rest[:2]])(
            *reference.batch_norm_forward_training(**a))),
    "batch_norm_forward_inference": Call(
        {"x": X, "scale": normal(4), "bias": normal(4), "mean": normal(4), "var": positive(4), "residual": normal(*IMAGE)},
        lambda residual=0.0, **a: reference.batch_norm_forward_inference(**a) + residual, in_place=("x", "residual")),
    "batch_norm_backward": Call({"dy": normal(*IMAGE), "x": X, "scale": normal(4), "saved_mean": normal(4), "saved_inv_std": positive(4)},
                                reference.batch_norm_backward),
    "layer_norm_forward": Call({"x": X, "scale": normal(6), "bias": normal(6)},
                               lambda **a: row_norm(**a, rows=(0, 1, 2), view=(1, 1, 1, 6))),
    "layer_norm_backward": Call(
        {"dy": normal(*IMAGE), "x": X, "scale": normal(6), "mean": MEAN_ROWS, "inv_std": INV_ROWS},
        lambda dy, x, scale, mean, inv_std: [v.reshape(w) for v, w in zip(row_norm(
            x, scale, dy=dy, mean=mean[..., None], inv=inv_std[..., None], rows=(0, 1, 2), view=(1, 1, 1, 6)), (IMAGE, 6, 6), strict=True)]),
    "rms_norm_forward": Call({"x": X, "scale": normal(6)}, lambda **a: row_norm(**a, rows=(0, 1, 2), view=(1, 1, 1, 6), centered=False)),
    "rms_norm_backward": Call(
        {"dy": normal(*IMAGE), "x": X, "scale": normal(6), "inv_rms": INV_ROWS},
        lambda dy, x, scale, inv_rms: [v.reshape(w) for v, w in zip(row_norm(
            x, scale, dy=dy, inv=inv_rms[..., None], rows=(0, 1, 2), view=(1, 1, 1, 6), centered=False)[:2], (IMAGE, 6), strict=True)]),
    "group_norm_forward": Call(
        {"x": X, "scale": normal(4), "bias": normal(4)},
        lambda x, groups, scale=None, bias=None: (lambda y, m, s: [y.reshape(IMAGE), m, s])(
            *row_norm(grouped(x, groups), scale, bias, rows=(0, 1), view=(1, 2, 2, 1, 1))), {"groups": 2}),
    "group_norm_backward": Call(
        {"dy": normal(*IMAGE), "x": X, "scale": normal(4), "mean": normal(2, 2), "inv_std": positive(2, 2)},
        lambda dy, x, groups, scale, mean, inv_std: [v.reshape(w) for v, w in zip(row_norm(
            grouped(x, groups), scale, dy=grouped(dy, groups), mean=mean.reshape(2, 2, 1, 1, 1), inv=inv_std.reshape(2, 2, 1, 1, 1),
            rows=(0, 1), view=(1, 2, 2, 1, 1)), (IMAGE, 4, 4), strict=True)], {"groups": 2}),
    "instance_norm_forward": Call(
        {"x": X, "scale": normal(4), "bias": normal(4)},
        lambda x, scale=None, bias=None: (lambda y, m, s: [y.reshape(IMAGE), m, s])(
            *row_norm(grouped(x, 4), scale, bias, rows=(0, 1), view=(1, 4, 1, 1, 1)))),
    "instance_norm_backward": Call(
        {"dy": normal(*IMAGE), "x": X, "scale": normal(4), "mean": normal(2, 4), "inv_std": positive(2, 4)},
        lambda dy, x, scale, mean, inv_std: [v.reshape(w) for v, w in zip(row_norm(
            grouped(x, 4), scale, dy=grouped(dy, 4), mean=mean.reshape(2, 4, 1, 1, 1), inv=inv_std.reshape(2, 4, 1, 1, 1),
            rows=(0, 1), view=(1, 4, 1, 1, 1)), (IMAGE, 4, 4), strict=True)]),
    "lrn_forward": Call({"x": X}, local((1,)), {"size": 3}),
    "lrn_backward": Call({"dy": normal(*IMAGE), "x": X}, local_backward((1,)), {"size": 3}),
    "lcn_forward": Call({"x": X, "means": normal(*IMAGE)}, local((2, 3)), {"size": 3}),
    "lcn_backward": Call({"dy": normal(*IMAGE), "x": X}, local_backward((2, 3)), {"size": 3}),
    "dropout_forward": Call({"x": X}, reference.random.dropout_forward, {"p": 0.3, "seed": 5}, in_place=("x",)),
    "dropout_backward": Call({"dy": X}, lambda dy, **a: reference.random.dropout_backward(dy, **a), {"p": 0.3, "seed": 5}, in_place=("dy",)),
    "transform": Call({"x": X}, reference.transform, in_place=("x",)),
    "pad": Call({"x": X}, lambda x, widths: np.pad(x, widths), {"widths": 1}),
    "gather": Call({"x": X, "index": classes(2, 5)}, lambda x, index: np.take(x, index, 0)),
    "gather_backward": Call({"dy": normal(5, 4, 6, 6), "index": classes(2, 5)}, reference.gather_backward, {"x_shape": IMAGE}),
    "reduce": Call({"x": X}, reference.reduce, {"mode": "sum"}),
    **{mode: Call({"x": X}, partial(reference.reduce, mode=mode))
       for mode in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all")},
    "relu": Call({"input": X}, lambda input: np.maximum(input, 0)),
    "softmax": Call({"input": X}, lambda input: reference.softmax_forward(input, axis=-1)),
    "clamp": Call({"a": X, "b": normal(*IMAGE) - 1, "c": normal(*IMAGE) + 1}, lambda **a: reference.pointwise("clamp", *a.values()),
                  in_place=("a", "b", "c")),
}  # fmt: skip

# The functions that have no call in CALLS. They return views or copies, read only a shape, or take a list of arrays.
OTHERS = {
    "array",
    "asarray",
    "tensor",
    "empty_like",
    "full_like",
    "ones_like",
    "zeros_like",
    "from_dlpack",
    "rnn_unpack",
    "slice",
    "split",
    "concat",
    "pointwise",
}
FUNCTIONS = {
    n: f for n in dnn.__all__ if inspect.isfunction(f := getattr(dnn, n)) and f.__module__.startswith("pyminidnn.")
}


def takes_arrays(f: Callable[..., Any]) -> bool:
    return any(
        str(p.annotation).startswith("ArrayLike") for n, p in inspect.signature(f).parameters.items() if n != "out"
    )


def flat(results: Any) -> Iterator[Any]:
    if isinstance(results, (list, tuple)):
        for result in results:
            yield from flat(result)
    else:
        yield results


def required(name: str) -> list[str]:
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    return [p.name for p in parameters if p.default is p.empty]


def test_every_function_has_a_call() -> None:
    # The functions of pyminidnn.ops.pointwise share one implementation, so they need no call each.
    plain = {n for n, f in FUNCTIONS.items() if f.__module__ == "pyminidnn.ops.pointwise"}
    assert {n for n, f in FUNCTIONS.items() if takes_arrays(f)} - plain - OTHERS == set(CALLS) - plain
    for name, call in CALLS.items():
        assert set(required(name)) <= set(call.arrays) | set(call.others), name


@pytest.mark.parametrize("name", CALLS)
def test_required_arguments_alone(name: str, device: str) -> None:
    call = CALLS[name]
    arrays = {n: v for n, v in call.arrays.items() if n in required(name)}
    want = call.oracle(**arrays, **call.others)
    got = FUNCTIONS[name](**{n: dnn.asarray(v, device=device) for n, v in arrays.items()}, **call.others)
    want, got = ([r for r in flat(v) if r is not None] for v in (want, got))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(values_of(g), w, rtol=1e-9, atol=1e-9, err_msg=name)


def test_gradients_have_the_defaults_of_the_forward_call() -> None:
    pairs = 0
    for name, backward in FUNCTIONS.items():
        if "_backward" not in name:
            continue
        forward = FUNCTIONS.get(name[: name.index("_backward")] + "_forward") or FUNCTIONS.get(
            name.replace("_backward", "")
        )
        forward = forward or FUNCTIONS.get(name.replace("_backward", "_forward_training"))
        assert forward is not None, name
        of_forward = inspect.signature(forward).parameters
        for p in inspect.signature(backward).parameters.values():
            if p.name in of_forward and of_forward[p.name].default is not p.empty and p.default is not p.empty:
                assert p.default == of_forward[p.name].default, f"{name}: {p.name}"
                pairs += 1
    assert pairs > 60


WITH_OUT = [(name, operand) for name, call in CALLS.items() if "out" in inspect.signature(FUNCTIONS[name]).parameters
            for operand in call.arrays]  # fmt: skip


@pytest.mark.parametrize(("name", "operand"), WITH_OUT)
def test_out_may_not_overlap_an_operand(name: str, operand: str) -> None:
    """`out` overlaps an operand by one element, for each dtype of the operand: the call raises before it writes."""
    call, function = CALLS[name], FUNCTIONS[name]
    arguments = call.arrays | call.others | call.with_all
    result = function(**arguments)
    result = (result[0] if isinstance(result, tuple) else result).numpy()
    given = call.arrays[operand]
    memory = np.zeros(result.nbytes + given.nbytes + 16, "uint8")
    out = memory[: result.nbytes].view(result.dtype).reshape(result.shape)
    begin = (result.nbytes - result.itemsize) // given.itemsize * given.itemsize
    other = memory[begin : begin + given.nbytes].view(given.dtype).reshape(given.shape)
    other[...] = given
    assert np.shares_memory(out, other)
    before = memory.tobytes()
    if operand in call.unread:
        function(**arguments | {operand: other}, out=out)
        return
    with pytest.raises(dnn.ShapeError, match=rf"{name}: out (shares memory with|overlaps) {operand}\b"):
        function(**arguments | {operand: other}, out=out)
    assert memory.tobytes() == before


@pytest.mark.parametrize("which", range(3))
def test_out_of_concat_may_not_overlap_any_tensor(which: int) -> None:
    out = np.zeros((6, 4))
    tensors = [np.ones((2, 4)) for _ in range(3)]
    tensors[which] = out[2 * which : 2 * which + 2]
    with pytest.raises(dnn.ShapeError, match=rf"concat: out shares memory with tensors\[{which}\]"):
        dnn.concat(tensors, out=out)


@pytest.mark.parametrize(("name", "operand"), [(n, o) for n, o in WITH_OUT if o in CALLS[n].in_place])
def test_out_may_be_an_operand_where_the_documentation_says_so(name: str, operand: str) -> None:
    call, function = CALLS[name], FUNCTIONS[name]
    arguments = call.arrays | call.others | call.with_all
    want = function(**arguments)
    itself = call.arrays[operand].copy()
    got = function(**arguments | {operand: itself}, out=itself)
    want, got = (v[0] if isinstance(v, tuple) else v for v in (want, got))
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert got.data_ptr == itself.ctypes.data


@pytest.mark.parametrize(
    ("a", "b"),
    [("x", "running_mean"), ("scale", "running_var"), ("running_mean", "running_var"), ("bias", "running_mean")],
)
def test_running_values_may_not_overlap_others(a: str, b: str) -> None:
    channels = 36
    memory = np.ones(200 * channels)
    arrays = {n: np.ones(channels) for n in ("scale", "bias", "running_mean", "running_var")} | {
        "x": normal(3, channels)
    }
    arrays[a] = memory[: arrays[a].size].reshape(arrays[a].shape)
    arrays[b] = memory[arrays[a].size - 1 :][:channels]
    with pytest.raises(
        dnn.ShapeError, match=f"batch_norm_forward_training: .* (shares memory with|overlaps) ({a}|{b})"
    ):
        dnn.batch_norm_forward_training(**arrays)


@pytest.mark.parametrize("dtype", _C.dtypes)
def test_copies_own_their_memory(dtype: str) -> None:
    t = dnn.full((3,), 1, dtype=dtype)
    for copy in (np.array(t), t.__array__(copy=True)):
        assert copy.flags.owndata or copy.base is not None
        copy[...] = 0
        assert values_of(t).tolist() == [1, 1, 1]
