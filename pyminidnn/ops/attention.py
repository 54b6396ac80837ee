# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention: forward, backward, and decode with a cache of keys and values."""

from __future__ import annotations

from typing import Any

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import AttentionAlign, AttentionLayout
from ..refusals import refusal, short

Window = tuple[int | None, int | None]


def attention_forward(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    scale: float | None = None,
    causal: bool = False,
    align: AttentionAlign = "top_left",
    window: Window | None = None,
    bias: ArrayLike | None = None,
    alibi: ArrayLike | None = None,
    softcap: float = 0.0,
    sink: ArrayLike | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    q_lengths: ArrayLike | None = None,
    kv_lengths: ArrayLike | None = None,
    cu_q: ArrayLike | None = None,
    cu_kv: ArrayLike | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    layout: AttentionLayout = "bhsd",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """softmax(scale q k^T) v for each sequence and head, without a matrix of scores in memory.

    z_ij = softcap(scale q_i k_j) + bias_ij - alibi |i + d - j|;  p_ij = exp(z_ij - lse_i);  o_i = sum_j p_ij v_j
    lse_i = log(exp(sink) + sum_j exp(z_ij)) over the columns j that row i sees; without a sink, exp(sink) is 0

    q        [B, H, Sq, D]; float32, float64, float16 or bfloat16; any strides; NumPy, DLPack or DeviceTensor
    k, v     [B, Hk, Sk, D] and [B, Hk, Sk, Dv]; H is a multiple of Hk: head h of q uses head h // (H / Hk). D and Dv
             are 1 to 576
    scale    None: 1 / sqrt(D)
    causal   whether row i sees no column behind i + d. It sets the right side of `window` to 0
    align    "top_left": d is 0; "bottom_right": d is the length of k minus the length of q, of each sequence
    window   (left, right): row i sees the columns i + d - left to i + d + right; None: no limit
    bias     up to 4 dimensions that broadcast to [B, H, Sq, Sk]: of q's dtype or float32, added to the scores; or bool:
             false hides
    alibi    slopes [H] or [B, H], float32 (float64 for float64)
    softcap  c > 0: c tanh(z / c) replaces the scaled product z; 0: it does not
    sink     [H], float32 (float64 for float64): a score that each row also has, without a value
    dropout  the probability with which each p_ij becomes 0, from 0 to below 1; the others are divided by 1 - dropout.
             Its random numbers are those of dropout_forward(ones([B, H, Sq, n]), dropout, seed=seed, offset=offset),
             n is Sk rounded up to a multiple of 4. lse does not contain it
    q_lengths, kv_lengths  int32 [B]: rows beyond are padding, whatever they hold, NaN too
    cu_q, cu_kv            int32 [sequences + 1]: packed sequences, in place of lengths. q is [rows, H, D], k and v are
                           [rows, Hk, D or Dv]; sequence b has the rows cu[b] to cu[b + 1] - 1
    max_q, max_kv          for packed sequences: rows of a sequence beyond these are not used
    layout   "bshd": q, k, v, o are [B, S, H, D]; a packed tensor is [rows, H, D] in both
    algo     an engine by name, "cuda.attention.generic" or "generic"; None: the fastest expected
    out      receives o instead of a new tensor
    handle   None: the current handle of q's device
    returns  (o, lse). o has q's dtype, and dense strides in the order of q's. lse is [B, H, Sq] ([H, rows] if packed),
             float32 (float64 for float64). Both are on q's device and the handle's stream (does not synchronise)

    A row that sees no column: o 0, lse -inf (with a sink: lse is the sink). A padded row, or a packed row of no
    sequence: o 0, lse -inf. NaN or +inf in a score that a row sees makes the row NaN. A column that is hidden from some
    rows by causal, window or a bool bias must hold finite values of v.
    Scores, exponentials and sums are float32 (float64 for float64); engines may round p to q's dtype. Contents of
    lengths and cu are not checked on the host: they are clamped to the tensors, so wrong ones give wrong results only.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Vaswani et al. 2017, arXiv:1706.03762; Dao et al. 2022, arXiv:2205.14135.
    """
    q, k, v, bias, alibi, sink, q_lengths, kv_lengths, cu_q, cu_kv = operands(
        handle, q, k, v, bias, alibi, sink, q_lengths, kv_lengths, cu_q, cu_kv, out=out
    )
    left, right = _window(window)
    return _C.attention_forward(
        q, k, v, scale, causal, align, left, right, bias, alibi, sink, softcap, dropout, seed, offset, q_lengths,
        kv_lengths, cu_q, cu_kv, max_q, max_kv, layout, algo, output(out), handle,
    )  # fmt: skip


def attention_backward(
    do: ArrayLike,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    o: ArrayLike,
    lse: ArrayLike,
    *,
    scale: float | None = None,
    causal: bool = False,
    align: AttentionAlign = "top_left",
    window: Window | None = None,
    bias: ArrayLike | None = None,
    alibi: ArrayLike | None = None,
    softcap: float = 0.0,
    sink: ArrayLike | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    q_lengths: ArrayLike | None = None,
    kv_lengths: ArrayLike | None = None,
    cu_q: ArrayLike | None = None,
    cu_kv: ArrayLike | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    layout: AttentionLayout = "bhsd",
    bias_gradient: bool = False,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, ...]:
    """The gradients of attention_forward.

    delta_i = sum(do_i o_i);  dz_ij = p_ij (do_i v_j - delta_i);  dv_j = sum_i p_ij do_i
    dq_i = scale sum_j dz_ij k_j;  dk_j = scale sum_i dz_ij q_i, with dz multiplied by 1 - tanh(z / c)^2 for a softcap
    dbias is the sum of dz over the dimensions that the bias broadcasts; dsink_h = -sum exp(sink_h - lse) delta

    do             the gradient of o; shape and dtype of o
    q, k, v        as in attention_forward
    o, lse         what attention_forward returned
    bias_gradient  whether to compute dbias; the bias must not be bool
    other options  as in attention_forward, with equal values
    returns        (dq, dk, dv), then dbias if bias_gradient, then dsink if there is a sink. dq, dk and dv have the
                   dtypes and the stride orders of q, k and v; dbias has the shape and dtype of bias; dsink is [H] of
                   lse's dtype

    Padding, and rows that see nothing, have gradients of 0. Columns hidden from some rows must hold finite values of k
    and v. If a finite bias hides a whole row (all of it -1e9, say), lse cannot represent the row's sum, and its
    gradients are wrong; hide such rows by lengths or by a bool bias.
    Computed in float32 (float64 for float64), then rounded once. Raises the errors of attention_forward.
    """
    do, q, k, v, o, lse, bias, alibi, sink, q_lengths, kv_lengths, cu_q, cu_kv = operands(
        handle, do, q, k, v, o, lse, bias, alibi, sink, q_lengths, kv_lengths, cu_q, cu_kv
    )
    left, right = _window(window)
    gradients = _C.attention_backward(
        do, q, k, v, o, lse, scale, causal, align, left, right, bias, alibi, sink, softcap, dropout, seed, offset,
        q_lengths, kv_lengths, cu_q, cu_kv, max_q, max_kv, layout, bias_gradient, algo, handle,
    )  # fmt: skip
    return tuple(g for g in gradients if g is not None)


def attention_decode(
    q: ArrayLike,
    k_cache: ArrayLike,
    v_cache: ArrayLike,
    *,
    lengths: ArrayLike,
    pages: ArrayLike | None = None,
    scale: float | None = None,
    window: int | None = None,
    alibi: ArrayLike | None = None,
    softcap: float = 0.0,
    sink: ArrayLike | None = None,
    layout: AttentionLayout = "bshd",
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, DeviceTensor]:
    """Attention of the newest rows of each sequence, with all keys and values before them in a cache.

    Row r of R is the position lengths[b] - R + r of its sequence; it sees this position and those before it.

    q                 [B, R, H, D] with R from 1 to 16, such as the tokens of one step of a generation
    k_cache, v_cache  [B, S, Hk, D or Dv], of which the first lengths[b] rows are valid, those of the new rows included;
                      with `pages` [pages, page size, Hk, D or Dv], page size a multiple of 16
    lengths           int32 [B]
    pages             int32 [B, n]: the number of page t of sequence b, which has the positions from t times the page
                      size on; None: no pages
    window            how many positions before its own a row sees; None: all
    layout            "bhsd": q is [B, H, R, D], the caches are [B, Hk, S, D] or [pages, Hk, page size, D]
    other options     as in attention_forward
    returns           (o, lse), as attention_forward; lse is [B, H, R]

    Contents of lengths and pages are clamped to the cache. They stay on the device, so a CUDA graph captures a step
    once and replays it with other contents. Raises the errors of attention_forward.
    """
    q, k_cache, v_cache, lengths, pages, alibi, sink = operands(
        handle, q, k_cache, v_cache, lengths, pages, alibi, sink, out=out
    )
    return _C.attention_decode(
        q, k_cache, v_cache, lengths, scale, window, alibi, sink, softcap, layout, pages, algo, output(out), handle
    )


def _window(window: Any) -> Window:
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise refusal(_C.ShapeError, window, f"must be (left, right) or None; got {short(window)}")
    return window[0], window[1]
