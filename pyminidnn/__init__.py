# SPDX-License-Identifier: Apache-2.0
"""Neural-network primitives like cuDNN's, for CUDA and the CPU: small, open, without torch.

    import pyminidnn as dnn
    y = dnn.activation_forward(x, "relu")   # x: NumPy, torch, CuPy, JAX, or dnn.DeviceTensor

A result is a DeviceTensor on the device of the inputs. Other libraries read it through DLPack; .numpy() makes an array.
"""

import os as _os
import os.path as _path
import sys as _sys

try:
    # The module _interpreters exists in Python 3.13 and later.
    import _interpreters  # type: ignore[import-not-found]
except ImportError:
    import _xxsubinterpreters as _interpreters  # type: ignore[import-not-found]

# In a sub-interpreter, the extension would wait forever for the lock of the main interpreter (GIL).
if _interpreters.get_current() != _interpreters.get_main():
    raise ImportError("pyminidnn works in the main interpreter of a process only; this is a sub-interpreter")

try:
    from . import _C, _packages
except ImportError as error:
    _here = _path.dirname(__file__)
    if any(n.startswith("_C.") and n.endswith((".so", ".pyd")) for n in _os.listdir(_here)):
        raise
    raise ImportError(
        f"pyminidnn in {_here} has no compiled extension: this is its source folder. "
        "Start Python elsewhere, or build it here: pip install -e ."
    ) from error

# Kernels are compiled from their sources at run time. An editable install compiles the sources of the checkout, so an
# edited kernel is compiled again when it is used next. Any other install compiles its own copies of the sources.
_here = _path.dirname(_path.realpath(__file__))
_above = _path.dirname(_here)
_sources = _above if _path.isdir(_path.join(_above, "cuda", "device")) else _path.join(_here, "sources")
_C.set_package_folder(_sources, _packages.cubin_folders())
_C.set_search_path([p for p in _sys.path if p])
_C.set_nvrtc_finder(_packages.find_nvrtc)

