# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax along one axis. An empty x gives an empty y."""

import numpy as np


def logits(x, *, scale=1.0, mask=None):
    """The arguments of the exponentials: scale x + mask, or -inf where a boolean mask is false."""
    x = scale * np.asarray(x, np.float64)
    if mask is None:
        return x
    return np.where(mask, x, -np.inf) if np.asarray(mask).dtype == bool else x + mask


def softmax_forward(x, *, axis=1, log=False, scale=1.0, mask=None):
    """Softmax of logits(x):

    y_i = exp(x_i - m) / sum_j exp(x_j - m), m = max_j x_j;   log=True: y_i = x_i - m - log(sum_j exp(x_j - m)).

    A row that contains NaN or +inf, or only -inf, is NaN (+inf - +inf and -inf - -inf are NaN).
    """
    x = np.asarray(x, np.float64)
    if x.size == 0:
        return x.copy()
    x = logits(x, scale=scale, mask=mask)
    with np.errstate(invalid="ignore"):
        shifted = x - x.max(axis=axis, keepdims=True)
    # In long double, because NumPy adds terms one by one, except along the last axis, and would be less accurate than
    # the library's compensated float64 sums.
    total = np.exp(shifted).sum(axis=axis, keepdims=True, dtype=np.longdouble).astype(np.float64)
    return shifted - np.log(total) if log else np.exp(shifted) / total


def softmax_backward(dy, y, *, axis=1, log=False, scale=1.0):
    """dx_i = scale * y_i * (dy_i - sum_j dy_j * y_j);   log=True: scale * (dy_i - exp(y_i) * sum_j dy_j), 0 where y_i
    is -inf."""
    dy, y = np.asarray(dy, np.float64), np.asarray(y, np.float64)
    if log:
        return np.where(y == -np.inf, 0.0, scale * (dy - np.exp(y) * dy.sum(axis=axis, keepdims=True)))
    return scale * y * (dy - (dy * y).sum(axis=axis, keepdims=True))
