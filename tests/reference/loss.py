# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with logits along one axis, with label smoothing and ignored rows."""

import numpy as np


def cross_entropy_forward(x, target, *, axis=1, label_smoothing=0.0, ignore_index=-100, reduction="mean"):
    """(loss, lse): the cross-entropy between a smoothed one-hot distribution and softmax(x), and log sum exp(x)."""
    x, target = np.moveaxis(np.asarray(x, np.float64), axis, -1), np.asarray(target)
    with np.errstate(invalid="ignore"):
        largest = x.max(axis=-1, keepdims=True)
        lse = (largest + np.log(np.exp(x - largest).sum(axis=-1, keepdims=True)))[..., 0]
        counts = target != ignore_index
        hit = np.take_along_axis(x, np.where(counts, target, 0)[..., None], -1)[..., 0]
        losses = lse - (1 - label_smoothing) * hit
        if label_smoothing:
            losses -= label_smoothing * x.mean(axis=-1)
    losses = np.where(counts, losses, 0.0)
    if reduction == "none":
        return losses, lse
    with np.errstate(invalid="ignore"):
        return np.float64(losses.sum()) / (counts.sum() if reduction == "mean" else 1), lse


def cross_entropy_backward(dy, x, target, *, axis=1, label_smoothing=0.0, ignore_index=-100, reduction="mean"):
    """The gradient of the loss with respect to x."""
    x, target = np.moveaxis(np.asarray(x, np.float64), axis, -1), np.asarray(target)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    wanted = (target[..., None] == np.arange(x.shape[-1])) * (1 - label_smoothing) + label_smoothing / x.shape[-1]
    counts = target != ignore_index
    each = np.where(counts, dy, 0.0)
    if reduction == "mean":
        each = each / max(counts.sum(), 1)
    dx = np.where(counts[..., None], each[..., None] * (e / e.sum(axis=-1, keepdims=True) - wanted), 0.0)
    return np.moveaxis(dx, -1, axis)
