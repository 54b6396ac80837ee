# SPDX-License-Identifier: Apache-2.0
"""Batch normalization of x [N, C, *spatial].

Spatial: a mean and a variance per channel, over n = N * spatial elements; parameters [C].
per_activation=True: one per element of a sample, over n = N elements; parameters x.shape[1:].
"""

import itertools

import numpy as np


def _reduced_and_view(x, per_activation):
    """The axes that statistics run over, and the shape in which a parameter broadcasts against x."""
    if per_activation:
        return (0,), (1, *x.shape[1:])
    return (0, *range(2, x.ndim)), (1, x.shape[1], *(1,) * (x.ndim - 2))


def batch_norm_forward_training(
    x, scale, bias, *, running_mean=None, running_var=None, momentum=0.1, eps=1e-5, per_activation=False
):
    """y = scale * (x - mean) * inv_std + bias

    mean = sum(x) / n,  var = sum((x - mean)^2) / n,  inv_std = 1 / sqrt(var + eps)

    Returns y, saved_mean = mean, saved_inv_std = inv_std and the new running values (None for None):
    running = (1 - momentum) * running + momentum * batch, where batch is mean, and var * n / (n - 1), unbiased.
    n == 1 keeps the biased variance, 0. n == 0 gives NaN for mean and inv_std and leaves the running values alone.
    """
    x = np.asarray(x, np.float64)
    axes, view = _reduced_and_view(x, per_activation)
    scale, bias = np.reshape(np.asarray(scale, np.float64), view), np.reshape(np.asarray(bias, np.float64), view)
    n = np.prod([x.shape[axis] for axis in axes])
    with np.errstate(invalid="ignore"):
        mean = x.sum(axis=axes, keepdims=True) / n
        var = ((x - mean) ** 2).sum(axis=axes, keepdims=True) / n
    inv_std = 1 / np.sqrt(var + eps)
    y = scale * (x - mean) * inv_std + bias

    def updated(running, batch):
        if running is None or n == 0:
            return running
        running = np.asarray(running, np.float64)
        return (1 - momentum) * running + momentum * batch.reshape(running.shape)

    shape = view[1:] if per_activation else view[1:2]
    new_mean, new_var = updated(running_mean, mean), updated(running_var, var * n / max(n - 1, 1))
    return y, mean.reshape(shape), inv_std.reshape(shape), new_mean, new_var


def batch_norm_forward_inference(x, scale, bias, mean, var, *, eps=1e-5, per_activation=False):
    """y = scale * (x - mean) / sqrt(var + eps) + bias."""
    x = np.asarray(x, np.float64)
    _, view = _reduced_and_view(x, per_activation)
    scale, bias, mean, var = (np.reshape(np.asarray(p, np.float64), view) for p in (scale, bias, mean, var))
    return scale * (x - mean) / np.sqrt(var + eps) + bias


def batch_norm_backward(dy, x, scale, saved_mean, saved_inv_std, *, per_activation=False):
    """The gradient, including that through mean and inv_std. With x_hat = (x - mean) * inv_std and sums over the n
    elements:

    dbias = sum(dy),  dscale = sum(dy * x_hat),  dx = scale * inv_std * (dy - dbias / n - x_hat * dscale / n)
    """
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    axes, view = _reduced_and_view(x, per_activation)
    scale, mean, inv_std = (np.reshape(np.asarray(p, np.float64), view) for p in (scale, saved_mean, saved_inv_std))
    n = np.prod([x.shape[axis] for axis in axes])
    x_hat = (x - mean) * inv_std
    dbias, dscale = dy.sum(axis=axes, keepdims=True), (dy * x_hat).sum(axis=axes, keepdims=True)
    dx = scale * inv_std * (dy - (dbias + x_hat * dscale) / max(n, 1))
    shape = view[1:] if per_activation else view[1:2]
    return dx, dscale.reshape(shape), dbias.reshape(shape)


def row_norm_forward(x, scale, bias, *, rows, parameters, centered=True, eps=1e-5):
    """Layer, RMS and group norm: one statistic over all dimensions except `rows`, parameters that broadcast against x.

    y = scale * (x - mean) * inv_std + bias,  inv_std = 1 / sqrt(mean((x - mean)^2) + eps);  RMS norm: mean = 0

    `parameters` is the shape with which scale and bias broadcast. Returns y, mean and inv_std, with all dimensions
    kept.
    """
    x = np.asarray(x, np.float64)
    axes = tuple(i for i in range(x.ndim) if i not in rows)
    mean = x.mean(axis=axes, keepdims=True)
    mean = mean if centered else np.zeros_like(mean)
    inv_std = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + eps)
    return np.reshape(scale, parameters) * (x - mean) * inv_std + np.reshape(bias, parameters), mean, inv_std


def row_norm_backward(dy, x, scale, mean, inv_std, *, rows, parameters, centered=True):
    """g = dy * scale,  dx = inv_std * (g - mean(g) - x_hat * mean(g * x_hat)), means over a row; RMS norm: no mean(g)

    dscale = sum(dy * x_hat) and dbias = sum(dy), over the dimensions along which parameters broadcast. mean and inv_std
    broadcast against x.
    """
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    axes = tuple(i for i in range(x.ndim) if i not in rows)
    others = tuple(i for i in range(x.ndim) if parameters[i] == 1)
    x_hat, g = (x - mean) * inv_std, dy * np.reshape(scale, parameters)
    first = g.mean(axis=axes, keepdims=True) if centered else 0
    dx = inv_std * (g - first - x_hat * (g * x_hat).mean(axis=axes, keepdims=True))
    return dx, (dy * x_hat).sum(axis=others), dy.sum(axis=others)


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
