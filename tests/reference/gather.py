# SPDX-License-Identifier: Apache-2.0
"""Slices by index, and their gradient."""

import numpy as np


def gather(x, index, *, axis=0):
    """y[i..., j..., k...] = x[i..., index[j...], k...]; a negative index counts from the end."""
    return np.take(np.asarray(x, np.float64), np.asarray(index), axis)


def gather_backward(dy, index, x_shape, *, axis=0):
    """The gradient of gather: each slice of dy is added to the slice of x that its index names."""
    dx = np.zeros(x_shape, np.float64)
    lines = np.moveaxis(dx, axis, 0)
    steps = np.moveaxis(np.asarray(dy, np.float64), range(axis, axis + np.ndim(index)), range(np.ndim(index)))
    np.add.at(lines, np.asarray(index), steps)
    return dx
