# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows of 1, 2 or 3 spatial dimensions; x [N, C, *spatial], window one int per dimension or an int.

max                  the largest element of x in the window, never padding; NaN if one of the elements is NaN
avg                  the sum of these elements / the number of positions within before + size + after: padding counts,
                     but not the positions beyond it that ceil_mode adds to a window
avg_exclude_padding  the sum of these elements / their number
lp                   (sum |x|^norm)^(1/norm)
A window of padding only gives -inf, 0, 0 (not 0/0) and 0, and has no gradient.
stride=None is the window; padding: int, or per dimension an int or a pair (before, after); sizes: conv.output_size.
"""

import numpy as np

from .conv import output_size, per_dim, sides, taps


def pool_output_shape(x_shape, window, *, stride=None, padding=0, dilation=1, ceil_mode=False):
    """(N, C, *P); the size rule, ceil_mode included, is conv.output_size."""
    rank = len(x_shape) - 2
    stride = window if stride is None else stride
    attributes = (per_dim(window, rank), per_dim(stride, rank), sides(padding, rank), per_dim(dilation, rank))
    dims = zip(x_shape[2:], *attributes, strict=True)
    sizes = (output_size(h, r, stride=s, padding=p, dilation=d, ceil_mode=ceil_mode) for h, r, s, p, d in dims)
    return (*x_shape[:2], *sizes)


def _windows(x_shape, window, stride, padding, dilation, ceil_mode):
    """The index of each tap in padded x, in row-major window order; the padding; the padding with the addition of
    ceil_mode."""
    rank = len(x_shape) - 2
    out = pool_output_shape(x_shape, window, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)[2:]
    stride = per_dim(window if stride is None else stride, rank)
    window, dilation, pads = per_dim(window, rank), per_dim(dilation, rank), sides(padding, rank)
    reach = [(p - 1) * s + d * (r - 1) + 1 for p, s, d, r in zip(out, stride, dilation, window, strict=True)]
    extended = [(b, max(a, end - b - size)) for (b, a), end, size in zip(pads, reach, x_shape[2:], strict=True)]
    return [index for _, index in taps(window, out, stride, dilation)], pads, extended


def _count(x_shape, indices, pads, extended, mode):
    """The divisor of an average at every output position [*P]; 1 where it would be 0."""
    if mode not in ("avg", "avg_exclude_padding"):
        raise ValueError(f'mode is "max", "avg" or "avg_exclude_padding"; got {mode!r}')
    counted = np.ones(x_shape[2:])
    if mode == "avg":
        counted = np.pad(counted, pads, constant_values=1)
        extended = [(0, after - a) for (_, after), (_, a) in zip(extended, pads, strict=True)]
    counted = np.pad(counted, extended)
    return np.maximum(sum(counted[index] for index in indices), 1)


def pool_forward(x, window, *, mode="max", norm=2, stride=None, padding=0, dilation=1, ceil_mode=False):
    """y[n, c, p] = max or mean of x[n, c, p * stride - before + r * dilation] over the window elements r."""
    x = np.asarray(x, np.float64)
    indices, pads, extended = _windows(x.shape, window, stride, padding, dilation, ceil_mode)
    padded = np.pad(x, [(0, 0), (0, 0), *extended], constant_values=-np.inf if mode == "max" else 0)
    # The dimensions of `seen` are: elements of a window, N, C, output positions.
    seen = np.stack([padded[index] for index in indices])
    if mode == "lp":
        return (np.abs(seen) ** norm).sum(axis=0) ** (1 / norm)
    return seen.max(axis=0) if mode == "max" else seen.sum(axis=0) / _count(x.shape, indices, pads, extended, mode)


def pool_backward(dy, x, y, window, *, mode="max", norm=2, stride=None, padding=0, dilation=1, ceil_mode=False):
    """Each dy[n, c, p] is distributed to the elements that determined y[n, c, p]; gradients of overlapping windows add
    up.

    max: the first maximum in row-major window order gets all of it. A NaN is a maximum, so the first NaN gets it.
    averages: each element gets dy / the divisor of its window.
    lp: dy sign(x) (|x| / y)^(norm - 1). Other modes do not read y.
    """
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    indices, pads, extended = _windows(x.shape, window, stride, padding, dilation, ceil_mode)
    padded = np.pad(x, [(0, 0), (0, 0), *extended], constant_values=-np.inf)
    dx = np.zeros(padded.shape)
    if mode == "max":
        real = np.pad(np.ones(x.shape[2:], bool), extended)
        seen = np.stack([padded[index] for index in indices])
        # An element of x can be the maximum even if it is -inf, but the padding cannot.
        in_x = np.stack([real[index] for index in indices])[:, None, None]
        is_maximum = in_x & (np.isnan(seen) | (seen == seen.max(axis=0)))
        first = np.where(is_maximum.any(axis=0), is_maximum.argmax(axis=0), -1)
        for tap, index in enumerate(indices):
            dx[index] += np.where(first == tap, dy, 0)
    elif mode == "lp":
        y = np.asarray(y, np.float64)
        for index in indices:
            v = np.where(np.isfinite(padded[index]), padded[index], 0)
            share = np.divide(np.abs(v), y, out=np.zeros_like(dy), where=y != 0) ** (norm - 1)
            dx[index] += dy * np.sign(v) * share
    else:
        share = dy / _count(x.shape, indices, pads, extended, mode)
        for index in indices:
            dx[index] += share
    return dx[(..., *(slice(b, b + size) for (b, _), size in zip(extended, x.shape[2:], strict=True)))]


def pool_indices(x, window, *, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The index of the first maximum of each window, in row-major order of its plane; -1 for padding only."""
    x = np.asarray(x, np.float64)
    indices, _, extended = _windows(x.shape, window, stride, padding, dilation, ceil_mode)
    numbers = np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:])
    numbers = np.pad(numbers, extended, constant_values=-1)
    padded = np.pad(x, [(0, 0), (0, 0), *extended], constant_values=-np.inf)
    seen, where = (np.stack([a[index] for index in indices]) for a in (padded, numbers))
    where = np.broadcast_to(where[:, None, None], seen.shape)
    first = ((np.isnan(seen) | (seen == seen.max(axis=0))) & (where >= 0)).argmax(axis=0)
    return np.where((where >= 0).any(axis=0), np.take_along_axis(where, first[None], axis=0)[0], -1)


