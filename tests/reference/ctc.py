# SPDX-License-Identifier: Apache-2.0
"""The CTC loss by a dense lattice of 2 L + 1 states, of which the even ones are blanks, in logarithms."""

import numpy as np

ZERO_EXPONENT = -1e30  # of the number 0 in `saved`


def ctc_sequences(x, targets, input_lengths, target_lengths):
    """For each sequence: its rows of x, its labels, and the number of labels of all sequences before it. Lengths are
    clamped."""
    x, targets, found, first = np.asarray(x, np.float64), np.asarray(targets).astype(int), [], 0
    for b in range(x.shape[1]):
        steps = int(np.clip(input_lengths[b], 0, x.shape[0]))
        row, first = (targets, first) if targets.ndim == 1 else (targets[b], b * targets.shape[1])
        labels = int(np.clip(target_lengths[b], 0, len(row) - (first if targets.ndim == 1 else 0)))
        begin = first if targets.ndim == 1 else 0
        found.append((x[:steps, b], row[begin : begin + labels], first))
        first += labels
    return found


def log_softmax(x):
    largest = x.max(axis=-1, keepdims=True)
    lse = largest + np.log(np.exp(x - largest).sum(axis=-1, keepdims=True))
    return x - lse, lse[..., 0]


def _arcs(labels, blank):
    """The class of each state, and whether a path may come from the state two before."""
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    skip = np.zeros(len(states), bool)
    skip[3::2] = labels[1:] != labels[:-1]
    return states, skip


def ctc_alpha(log_p, labels, blank):
    """log alpha, [steps, states]."""
    states, skip = _arcs(labels, blank)
    alpha = np.full((len(log_p), len(states)), -np.inf)
    for t, row in enumerate(log_p):
        if t == 0:
            alpha[0, :2] = 0
        else:
            alpha[t] = alpha[t - 1]
            alpha[t, 1:] = np.logaddexp(alpha[t, 1:], alpha[t - 1, :-1])
            alpha[t, 2:] = np.where(skip[2:], np.logaddexp(alpha[t, 2:], alpha[t - 1, :-2]), alpha[t, 2:])
        alpha[t] += row[states]
    return alpha


def ctc_beta(log_p, labels, blank):
    """log beta without the step's own score."""
    states, skip = _arcs(labels, blank)
    beta = np.full((len(log_p), len(states)), -np.inf)
    beta[-1:, -2:] = 0
    for t in range(len(log_p) - 2, -1, -1):
        scored = beta[t + 1] + log_p[t + 1][states]
        beta[t] = scored
        beta[t, :-1] = np.logaddexp(beta[t, :-1], scored[1:])
        beta[t, :-2] = np.where(skip[2:], np.logaddexp(beta[t, :-2], scored[2:]), beta[t, :-2])
    return beta


def _log_probability(alpha, labels):
    if len(alpha) == 0:
        return 0.0 if len(labels) == 0 else -np.inf
    return np.logaddexp.reduce(alpha[-1, -2:])


def _is_valid(labels, classes, blank):
    return bool(((labels >= 0) & (labels < classes) & (labels != blank)).all())


def ctc_losses(x, targets, input_lengths, target_lengths, *, blank=0, logits=False):
    """-log P of each sequence, without a reduction, and the number of its labels."""
    losses, counts = [], []
    with np.errstate(invalid="ignore", divide="ignore"):
        for rows, labels, _ in ctc_sequences(x, targets, input_lengths, target_lengths):
            log_p = log_softmax(rows)[0] if logits else rows
            valid = _is_valid(labels, rows.shape[1], blank)
            losses.append(-_log_probability(ctc_alpha(log_p, labels, blank), labels) if valid else np.nan)
            counts.append(len(labels))
    return np.array(losses, np.float64), np.array(counts, np.float64)


def ctc_loss_forward(
    x, targets, input_lengths, target_lengths, *, blank=0, reduction="mean", zero_infinity=False, logits=False
):
    losses, counts = ctc_losses(x, targets, input_lengths, target_lengths, blank=blank, logits=logits)
    if zero_infinity:
        losses = np.where(losses == np.inf, 0.0, losses)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return np.float64(losses.sum())
    with np.errstate(invalid="ignore"):
        return np.float64((losses / np.maximum(counts, 1)).sum()) / np.float64(len(losses))


def ctc_saved(x, targets, input_lengths, target_lengths, *, blank=0, logits=False, unused=0.0):
    """(alpha, exponents) and, for logits, lse, as the library stores them: the blanks of a row come before the labels.
    Numbers that the library does not write are `unused`."""
    x = np.asarray(x, np.float64)
    numbers = np.full((2, x.shape[0] * (2 * np.asarray(targets).size + x.shape[1])), unused)
    sums = np.full(x.shape[:2], unused)
    for b, (rows, labels, first) in enumerate(ctc_sequences(x, targets, input_lengths, target_lengths)):
        log_p, lse = log_softmax(rows) if logits else (rows, 0.0)
        sums[: len(rows), b] = lse
        alpha = ctc_alpha(log_p, labels, blank)
        alpha = np.concatenate([alpha[:, ::2], alpha[:, 1::2]], 1).ravel()
        with np.errstate(invalid="ignore"):
            exponents = np.where(alpha == -np.inf, ZERO_EXPONENT, np.floor(alpha / np.log(2)) + 1)
            # `exponents` times log 2 is subtracted in two parts, of which the first one is exact.
            rest = (alpha - exponents * 0.693359375) - exponents * -2.121944400546905827679e-4
            mantissas = np.where(alpha == -np.inf, 0.0, np.exp(np.where(alpha == -np.inf, 0.0, rest)))
        begin = x.shape[0] * (2 * first + b)
        numbers[:, begin : begin + alpha.size] = mantissas, exponents
    return (*numbers, sums) if logits else tuple(numbers)


def ctc_loss_backward(
    dloss, x, targets, input_lengths, target_lengths, *, blank=0, reduction="mean", zero_infinity=False, logits=False
):  # fmt: skip
    x = np.asarray(x, np.float64)
    dx = np.zeros(x.shape)
    for b, (rows, labels, _) in enumerate(ctc_sequences(x, targets, input_lengths, target_lengths)):
        g = dloss[b] if reduction == "none" else dloss
        if reduction == "mean":
            g = g / (max(len(labels), 1) * x.shape[1])
        log_p = log_softmax(rows)[0] if logits else rows
        posterior = ctc_posterior(log_p, labels, blank)
        if posterior is None:
            dx[: len(rows), b] = 0 if zero_infinity and _is_valid(labels, x.shape[2], blank) else np.nan
        elif g != 0:
            dx[: len(rows), b] = g * (np.exp(log_p) - posterior)
    return dx


def ctc_posterior(log_p, labels, blank):
    """[steps, C]: the probability that the path has a class at a step. None if no path gives the labels."""
    if not _is_valid(labels, log_p.shape[1], blank):
        return None
    alpha, beta = ctc_alpha(log_p, labels, blank), ctc_beta(log_p, labels, blank)
    whole = _log_probability(alpha, labels)
    if whole == -np.inf:
        return None
    posterior = np.zeros(log_p.shape)
    np.add.at(posterior.T, _arcs(labels, blank)[0], np.exp(alpha + beta - whole).T)
    return posterior
