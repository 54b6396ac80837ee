# SPDX-License-Identifier: Apache-2.0
"""Convolution from its definition, one window element ("tap") at a time. Pooling uses the window geometry of this file.

y[n, k, p] = activation(sum_{c, r} w[k, c, r] * x[n, g * C/groups + c, p * stride - before + r * dilation] + bias[k]
                        + residual[n, k, p])

g is the group of k; x is zero outside its bounds. These zeros are multiplied: an infinite w gives NaN at the border.
mode="convolution" reads w[k, c, R-1-r] instead. p and r run over 1, 2 or 3 spatial dimensions, depending on the rank.
stride, dilation: int or one per dimension. padding: int, or per dimension an int or a pair (before, after).
"""

import math

import numpy as np

from .activation import activation_forward


def per_dim(value, rank):
    """`value` for each of `rank` dimensions: an int is repeated."""
    values = (value,) * rank if np.isscalar(value) else tuple(value)
    if len(values) != rank:
        raise ValueError(f"{rank} spatial dimensions need an int or {rank} values; got {value}")
    return values


def sides(padding, rank):
    """((before, after), ...) for each of `rank` dimensions."""
    return tuple((p, p) if np.isscalar(p) else tuple(p) for p in per_dim(padding, rank))


def output_size(size, window, *, stride=1, padding=0, dilation=1, ceil_mode=False):
    """The number of windows in one dimension: floor((before + size + after - dilation * (window - 1) - 1) / stride) +
    1.

    ceil_mode rounds up. Then it drops a last window that would start at or beyond before + size, in the right padding.
    """
    ((before, after),) = sides((padding,), 1)
    last_begin = before + size + after - dilation * (window - 1) - 1
    count = (-(-last_begin // stride) if ceil_mode else last_begin // stride) + 1
    if ceil_mode and (count - 1) * stride >= before + size:
        count -= 1
    if count < 1:
        raise ValueError(f"a window of {window} (dilation {dilation}) does not fit in {before} + {size} + {after}")
    return count


def taps(window, out, stride, dilation):
    """(r, index) for each window element r: padded_x[index] are the elements that r reads for all output positions."""
    for r in np.ndindex(*window):
        first = [a * d for a, d in zip(r, dilation, strict=True)]
        yield r, (..., *(slice(f, f + s * (p - 1) + 1, s) for f, s, p in zip(first, stride, out, strict=True)))


def conv_output_shape(x_shape, w_shape, *, stride=1, padding=0, dilation=1):
    """(N, K, *P) for x [N, C, *spatial] and w [K, C/groups, *window]."""
    rank = len(x_shape) - 2
    attributes = (per_dim(stride, rank), sides(padding, rank), per_dim(dilation, rank))
    dims = zip(x_shape[2:], w_shape[2:], *attributes, strict=True)
    return (x_shape[0], w_shape[0], *(output_size(h, r, stride=s, padding=p, dilation=d) for h, r, s, p, d in dims))


def _taps_and_sides(x_shape, w_shape, stride, padding, dilation):
    rank = len(x_shape) - 2
    out = conv_output_shape(x_shape, w_shape, stride=stride, padding=padding, dilation=dilation)[2:]
    return taps(w_shape[2:], out, per_dim(stride, rank), per_dim(dilation, rank)), sides(padding, rank)


def _flipped_if_convolution(w, mode):
    if mode not in ("cross_correlation", "convolution"):
        raise ValueError(f'mode is "cross_correlation" or "convolution"; got {mode!r}')
    return np.flip(w, axis=tuple(range(2, w.ndim))) if mode == "convolution" else w


def conv_forward(
    x,
    w,
    bias=None,
    residual=None,
    *,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    activation=None,
    mode="cross_correlation",
):
    """The formula above. x [N, C, *spatial], w [K, C/groups, *window], bias [K], residual as y."""
    x, w = np.asarray(x, np.float64), _flipped_if_convolution(np.asarray(w, np.float64), mode)
    (n, c), (k, c_group) = x.shape[:2], w.shape[:2]
    if c != c_group * groups or k % groups:
        raise ValueError(f"x has {c} channels and groups={groups}, but w is {list(w.shape)}")
    y_shape = conv_output_shape(x.shape, w.shape, stride=stride, padding=padding, dilation=dilation)
    each_tap, pads = _taps_and_sides(x.shape, w.shape, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    w = w.reshape(groups, k // groups, c_group, *w.shape[2:])
    y = np.zeros((n, groups, k // groups, math.prod(y_shape[2:])))
    for r, index in each_tap:
        y += w[(..., *r)] @ padded[index].reshape(n, groups, c_group, y.shape[3])
    y = y.reshape(y_shape)
    if bias is not None:
        y += np.asarray(bias, np.float64).reshape(k, *(1,) * (x.ndim - 2))
    if residual is not None:
        y += np.asarray(residual, np.float64)
    return activation_forward(y, activation or "identity")


def conv_backward_data(dy, w, x_shape, *, stride=1, padding=0, dilation=1, groups=1, mode="cross_correlation"):
    """dx = A^T dy where y = A x: each dy[n, k, p] times w[k, c, r] is added to the element of x that it was computed
    from.

    dy is the gradient before the activation.
    """
    dy, w = np.asarray(dy, np.float64), _flipped_if_convolution(np.asarray(w, np.float64), mode)
    (n, k), c_group = dy.shape[:2], w.shape[1]
    each_tap, pads = _taps_and_sides(x_shape, w.shape, stride, padding, dilation)
    w = w.reshape(groups, k // groups, c_group, *w.shape[2:])
    dy_rows = dy.reshape(n, groups, k // groups, math.prod(dy.shape[2:]))
    padded = np.zeros((*x_shape[:2], *(b + size + a for size, (b, a) in zip(x_shape[2:], pads, strict=True))))
    for r, index in each_tap:
        padded[index] += (w[(..., *r)].swapaxes(1, 2) @ dy_rows).reshape(n, x_shape[1], *dy.shape[2:])
    return padded[(..., *(slice(b, b + size) for size, (b, _) in zip(x_shape[2:], pads, strict=True)))]


def conv_backward_filter(dy, x, w_shape, *, stride=1, padding=0, dilation=1, groups=1, mode="cross_correlation"):
    """dw[k, c, r] = sum_{n, p} dy[n, k, p] * x[n, g * C/groups + c, p * stride - before + r * dilation].

    dy is the gradient before the activation.
    """
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    (n, k), c_group, positions = dy.shape[:2], w_shape[1], math.prod(dy.shape[2:])
    each_tap, pads = _taps_and_sides(x.shape, w_shape, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    dy = dy.reshape(n, groups, k // groups, positions)
    dw = np.zeros((groups, k // groups, c_group, *w_shape[2:]))
    for r, index in each_tap:
        x_rows = padded[index].reshape(n, groups, c_group, positions)
        dw[(..., *r)] = (dy @ x_rows.swapaxes(2, 3)).sum(axis=0)
    return _flipped_if_convolution(dw.reshape(w_shape), mode)


def conv_backward_bias(dy):
    """dbias[k] = sum_{n, p} dy[n, k, p]."""
    dy = np.asarray(dy, np.float64)
    return dy.sum(axis=(0, *range(2, dy.ndim)))
