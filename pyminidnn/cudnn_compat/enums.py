# SPDX-License-Identifier: Apache-2.0
"""The enumerations and the error class of cudnn-frontend's Python module, and what its element types are here."""

from __future__ import annotations

import enum
from typing import Any

from ..dtypes import DTYPES
from ..refusals import short


class cudnnGraphNotSupportedError(RuntimeError):
    """The graph is well formed, but it cannot be computed here. The text names the node and the line that made it."""


def _enum(name: str, members: str, doc: str) -> Any:
    made = enum.Enum(name, members, module=__name__)  # type: ignore[misc]
    made.__doc__ = doc
    return made


data_type: Any = _enum(
    "data_type",
    "FLOAT DOUBLE HALF INT8 INT32 INT8x4 UINT8 UINT8x4 INT8x32 BFLOAT16 INT64 BOOLEAN FP8_E4M3 FP8_E5M2 "
    "FAST_FLOAT_FOR_FP8 FP8_E8M0 FP4_E2M1 INT4 NOT_SET",
    "Element types.",
)
tensor_reordering = _enum("tensor_reordering", "NONE INT8x32 F16x16 F8_128x4", "Reorderings of elements; NONE works.")
scalar_type = _enum("scalar_type", "RUNTIME_PARAM COMPILE_TIME_CONST", "When the value of a scalar is known.")
reshape_mode = _enum("reshape_mode", "VIEW_ONLY LOGICAL", "What reshape() keeps: the memory, or the order of elements.")
norm_forward_phase = _enum("norm_forward_phase", "INFERENCE TRAINING NOT_SET", "TRAINING also returns the statistics.")
heur_mode = _enum("heur_mode", "A B FALLBACK OPENSOURCE", "How plans are proposed. All modes propose the same plans.")
convolution_mode = _enum("convolution_mode", "CONVOLUTION CROSS_CORRELATION", "CONVOLUTION flips the window.")
reduction_mode = _enum("reduction_mode", "ADD MUL MIN MAX AMAX AVG NORM1 NORM2 MUL_NO_ZEROS NOT_SET", "Reductions.")
build_plan_policy = _enum("build_plan_policy", "HEURISTICS_CHOICE ALL", "Which plans build_plans() builds.")
numerical_note = _enum(
    "numerical_note",
    "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION FFT NONDETERMINISTIC WINOGRAD WINOGRAD_TILE_4x4 "
    "WINOGRAD_TILE_6x6 WINOGRAD_TILE_13x13 STRICT_NAN_PROP",
    "Properties of the arithmetic of a plan.",
)
behavior_note = _enum(
    "behavior_note",
    "RUNTIME_COMPILATION REQUIRES_FILTER_INT8x32_REORDER REQUIRES_BIAS_INT8x32_REORDER SUPPORTS_CUDA_GRAPH_NATIVE_API "
    "CUBLASLT_DEPENDENCY",
    "Properties of the behaviour of a plan.",
)
knob_type = _enum(
    "knob_type",
    "NOT_SET SWIZZLE TILE_SIZE EDGE MULTIPLY SPLIT_K_BUF TILEK STAGES REDUCTION_MODE SPLIT_K_SLC IDX_MODE SPECFILT "
    "KERNEL_CFG WORKSPACE TILE_CGA_M TILE_CGA_N BLOCK_SIZE OCCUPANCY ARRAY_SIZE_PER_THREAD SPLIT_COLS TILE_ROWS "
    "TILE_COLS LOAD_SIZE CTA_COUNT STREAM_K SPLIT_P_SLC TILE_M TILE_N WARP_SPEC_CFG",
    "Kinds of knobs of an engine.",
)
diagonal_alignment = _enum(
    "diagonal_alignment",
    "TOP_LEFT BOTTOM_RIGHT",
    "The diagonal of attention: column i in row i, or the last column in the last row.",
)
attention_implementation = _enum(
    "attention_implementation", "AUTO COMPOSITE UNIFIED", "Implementations of attention. They make no difference."
)
moe_grouped_matmul_mode = _enum("moe_grouped_matmul_mode", "NONE GATHER SCATTER", "For grouped products.")

NOT_SET = data_type.NOT_SET
# The dtype of a tensor for each element type that is supported.
DTYPE_OF = {
    data_type.FLOAT: "float32",
    data_type.DOUBLE: "float64",
    data_type.HALF: "float16",
    data_type.BFLOAT16: "bfloat16",
    data_type.INT8: "int8",
    data_type.UINT8: "uint8",
    data_type.INT32: "int32",
    data_type.INT64: "int64",
    data_type.BOOLEAN: "bool",
}
_TYPE_OF = {dtype: kind for kind, dtype in DTYPE_OF.items()}
_TYPE_OF |= {"float8_e4m3fn": data_type.FP8_E4M3, "float8_e5m2": data_type.FP8_E5M2}
_TYPE_OF |= {"float8_e8m0fnu": data_type.FP8_E8M0, "float4_e2m1fn_x2": data_type.FP4_E2M1}
ITEMSIZE = {str(dtype): dtype.itemsize for dtype in DTYPES}


def member(name: str, value: Any, kind: Any) -> str:
    """The name of a member of the enumeration `kind`. Raises ValueError, which calls the argument `name`."""
    if not isinstance(value, kind) or value.name == "NOT_SET":
        raise ValueError(f"{name} must be a cudnn.{kind.__name__}; got {short(value)}")
    return str(value.name)


def integer(name: str, value: Any) -> int:
    """The value as an int. Raises ValueError, which calls the argument `name`."""
    try:
        return int(value.__index__())
    except (TypeError, AttributeError):
        raise ValueError(f"{name} must be an int; got {short(value)}") from None


def real(name: str, value: Any) -> float:
    """The value as a float. Raises ValueError, which calls the argument `name`."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a number; got {short(value)}") from None


def type_of(value: Any) -> Any:
    """The data_type of a data_type, or of a dtype of torch, NumPy or pyminidnn. Raises ValueError for anything else."""
    if isinstance(value, data_type):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None) or getattr(value, "__name__", None)
    found = _TYPE_OF.get((str(name) if name else str(value)).rpartition(".")[2])
    if found is None:
        raise ValueError(f"data_type must be a cudnn.data_type or the dtype of an array; got {short(value)}")
    return found
