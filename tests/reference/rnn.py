# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in NumPy: a loop over the steps.

All arrays inside are [T, N, ...] with a length for each sequence. Packed rows are converted on the way in and out.
"""

from dataclasses import dataclass, field

import numpy as np

from .random import words
from .transform import rounded

GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}


class Exact:
    """How numbers are computed. The tests derive classes that round, or add errors, to compute tolerances."""

    def product(self, a, w, b, stored=False):
        """a w + b for each row of a. `stored`: the results may be stored in the dtype of x."""
        return a @ w + b

    def gate(self, v):
        """The value of an activation."""
        return v

    def state(self, v):
        """A number in the dtype of sums: c, and the gradients of h and c."""
        return v

    def stored(self, v):
        """A number in the dtype of x: h, y and dgates."""
        return v


EXACT = Exact()


@dataclass
class Network:
    """The options of a call. `weights` is a list as in the public functions."""

    mode: str
    hidden_size: int
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    reset_after: bool = True
    clip: float | None = None
    weights: list = field(default_factory=list)

    @property
    def directions(self):
        return 1 + self.bidirectional

    @property
    def saved_gates(self):
        """Values of a unit and step in the reserve."""
        return 4 if self.mode == "gru" else GATES[self.mode]

    @property
    def gate_gradients(self):
        return 3 if self.mode == "gru" and not self.reset_after else self.saved_gates

    def of(self, layer, direction):
        """w_ih, w_hh, b_ih, b_hh of a layer and direction; zeros in place of missing biases."""
        n = 4 if self.bias else 2
        first = (layer * self.directions + direction) * n
        found = [np.asarray(w, "float64") for w in self.weights[first : first + n]]
        return found if self.bias else [*found, *[np.zeros(GATES[self.mode] * self.hidden_size)] * 2]


@dataclass
class Saved:
    """The content of a reserve: gates [layers, directions, T, N, K, H], c [layers, directions, T, N, H] of an LSTM, and
    y [T, N, directions H] of all layers but the last, before dropout."""

    gates: np.ndarray
    cells: np.ndarray | None
    outputs: list


def sigmoid(v):
    return 0.5 * np.tanh(0.5 * v) + 0.5


def tanh_slope(v):
    """The derivative of tanh where its value is v. 1 - v**2 would lose the digits of a value near 1."""
    return (1 - v) * (1 + v)


# ---- Packed sequences, lengths and dropout


def lengths_of(batch_sizes, batch):
    """How many steps each sequence has."""
    return np.array([sum(n < size for size in batch_sizes) for n in range(batch)], dtype=int)


def unpacked(rows, batch_sizes, batch):
    """[rows, ...] as [T, N, ...], with zeros beyond the ends of sequences."""
    dense, first = np.zeros((len(batch_sizes), batch, *rows.shape[1:])), 0
    for t, size in enumerate(batch_sizes):
        dense[t, :size] = rows[first : first + size]
        first += size
    return dense


def packed(dense, batch_sizes, rows):
    """[T, N, ...] as [rows, ...]. Rows of no sequence are zeros."""
    out, first = np.zeros((rows, *dense.shape[2:])), 0
    for t, size in enumerate(batch_sizes):
        out[first : first + size] = dense[t, :size]
        first += size
    return out


def rnn_keep(shape, layers, p, *, seed=0, offset=0):
    """For each layer but the last, the factors [T, N, directions H] or [rows, directions H] of dropout behind it."""
    size = int(np.prod(shape))
    kept = [words(size, seed, offset + layer).reshape(shape) >= int(p * 2.0**32) for layer in range(layers - 1)]
    return [k / (1 - p) for k in kept]


def dropped(y, keep, dtype):
    """What the next layer reads."""
    return y if keep is None else rounded(y * keep, dtype) if dtype else y * keep


# ---- One direction of a layer


def positions(lengths, reverse, step):
    """The sequences that have the step, and where it is in time."""
    n = np.flatnonzero(step < lengths)
    return n, (lengths[n] - 1 - step if reverse else np.full(len(n), step))


def cell(net, pre, h, c, w_hh, b_hh, how=EXACT):
    """One step: h, c and the values for the reserve [N, K, H], from pre = W x + b_ih [N, G, H]."""
    size = net.hidden_size
    if net.mode == "gru" and not net.reset_after:
        u = how.product(h, w_hh[: 2 * size].T, b_hh[: 2 * size]).reshape(-1, 2, size)
        r, z = (how.gate(sigmoid(pre[:, k] + u[:, k])) for k in range(2))
        q = how.state(r * h)
        n = how.gate(np.tanh(pre[:, 2] + how.product(q, w_hh[2 * size :].T, b_hh[2 * size :])))
        return how.stored(how.state((1 - z) * n + z * h)), c, np.stack([r, z, n, q], 1)
    u = how.product(h, w_hh.T, b_hh).reshape(-1, GATES[net.mode], size)
    if net.mode == "gru":
        r, z = (how.gate(sigmoid(pre[:, k] + u[:, k])) for k in range(2))
        n = how.gate(np.tanh(pre[:, 2] + how.state(r * u[:, 2])))
        return how.stored(how.state((1 - z) * n + z * h)), c, np.stack([r, z, n, u[:, 2]], 1)
    if net.mode == "lstm":
        i, f, o = (how.gate(sigmoid(pre[:, k] + u[:, k])) for k in (0, 1, 3))
        g = how.gate(np.tanh(pre[:, 2] + u[:, 2]))
        c = how.state(f * c + i * g)
        c = c if net.clip is None else np.clip(c, -net.clip, net.clip)
        return how.stored(how.state(o * how.gate(np.tanh(c)))), c, np.stack([i, f, g, o], 1)
    v = pre[:, 0] + u[:, 0]
    h = how.stored(how.state(np.maximum(v, 0) if net.mode == "relu" else how.gate(np.tanh(v))))
    return h, c, h[:, None]


def forward_direction(net, x, weights, h, c, lengths, reverse, how=EXACT):
    """y, h and c after the last steps, gates and cells."""
    w_ih, w_hh, b_ih, b_hh = weights
    (steps, batch, _), size = x.shape, net.hidden_size
    pre = how.product(x, w_ih.T, b_ih, stored=True).reshape(steps, batch, GATES[net.mode], size)
    y, cells = (np.zeros((steps, batch, size)) for _ in range(2))
    gates = np.zeros((steps, batch, net.saved_gates, size))
    h, c = h.copy(), c.copy()
    for step in range(steps):
        n, t = positions(lengths, reverse, step)
        if len(n):
            h[n], c[n], gates[t, n] = cell(net, pre[t, n], h[n], c[n], w_hh, b_hh, how)
            y[t, n], cells[t, n] = h[n], c[n]
    return y, h, c, gates, cells


def backward_direction(net, dy, dh, dc, y, saved, weights, h0, c0, lengths, reverse, how=EXACT):
    """dgates [T, N, K, H], and the gradients of h0 and c0. `saved` are the gates and cells of the direction."""
    gates, cells = saved
    _, w_hh, _, _ = weights
    steps, batch, size = dy.shape
    dgates = np.zeros((steps, batch, net.gate_gradients, size))
    dh, dc = dh.copy(), dc.copy()
    for step in reversed(range(steps)):
        n, t = positions(lengths, reverse, step)
        if not len(n):
            continue
        before = h0[n] if step == 0 else y[t + 1 if reverse else t - 1, n]
        g, total = [gates[t, n, k] for k in range(net.saved_gates)], how.state(dh[n] + dy[t, n])
        if net.mode == "lstm":
            i, f, new, o = g
            c, squashed = cells[t, n], how.gate(np.tanh(cells[t, n]))
            c_before = c0[n] if step == 0 else cells[t + 1 if reverse else t - 1, n]
            of_c = how.state(dc[n] + total * o * tanh_slope(squashed))
            of_c = of_c if net.clip is None else np.where(np.abs(c) >= net.clip, 0, of_c)
            d = [of_c * new * i * (1 - i), of_c * c_before * f * (1 - f), of_c * i * tanh_slope(new),
                 total * squashed * o * (1 - o)]  # fmt: skip
            d = how.stored(np.stack(d, 1))
            dc[n], dh[n] = how.state(of_c * f), how.product(d.reshape(len(n), -1), w_hh, 0)
        elif net.mode == "gru":
            r, z, new, q = g
            dn, dz = total * (1 - z) * tanh_slope(new), total * (before - new) * z * (1 - z)
            if net.reset_after:
                d = how.stored(np.stack([dn * q * r * (1 - r), dz, dn, dn * r], 1))
                dh[n] = how.state(total * z + how.product(d[:, [0, 1, 3]].reshape(len(n), -1), w_hh, 0))
            else:
                dn, dz = how.stored(dn), how.stored(dz)
                dq = how.product(dn, w_hh[2 * size :], 0)
                d = np.stack([how.stored(dq * before * r * (1 - r)), dz, dn], 1)
                through = how.product(d[:, :2].reshape(len(n), -1), w_hh[: 2 * size], 0)
                dh[n] = how.state(total * z + dq * r + through)
        else:
            slope = g[0] > 0 if net.mode == "relu" else tanh_slope(g[0])
            d = how.stored(total * slope)[:, None]
            dh[n] = how.product(d[:, 0], w_hh, 0)
        dgates[t, n] = d
    return dgates, dh, dc


# ---- All layers, on [T, N, ...]


def forward_layers(net, x, h0, c0, lengths, keeps, dtype=None, how=EXACT):
    """y, hn, cn and Saved. h0 and c0 are [layers directions, N, H]. `keeps` has the factors of dropout."""
    outputs, hn, cn, gates, cells = [], [], [], [], []
    for layer in range(net.layers):
        given = x if layer == 0 else dropped(outputs[-1], keeps[layer - 1], dtype)
        made = []
        for d in range(net.directions):
            i = layer * net.directions + d
            y, h, c, *saved = forward_direction(net, given, net.of(layer, d), h0[i], c0[i], lengths, d == 1, how)
            made.append(y)
            hn.append(h)
            cn.append(how.stored(c))
            gates.append(saved[0])
            cells.append(saved[1])
        outputs.append(np.concatenate(made, -1))
    pair = (net.layers, net.directions)
    saved = Saved(*(np.stack(a).reshape(*pair, *a[0].shape) for a in (gates, cells)), outputs[:-1])
    return outputs[-1], np.stack(hn), np.stack(cn), saved


def backward_layers(net, dy, dhn, dcn, y, saved, h0, c0, lengths, keeps, inputs, how=EXACT):
    """dx, dh0, dc0, and dgates [layers, directions, T, N, K, H]. `inputs`: the size of x's innermost dimension."""
    dh0, dc0 = np.zeros(dhn.shape), np.zeros(dhn.shape)
    pair, size = (net.layers, net.directions), net.hidden_size
    dgates = np.zeros((*pair, *y.shape[:2], net.gate_gradients, size))
    g = GATES[net.mode]
    for layer in reversed(range(net.layers)):
        own, dx = y if layer == net.layers - 1 else saved.outputs[layer], 0
        for d in range(net.directions):
            i, part = layer * net.directions + d, slice(d * size, (d + 1) * size)
            kept = [saved.gates[layer, d], saved.cells[layer, d] if net.mode == "lstm" else None]
            dgates[layer, d], dh0[i], dc0[i] = backward_direction(
                net,
                dy[..., part],
                dhn[i],
                dcn[i],
                own[..., part],
                kept,
                net.of(layer, d),
                h0[i],
                c0[i],
                lengths,
                d == 1,
                how,
            )
            of_x = dgates[layer, d][:, :, :g].reshape(*y.shape[:2], g * size)
            dx = dx + how.product(of_x, net.of(layer, d)[0], 0)
        dy = how.stored(dx)
        if layer and keeps[layer - 1] is not None:
            dy = how.stored(dy * keeps[layer - 1])
    assert dy.shape[-1] == inputs
    return dy, how.stored(dh0), how.stored(dc0), dgates


