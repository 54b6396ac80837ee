# SPDX-License-Identifier: Apache-2.0
"""The oracles of the tests: every operation in float64 NumPy, one file per family.

A function has the name and keywords of the public one, except algo, out and handle. Dimensions are N, C, spatial... in
every layout. The functions are written from definitions, and use no code of the library.

    x = rounded(rng.standard_normal((2, 8, 9, 9)), "float16")    # exactly what the library reads
    want = conv_forward(x, w, padding=1)
    assert abs(got - want).max() <= tolerance("float16", reduction=8 * 3 * 3, scale=abs(want).max())
"""

import numpy as np

from . import random
from .activation import DEFAULT_ALPHA, MODES, activation_backward, activation_forward
from .attention import (
    attention_backward,
    attention_cache,
    attention_decode,
    attention_forward,
    attention_keep,
    attention_sequences,
)
from .batch_norm import batch_norm_backward, batch_norm_forward_inference, batch_norm_forward_training
from .conv import (
    conv_backward_bias,
    conv_backward_data,
    conv_backward_filter,
    conv_forward,
    conv_output_shape,
    output_size,
)
from .ctc import (
    ctc_alpha,
    ctc_loss_backward,
    ctc_loss_forward,
    ctc_losses,
    ctc_posterior,
    ctc_saved,
    ctc_sequences,
    log_softmax,
)
from .gather import gather, gather_backward
from .layer_norm import row_norm_backward, row_norm_forward
from .loss import cross_entropy_backward, cross_entropy_forward
from .lrn import local_norm_backward, local_norm_forward
from .matmul import matmul
from .pad import pad
from .pointwise import POINTWISE, pointwise
from .pooling import (
    adaptive_pool_backward,
    adaptive_pool_forward,
    pool_backward,
    pool_forward,
    pool_indices,
    pool_output_shape,
)
from .reduce import reduce
from .rnn import rnn_backward_data, rnn_backward_weights, rnn_forward, rnn_keep
from .softmax import logits, softmax_backward, softmax_forward
from .transform import cast, rounded, transform

# For each dtype, the distance from 1 to the next larger number.
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SUBNORMAL = {
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
    "float32": 2.0**-149,
    "float64": 2.0**-1074,
}  # for each dtype, the smallest positive number
LARGEST = {
    "float16": 65504.0,
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float64": (2 - 2.0**-52) * 2.0**1023,
}


def accumulator(dtype):
    """The dtype of sums, parameters and statistics."""
    return "float64" if dtype == "float64" else "float32"


def tolerance(dtype, reduction, scale):
    """How far a correct result may be from the oracle.

    tolerance = eps(dtype) * scale + eps(accumulator) * sqrt(reduction) * scale + subnormal(dtype)

    dtype      of the output in memory; the accumulator is float32, and float64 for float64
    reduction  the number of products (or terms) that are summed into one output
    scale      the magnitude of the partial sums: a number, or an array for a tolerance per element. The largest
               |output| is enough for random data of mean zero; where terms cancel, use the oracle of |inputs|

    Storing a value v rounds it by at most half an ulp: eps(dtype) / 2 * |v|, or half of the smallest positive number.
    Each of the `reduction` additions rounds the partial sum by at most eps(accumulator) / 2 * |sum|. These errors have
    random signs and grow like a random walk, with a standard deviation below sqrt(reduction) * eps(accumulator) / 2 *
    scale. The tolerance is twice both. It does not include the rounding of the inputs, so the oracle must read the same
    rounded() values as the library. It does not include the rounding of TF32 either.
    """
    return EPS[dtype] * scale + EPS[accumulator(dtype)] * np.sqrt(reduction) * scale + SUBNORMAL[dtype]


__all__ = [
    "DEFAULT_ALPHA",
    "EPS",
    "LARGEST",
    "MODES",
    "POINTWISE",
    "accumulator",
    "activation_backward",
    "activation_forward",
    "adaptive_pool_backward",
    "adaptive_pool_forward",
    "attention_backward",
    "attention_cache",
    "attention_decode",
    "attention_forward",
    "attention_keep",
    "attention_sequences",
    "batch_norm_backward",
    "batch_norm_forward_inference",
    "batch_norm_forward_training",
    "cast",
    "conv_backward_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_forward",
    "conv_output_shape",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "ctc_alpha",
    "ctc_loss_backward",
    "ctc_loss_forward",
    "ctc_losses",
    "ctc_posterior",
    "ctc_saved",
    "ctc_sequences",
    "gather",
    "gather_backward",
    "local_norm_backward",
    "local_norm_forward",
    "log_softmax",
    "logits",
    "matmul",
    "output_size",
    "pad",
    "pointwise",
    "pool_backward",
    "pool_forward",
    "pool_indices",
    "pool_output_shape",
    "random",
    "reduce",
    "rnn_backward_data",
    "rnn_backward_weights",
    "rnn_forward",
    "rnn_keep",
    "rounded",
    "row_norm_backward",
    "row_norm_forward",
    "softmax_backward",
    "softmax_forward",
    "tolerance",
    "transform",
]
