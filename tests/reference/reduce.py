# SPDX-License-Identifier: Apache-2.0
"""Reductions over any dimensions. Without elements: sum 0, product 1, mean NaN, any False, all True."""

import numpy as np


def reduce(x, mode, *, axis=None, keepdims=False):
    """The modes are those of the public function. max, min and amax give NaN if an element is NaN; argmax and argmin
    give the index of the first NaN."""
    x = np.asarray(x, np.float64)
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in np.atleast_1d(axis)) if x.ndim else ()
    kept = [n for i, n in enumerate(x.shape) if i not in axes]
    # The reduced dimensions are merged to one dimension, the last one. The order of their elements is kept.
    rows = np.moveaxis(x, sorted(axes), range(x.ndim - len(axes), x.ndim)).reshape(*kept, -1 if x.size else 0)
    if not x.size:
        rows = np.zeros((*kept, int(np.prod([x.shape[i] for i in axes]))))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        count = rows.shape[-1]
        y = {
            "sum": lambda: rows.sum(-1),
            "mean": lambda: rows.sum(-1) / np.float64(count),
            "prod": lambda: rows.prod(-1),
            "max": lambda: rows.max(-1),
            "min": lambda: rows.min(-1),
            "amax": lambda: np.abs(rows).max(-1),
            "norm1": lambda: np.abs(rows).sum(-1),
            "norm2": lambda: np.sqrt((rows * rows).sum(-1)),
            "sumsq": lambda: (rows * rows).sum(-1),
            "any": lambda: (rows != 0).any(-1),
            "all": lambda: (rows != 0).all(-1),
            "argmax": lambda: rows.argmax(-1),
            "argmin": lambda: rows.argmin(-1),
        }[mode]()
    y = np.asarray(y, np.float64)
    return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdims else y