def before_each_step(y, h0, lengths, reverse):
    """h before each step, [T, N, H]."""
    h = np.zeros(y.shape)
    for step in range(y.shape[0]):
        n, t = positions(lengths, reverse, step)
        h[t, n] = h0[n] if step == 0 else y[t + 1 if reverse else t - 1, n]
    return h


def weight_factors(net, x, h0, y, dgates, saved, lengths, keeps, dtype=None):
    """For each gradient of weights, the factors [T, N, ...] whose products it sums over T and N: (gates, with). `with`
    is None for a bias. Pairs are in the order of the weights."""
    size, g = net.hidden_size, GATES[net.mode]
    for layer in range(net.layers):
        given = x if layer == 0 else dropped(saved.outputs[layer - 1], keeps[layer - 1], dtype)
        own = y if layer == net.layers - 1 else saved.outputs[layer]
        for d in range(net.directions):
            of = dgates[layer, d]
            before = before_each_step(
                own[..., d * size : (d + 1) * size], h0[layer * net.directions + d], lengths, d == 1
            )
            of_x = of[:, :, :g].reshape(*x.shape[:2], g * size)
            of_h = of[:, :, [0, 1, 3]].reshape(of_x.shape) if net.mode == "gru" and net.reset_after else of_x
            yield of_x, given
            if net.mode == "gru" and not net.reset_after:  # n sees r h, the others h
                yield of_h, (before, saved.gates[layer, d][:, :, 3])
            else:
                yield of_h, before
            if net.bias:
                yield of_x, None
                yield of_h, None


