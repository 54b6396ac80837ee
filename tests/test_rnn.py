# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: comparison with torch, lengths, states, the reserve, properties, special values and errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
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
                    a, b = (w_ih @ row + b_ih).chunk(oracle.GATES[net.mode]), (w_hh @ h + b_hh).chunk(oracle.GATES[net.mode])
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
    dense, rows, _, _ = p.dense()
    arrays = {n: a for n, a in p.arrays.items() if n not in ("lengths", "batch_sizes")} | {"x": dense(p.arrays["x"])}
    t = {n: torch.from_numpy(a.copy()).requires_grad_() for n, a in arrays.items()}
    weights = [torch.from_numpy(w.copy()).requires_grad_() for w in p.weights]
    want = torch_loop(p, t, weights)
    lstm = cell[0] == "lstm"
    for got, result in zip(p.forward(), want if lstm else want[:2], strict=False):
        np.testing.assert_allclose(got, result.detach(), atol=1e-14)
    back = p.backward()
    # The reserve is float64, so the gradients are those of the loop.
    given = [torch.from_numpy(dense(back.arrays["dy"])), *(torch.from_numpy(back.arrays[n]) for n in ("dhn", "dcn") if n in back.arrays)]
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
