# SPDX-License-Identifier: Apache-2.0
"""The CTC loss (connectionist temporal classification), forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _C
from .._C import DeviceTensor, Handle
from ..conversion import ArrayLike, operands, output
from ..options import LossReduction
from ..refusals import refusal, short


def ctc_loss_forward(
    x: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    *,
    blank: int = 0,
    reduction: LossReduction = "mean",
    zero_infinity: bool = False,
    logits: bool = False,
    algo: str | None = None,
    handle: Handle | None = None,
) -> tuple[DeviceTensor, tuple[DeviceTensor, ...]]:
    """The CTC loss of N sequences: -log of the probability that x gives to the labels.

    loss_b = -log sum over paths of prod_t p_t(path_t). A path has a class for each step. It becomes the labels if equal
    neighbours are merged and blanks are then removed; so equal labels need a blank between them.

    x               [T, N, C], or [T, C] for one sequence: log-probabilities of C classes at T steps; any strides;
                    float32, float64, float16 or bfloat16
    targets         the labels: [N, S], or [labels of all sequences], one sequence after the other; int64 or int32
    input_lengths   [N]: the steps of each sequence, at most T; int64 or int32. For x [T, C] also []
    target_lengths  [N]: the labels of each sequence; int64 or int32. For x [T, C] also []
    blank           the class of the blank
    reduction       "mean": each loss is divided by its number of labels (at least 1), then the mean; "sum"; "none"
    zero_infinity   infinite losses and their gradients become 0; they are those of sequences that are too short
    logits          x are logits: p is their softmax
    algo    an engine by name, "cpu.ctc.vectorized" or "vectorized"; None: the fastest expected
    handle  device, stream, options; None: the current one
    returns (loss, saved), float32 (float64 for float64), on x's device and the handle's stream (does not synchronise).
            loss is a scalar, or [N] for "none" ([] for x [T, C]). saved is (alpha, exponents), and with logits a third
            tensor lse; the backward call takes it. It has 2 T (2 labels + N) numbers for all labels of targets

    No element is read on the host. Lengths are clamped to T and to the targets. A label that is no class, or is the
    blank, makes the loss of its sequence NaN. No labels: -log of the probability of blanks alone. No steps: 0 if there
    are no labels, else inf. The mean of no sequences is NaN.
    Probabilities are products of numbers with a wide exponent, so their relative error is a few roundings for each
    step, however large the loss is. log_probabilities below -2^21 count as -inf, above 2^21 as NaN. Repeats exactly.
    Raises ShapeError, DTypeError, DeviceError, OutOfMemory; NotSupported lists every engine and its reason.
    Source: Graves et al. 2006, doi:10.1145/1143844.1143891.
    """
    x, targets, input_lengths, target_lengths = operands(handle, x, targets, input_lengths, target_lengths)
    loss, *saved = _C.ctc_loss_forward(
        x, targets, input_lengths, target_lengths, blank, reduction, zero_infinity, logits, algo, handle
    )
    return loss, tuple(t for t in saved if t is not None)


def ctc_loss_backward(
    dloss: ArrayLike,
    x: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    saved: Sequence[ArrayLike],
    *,
    blank: int = 0,
    reduction: LossReduction = "mean",
    zero_infinity: bool = False,
    logits: bool = False,
    algo: str | None = None,
    out: ArrayLike | None = None,
    handle: Handle | None = None,
) -> DeviceTensor:
    """The gradient of x.

    dx_t,c = g_b (softmax_t,c - posterior_t,c), 0 beyond the sequence's length

    The posterior is the probability that the path has class c at step t, given the labels. softmax is exp(x) of
    log-probabilities. So dx is the gradient of the logits behind x: log_softmax passes it unchanged, as the rows of dx
    have the sum 0. torch and cuDNN return the same. If log-probabilities are free variables, their gradient is
    -g posterior, which is dx - g exp(x).

    dloss          the gradient of the loss; shape and dtype of the loss
    x, targets, input_lengths, target_lengths  as in ctc_loss_forward
    saved          what ctc_loss_forward returned
    other options  as in ctc_loss_forward, with equal values
    out            dx, which must not overlap the operands; None: a new tensor in x's layout
    returns        dx, of x's shape and dtype

    A sequence whose loss is infinite or NaN has NaN gradients, 0 if it is infinite and zero_infinity is set. A sequence
    with a gradient dloss of 0 has gradients of 0. dx is computed in float32 (float64 for float64) and rounded once.
    Repeats exactly. Raises the errors of ctc_loss_forward.
    """
    if not isinstance(saved, (tuple, list)) or len(saved) not in (2, 3):
        raise refusal(_C.ShapeError, saved, f"must be the 2 or 3 tensors of ctc_loss_forward; got {short(saved)}")
    dloss, x, targets, input_lengths, target_lengths, *tensors = operands(
        handle, dloss, x, targets, input_lengths, target_lengths, *saved, out=out
    )
    return _C.ctc_loss_backward(
        dloss, x, targets, input_lengths, target_lengths, tensors, blank, reduction, zero_infinity, logits, algo,
        output(out), handle,
    )  # fmt: skip