def summed_products(gates, other, size):
    """One gradient of weights, from a pair of weight_factors()."""
    flat = lambda a: a.reshape(-1, a.shape[-1])
    if other is None:
        return flat(gates).sum(0)
    if isinstance(other, tuple):
        h, q = other
        return np.concatenate([flat(gates)[:, : 2 * size].T @ flat(h), flat(gates)[:, 2 * size :].T @ flat(q)])
    return flat(gates).T @ flat(other)


# ---- The public functions


def _dense(options, x):
    """A function that brings rows to [T, N, ...], its inverse, the lengths, and the shape [T, N]."""
    sizes, lengths = options.get("batch_sizes"), options.get("lengths")
    if sizes is not None:
        sizes = [int(n) for n in sizes]
        batch, rows = options.get("batch") or (sizes[0] if sizes else 0), x.shape[0]
        return (lambda a: unpacked(a, sizes, batch), lambda a: packed(a, sizes, rows), lengths_of(sizes, batch),
                (len(sizes), batch))  # fmt: skip
    steps, batch = x.shape[:2]
    lengths = np.full(batch, steps) if lengths is None else np.clip(np.asarray(lengths, int), 0, steps)
    return (lambda a: a), (lambda a: a), lengths, (steps, batch)


def _network(weights, options):
    names = ("mode", "hidden_size", "layers", "bidirectional", "bias", "reset_after", "clip")
    return Network(**{n: options[n] for n in names if n in options}, weights=weights)


