# SPDX-License-Identifier: Apache-2.0
"""Philox 4x32-10 and the random numbers derived from it, in NumPy."""

import numpy as np


def philox(counter, key):
    """Four words for each column of `counter` (4 x n, uint64 below 2^32)."""
    c = [np.asarray(v, np.uint64) for v in counter]
    k = [np.uint64(v) for v in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c)


def words(n, seed, offset):
    """The first n words of a stream."""
    group = np.arange((n + 3) // 4, dtype=np.uint64)
    low, full = 0xFFFFFFFF, np.full_like
    counter = (group & np.uint64(low), group >> np.uint64(32), full(group, offset & low), full(group, offset >> 32))
    return philox(counter, (seed & low, seed >> 32)).T.ravel()[:n]


def random_uniform(shape, *, seed, offset=0, low=0.0, high=1.0, dtype="float32"):
    n = int(np.prod(shape))
    if dtype == "float64":
        w = words(2 * n, seed, offset)
        u = ((w[0::2] << np.uint64(32) | w[1::2]) >> np.uint64(11)).astype("float64") * 2.0**-53
    else:
        u = (words(n, seed, offset) >> np.uint64(8)).astype("float64") * 2.0**-24
    return (low + (high - low) * u).reshape(shape)


def random_normal(shape, *, seed, offset=0, mean=0.0, std=1.0, dtype="float32"):
    n = int(np.prod(shape))
    if dtype == "float64":
        u = random_uniform((n + n % 2,), seed=seed, offset=offset, dtype=dtype)
        one, angle = 1 - u[0::2], u[1::2]
    else:
        w = words(n + n % 2, seed, offset).astype("float64")
        one, angle = w[0::2] * 2.0**-32 + 2.0**-33, w[1::2] * 2.0**-32
    radius = np.sqrt(np.maximum(-2 * np.log(one), 0))
    z = np.stack([radius * np.cos(2 * np.pi * angle), radius * np.sin(2 * np.pi * angle)], 1).ravel()[:n]
    return (mean + std * z).reshape(shape)


def dropout_forward(x, p, *, seed, offset=0):
    kept = words(x.size, seed, offset).reshape(x.shape) >= np.uint64(int(p * 2.0**32))
    return np.where(kept, x * (1 / (1 - p) if p < 1 else 0.0), 0)


dropout_backward = dropout_forward
