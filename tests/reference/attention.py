# SPDX-License-Identifier: Apache-2.0
"""Attention from its definition: the scores of all pairs of a query and a key, one sequence after the other.

The options are those of the public functions. `keep` replaces dropout's seed and offset: a bool array [B, H, Sq, Sk]
(packed: [B, H, max_q, max_kv]), false where an element of P is dropped. attention_keep() makes the library's.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .random import words
from .transform import rounded


@dataclass
class Sequence:
    """One sequence: q [H, m, D], k [H, n, D] and v [H, n, Dv], with the heads of k and v repeated to those of q. All
    are rows within the lengths; `rows` and `columns` select them in the arrays of q and of k."""

    number: int
    rows: tuple
    columns: tuple
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: float
    capped: np.ndarray  # [H, m, n]: the scores before bias, alibi and masks
    scores: np.ndarray  # -inf where a column is hidden
    sink: np.ndarray | None  # [H, 1]
    kept: np.ndarray | None  # [H, m, n]: what multiplies P after the softmax: 0 or 1 / (1 - dropout)

    def softmax(self):
        """(P, lse). A row that sees nothing has P = 0, and lse = -inf or the sink."""
        t = self.scores
        m = np.max(t, axis=-1, initial=-np.inf)
        if self.sink is not None:
            m = np.maximum(m, self.sink)
        safe = np.where(m == -np.inf, 0.0, m)
        e = np.exp(t - safe[..., None])
        total = e.sum(-1) + (0 if self.sink is None else np.exp(self.sink - safe))
        with np.errstate(divide="ignore"):
            return e / np.where(total == 0, 1.0, total)[..., None], safe + np.log(total)

    def probability(self, lse):
        """P from the lse that the forward call has returned. It is 0 in a row that sees nothing."""
        hidden = (self.scores == -np.inf) | (lse == -np.inf)[..., None]
        with np.errstate(invalid="ignore"):
            return np.where(hidden, 0.0, np.exp(np.where(hidden, 0.0, self.scores - lse[..., None])))

    def sink_probability(self, lse):
        """The share of the sink in the denominator of each row."""
        return np.where(lse == -np.inf, 0.0, np.exp(self.sink - np.where(lse == -np.inf, 0.0, lse)))


def attention_sequences(q, k, v, *, scale=None, causal=False, align="top_left", window=None, bias=None, alibi=None,
                        softcap=0.0, sink=None, dropout=0.0, keep=None, q_lengths=None, kv_lengths=None, cu_q=None,
                        cu_kv=None, max_q=None, max_kv=None, layout="bhsd", precision="float64"):  # fmt: skip
    """The sequences of a call. Scores and bias are added in `precision`: a float32 sum absorbs the scores where the
    bias is -1e9."""
    packed = cu_q is not None
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    if layout == "bshd" and not packed:
        q, k, v = (a.swapaxes(1, 2) for a in (q, k, v))
    heads, group = q.shape[1], q.shape[1] // max(k.shape[1], 1)
    rows = _rows(q, q_lengths, cu_q, max_q, packed)
    columns = _rows(k, kv_lengths, cu_kv, max_kv, packed)
    whole = (len(rows), heads, *((max_q, max_kv) if packed else (q.shape[2], k.shape[2])))
    bias = None if bias is None else np.broadcast_to(bias, whole)
    alibi = None if alibi is None else np.broadcast_to(np.asarray(alibi, np.float64), whole[:2])
    left, right = window or (None, None)
    right = 0 if causal else right
    found = []
    for b, (row, column) in enumerate(zip(rows, columns, strict=True)):
        qs = part(q, row)
        ks, vs = (np.repeat(part(a, column), group, axis=0) for a in (k, v))
        m, n = qs.shape[1], ks.shape[1]
        factor = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
        capped = factor * (qs @ ks.swapaxes(1, 2))
        if softcap:
            capped = softcap * np.tanh(capped / softcap)
        diagonal = n - m if align == "bottom_right" else 0
        distance = np.arange(n) - np.arange(m)[:, None] - diagonal
        visible = np.ones((heads, m, n), bool)
        if left is not None:
            visible &= distance >= -left
        if right is not None:
            visible &= distance <= right
        t = capped
        if bias is not None and bias.dtype == bool:
            visible &= bias[b, :, :m, :n]
        elif bias is not None:
            t = (t.astype(precision) + bias[b, :, :m, :n].astype(precision)).astype(np.float64)
        if alibi is not None:
            t = t - alibi[b][:, None, None] * np.abs(distance)
        kept = None if keep is None else keep[b, :, :m, :n] / (1 - dropout)
        logit = None if sink is None else np.asarray(sink, np.float64)[:, None]
        found.append(Sequence(b, row, column, qs, ks, vs, factor, capped, np.where(visible, t, -np.inf), logit, kept))
    return found


def _rows(a, lengths, cu, most, packed):
    """Where the sequences are in an array: (batch, begin, end), with batch None if it is packed. Numbers out of range
    are clamped."""
    if packed:
        cu = np.maximum.accumulate(np.clip(cu, 0, len(a)))
        return [(None, int(x), int(min(y, x + most))) for x, y in pairwise(cu)]
    size = a.shape[2]
    return [(b, 0, size if lengths is None else int(np.clip(lengths[b], 0, size))) for b in range(len(a))]


def part(a, rows):
    """The view [H, S, ...] of a sequence in an array [B, H, S, ...], or packed [T, H, ...]."""
    b, begin, end = rows
    return a[begin:end].swapaxes(0, 1) if b is None else a[b, :, begin:end]


def _result(a, layout, packed):
    return a.swapaxes(1, 2) if layout == "bshd" and not packed else a


def attention_forward(q, k, v, *, dtype=None, layout="bhsd", **options):
    """o = softmax(scale q k^T + ...) v, and lse, the natural logarithm of the rows' denominators.

    With `dtype`, exp(score - maximum) and o are rounded to it, as an engine of that dtype does.
    """
    packed = options.get("cu_q") is not None
    rows = (lambda a: a) if packed or layout == "bhsd" else (lambda a: np.swapaxes(a, 1, 2))
    o = np.zeros((*rows(np.asarray(q)).shape[:-1], np.shape(v)[-1]))
    lse = np.full(o.shape[:-1], -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        for s in attention_sequences(q, k, v, layout=layout, **options):
            p, each = s.softmax()
            if dtype is not None:
                largest = p.max(axis=-1, keepdims=True, initial=0)
                largest[largest == 0] = 1
                p = rounded(p / largest, dtype) * largest
            p = p if s.kept is None else p * s.kept
            part(o, s.rows)[...] = p @ s.v if dtype is None else rounded(p @ s.v, dtype)
            part(lse, s.rows)[...] = each
    return _result(o, layout, packed), np.ascontiguousarray(lse.T) if packed else lse


def attention_backward(do, q, k, v, o=None, lse=None, *, dtype=None, layout="bhsd", bias_gradient=False, **options):
    """(dq, dk, dv[, dbias][, dsink]) of sum(do o). P is exp(score - lse), and a row's sum of P dP is that of do o, for
    the o and lse that are given; None: exact ones.

    With `dtype`, P, dS and the results are rounded to it.
    """
    packed = options.get("cu_q") is not None
    if o is None or lse is None:
        o, lse = attention_forward(q, k, v, layout=layout, **options)
    rows = (lambda a: np.asarray(a, np.float64)) if packed or layout == "bhsd" else (lambda a: np.swapaxes(a, 1, 2))
    dq, dk, dv = (np.zeros(rows(a).shape) for a in (q, k, v))
    do, o, lse = rows(do), rows(o), lse.T if packed else lse
    bias, sink = options.get("bias"), options.get("sink")
    heads, shape = dq.shape[1], None
    if bias_gradient:
        sizes = (options["max_q"], options["max_kv"]) if packed else (dq.shape[2], dk.shape[2])
        shape = (len(options["cu_q"]) - 1 if packed else len(dq), heads, *sizes)
    dbias, dsink = np.zeros(shape or 0), np.zeros(heads)
    to = (lambda a: a) if dtype is None else (lambda a: rounded(a, dtype))
    with np.errstate(invalid="ignore"):
        for s in attention_sequences(q, k, v, layout=layout, **options):
            g, each = part(do, s.rows), part(lse, s.rows)
            total = (g * part(o, s.rows)).sum(-1)
            p = s.probability(each)
            kept = 1.0 if s.kept is None else s.kept
            dz = np.where(s.scores == -np.inf, 0.0, p * (kept * (g @ s.v.swapaxes(1, 2)) - total[..., None]))
            ds = dz
            if options.get("softcap"):
                ds = dz * (1 - (s.capped / options["softcap"]) ** 2)
            ds, (m, n) = to(ds), dz.shape[1:]
            part(dq, s.rows)[...] = s.scale * (ds @ s.k)
            add_heads(part(dk, s.columns), s.scale * (ds.swapaxes(1, 2) @ s.q))
            add_heads(part(dv, s.columns), (to(p) * kept).swapaxes(1, 2) @ g)
            if bias_gradient:
                dbias[s.number, :, :m, :n] += dz
            if sink is not None:
                dsink -= (s.sink_probability(each) * total).sum(-1)
    results = [_result(to(a), layout, packed) for a in (dq, dk, dv)]
    if bias_gradient:
        results.append(summed(dbias, np.shape(bias)))
    return (*results, dsink) if sink is not None else tuple(results)


def add_heads(to, each):
    """Adds the gradients of all heads of q to those of the heads of k that they read."""
    if len(to):
        to += each.reshape(len(to), len(each) // len(to), *each.shape[1:]).sum(1)


def summed(a, shape):
    """The sum over the dimensions along which an array of that shape was broadcast."""
    own = (1,) * (a.ndim - len(shape)) + tuple(shape)
    axes = tuple(i for i, n in enumerate(own) if n == 1 and a.shape[i] != 1)
    return a.sum(axes, keepdims=True).reshape(shape)


def attention_decode(q, k_cache, v_cache, *, lengths, pages=None, window=None, layout="bshd", **options):
    """attention_forward of the last rows of sequences whose keys and values are in caches."""
    k, v = (attention_cache(c, pages, layout) for c in (k_cache, v_cache))
    reach = {"kv_lengths": lengths, "window": (window, 0), "align": "bottom_right"}
    return attention_forward(q, k, v, layout=layout, **reach, **options)


def attention_cache(cache, pages, layout="bshd"):
    """The cache of all sequences as it is without pages: [B, Smax, Hk, D], or [B, Hk, Smax, D] for "bhsd"."""
    cache = np.asarray(cache, np.float64)
    if pages is None:
        return cache
    chosen = cache[np.clip(pages, 0, len(cache) - 1)]  # [B, n, page size, Hk, D] or [B, n, Hk, page size, D]
    if layout == "bshd":
        return chosen.reshape(len(chosen), -1, *chosen.shape[3:])
    chosen = chosen.swapaxes(1, 2)
    return chosen.reshape(*chosen.shape[:2], -1, chosen.shape[-1])


def attention_keep(shape, p, *, seed, offset=0):
    """Which elements of P dropout keeps: the first Sk columns of dropout_forward on [B, H, Sq, Sk rounded up to 4]."""
    *rows, columns = shape
    wide = (*rows, -(-columns // 4) * 4)
    kept = words(int(np.prod(wide)), seed, offset) >= np.uint64(int(p * 2.0**32))
    return kept.reshape(wide)[..., :columns]
