# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: comparison with torch, lengths, states, the reserve, properties, special values and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from cases import load
from conftest import EXACT, set_checks
from reference import rnn as oracle
from rnn_problems import DTYPES, MODES, Problem, Rounded, flattened, parts_of, problem
from rnn_problems import sample as sample  # of the case lines
from support import Result, assert_close, framed, outputs_by_threads, tensor, values_of

import pyminidnn as dnn
from pyminidnn import _C

# ---- The oracle itself


def torch_loop(p: Problem, t: dict[str, Any], weights: list[Any]) -> tuple[Any, Any, Any]:
    """y, hn and cn of a call by a loop in torch, written apart from the oracle: sequence by sequence."""
    import torch

    net, lengths = p.network, p.dense()[2]
    sizes, batch = net.hidden_size, len(lengths)
    keeps = p.keeps()
    x, hn, cn = [t["x"][: lengths[n], n] for n in range(batch)], {}, {}
    for layer in range(net.layers):
        if layer and keeps[layer - 1] is not None:
            x = [row * torch.from_numpy(keeps[layer - 1][: lengths[n], n]) for n, row in enumerate(x)]
        outputs: list[list[Any]] = [[] for _ in range(batch)]
        for d in range(net.directions):
            i, each = layer * net.directions + d, 4 if net.bias else 2
            w_ih, w_hh, *biases = weights[i * each : i * each + each]
            b_ih, b_hh = biases if net.bias else (torch.zeros(len(w_ih), dtype=torch.float64),) * 2
            for n in range(batch):
                h = t["h0"][i, n] if "h0" in t else torch.zeros(sizes, dtype=torch.float64)
                c = t["c0"][i, n] if "c0" in t else torch.zeros(sizes, dtype=torch.float64)
                rows: list[Any] = []
                for row in reversed(x[n]) if d else x[n]:
                    a, b = (
                        (w_ih @ row + b_ih).chunk(oracle.GATES[net.mode]),
                        (w_hh @ h + b_hh).chunk(oracle.GATES[net.mode]),
                    )
                    if net.mode == "lstm":
                        i_, f, g, o = (q + r for q, r in zip(a, b, strict=True))
                        c = torch.sigmoid(f) * c + torch.sigmoid(i_) * torch.tanh(g)
                        c = c if net.clip is None else torch.where(c.abs() >= net.clip, net.clip * c.sign().detach(), c)
                        h = torch.sigmoid(o) * torch.tanh(c)
                    elif net.mode == "gru":
                        r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
                        if net.reset_after:
                            new = torch.tanh(a[2] + r * b[2])
                        else:
                            new = torch.tanh(a[2] + w_hh[2 * sizes :] @ (r * h) + b_hh[2 * sizes :])
                        h = (1 - z) * new + z * h
                    else:
                        h = (torch.relu if net.mode == "relu" else torch.tanh)(a[0] + b[0])
                    rows.append(h)
                made = torch.stack(rows[::-1] if d else rows) if rows else torch.zeros(0, sizes, dtype=torch.float64)
                outputs[n].append(made)
                hn[i, n], cn[i, n] = h, c
        x = [torch.cat(rows, -1) for rows in outputs]
    y = torch.nn.utils.rnn.pad_sequence([*x, torch.zeros(p.dense()[3][0], x[0].shape[1], dtype=torch.float64)])[:, :-1]
    stacked = [torch.stack([torch.stack([s[i, n] for n in range(batch)]) for i in range(net.layers * net.directions)])
               for s in (hn, cn)]  # fmt: skip
    return y, *stacked


ALL: dict[str, Any] = {"layers": 2, "bidirectional": True, "h0": True, "dropout": 0.4, "seed": 5, "offset": 3}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "layers": {"layers": 3},
    "bidirectional": {"bidirectional": True},
    "no bias": {"bias": False, "h0": True},
    "lengths": {"lengths": [3, 0, 6, 5], "bidirectional": True, "h0": True, "layers": 2},
    "all": {"lengths": [3, 0, 6, 5], **ALL},
    "packed": {"batch_sizes": [4, 4, 3, 1, 1, 1], **ALL},
}
CELLS: list[tuple[str, dict[str, Any]]] = [
    ("relu", {}), ("tanh", {}), ("lstm", {"c0": True}), ("lstm", {"c0": True, "clip": 0.3}), ("gru", {}),
    ("gru", {"reset_after": False}),
]  # fmt: skip
CELL_NAMES = ["relu", "tanh", "lstm", "lstm clip", "gru", "gru reset_before"]


def small(name: str, cell: tuple[str, dict[str, Any]], dtype: str = "float64") -> Problem:
    options = OPTIONS[name] | cell[1]
    return problem(dtype, cell[0], (14, 3) if name == "packed" else (6, 4, 3), 5, **options)


