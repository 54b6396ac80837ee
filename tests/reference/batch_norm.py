# SPDX-License-Identifier: Apache-2.0
"""Batch normalization of x [N, C, *spatial].

Spatial: a mean and a variance per channel, over n = N * spatial elements; parameters [C].
per_activation=True: one per element of a sample, over n = N elements; parameters x.shape[1:].
"""

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
