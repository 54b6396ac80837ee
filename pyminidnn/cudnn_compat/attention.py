# SPDX-License-Identifier: Apache-2.0
"""The methods of a pygraph that make nodes of attention: sdpa and sdpa_backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..graph import _line_of_user
from ..refusals import short
from . import enums
from .enums import NOT_SET, attention_implementation, cudnnGraphNotSupportedError, diagonal_alignment, member, real
from .nodes import Node, Nodes, checked
from .tensors import Tensor


class Attention(Nodes):
    """The methods that make nodes of attention."""

    def sdpa(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_inference: bool | None = None,
        attn_scale: float | Tensor | None = None,
        bias: Tensor | None = None,
        block_mask: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: Any = diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Any = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Tensor | None = None,
        paged_attention_v_table: Tensor | None = None,
        paged_attention_max_seq_len_kv: int | None = None,
        compute_data_type: Any = NOT_SET,
        name: str = "",
        score_mod: Any = None,
        generate_stats: bool | None = None,
        implementation: Any = attention_implementation.AUTO,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Tensor | None = None,
        unfuse_fma: bool = False,
    ) -> list[Tensor | None]:
        """Attention, [o, stats]: o = softmax(attn_scale q k^T + bias) v, and the logarithms of the softmax's sums.

        q           [B, H, Sq, D]
        k, v        [B, Hk, Sk, D] and [B, Hk, Sk, Dv]; H is a multiple of Hk. With tables of pages,
                    [pages, Hk, page size, D or Dv]
        attn_scale  a number, or a tensor that is passed by value; None: 1
        bias        dimensions of 1 or those of [B, H, Sq, Sk], added to the scaled scores
        use_alibi_mask          adds slope (j - i) to the score of row i and column j; needs use_causal_mask
        use_padding_mask        rows from seq_len_q on, and columns from seq_len_kv on, are padding; [B, 1, 1, 1]
        use_causal_mask, use_causal_mask_bottom_right  a right bound of 0, with the alignment that the name says
        diagonal_alignment      the diagonal of row i is column i (TOP_LEFT), or i + length of k - length of q
        diagonal_band_left_bound, sliding_window_length  n: row i sees n columns up to its diagonal, that one included
        diagonal_band_right_bound  n: row i sees n columns behind its diagonal
        dropout     (probability, seed, offset), where seed and offset are tensors of one integer. If they are in the
                    memory of a GPU, execute() waits for their values
        rng_dump    [B, H, Sq, Sk], which receives the mask of dropout: 1 where an element is kept, else 0
        paged_attention_k_table, paged_attention_v_table  [B, 1, n, 1]: the number of page t of each sequence
        paged_attention_max_seq_len_kv  Sk; None: all rows of n pages
        generate_stats, is_inference    one of them: whether there are stats, whether there are none
        sink_token  [1, H, 1, 1]: a score that each row also has, without a value

        stats is [B, H, Sq, 1], None without generate_stats. `implementation` and `unfuse_fma` have no effect. A row
        that sees no column, or that is padding, has o 0 and stats -inf (with a sink: rows without padding have the
        sink). Random numbers of dropout are those of pyminidnn.attention_forward.
        """
        _refuse("sdpa", block_mask=block_mask, score_mod=score_mod, score_max=score_max, score_sum_exp=score_sum_exp)
        member("sdpa: implementation", implementation, attention_implementation)
        trains = _whether_stats(is_inference, generate_stats)
        bounds = (diagonal_band_left_bound, diagonal_band_right_bound)
        causal = (use_causal_mask, use_causal_mask_bottom_right)
        attributes = _band("sdpa", causal, sliding_window_length, diagonal_alignment, bounds)
        attributes["alibi"] = _alibi("sdpa", use_alibi_mask, attributes)
        scale, attributes["scale"] = _scale("sdpa", attn_scale)
        attributes["dropout"], seeds = _dropout("sdpa", dropout, self.nodes)
        tables = [paged_attention_k_table, paged_attention_v_table]
        if any(t is not None for t in tables) and not use_padding_mask:
            raise ValueError("sdpa: tables of pages need use_padding_mask=True, seq_len_q and seq_len_kv")
        attributes["max_seq_len_kv"] = _count("sdpa: paged_attention_max_seq_len_kv", paged_attention_max_seq_len_kv)
        lengths = _lengths("sdpa", use_padding_mask, seq_len_q, seq_len_kv)
        inputs = [q, k, v, scale, bias, *lengths, *seeds, *tables, sink_token]
        dump = _written("sdpa", "rng_dump", rng_dump)
        results = self._node("sdpa", inputs, [True, trains], attributes, compute_data_type, name)
        self.nodes[-1].outputs = [*results, dump]
        return results

    def sdpa_backward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        o: Tensor,
        dO: Tensor,
        stats: Tensor,
        attn_scale: float | Tensor | None = None,
        bias: Tensor | None = None,
        dBias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Tensor | None = None,
        seq_len_kv: Tensor | None = None,
        max_total_seq_len_q: int | None = None,
        max_total_seq_len_kv: int | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: Any = diagonal_alignment.TOP_LEFT,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: Any = None,
        rng_dump: Tensor | None = None,
        use_deterministic_algorithm: bool = False,
        compute_data_type: Any = NOT_SET,
        name: str = "",
        score_mod: Any = None,
        score_mod_bprop: Any = None,
        sink_token: Tensor | None = None,
        dSink_token: Tensor | None = None,
    ) -> list[Tensor]:
        """The gradients of sdpa's q, k and v, from o, its gradient dO, and stats.

        dBias, dSink_token           tensors that receive the gradients of bias and sink_token, of their shapes
        use_deterministic_algorithm  whether all engines of the graph must give the same bits in each run
        max_total_seq_len_*          no effect

        The other arguments are those of sdpa.
        """
        kind = "sdpa_backward"
        _refuse(kind, score_mod=score_mod, score_mod_bprop=score_mod_bprop)
        bounds = (diagonal_band_left_bound, diagonal_band_right_bound)
        causal = (use_causal_mask, use_causal_mask_bottom_right)
        attributes = _band(kind, causal, sliding_window_length, diagonal_alignment, bounds)
        attributes["alibi"] = _alibi(kind, use_alibi_mask, attributes)
        scale, attributes["scale"] = _scale(kind, attn_scale)
        attributes["dropout"], seeds = _dropout(kind, dropout, self.nodes)
        attributes["deterministic"] = bool(use_deterministic_algorithm)
        for argument, total in (("q", max_total_seq_len_q), ("kv", max_total_seq_len_kv)):
            _count(f"{kind}: max_total_seq_len_{argument}", total)
        for argument, given, gradient in (("bias", bias, dBias), ("sink_token", sink_token, dSink_token)):
            if gradient is not None and given is None:
                raise ValueError(f"{kind}: the gradient of {argument} needs {argument}; got None")
        lengths = _lengths(kind, use_padding_mask, seq_len_q, seq_len_kv)
        inputs = [q, k, v, o, dO, stats, scale, bias, *lengths, *seeds, sink_token]
        further = {"dBias": dBias, "dSink_token": dSink_token, "rng_dump": rng_dump}
        written = [_written(kind, argument, t) for argument, t in further.items()]
        results = self._many(kind, inputs, 3, attributes, compute_data_type, name)
        self.nodes[-1].outputs += written
        return results

    scaled_dot_product_flash_attention = sdpa
    scaled_dot_product_flash_attention_backward = sdpa_backward


def _unsupported(kind: str, why: str) -> NoReturn:
    raise cudnnGraphNotSupportedError(f"{kind}: {why} ({_line_of_user()})")


def _refuse(kind: str, **arguments: Any) -> None:
    for argument, value in arguments.items():
        if value is not None:
            _unsupported(kind, f"{argument} is not supported, because pyminidnn's attention has no such option")


def _whether_stats(is_inference: bool | None, generate_stats: bool | None) -> bool:
    given = [x for x in (is_inference, generate_stats) if x is not None]
    if len(given) != 1 or not isinstance(given[0], bool):
        raise ValueError("sdpa: one of generate_stats and is_inference must be True or False; "
                         f"got {short(generate_stats)} and {short(is_inference)}")  # fmt: skip
    return not is_inference if generate_stats is None else generate_stats


def _count(name: str, value: Any, least: int = 1) -> int | None:
    """The value as an int of at least `least`; None stays None."""
    if value is None:
        return None
    number = enums.integer(name, value)
    if not least <= number < 2**31:
        raise ValueError(f"{name} must be from {least} to 2^31 - 1, or None; got {short(value)}")
    return number


def _band(
    kind: str, causal: tuple[bool, bool], window: int | None, alignment: Any, bounds: tuple[int | None, int | None]
) -> dict[str, Any]:
    """The attributes of the diagonal band: its alignment, and how many columns are left of it and right of it."""
    aligned = member(f"{kind}: diagonal_alignment", alignment, enums.diagonal_alignment)
    left, right = bounds
    if window is not None and left is not None:
        raise ValueError(f"{kind}: sliding_window_length and diagonal_band_left_bound are the same option; set one")
    if sum(map(bool, causal)) + (right is not None) > 1:
        raise ValueError(f"{kind}: only one of use_causal_mask, use_causal_mask_bottom_right and "
                         "diagonal_band_right_bound may be set")  # fmt: skip
    if any(causal):
        aligned, right = "BOTTOM_RIGHT" if causal[1] else "TOP_LEFT", 0
    # The bound of cuDNN counts the diagonal.
    seen = _count(f"{kind}: the left bound", left if window is None else window)
    return {
        "alignment": aligned,
        "left": None if seen is None else seen - 1,
        "right": _count(f"{kind}: the right bound", right, 0),
    }


def _alibi(kind: str, wanted: bool, band: dict[str, Any]) -> bool:
    if wanted and (band["right"] != 0 or band["alignment"] != "TOP_LEFT"):
        _unsupported(kind, "use_alibi_mask is supported with use_causal_mask only")
    return bool(wanted)


def _scale(kind: str, scale: Any) -> tuple[Tensor | None, float | None]:
    """The tensor of the scale, or its value."""
    if isinstance(scale, Tensor):
        return scale, None
    return None, 1.0 if scale is None else real(f"{kind}: attn_scale", scale)


def _lengths(kind: str, padded: bool, of_q: Tensor | None, of_kv: Tensor | None) -> list[Tensor | None]:
    if (of_q is not None, of_kv is not None) != (bool(padded), bool(padded)):
        raise ValueError(f"{kind}: use_padding_mask, seq_len_q and seq_len_kv must be set together")
    return [of_q, of_kv]


def _dropout(kind: str, dropout: Any, nodes: Sequence[Node]) -> tuple[float, list[Tensor | None]]:
    """The probability, and the tensors of seed and offset, whose values execute() reads."""
    if dropout is None:
        return 0.0, [None, None]
    if isinstance(dropout, (tuple, list)) and dropout and isinstance(dropout[0], Tensor):
        _unsupported(kind, "dropout by a mask is not supported; (probability, seed, offset) is")
    if not isinstance(dropout, (tuple, list)) or len(dropout) != 3:
        raise ValueError(f"{kind}: dropout must be (probability, seed, offset); got {short(dropout)}")
    probability = real(f"{kind}: the probability of dropout", dropout[0])
    if not 0 <= probability < 1:
        raise ValueError(f"{kind}: the probability of dropout must be from 0 to below 1; got {probability}")
    seeds = [checked(kind, t) for t in dropout[1:]]
    for t in seeds:
        if t.virtual or any(t in node.outputs for node in nodes):
            _unsupported(kind, "a seed or an offset that a node computes is not supported")
        t.fetched = True
    return probability, list(seeds)


def _written(kind: str, argument: str, t: Any) -> Tensor | None:
    """A tensor of the user that the node writes."""
    if t is not None and (not isinstance(t, Tensor) or t.is_number):
        raise ValueError(f"{kind}: {argument} must be a tensor in memory; got {short(t)}")
    return t