from . import functional
from . import methods as _methods  # noqa: F401 installs methods on DeviceTensor
from ._C import DeviceTensor, Handle, empty_cache, memory_stats, reset_peak_memory, set_log_level, synchronize
from .conversion import asarray, empty, from_dlpack, full
from .creation import (
    arange,
    array,
    device_count,
    empty_like,
    eye,
    full_like,
    linspace,
    ones,
    ones_like,
    stack,
    tensor,
    zeros,
    zeros_like,
)
from .dtypes import DType, bfloat16, bool, float16, float32, float64, int8, int32, int64, uint8
from .errors import DeviceError, DTypeError, Error, IndexingError, NotSupported, OutOfMemory, ShapeError
from .files import load, save
from .functional import relu, softmax
from .graph import BoundGraph, Graph, fuse, record
from .ops.activation import activation_backward, activation_forward
from .ops.attention import attention_backward, attention_decode, attention_forward
from .ops.batch_norm import (
    batch_norm_backward,
    batch_norm_forward_inference,
    batch_norm_forward_training,
)
from .ops.conv import (
    conv_backward_bias,
    conv_backward_data,
    conv_backward_filter,
    conv_forward,
    conv_forward_statistics,
)
from .ops.ctc import ctc_loss_backward, ctc_loss_forward
from .ops.gather import gather, gather_backward
from .ops.layer_norm import (
    group_norm_backward,
    group_norm_forward,
    instance_norm_backward,
    instance_norm_forward,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from .ops.loss import cross_entropy_backward, cross_entropy_forward
from .ops.lrn import (
    lcn_backward,
    lcn_forward,
    lrn_backward,
    lrn_forward,
)
from .ops.matmul import matmul
from .ops.pad import pad
from .ops.pointwise import (
    abs,
    acos,
    acosh,
    add,
    add_square,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    clamp,
    copysign,
    cos,
    cosh,
    div,
    eq,
    erf,
    exp,
    expm1,
    floor,
    floor_div,
    ge,
    gt,
    hypot,
    isfinite,
    isinf,
    isnan,
    le,
    left_shift,
    lerp,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    maximum,
    minimum,
    mod,
    mul,
    multiply_add,
    ne,
    neg,
    pointwise,
    pow,
    reciprocal,
    right_shift,
    round,
    rsqrt,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    tan,
    tanh,
    trunc,
    where,
)
from .ops.pooling import (
    adaptive_pool_backward,
    adaptive_pool_forward,
    global_pool_backward,
    global_pool_forward,
    pool_backward,
    pool_forward,
    pool_forward_with_indices,
)
from .ops.random import dropout_backward, dropout_forward, random_normal, random_uniform
from .ops.reduce import all, any, argmax, argmin, max, mean, min, prod, reduce, sum
from .ops.rnn import rnn_backward_data, rnn_backward_weights, rnn_forward, rnn_pack, rnn_unpack
from .ops.softmax import softmax_backward, softmax_forward
from .ops.transform import concat, slice, split, transform
from .tuning import engines, explain, find

__version__ = "0.1.0"

__all__ = [
    "BoundGraph",
    "DType",
    "DTypeError",
    "DeviceError",
    "DeviceTensor",
    "Error",
    "Graph",
    "Handle",
    "IndexingError",
    "NotSupported",
    "OutOfMemory",
    "ShapeError",
    "abs",
    "acos",
    "acosh",
    "activation_backward",
    "activation_forward",
    "adaptive_pool_backward",
    "adaptive_pool_forward",
    "add",
    "add_square",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "array",
    "asarray",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "attention_backward",
    "attention_decode",
    "attention_forward",
    "batch_norm_backward",
    "batch_norm_forward_inference",
    "batch_norm_forward_training",
    "bfloat16",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bool",
    "ceil",
    "clamp",
    "concat",
    "conv_backward_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_forward",
    "conv_forward_statistics",
    "copysign",
    "cos",
    "cosh",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "ctc_loss_backward",
    "ctc_loss_forward",
    "device_count",
    "div",
    "dropout_backward",
    "dropout_forward",
    "empty",
    "empty_cache",
    "empty_like",
    "engines",
    "eq",
    "erf",
    "exp",
    "explain",
    "expm1",
    "eye",
    "find",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_div",
    "from_dlpack",
    "full",
    "full_like",
    "functional",
    "fuse",
    "gather",
    "gather_backward",
    "ge",
    "global_pool_backward",
    "global_pool_forward",
    "group_norm_backward",
    "group_norm_forward",
    "gt",
    "hypot",
    "instance_norm_backward",
    "instance_norm_forward",
    "int8",
    "int32",
    "int64",
    "isfinite",
    "isinf",
    "isnan",
    "layer_norm_backward",
    "layer_norm_forward",
    "lcn_backward",
    "lcn_forward",
    "le",
    "left_shift",
    "lerp",
    "linspace",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lrn_backward",
    "lrn_forward",
    "lt",
    "matmul",
    "max",
    "maximum",
    "mean",
    "memory_stats",
    "min",
    "minimum",
    "mod",
    "mul",
    "multiply_add",
    "ne",
    "neg",
    "ones",
    "ones_like",
    "pad",
    "pointwise",
    "pool_backward",
    "pool_forward",
    "pool_forward_with_indices",
    "pow",
    "prod",
    "random_normal",
    "random_uniform",
    "reciprocal",
    "record",
    "reduce",
    "relu",
    "reset_peak_memory",
    "right_shift",
    "rms_norm_backward",
    "rms_norm_forward",
    "rnn_backward_data",
    "rnn_backward_weights",
    "rnn_forward",
    "rnn_pack",
    "rnn_unpack",
    "round",
    "rsqrt",
    "save",
    "set_log_level",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "slice",
    "softmax",
    "softmax_backward",
    "softmax_forward",
    "split",
    "sqrt",
    "square",
    "stack",
    "sub",
    "sum",
    "synchronize",
    "tan",
    "tanh",
    "tensor",
    "transform",
    "trunc",
    "uint8",
    "where",
    "zeros",
    "zeros_like",
]
