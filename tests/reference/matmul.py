# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication with the operations of a GEMM epilogue."""

import numpy as np

from .activation import activation_forward


def matmul(a, b, *, transpose_a=False, transpose_b=False, alpha=1.0, beta=0.0, c=None, bias=None, activation=None):
    """y = activation(alpha * op(a) @ op(b) + beta * c + bias), op(m) = m or m with its last two dimensions swapped.

    op(a) is [..., M, K] and op(b) is [..., K, N]. The leading dimensions broadcast as in NumPy, to those of y [..., M,
    N].
    c broadcasts to y and never enlarges it. beta == 0 does not read c, so NaN in c does not reach y. bias is [N].
    K == 0 gives zeros for the product.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    y = alpha * ((a.swapaxes(-1, -2) if transpose_a else a) @ (b.swapaxes(-1, -2) if transpose_b else b))
    if c is not None and beta != 0:
        y = y + beta * np.broadcast_to(np.asarray(c, np.float64), y.shape)
    if bias is not None:
        y = y + np.broadcast_to(np.asarray(bias, np.float64), y.shape[-1:])
    return activation_forward(y, activation or "identity")