def _parts(length, size):
    """Adaptive windows: [floor(p length / size), ceil((p + 1) length / size))."""
    return [slice(p * length // size, -(-(p + 1) * length // size)) for p in range(size)]


def adaptive_pool_forward(x, size, *, mode="max", norm=2):
    x = np.asarray(x, np.float64)
    size = per_dim(size, x.ndim - 2)
    y = np.empty((*x.shape[:2], *size))
    for at in np.ndindex(*size):
        part = tuple(_parts(n, s)[p] for n, s, p in zip(x.shape[2:], size, at, strict=True))
        y[(..., *at)] = pool_forward(x[(..., *part)], x[(..., *part)].shape[2:], mode=mode, norm=norm).reshape(
            y.shape[:2]
        )
    return y


def adaptive_pool_backward(dy, x, y, *, mode="max", norm=2):
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    dx, size = np.zeros(x.shape), dy.shape[2:]
    one = (1,) * len(size)
    for at in np.ndindex(*size):
        part = (..., *(_parts(n, s)[p] for n, s, p in zip(x.shape[2:], size, at, strict=True)))
        dy_at, y_at = (a[(..., *at)].reshape(*x.shape[:2], *one) for a in (dy, np.asarray(y, np.float64)))
        dx[part] += pool_backward(dy_at, x[part], y_at, x[part].shape[2:], mode=mode, norm=norm)
    return dx
