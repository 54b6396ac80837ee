# SPDX-License-Identifier: Apache-2.0
"""The options that are strings, with every value that functions accept: for signatures and type checkers."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

DTypeName: TypeAlias = Literal[
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool",
    "f32", "f64", "f16", "bf16", "i32", "i64",
    "f4", "f8", "f2", "i1", "u1", "i4", "i8", "b1", "?", "half", "single", "double", "float", "int",
]  # fmt: skip


class DTypeObject(Protocol):
    """pyminidnn.float32 and the dtypes of NumPy, torch and ml_dtypes."""

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        ...


# DTypeLike includes types, such as numpy.float32 and float.
DTypeLike: TypeAlias = DTypeName | DTypeObject | type[Any]
IndexDType: TypeAlias = Literal["int32", "int64"]

Layout: TypeAlias = Literal["NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC", "contiguous"]
# DeviceTensor.layout returns a LayoutName.
LayoutName: TypeAlias = Layout | Literal["strided"]

Math: TypeAlias = Literal["tf32", "ieee"]
Rounding: TypeAlias = Literal["fused", "each"]
Family: TypeAlias = Literal[
    "activation", "attention", "batch_norm", "conv", "ctc", "gather", "graph", "layer_norm", "loss", "lrn", "matmul",
    "pad", "pointwise", "pooling", "random", "reduce", "rnn", "softmax", "transform",
]  # fmt: skip

Activation: TypeAlias = Literal[
    "identity", "relu", "clipped_relu", "leaky_relu", "tanh", "sigmoid", "elu", "gelu", "gelu_tanh", "softplus", "silu",
    "hardswish", "mish",
]  # fmt: skip
ConvMode: TypeAlias = Literal["cross_correlation", "convolution"]
PoolMode: TypeAlias = Literal["max", "avg", "avg_exclude_padding", "lp"]
PadMode: TypeAlias = Literal["constant", "replicate", "reflect"]
AttentionAlign: TypeAlias = Literal["top_left", "bottom_right"]
AttentionLayout: TypeAlias = Literal["bhsd", "bshd"]
RnnMode: TypeAlias = Literal["relu", "tanh", "lstm", "gru"]
RnnLayout: TypeAlias = Literal["tnc", "ntc"]
LossReduction: TypeAlias = Literal["mean", "sum", "none"]
ReduceMode: TypeAlias = Literal[
    "sum", "mean", "prod", "max", "min", "amax", "norm1", "norm2", "sumsq", "argmax", "argmin", "any", "all"
]
Pointwise: TypeAlias = Literal[
    "neg", "abs", "sign", "bitwise_not", "square", "reciprocal", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc",
    "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "atan", "asin", "acos", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "isnan", "isinf", "isfinite", "signbit", "logical_not", "add", "sub",
    "mul", "div", "minimum", "maximum", "add_square", "copysign", "bitwise_and", "bitwise_or", "bitwise_xor",
    "left_shift", "right_shift", "pow", "mod", "floor_div", "hypot", "logaddexp", "atan2", "eq", "ne", "lt", "le",
    "gt", "ge", "logical_and", "logical_or", "logical_xor", "clamp", "multiply_add", "lerp", "where",
]  # fmt: skip