def _states(net, batch, *states):
    """Zeros for those that are None."""
    shape = (net.layers * net.directions, batch, net.hidden_size)
    return [np.zeros(shape) if s is None else np.asarray(s, "float64") for s in states]


def _keeps(net, options, x, dense):
    """The factors of dropout behind each layer, [T, N, directions H], or None."""
    p = options.get("dropout", 0)
    if not p:
        return [None] * net.layers
    shape = (*x.shape[:-1], net.directions * net.hidden_size)
    return [
        dense(k) for k in rnn_keep(shape, net.layers, p, seed=options.get("seed", 0), offset=options.get("offset", 0))
    ]


def rnn_forward(x, weights, *, h0=None, c0=None, dtype=None, **options):
    """y, hn, cn (None except for an LSTM) and Saved. `dtype`: that to which dropout rounds."""
    net = _network(weights, options)
    dense, rows, lengths, (_, batch) = _dense(options, x)
    h0, c0 = _states(net, batch, h0, c0)
    y, hn, cn, saved = forward_layers(net, dense(x), h0, c0, lengths, _keeps(net, options, x, dense), dtype)
    return rows(y), hn, cn if net.mode == "lstm" else None, saved


def rnn_backward_data(dy, dhn, dcn, y, weights, saved, *, h0=None, c0=None, **options):
    """dx, dh0, dc0 (None except for an LSTM) and dgates [layers, directions, T, N, K H] or [layers, directions, rows,
    K H]."""
    net = _network(weights, options)
    dense, rows, lengths, (_, batch) = _dense(options, y)
    h0, c0, dhn, dcn = _states(net, batch, h0, c0, dhn, dcn)
    keeps = _keeps(net, options, y, dense)
    dx, dh0, dc0, dgates = backward_layers(
        net, dense(dy), dhn, dcn, dense(y), saved, h0, c0, lengths, keeps, weights[0].shape[1]
    )
    return rows(dx), dh0, dc0 if net.mode == "lstm" else None, dgates_in_rows(dgates, rows)


def dgates_in_rows(dgates, rows):
    """dgates of all layers in the form of the public function."""
    flat = dgates.reshape(*dgates.shape[:4], dgates.shape[4] * dgates.shape[5])
    return np.stack([np.stack([rows(flat[k, d]) for d in range(flat.shape[1])]) for k in range(flat.shape[0])])


def rnn_backward_weights(x, h0, y, dgates, saved, *, dtype=None, **options):
    """A list of gradients. dgates are as rnn_backward_data returns them."""
    net = _network([], options)
    dense, _, lengths, (_, batch) = _dense(options, x)
    (h0,) = _states(net, batch, h0)
    of = np.stack([np.stack([dense(g) for g in layer]) for layer in dgates])
    of = of.reshape(*of.shape[:4], net.gate_gradients, net.hidden_size)
    keeps = _keeps(net, options, x, dense)
    pairs = weight_factors(net, dense(x), h0, dense(y), of, saved, lengths, keeps, dtype)
    return [summed_products(*pair, net.hidden_size) for pair in pairs]