@pytest.mark.torch
@pytest.mark.parametrize("cell", CELLS, ids=CELL_NAMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_the_oracle_agrees_with_autograd(name: str, cell: tuple[str, dict[str, Any]]) -> None:
    import torch

    p = small(name, cell)
    dense, *_ = p.dense()
    arrays = {n: a for n, a in p.arrays.items() if n not in ("lengths", "batch_sizes")} | {"x": dense(p.arrays["x"])}
    t = {n: torch.from_numpy(a.copy()).requires_grad_() for n, a in arrays.items()}
    weights = [torch.from_numpy(w.copy()).requires_grad_() for w in p.weights]
    want = torch_loop(p, t, weights)
    lstm = cell[0] == "lstm"
    for got, result in zip(p.forward(), want if lstm else want[:2], strict=False):
        np.testing.assert_allclose(got, result.detach(), atol=1e-14)
    back = p.backward()
    # The reserve is float64, so the gradients are those of the loop.
    given = [
        torch.from_numpy(dense(back.arrays["dy"])),
        *(torch.from_numpy(back.arrays[n]) for n in ("dhn", "dcn") if n in back.arrays),
    ]
    torch.autograd.backward(want if lstm else want[:2], given)
    dx, dh0, dc0, _ = back.backward_data()
    np.testing.assert_allclose(dx, t["x"].grad, atol=1e-13)
    for got, state in ((dh0, "h0"), (dc0, "c0")):
        if state in t:
            np.testing.assert_allclose(got, t[state].grad, atol=1e-13)
    for got, w in zip(back.of_weights(p).weight_results(False), weights, strict=True):
        np.testing.assert_allclose(got.want, w.grad, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cell", CELLS, ids=CELL_NAMES)
def test_tolerances_are_those_of_rounding(cell: tuple[str, dict[str, Any]], dtype: str) -> None:
    """The oracle that rounds at each step stays within the tolerance, which is a few times its error."""
    mode, options = cell
    forward = problem(dtype, mode, (20, 8, 16), 24, layers=2, bidirectional=True, lengths=[20, 0, 3, 7, 20, 11, 1, 19],
                      h0=True, **options)  # fmt: skip
    for p in (forward, forward.backward()):
        want, tolerances = p.errors(False)
        for exact, rounded, tolerance in zip(want, p.computed(Rounded(dtype)), tolerances, strict=True):
            shares = np.abs(rounded - exact) / (tolerance + 1e-30)
            assert shares.max() < 0.7
            assert not exact.any() or np.sqrt((shares**2).mean()) > 0.02


# ---- Every engine


@pytest.fixture(autouse=True)
def poisoned_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """New memory holds NaN, so an element that an engine does not write is found. float32 is computed as float32."""
    if "device" not in request.fixturenames:
        yield
        return
    _C.set_allocator_checks(exact=EXACT, poison=255)
    with dnn.Handle(device=request.getfixturevalue("device"), math="ieee"):
        yield
    set_checks()


def every_engine(p: Problem, device: str, **more: Any) -> Iterator[tuple[str, list[np.ndarray]]]:
    t = p.tensors(device)
    engines = p.engines(t, **more)
    assert engines
    for engine in engines:
        yield engine, [values_of(r) for r in p.outputs(t, algo=engine, **more)]


def assert_equal_results(p: Problem, other: Problem, device: str) -> None:
    """Each engine gives the same bits for both calls."""
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(other, device), strict=True):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            np.testing.assert_array_equal(x, y, err_msg=f"{engine} result {i}")


def changed(p: Problem, **arrays: np.ndarray) -> Problem:
    return replace(p, arrays=p.arrays | arrays)


def without(p: Problem, *names: str) -> Problem:
    return replace(p, arrays={n: a for n, a in p.arrays.items() if n not in names})


def three_calls(forward: Problem) -> tuple[Problem, Problem, Problem]:
    data = forward.backward()
    return forward, data, data.of_weights(forward)


def train(p: Problem, device: str, engine: str | None = None) -> tuple[Any, ...]:
    """y, hn, cn, dx, dh0, dc0 and the gradients of the weights by three calls, each with the results of the one before."""
    t = p.tensors(device)
    y, hn, cn, reserve = p.call(t, training=True, algo=engine)
    backward = p.backward()
    given = {n: x for n, x in backward.tensors(device).items() if n in ("dy", "dhn", "dcn")}
    dx, dh0, dc0, dgates = backward.call(t | given | {"y": y, "reserve": reserve}, algo=engine)
    of_weights, saved = backward.of_weights(p), t | {"y": y, "dgates": dgates, "reserve": reserve}
    weights = of_weights.call(saved, algo=engine if engine in of_weights.engines(saved) else None)
    return y, hn, cn, dx, dh0, dc0, weights


TRAINING = [case for case in load("rnn") if "training" in case.words and case.operands["x"].shape[-1] == 5]


@pytest.mark.parametrize("case", TRAINING, ids=str)
def test_the_reserve(case: Any, device: str) -> None:
    """Its layout is documented, so all its numbers but those beyond the ends of sequences are compared. y of training and
    y of inference have the same bits."""
    made = sample(case)
    (forward,) = (c.cell_contents for c in made.call.__closure__ if isinstance(c.cell_contents, Problem))
    options = {n: v for n, v in forward.options.items() if n != "training"}
    p = replace(forward, options=options)
    t, rows = p.tensors(device), p.rows()
    want, allowed = p.errors("math" not in case.attributes)
    valid = rows((np.arange(p.dense()[3][0])[:, None] < p.dense()[2]).astype(float)) > 0
    with dnn.Handle(device=device, math="ieee" if "math" in case.attributes else "tf32"):
        for engine in p.engines(t, training=True):
            *outputs, reserve = p.call(t, training=True, algo=engine)
            assert reserve.dtype == "uint8" and reserve.ndim == 1
            for a, b in zip(outputs, p.call(t, algo=engine)[:3], strict=True):
                assert (a is None and b is None) or bytes(values_of(a)) == bytes(values_of(b)), engine
            parts = parts_of(values_of(reserve).astype("uint8"), p)
            gates = [np.stack([np.stack([rows(d) for d in layer]) for layer in a[3]]) for a in (want, allowed)]
            assert_close(parts[0][:, :, valid], Result(*(a[:, :, valid] for a in gates)), f"{engine} gates")
            if p.options["mode"] == "lstm":
                cells = [np.stack([np.stack([rows(d) for d in layer]) for layer in a[4]]) for a in (want, allowed)]
                assert_close(parts[1][:, :, valid], Result(*(a[:, :, valid] for a in cells)), f"{engine} c")
            if p.network.layers > 1:
                for i, y in enumerate(parts[-1]):
                    assert_close(y, Result(rows(want[5 + i]), rows(allowed[5 + i])), f"{engine} y of layer {i}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS, ids=CELL_NAMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str, cell: tuple[str, dict[str, Any]], dtype: str, device: str) -> None:
    for p in three_calls(small(name, cell, dtype)):
        p.check(device)


EMPTY: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "no step": ((0, 3, 5), {}),
    "no sequence": ((4, 0, 5), {}),
    "packed, no step": ((0, 5), {"batch_sizes": [], "batch": 3}),
    "all lengths 0": ((4, 3, 5), {"lengths": [0, 0, 0]}),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", EMPTY)
def test_empty(name: str, mode: str, dtype: str, device: str) -> None:
    """The states pass through, and gradients of weights are 0."""
    x, more = EMPTY[name]
    states = {"h0": True} | ({"c0": True} if mode == "lstm" else {})
    p = problem(dtype, mode, x, 8, bidirectional=True, layers=2, **states, **more)
    y, hn, cn, dx, dh0, dc0, weights = train(p, device)
    assert not values_of(y).any() and not values_of(dx).any() and dx.shape == x and y.shape == (*x[:-1], 16)
    backward = p.backward()
    np.testing.assert_array_equal(values_of(hn), p.arrays["h0"])
    np.testing.assert_array_equal(values_of(dh0), backward.arrays["dhn"])
    if mode == "lstm":
        np.testing.assert_array_equal(values_of(cn), p.arrays["c0"])
        np.testing.assert_array_equal(values_of(dc0), backward.arrays["dcn"])
    assert len(weights) == 16 and all(not values_of(w).any() for w in weights)
    made = backward.of_weights(p)
    out = [dnn.full(w.shape, 2.0, dtype=dtype, device=device) for w in p.weights]
    made.call(made.tensors(device), out=out, accumulate=True)
    assert all((values_of(w) == 2).all() for w in out)
    y, hn, cn, _ = without(p, "h0", "c0").call(without(p, "h0", "c0").tensors(device))
    assert not values_of(hn).any() and (cn is None or not values_of(cn).any())


# ---- Comparison with torch


def torch_module(p: Problem, device: str) -> Any:
    """torch's module with the weights of the call."""
    import torch

    net = p.network
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(net.mode, torch.nn.RNN)
    more = {"nonlinearity": net.mode} if net.mode in ("relu", "tanh") else {}
    module = kind(p.inputs, net.hidden_size, net.layers, bias=net.bias, bidirectional=net.bidirectional,
                  dtype=torch.float64, device=device, **more)  # fmt: skip
    with torch.no_grad():
        for mine, w in zip(p.weights, module.parameters(), strict=True):
            w.copy_(torch.from_numpy(mine))
    return module


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["plain", "layers", "bidirectional", "no bias", "lengths"])
def test_agrees_with_the_modules_of_torch(name: str, mode: str) -> None:
    """Results and gradients, with copied weights. Lengths are those of a PackedSequence in torch, which has no empty
    sequence."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    options = OPTIONS[name] | ({"lengths": [3, 1, 6, 5]} if name == "lengths" else {})
    p = problem("float64", mode, (6, 4, 3), 5, **options, **({"c0": "h0" in options} if mode == "lstm" else {}))
    module, t = torch_module(p, "cpu"), {n: torch.from_numpy(a.copy()) for n, a in p.arrays.items()}
    leaves = {n: t[n].requires_grad_() for n in ("x", "h0", "c0") if n in t}
    given = ((t["h0"], t["c0"]) if mode == "lstm" else t["h0"]) if "h0" in t else None
    if name == "lengths":
        packed, states = module(pack_padded_sequence(t["x"], t["lengths"], enforce_sorted=False), given)
        y, _ = pad_packed_sequence(packed, total_length=6)
    else:
        y, states = module(t["x"], given)
    results = [y, *(states if mode == "lstm" else [states])]
    got = train(p, "cpu")
    for mine, theirs in zip(got[:3], results, strict=False):
        np.testing.assert_allclose(values_of(mine), theirs.detach(), atol=1e-14)
    back = p.backward()
    torch.autograd.backward(
        results, [torch.from_numpy(back.arrays[n]) for n in ("dy", "dhn", "dcn") if n in back.arrays]
    )
    for mine, leaf in zip(got[3:6], ("x", "h0", "c0"), strict=True):
        if leaf in leaves:
            np.testing.assert_allclose(values_of(mine), leaves[leaf].grad, atol=1e-13)
    for mine, parameter in zip(got[6], module.parameters(), strict=True):
        np.testing.assert_allclose(values_of(mine), parameter.grad, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES)
def test_packed_sequences_of_torch(mode: str) -> None:
    """x, y and batch_sizes are those of a PackedSequence. Its batch sizes are int64, so the call gets them as a list."""
    import torch
    from torch.nn.utils.rnn import pack_sequence

    p = problem("float64", mode, (1, 1, 3), 5, layers=2, bidirectional=True)
    module = torch_module(p, "cpu")
    packed = pack_sequence([torch.randn(n, 3, dtype=torch.float64) for n in (7, 4, 4, 1)])
    want, states = module(packed)
    weights = [w.detach() for w in module.parameters()]
    y, hn, cn, _ = dnn.rnn_forward(packed.data, weights, mode=mode, hidden_size=5, layers=2, bidirectional=True,
                                   batch_sizes=packed.batch_sizes.tolist())  # fmt: skip
    np.testing.assert_allclose(values_of(y), want.data.detach(), atol=1e-14)
    for mine, theirs in zip((hn, cn), states if mode == "lstm" else (states,), strict=False):
        np.testing.assert_allclose(values_of(mine), theirs.detach(), atol=1e-14)


@pytest.mark.torch
def test_the_flat_weights_of_torch() -> None:
    """rnn_pack has the order of torch's flat buffer, whose tensors are views of one storage on a GPU."""
    import torch

    p = problem("float32", "lstm", (1, 1, 3), 5, layers=2, bidirectional=True)
    module = torch_module(p, "cpu").float()
    names = [name for name, _ in module.named_parameters()]
    assert (
        names[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"] and names[4] == "weight_ih_l0_reverse"
    )
    options = {n: p.options[n] for n in ("mode", "hidden_size", "layers", "bidirectional")}
    flat = dnn.rnn_pack([w.detach() for w in module.parameters()], **options)
    want = torch.cat(
        [w.detach().ravel() for kind in ("weight", "bias") for n, w in module.named_parameters() if n.startswith(kind)]
    )
    np.testing.assert_array_equal(flat.numpy(), want.numpy())


# ---- Weights as one tensor


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_pack_and_unpack(bias: bool, dtype: str, device: str) -> None:
    p = problem(dtype, "gru", (5, 3, 4), 7, layers=2, bidirectional=True, bias=bias)
    options = {n: p.options[n] for n in ("mode", "hidden_size", "layers", "bidirectional", "bias")}
    t = p.tensors(device)
    weights = [t[f"w{i}"] for i in range(len(p.weights))]
    flat = dnn.rnn_pack(weights, **options)
    np.testing.assert_array_equal(values_of(flat), flattened(p.weights, bias))
    for view, w in zip(dnn.rnn_unpack(flat, **options), p.weights, strict=True):
        np.testing.assert_array_equal(values_of(view), w)
    views = dnn.rnn_unpack(flat, **options)
    assert views[0].data_ptr == flat.data_ptr
    out, untouched = framed(flat.shape, (1,), dtype, device)
    assert dnn.rnn_pack(views, **options, out=out).data_ptr == out.data_ptr and untouched()
    np.testing.assert_array_equal(values_of(out), values_of(flat))
    for engine in p.engines(t):
        listed, one = p.call(t, algo=engine), p.call(t | {"weights": flat}, algo=engine)
        for a, b in zip(listed[:2], one[:2], strict=True):
            np.testing.assert_array_equal(values_of(a), values_of(b))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cell", CELLS, ids=CELL_NAMES)
def test_gradients_of_weights_in_all_forms(cell: tuple[str, dict[str, Any]], dtype: str, device: str) -> None:
    """A list, one tensor, and both as out, with and without `accumulate`."""
    forward = small("all", cell, dtype)
    p = forward.backward().of_weights(forward)
    t, results = p.tensors(device), p.results()
    rng = np.random.default_rng(0)
    before = [reference.rounded(rng.normal(size=w.shape), dtype) for w in p.weights]
    added = replace(p, previous=before).results()
    for engine in p.engines(t):
        flat = p.call(t, flat=True, algo=engine)
        for got, want in zip(p.call(t, algo=engine), results, strict=True):
            assert_close(got, want, engine)
        np.testing.assert_array_equal(values_of(flat), flattened([values_of(w) for w in p.call(t, algo=engine)]))
        for accumulate, wanted in ((False, results), (True, added)):
            out = [tensor(b if accumulate else np.full(b.shape, np.nan), dtype, device) for b in before]
            made = p.call(t, out=out, accumulate=accumulate, algo=engine)
            for got, given, want in zip(made, out, wanted, strict=True):
                assert got.data_ptr == given.data_ptr
                assert_close(given, want, engine)
            whole = tensor(flattened(before) if accumulate else np.full(flat.shape, np.nan), dtype, device)
            assert p.call(t, out=whole, accumulate=accumulate, algo=engine).data_ptr == whole.data_ptr
            np.testing.assert_array_equal(values_of(whole), flattened([values_of(w) for w in out]))


# ---- Weights of other libraries


def page_functions() -> dict[str, Any]:
    """The functions of docs/ops/rnn.md."""
    page = Path(__file__).resolve().parent.parent / "docs/ops/rnn.md"
    (code,) = re.findall(r"```python\n(import numpy.*?)```", page.read_text(), re.S)
    found: dict[str, Any] = {}
    exec(compile(code, "rnn.md", "exec"), found)
    return found


def onnx_node(
    mode: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, linear_before_reset: bool
) -> np.ndarray:
    """Y [T, D, N, H] by the equations of ONNX's operators, with their order of gates."""
    steps, batch, size = *x.shape[:2], r.shape[2]
    y = np.zeros((steps, len(w), batch, size))
    sigmoid = oracle.sigmoid
    for d in range(len(w)):
        wb, rb = np.split(b[d], 2)
        h, c = np.zeros((batch, size)), np.zeros((batch, size))
        part = lambda a: np.split(a, len(a) // size)
        for t in reversed(range(steps)) if d else range(steps):
            of_x, of_h = ([v @ m.T + k for m, k in zip(part(ms), part(ks), strict=True)]
                          for v, ms, ks in ((x[t], w[d], wb), (h, r[d], rb)))  # fmt: skip
            if mode == "lstm":
                i, o, f, new = (p + q for p, q in zip(of_x, of_h, strict=True))
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
                h = sigmoid(o) * np.tanh(c)
            elif mode == "gru":
                z, reset = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
                inner = reset * of_h[2] if linear_before_reset else (reset * h) @ part(r[d])[2].T + part(rb)[2]
                h = (1 - z) * np.tanh(of_x[2] + inner) + z * h
            else:
                h = np.tanh(of_x[0] + of_h[0])
            y[t, d] = h
    return y


def keras_layer(mode: str, x: np.ndarray, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The sequence [N, T, H] of a Keras layer for x [N, T, I]."""
    size = len(recurrent)
    h, c, rows = np.zeros((len(x), size)), np.zeros((len(x), size)), []
    sigmoid, part = oracle.sigmoid, lambda a: np.split(a, a.shape[-1] // size, axis=-1)
    for t in range(x.shape[1]):
        if mode == "lstm":
            i, f, new, o = part(x[:, t] @ kernel + h @ recurrent + bias)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
            h = sigmoid(o) * np.tanh(c)
        elif mode == "gru" and bias.ndim == 2:  # reset_after
            xz, xr, xh = part(x[:, t] @ kernel + bias[0])
            hz, hr, hh = part(h @ recurrent + bias[1])
            z = sigmoid(xz + hz)
            h = z * h + (1 - z) * np.tanh(xh + sigmoid(xr + hr) * hh)
        elif mode == "gru":
            (xz, xr, xh), (uz, ur, uh) = part(x[:, t] @ kernel + bias), part(recurrent)
            z = sigmoid(xz + h @ uz)
            h = z * h + (1 - z) * np.tanh(xh + (sigmoid(xr + h @ ur) * h) @ uh)
        else:
            h = np.tanh(x[:, t] @ kernel + h @ recurrent + bias)
        rows.append(h)
    return np.stack(rows, 1)


@pytest.mark.parametrize("mode, reset_after", [("tanh", True), ("lstm", True), ("gru", True), ("gru", False)])
def test_weights_of_onnx(mode: str, reset_after: bool) -> None:
    rng, g = np.random.default_rng(0), oracle.GATES[mode]
    x, w, r, b = (rng.normal(size=s) for s in ((6, 3, 4), (2, g * 5, 4), (2, g * 5, 5), (2, 2 * g * 5)))
    want = onnx_node(mode, x, w, r, b, reset_after)
    weights = page_functions()["from_onnx"](mode, w, r, b)
    y, *_ = dnn.rnn_forward(x, weights, mode=mode, hidden_size=5, bidirectional=True, reset_after=reset_after)
    np.testing.assert_allclose(y.numpy().reshape(6, 3, 2, 5).transpose(0, 2, 1, 3), want, atol=1e-14)


@pytest.mark.parametrize("mode, reset_after", [("tanh", True), ("lstm", True), ("gru", True), ("gru", False)])
def test_weights_of_keras(mode: str, reset_after: bool) -> None:
    rng, g = np.random.default_rng(0), oracle.GATES[mode]
    x, kernel, recurrent = (rng.normal(size=s) for s in ((3, 6, 4), (4, g * 5), (5, g * 5)))
    bias = rng.normal(size=(2, g * 5) if mode == "gru" and reset_after else g * 5)
    want = keras_layer(mode, x, kernel, recurrent, bias)
    weights = page_functions()["from_keras"](mode, kernel, recurrent, bias)
    y, *_ = dnn.rnn_forward(x, weights, mode=mode, hidden_size=5, reset_after=reset_after, layout="ntc")
    np.testing.assert_allclose(y.numpy(), want, atol=1e-14)


# ---- Lengths and packed sequences


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_full_lengths_are_none(mode: str, dtype: str, device: str) -> None:
    """To the bit; and lengths outside of 0 to T are clamped."""
    options: dict[str, Any] = {"layers": 2, "bidirectional": True, "h0": True}
    for p in three_calls(problem(dtype, mode, (6, 3, 5), 8, **options)):
        assert_equal_results(p, changed(p, lengths=np.array([6, 6, 6])), device)
        assert_equal_results(p, changed(p, lengths=np.array([7, 6, 2**31 - 1])), device)
        assert_equal_results(
            changed(p, lengths=np.array([0, 6, 0])), changed(p, lengths=np.array([-1, 9, -(2**31)])), device
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_sequences_does_not_matter(mode: str, dtype: str, device: str) -> None:
    p = problem(dtype, mode, (9, 6, 5), 8, layers=2, bidirectional=True, h0=True, lengths=[3, 0, 9, 5, 9, 1])
    order = np.array([4, 2, 3, 0, 5, 1])
    sorted_ = {n: np.ascontiguousarray(p.arrays[n][:, order]) for n in ("x", "h0")}
    other = changed(p, **sorted_, lengths=p.arrays["lengths"][order])
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(other, device), strict=True):
        for x, y, result in zip(a, b, p.results(), strict=True):
            assert_close(y, Result(x[:, order], np.asarray(result.tolerance)[:, order]), engine)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("mode", MODES)
def test_padding_is_not_read(mode: str, value: float, dtype: str, device: str) -> None:
    """x, y and dy beyond the end of a sequence do not matter. For the gradients of weights, x must be finite there."""
    lengths = np.array([3, 0, 6, 5])
    options: dict[str, Any] = {"layers": 2, "bidirectional": True, "h0": True, "lengths": lengths}
    forward, data, _ = three_calls(problem(dtype, mode, (6, 4, 5), 8, **options))
    beyond = np.arange(6)[:, None] >= lengths
    for p, names in ((forward, ("x",)), (data, ("y", "dy"))):
        spoilt = []
        for fill in (0.0, value):
            arrays = {n: p.arrays[n].copy() for n in names}
            for a in arrays.values():
                a[beyond] = fill
            spoilt.append(changed(p, **arrays))
        assert_equal_results(*spoilt, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS, ids=CELL_NAMES)
def test_packed_is_padded(cell: tuple[str, dict[str, Any]], dtype: str, device: str) -> None:
    """Packed sequences give the results of the same sequences with lengths. Rows of no sequence are 0."""
    sizes, mode = [4, 4, 3, 1, 1], cell[0]
    packed = problem(dtype, mode, (16, 5), 8, layers=2, bidirectional=True, h0=True, batch_sizes=sizes, **cell[1])
    dense, rows, lengths, _ = packed.dense()
    options = {n: v for n, v in packed.options.items() if n != "batch"}
    padded = replace(without(packed, "batch_sizes"), options=options)
    padded = changed(padded, x=dense(packed.arrays["x"]), lengths=lengths)
    for engine, results in every_engine(packed, device):
        assert not results[0][13:].any(), engine
        same = [values_of(r) for r in padded.outputs(padded.tensors(device), algo=engine)]
        for i, (a, b, result) in enumerate(zip(results, same, packed.results(), strict=True)):
            assert_close(a, Result(rows(b) if i == 0 else b, 2 * np.asarray(result.tolerance)), engine)
    exact = changed(packed, x=packed.arrays["x"][:13])
    listed = exact.tensors(device) | {"batch_sizes": sizes}
    for a, b in zip(exact.outputs(listed), exact.outputs(exact.tensors(device)), strict=True):
        np.testing.assert_array_equal(values_of(a), values_of(b))


@pytest.mark.parametrize("sizes", [[9, 9, 9, 9], [3, 5, -1, 2], [-5, 2, 2, 2], [2**31 - 1] * 4, [0, 0, 0, 0]])
def test_wrong_batch_sizes_on_the_device(sizes: list[int], device: str) -> None:
    """They are clamped: to the number of sequences, to those that have not ended, and to the rows. Nothing else is read or
    written, and all results are written."""
    p = problem("float32", "lstm", (7, 5), 8, bidirectional=True, batch_sizes=[3, 2, 1, 1])
    for made in three_calls(p):
        t = made.tensors(device) | {"batch_sizes": dnn.asarray(sizes, dtype="int32", device=device)}
        for engine in made.engines(t):
            for _ in range(2):
                assert all(np.isfinite(values_of(r)).all() for r in made.outputs(t, algo=engine)), engine


# ---- States


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS, ids=CELL_NAMES)
def test_chunks_continue(cell: tuple[str, dict[str, Any]], dtype: str, device: str) -> None:
    """Two calls, the second with the states of the first, are one. c passes through the dtype of x between them."""
    mode, more = cell
    p = problem(dtype, mode, (11, 3, 5), 8, layers=2, h0=True, **more)
    t, results = p.tensors(device), p.results()
    parts = [changed(p, x=p.arrays["x"][steps]).tensors(device)["x"] for steps in (slice(4), slice(4, None))]
    for engine in p.engines(t):
        first = p.call(t | {"x": parts[0]}, algo=engine)
        states = {"h0": first[1]} | ({"c0": first[2]} if mode == "lstm" else {})
        second = p.call(t | states | {"x": parts[1]}, algo=engine)
        y = np.concatenate([values_of(first[0]), values_of(second[0])])
        assert_close(y, Result(results[0].want, 2 * np.asarray(results[0].tolerance)), engine)
        for got, result in zip(second[1:3], results[1:], strict=False):
            assert_close(got, Result(result.want, 2 * np.asarray(result.tolerance)), engine)


@pytest.mark.parametrize("mode", MODES)
def test_zero_states_are_none(mode: str, device: str) -> None:
    p = problem("float32", mode, (5, 3, 4), 8, bidirectional=True, h0=True, **({"c0": True} if mode == "lstm" else {}))
    zero = changed(p, **{n: np.zeros(p.arrays[n].shape) for n in ("h0", "c0") if n in p.arrays})
    assert_equal_results(zero, without(zero, "h0", "c0"), device)
    back = zero.backward()
    back = changed(back, **{n: np.zeros(back.arrays[n].shape) for n in ("dhn", "dcn") if n in back.arrays})
    assert_equal_results(back, without(back, "h0", "c0", "dhn", "dcn"), device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["tanh", "lstm", "gru"])
def test_long_sequences_do_not_drift(mode: str, dtype: str, device: str) -> None:
    """After 500 steps, errors are as large as after 50."""
    p = problem(dtype, mode, (500, 2, 4), 8)
    (y, *_), (tolerance, *_) = p.errors(False)
    assert tolerance[-50:].max() < 3 * tolerance[:50].max()
    for engine, (got, *_) in every_engine(p, device):
        assert_close(got, Result(y, tolerance), engine)


# ---- Dropout, clipping, and large numbers


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["tnc", "ntc", "packed"])
def test_dropout_between_layers(layout: str, dtype: str, device: str) -> None:
    """Layers of one call are calls of one layer with dropout_forward between them."""
    options: dict[str, Any] = {"dropout": 0.4, "seed": 2**35 + 1, "offset": 7, "layers": 3, "bidirectional": True}
    packed = layout == "packed"
    p = problem(dtype, "gru", (13, 5) if packed else (5, 3, 5), 8, **options,
                **({"batch_sizes": [4, 4, 3, 1, 1]} if packed else {}))  # fmt: skip
    t, result = p.tensors(device), p.results()[0]
    more = {"layout": layout} if layout == "ntc" else {}
    if more:
        t["x"] = t["x"].permute((1, 0, 2)).contiguous()
    for engine in p.engines(t, **more):
        y, *_ = p.call(t, algo=engine, **more)
        got = values_of(y).swapaxes(0, 1) if more else values_of(y)
        assert_close(got, result, engine)
        x = t["x"].permute((1, 0, 2)) if more else t["x"]
        for layer in range(3):
            one = {n: t[n] for n in t if n in ("batch_sizes",)}
            rest = {n: v for n, v in p.options.items() if n not in ("layers", "dropout", "seed", "offset")}
            weights = [t[f"w{i}"] for i in range(8 * layer, 8 * layer + 8)]
            x = dnn.rnn_forward(x, weights, algo=engine, **one, **rest)[0]
            if layer < 2:
                x = dnn.dropout_forward(x.contiguous(), 0.4, seed=2**35 + 1, offset=7 + layer)
        assert_close(got, Result(values_of(x), 2 * np.asarray(result.tolerance)), engine)


def test_dropout_of_one_layer_is_none(device: str) -> None:
    p = problem("float32", "lstm", (5, 3, 4), 8, bidirectional=True)
    other = replace(p, options=p.options | {"dropout": 0.5, "seed": 1})
    assert_equal_results(p, other, device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_clipping(dtype: str, device: str) -> None:
    """c stays within the limit, and where it is cut its gradient is 0. A large limit changes nothing."""
    p = problem(dtype, "lstm", (6, 3, 5), 8, layers=2, h0=True, c0=True, clip=0.125)
    back = p.backward()
    assert back.saved is not None and back.saved.cells is not None
    cut = np.abs(back.saved.cells) >= 0.125
    assert 0.2 < cut.mean() < 0.9
    for engine, (_, _, cn) in every_engine(p, device):
        assert np.abs(cn).max() == 0.125, engine
    for engine, results in every_engine(back, device):
        d = results[-1].reshape(2, 1, 6, 3, 4, 8)
        assert not d[..., :3, :][np.broadcast_to(cut[..., None, :], d[..., :3, :].shape)].any(), engine
    back.check(device)
    for made in (p, back):
        none = replace(made, options=made.options | {"clip": None})
        assert_equal_results(replace(made, options=made.options | {"clip": 1e30}), none, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["tanh", "lstm", "gru"])
def test_saturated_gates(mode: str, dtype: str, device: str) -> None:
    """Sums of 1e4 and more: gates are 0 or 1, and nothing is NaN. Gradients through them are 0."""
    p = problem(dtype, mode, (5, 3, 4), 8, bidirectional=True)
    x = p.arrays["x"]
    p = changed(p, x=reference.rounded(np.where(x < 0, -1.0, 1.0) * 2.0**15, dtype))
    p.weights[0] = reference.rounded(np.sign(p.weights[0]) * np.maximum(np.abs(p.weights[0]), 0.25), dtype)
    p.weights[0][:] = np.sign(p.weights[0][:, :1]) * np.abs(p.weights[0])
    p.arrays["x"] = np.abs(p.arrays["x"])  # all products of a gate have one sign
    p.weights[4] = p.weights[0].copy()
    p.check(device)
    back = p.backward()
    for engine, results in every_engine(back, device):
        assert all(np.isfinite(r).all() for r in results), engine
    back.check(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("mode", MODES)
def test_nan_stays_in_its_sequence(mode: str, value: float, dtype: str, device: str) -> None:
    """NaN in one step of a sequence reaches its later steps, and no other sequence."""
    p = problem(dtype, mode, (6, 5, 4), 8, layers=2)
    bad = changed(p, x=p.arrays["x"].copy())
    bad.arrays["x"][2, 3, 1] = value
    others = [0, 1, 2, 4]
    for (engine, a), (_, b) in zip(every_engine(p, device), every_engine(bad, device), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x[:, others], y[:, others], err_msg=engine)
        np.testing.assert_array_equal(a[0][:2], b[0][:2], err_msg=engine)
        if np.isnan(value):
            assert np.isnan(b[0][2:, 3]).all(), engine
    data = p.backward()
    spoilt = changed(data, dy=data.arrays["dy"].copy())
    spoilt.arrays["dy"][2, 3, 1] = value
    for (engine, a), (_, b) in zip(every_engine(data, device), every_engine(spoilt, device), strict=True):
        for x, y in zip(a, b, strict=True):
            axis = 3 if x.ndim == 5 else 1
            np.testing.assert_array_equal(np.delete(x, 3, axis), np.delete(y, 3, axis), err_msg=engine)


# ---- Gradients, by differences


@pytest.mark.parametrize("cell", CELLS[1:], ids=CELL_NAMES[1:])  # relu has a kink
@pytest.mark.parametrize("name", ["all", "packed"])
def test_gradients_are_limits_of_differences(name: str, cell: tuple[str, dict[str, Any]], device: str) -> None:
    p = small(name, (cell[0], {n: v for n, v in cell[1].items() if n != "clip"}))
    rng, step = np.random.default_rng(3), 1e-6
    directions = {n: rng.normal(size=p.arrays[n].shape) for n in ("x", "h0", "c0") if n in p.arrays}
    of_weights = [rng.normal(size=w.shape) for w in p.weights]
    up, down = (
        replace(changed(p, **{n: p.arrays[n] + s * d for n, d in directions.items()}),
                weights=[w + s * d for w, d in zip(p.weights, of_weights, strict=True)])
        for s in (step, -step)
    )  # fmt: skip
    back = p.backward()
    given = [back.arrays[n] for n in ("dy", "dhn", "dcn") if n in back.arrays]
    for (engine, a), (_, b) in zip(every_engine(up, device), every_engine(down, device), strict=True):
        difference = sum((g * (x - y)).sum() for g, x, y in zip(given, a, b, strict=True)) / (2 * step)
        _, _, _, dx, dh0, dc0, weights = train(p, device, engine)
        gradients = {"x": dx, "h0": dh0, "c0": dc0}
        product = sum((values_of(gradients[n]) * d).sum() for n, d in directions.items())
        product += sum((values_of(g) * d).sum() for g, d in zip(weights, of_weights, strict=True))
        assert abs(product - difference) < 1e-6 * max(abs(product), 1), engine


# ---- Layouts, out, recording, threads


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_layout_names_the_dimensions(mode: str, dtype: str, device: str) -> None:
    """layout="ntc" is a permutation of the dimensions of x, y, dy and dx. Results are the same to the bit."""
    for p in three_calls(
        problem(dtype, mode, (6, 4, 5), 8, layers=2, bidirectional=True, h0=True, lengths=[6, 0, 2, 5])
    ):
        t = p.tensors(device)
        turned = t | {n: t[n].permute((1, 0, 2)).contiguous() for n in ("x", "y", "dy") if n in t}
        for engine in p.engines(t):
            a, b = p.outputs(t, algo=engine), p.outputs(turned, algo=engine, layout="ntc")
            if p.direction != "backward_weights":
                assert b[0].shape == (4, 6, b[0].shape[2]) and b[0].is_contiguous()
                b[0] = b[0].permute((1, 0, 2))
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(values_of(x), values_of(y), err_msg=engine)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_strides_and_out(dtype: str, device: str) -> None:
    """x is a slice of a larger tensor. y and dx go into slices, whose neighbours do not change."""
    p = problem(dtype, "lstm", (5, 3, 4), 6, layers=2, bidirectional=True)
    t, data = p.tensors(device), p.backward()
    t["x"] = tensor(np.pad(p.arrays["x"], ((0, 0), (0, 1), (2, 3)), constant_values=np.nan), dtype, device)[:, :3, 2:6]
    strides = [(36, 12, 1), (70, 20, 1), (1, 7, 30), (-40, 13, 1), (12, 60, 1)]
    for made, given, columns in ((p, t, 12), (data, data.tensors(device), 4)):
        results = made.results()
        for s in strides:
            for engine in made.engines(given, out=framed((5, 3, columns), s, dtype, device)[0]):
                out, untouched = framed((5, 3, columns), s, dtype, device)
                outputs = made.outputs(given, algo=engine, out=out)
                assert outputs[0].data_ptr == out.data_ptr and outputs[0].strides == out.strides
                for got, want in zip(outputs, results, strict=True):
                    assert_close(got, want, engine)
                assert untouched(), engine


def test_training_is_recorded(device: str) -> None:
    """The three calls as one graph, with and without dropout."""
    for name in ("all", "packed"):
        p = small(name, ("lstm", {"c0": True}), "float32")
        t = p.tensors(device)
        dy = p.backward().tensors(device)["dy"]

        def step(t: dict[str, Any], dy: Any, p: Problem = p) -> list[Any]:
            y, hn, cn, reserve = p.call(t, training=True)
            back = replace(p, direction="backward_data", saved=None, options=p.options)
            dx, dh0, dc0, dgates = back.call(t | {"dy": dy, "y": y, "reserve": reserve})
            weights = replace(p, direction="backward_weights").call(t | {"y": y, "dgates": dgates, "reserve": reserve})
            return [y, hn, cn, dx, dh0, dc0, *weights]

        recorded = dnn.fuse(step)
        for _ in range(2):
            for a, b in zip(step(t, dy), recorded(t, dy), strict=True):
                np.testing.assert_array_equal(values_of(a), values_of(b))


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("engine", ["persistent", "cluster"])
def test_blocks_that_wait_for_each_other(engine: str) -> None:
    """1,000 launches of a persistent kernel on two streams end, while products on a third one take the whole device."""
    import torch

    streams, x = [torch.cuda.Stream() for _ in range(3)], torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    handles = [dnn.Handle("cuda:0", stream=stream) for stream in streams[:2]]
    p = problem("bfloat16", "lstm", (20, 24, 64), 512)
    t = p.tensors("cuda:0")
    first = [torch.from_dlpack(r).clone() for r in p.call(t, algo=f"cuda.rnn.{engine}")[:3]]
    torch.cuda.synchronize()
    for n in range(500):
        with torch.cuda.stream(streams[2]):
            torch.matmul(x, x)
        results = [p.call(t, algo=f"cuda.rnn.{engine}", handle=h)[:3] for h in handles]
        if n % 50 == 0:
            dnn.synchronize("cuda:0")
            for result in results:
                assert all(map(torch.equal, map(torch.from_dlpack, result), first))
    dnn.synchronize("cuda:0")


@pytest.mark.parametrize("more", ["", "h0=f(2, {batch}, {hidden}), lengths=np.arange({batch}, dtype='int32') % 10"])
@pytest.mark.parametrize(
    ("mode", "gates", "hidden", "batch"), [("lstm", 4, 40, 17), ("gru", 3, 150, 5), ("lstm", 4, 200, 1)]
)
def test_results_do_not_depend_on_threads(mode: str, gates: int, hidden: int, batch: int, more: str) -> None:
    """The last two sizes have teams on the CPU, whose members have different numbers of units. 64 threads are more than
    cores."""
    rows = gates * hidden
    code = f"""
import hashlib, numpy as np, pyminidnn as dnn
rng = np.random.default_rng(0)
f = lambda *s: (rng.normal(size=s) / 4).astype("float32")
weights = [w for _ in range(2) for w in (f({rows}, 30), f({rows}, {hidden}), f({rows}), f({rows}))]
o = dict(mode="{mode}", hidden_size={hidden}, bidirectional=True)
states = dict({more.format(batch=batch, hidden=hidden)})
x = f(9, {batch}, 30)
y, hn, cn, r = dnn.rnn_forward(x, weights, training=True, **o, **states)
dx, dh0, dc0, g = dnn.rnn_backward_data(f(9, {batch}, {2 * hidden}), None, None, y, weights, r, **o, **states)
w = dnn.rnn_backward_weights(x, states.pop("h0", None), y, g, r, **o, **states, flat=True)
for t in (y, hn, cn, dx, dh0, dc0, g, w):
    if t is not None:
        print(hashlib.sha256(t.numpy().tobytes()).hexdigest())
"""
    assert len(outputs_by_threads(code)) == 1


def test_calls_on_several_threads_at_once() -> None:
    """One of them gets the threads of the pool. The others compute alone, and must not wait for members of a team."""
    p = problem("float32", "lstm", (30, 4, 20), 96, bidirectional=True)
    t = p.tensors("cpu")
    want = [values_of(r) for r in p.outputs(t)]

    def call(_: int) -> list[np.ndarray]:
        return [values_of(r) for r in p.outputs(t)]

    with ThreadPoolExecutor(4) as threads:
        for got in threads.map(call, range(100)):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)


def test_what_packed_gemm_does_not_support() -> None:
    def reason(p: Problem) -> str:
        (report,) = (r for r in dnn.explain(p.call, p.tensors("cpu")) if r.problem.startswith("rnn "))
        return {e.name: e.why_not for e in report.engines}["cpu.rnn.packed_gemm"]

    assert reason(problem("float64", "lstm", (3, 2, 4), 5)) == "float64 is not supported"
    calls = three_calls(problem("float32", "gru", (3, 2, 4), 5, reset_after=False))
    assert [reason(p) for p in calls] == ["it is for GRUs with reset_after"] * 2 + [""]


# The ratio of errors that is taken for equal accuracy.
WORSE = 4


@pytest.mark.torch
@pytest.mark.parametrize(("hidden", "batch", "steps", "layers"), [(512, 16, 100, 1), (512, 1, 100, 1), (200, 7, 60, 2)])
@pytest.mark.parametrize("mode", ["tanh", "lstm", "gru"])
def test_large_layers_are_as_accurate_as_torch(mode: str, hidden: int, batch: int, steps: int, layers: int) -> None:
    """Results and gradients against torch in float64. Their errors are at most WORSE times those of torch in float32."""
    import torch

    two = layers == 2
    p = problem("float32", mode, (steps, batch, hidden), hidden, layers=layers, bidirectional=two, spread=1.0)
    dy = torch.from_numpy(np.random.default_rng(1).normal(size=(steps, batch, hidden * (1 + two))).astype("float32"))

    def results_of_torch(dtype: torch.dtype) -> list[np.ndarray]:
        module, x = torch_module(p, "cpu").to(dtype), torch.from_numpy(p.arrays["x"]).to(dtype).requires_grad_()
        y, states = module(x)
        y.backward(dy.to(dtype))
        states = states if mode == "lstm" else (states,)
        return [a.detach().double().numpy() for a in (y, *states, x.grad, *(w.grad for w in module.parameters()))]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several wait for each other for seconds where other programs use the cores
    try:
        exact, single = results_of_torch(torch.float64), results_of_torch(torch.float32)
    finally:
        torch.set_num_threads(threads)
    t = p.tensors("cpu")
    y, hn, cn, reserve = p.call(t, training=True, algo="packed_gemm")
    weights = [t[f"w{i}"] for i in range(len(p.weights))]
    more: dict[str, Any] = p.options | {"algo": "packed_gemm"}
    dx, *_, dgates = dnn.rnn_backward_data(dy, None, None, y, weights, reserve, **more)
    gradients = dnn.rnn_backward_weights(t["x"], None, y, dgates, reserve, **more)
    got = [y, hn, *([cn] if mode == "lstm" else []), dx, *gradients]
    for i, (a, want, theirs) in enumerate(zip(got, exact, single, strict=True)):
        error, allowed = (np.linalg.norm(r - want) for r in (values_of(a), theirs))
        assert error < WORSE * allowed, f"result {i}: {error:.3g} against {allowed:.3g}"
        assert allowed < 1e-4 * np.linalg.norm(want)


@pytest.mark.parametrize("direction", [0, 1, 2])
@pytest.mark.parametrize(
    ("mode", "steps", "batch", "hidden"), [("lstm", 20, 1, 128), ("gru", 10, 8, 64), ("tanh", 5, 4, 200)]
)
def test_the_faster_engine_of_the_cpu_is_chosen(mode: str, steps: int, batch: int, hidden: int, direction: int) -> None:
    """The one with the lower estimate is the one that find() measures as faster. It is several times faster."""
    p = three_calls(problem("float32", mode, (steps, batch, hidden), hidden))[direction]
    t = p.tensors("cpu")
    (chosen,) = (r for r in dnn.explain(p.call, t) if r.problem.startswith("rnn "))
    (measured,) = (r for r in dnn.find(p.call, t) if r.problem.startswith("rnn "))
    assert chosen.chosen == measured.chosen == "cpu.rnn.packed_gemm"
    estimates = {e.name: e.estimate_us for e in chosen.engines}
    assert estimates["cpu.rnn.packed_gemm"] < estimates["cpu.rnn.reference"]


# ---- Errors


LSTM: dict[str, Any] = {"mode": "lstm", "hidden_size": 4}


def weights_of(mode: str = "lstm", inputs: int = 3, hidden: int = 4, layers: int = 1, directions: int = 1) -> list[Any]:
    p = problem("float32", mode, (1, 1, inputs), hidden, layers=layers, bidirectional=directions == 2)
    return [dnn.asarray(w, dtype="float32") for w in p.weights]


def forward(x: Any = None, weights: Any = None, **options: Any) -> Any:
    x = dnn.zeros((5, 2, 3), dtype="float32") if x is None else x
    return dnn.rnn_forward(x, weights_of() if weights is None else weights, **(LSTM | options))


BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mode": "elman"}, dnn.ShapeError, r"rnn_forward: mode must be 'relu', 'tanh', 'lstm' or 'gru'; got 'elman'"),
    ({"hidden_size": 0}, dnn.ShapeError, r"hidden_size must be from 1 to \d+; got 0"),
    ({"layers": 0}, dnn.ShapeError, r"layers must be from 1 to 32; got 0"),
    ({"layers": 33}, dnn.ShapeError, r"layers must be from 1 to 32; got 33"),
    ({"reset_after": False}, dnn.ShapeError, r"reset_after=False is for mode 'gru'; mode is 'lstm'"),
    ({"clip": 0.0}, dnn.ShapeError, r"clip must be finite and above 0; got 0"),
    ({"clip": float("nan")}, dnn.ShapeError, r"clip must be finite and above 0; got nan"),
    ({"dropout": 1.0}, dnn.ShapeError, r"dropout must be at least 0 and below 1; got 1"),
    ({"dropout": -0.1}, dnn.ShapeError, r"dropout must be at least 0 and below 1; got -0.1"),
    ({"seed": -1}, dnn.ShapeError, r"seed and offset must not be negative; got -1 and 0"),
    ({"layout": "nct"}, dnn.ShapeError, r"layout must be 'tnc' or 'ntc'; got 'nct'"),
    ({"batch": 2}, dnn.ShapeError, r"batch is for packed sequences; batch_sizes is not given"),
    ({"lengths": np.zeros(3, "int32")}, dnn.ShapeError, r"lengths is \[3\], must be \[2\]|lengths.*\[2\].*\[3\]"),
    ({"lengths": np.zeros(2, "int64")}, dnn.DTypeError, r"lengths must be int32; got int64"),
    ({"h0": np.zeros((2, 2, 4), "float32")}, dnn.ShapeError, r"h0.*\[1, 2, 4\].*\[2, 2, 4\]|h0.*\[2, 2, 4\].*\[1, 2, 4\]"),
    ({"h0": np.zeros((1, 2, 4), "float64")}, dnn.DTypeError, r"h0 must be float32; got float64"),
    ({"c0": np.zeros((1, 2, 5), "float32")}, dnn.ShapeError, r"c0.*\[1, 2, [45]\]"),
    ({"h0": np.zeros((1, 2, 8), "float32")[..., ::2]}, dnn.ShapeError, r"h0 must be contiguous; its strides are \[16, 8, 2\]"),
    ({"algo": "cpu.rnn.fast"}, dnn.NotSupported, r"names no engine for rnn forward f32 x=5x2x3 mode=lstm hidden=4"),
    ({"lengths": np.zeros(2, "int32"), "batch_sizes": [2, 1]}, dnn.ShapeError, r"batch_sizes is given, so lengths must not be"),
    ({"batch_sizes": [2, 1]}, dnn.ShapeError, r"batch_sizes is given, so x must be \[rows, features\]"),
    ({"batch_sizes": [1, 2]}, dnn.ShapeError, r"batch_sizes must be positive and must not grow; got \[1, 2\]"),
    ({"batch_sizes": [2, 0]}, dnn.ShapeError, r"batch_sizes must be positive and must not grow; got \[2, 0\]"),
    ({"batch_sizes": ["a"]}, dnn.DTypeError, r"batch_sizes must be a list of ints; got \['a'\]"),
]  # fmt: skip


@pytest.mark.parametrize("options, error, text", BAD_OPTIONS, ids=[str(i) for i in range(len(BAD_OPTIONS))])
def test_options_are_checked(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        forward(**options)
    assert str(caught.value).startswith("rnn_forward: ")


def test_batch_sizes_are_checked() -> None:
    rows = dnn.zeros((3, 3), dtype="float32")
    with pytest.raises(dnn.ShapeError, match=r"batch or h0 must say how many sequences there are"):
        forward(rows, batch_sizes=dnn.asarray([2, 1], dtype="int32"))
    with pytest.raises(dnn.DTypeError, match=r"batch_sizes must be int32; got int64"):
        forward(rows, batch_sizes=dnn.asarray([2, 1], dtype="int64"), batch=2)
    with pytest.raises(dnn.ShapeError, match=r"batch_sizes must add up to 3, the number of rows of x; got \[3, 2\]"):
        forward(rows, batch_sizes=[3, 2])
    with pytest.raises(dnn.DTypeError, match=r"rnn_forward: x must be an array; got None"):
        dnn.rnn_forward(None, weights_of(), **LSTM, batch_sizes=[2, 1])  # type: ignore[arg-type]


def test_weights_are_checked() -> None:
    two = {"layers": 2, "bidirectional": True}
    for index, shape, text in (
        (5, (12, 4), r"weights\[5\] \(layer 0, backward, w_hh\) must be \[16, 4\]; got \[12, 4\]"),
        (8, (16, 4), r"weights\[8\] \(layer 1, forward, w_ih\) must be \[16, 8\]; got \[16, 4\]"),
        (15, (15,), r"weights\[15\] \(layer 1, backward, b_hh\) must be \[16\]; got \[15\]"),
    ):
        weights = weights_of(layers=2, directions=2)
        weights[index] = dnn.zeros(shape, dtype="float32")
        with pytest.raises(dnn.ShapeError, match=text):
            forward(weights=weights, **two)
    with pytest.raises(dnn.ShapeError, match=r"weights.*16.*15|weights.*15.*16"):
        forward(weights=weights_of(layers=2, directions=2)[:15], **two)
    with pytest.raises(dnn.DTypeError, match=r"weights\[1\].*float32.*float64|weights\[1\].*float64"):
        forward(weights=[*weights_of()[:1], dnn.zeros((16, 4), dtype="float64"), *weights_of()[2:]])
    with pytest.raises(
        dnn.ShapeError, match=r"weights\[0\] \(layer 0, forward, w_ih\) must be \[16, 3\]; got \[16, 5\]"
    ):
        forward(weights=weights_of(inputs=5))
    with pytest.raises(dnn.ShapeError, match=r"weights must have 144 elements for an input of 3; got \[97\]"):
        forward(weights=dnn.zeros((97,), dtype="float32"))
    transposed = weights_of()
    transposed[1] = dnn.zeros((4, 16), dtype="float32").permute((1, 0))
    with pytest.raises(dnn.ShapeError, match=r"weights\[1\].*must be contiguous"):
        forward(weights=transposed)


def test_operands_of_backward_are_checked() -> None:
    x = np.ones((5, 2, 3), "float32")
    y, _, _, reserve = forward(dnn.asarray(x), training=True)
    weights, dy = weights_of(), dnn.zeros((5, 2, 4), dtype="float32")
    data = lambda dy=dy, dhn=None, dcn=None, y=y, reserve=reserve, **o: dnn.rnn_backward_data(
        dy, dhn, dcn, y, weights, reserve, **(LSTM | o)
    )
    *_, dgates = data()
    assert dgates.shape == (1, 1, 5, 2, 16)
    with pytest.raises(dnn.ShapeError, match=r"rnn_backward_data: dy.*\[5, 2, 3\].*y|dy.*\[5, 2, 4\]"):
        data(dy=dnn.zeros((5, 2, 3), dtype="float32"))
    with pytest.raises(dnn.ShapeError, match=rf"reserve.*\[{reserve.size}\]"):
        data(reserve=reserve[:-16])
    with pytest.raises(dnn.DTypeError, match=r"reserve must be uint8; got float32"):
        data(reserve=dnn.zeros(reserve.shape, dtype="float32"))
    with pytest.raises(dnn.ShapeError, match=r"dhn.*\[1, 2, 4\]"):
        data(dhn=dnn.zeros((1, 2, 5), dtype="float32"))
    with pytest.raises(dnn.ShapeError, match=r"dcn is for mode 'lstm'; mode is 'gru'"):
        data(dcn=dnn.zeros((1, 2, 4), dtype="float32"), mode="gru")
    of_weights = lambda dgates=dgates, **o: dnn.rnn_backward_weights(x, None, y, dgates, reserve, **(LSTM | o))
    with pytest.raises(dnn.ShapeError, match=r"rnn_backward_weights: dgates.*\[1, 1, 5, 2, 16\]"):
        of_weights(dgates=dgates[..., :12])
    with pytest.raises(dnn.ShapeError, match=r"accumulate=True needs out, which is not given"):
        of_weights(accumulate=True)
    with pytest.raises(dnn.ShapeError, match=r"out\[1\] \(layer 0, forward, w_hh\) must be \[16, 4\]; got \[16, 5\]"):
        of_weights(out=[dnn.zeros(s, dtype="float32") for s in ((16, 3), (16, 5), (16,), (16,))])


def test_outputs_that_overlap_are_refused() -> None:
    x = dnn.zeros((5, 2, 4), dtype="float32")
    with pytest.raises(dnn.ShapeError, match=r"rnn_forward: out.*x|overlap"):
        dnn.rnn_forward(x, weights_of(inputs=4), **LSTM, out=x)
    _, _, _, reserve = dnn.rnn_forward(x, weights_of(inputs=4), **LSTM, training=True)
    y = dnn.zeros((5, 2, 4), dtype="float32")
    with pytest.raises(dnn.ShapeError, match=r"rnn_backward_data: out.*y|overlap"):
        dnn.rnn_backward_data(x, None, None, y, weights_of(inputs=4), reserve, **LSTM, out=y)


@pytest.mark.gpu
def test_devices_are_checked() -> None:
    x = dnn.zeros((5, 2, 3), dtype="float32", device="cuda")
    with pytest.raises(dnn.DeviceError, match=r"rnn_forward: x is on cuda:0, weights\[0\].*is on cpu"):
        forward(x)
