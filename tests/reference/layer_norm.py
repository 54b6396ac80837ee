# SPDX-License-Identifier: Apache-2.0
"""Layer, RMS, group and instance normalization."""

import numpy as np


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
