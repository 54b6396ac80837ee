# SPDX-License-Identifier: Apache-2.0
"""Local response and local contrast normalization."""

import itertools

import numpy as np


def _neighbours(shape, size, axes):
    """Pairs of slices of whole arrays, one for each distance in a window: the centers that have a neighbour at this
    distance, and these neighbours. Windows extend (size - 1) // 2 behind and size // 2 ahead along each axis."""
    for distances in itertools.product(range(-((size - 1) // 2), size // 2 + 1), repeat=len(axes)):
        center, neighbour = [slice(None)] * len(shape), [slice(None)] * len(shape)
        for axis, d in zip(axes, distances, strict=True):
            center[axis] = slice(max(-d, 0), max(shape[axis] - max(d, 0), 0))
            neighbour[axis] = slice(max(d, 0), max(shape[axis] + min(d, 0), 0))
        if all(c.start is None or c.start < c.stop for c in center):
            yield tuple(center), tuple(neighbour)


def local_norm_forward(x, size, *, axes, means=0.0, alpha=1e-4, beta=0.75, k=1.0):
    """y_i = x_i * s_i^-beta,  s_i = k + alpha / size^len(axes) * sum((x_j - m_i)^2) over the window of i inside x

    LRN: axes = (1,).  LCN: axes = the spatial ones. Returns y and s.
    """
    x = np.asarray(x, np.float64)
    m = np.broadcast_to(np.asarray(means, np.float64), x.shape)
    squares = np.zeros_like(x)
    for center, neighbour in _neighbours(x.shape, size, axes):
        squares[center] += (x[neighbour] - m[center]) ** 2
    s = k + alpha / size ** len(axes) * squares
    return x * s**-beta, s


def local_norm_backward(dy, x, size, *, axes, means=0.0, alpha=1e-4, beta=0.75, k=1.0, weights=None):
    """dx and dmeans. Each window adds its gradient to the elements that it read; g_i = dy_i x_i s_i^(-beta - 1):

    dx_i = dy_i s_i^-beta,  dx_j -= 2 alpha beta / n * g_i (x_j - m_i),  dm_i += 2 alpha beta / n * g_i (x_j - m_i)

    With `weights`, the absolute values of these terms are added up, with `weights` in place of g and without the first
    term of dx: bounds of rounding errors.
    """
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    m = np.broadcast_to(np.asarray(means, np.float64), x.shape)
    _, s = local_norm_forward(x, size, axes=axes, means=m, alpha=alpha, beta=beta, k=k)
    bound = weights is not None
    g = weights if bound else dy * x * s ** (-beta - 1)
    slope = 2 * alpha * beta / size ** len(axes)
    dx, dmeans = np.zeros_like(x) if bound else dy * s**-beta, np.zeros_like(x)
    for center, neighbour in _neighbours(x.shape, size, axes):
        term = slope * g[center] * (x[neighbour] - m[center])
        term = np.abs(term) if bound else term
        dx[neighbour] += term if bound else -term
        dmeans[center] += term
    return dx, dmeans
