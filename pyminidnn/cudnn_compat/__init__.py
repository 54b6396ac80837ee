# SPDX-License-Identifier: Apache-2.0
"""cudnn-frontend's Python graphs, computed by pyminidnn: `import pyminidnn.cudnn_compat as cudnn`.

docs/cudnn_compat.md says how to port a program and what is supported. Graphs run on the CPU and on CUDA.
"""

from .building import (
    backend_version,
    backend_version_string,
    create_device_properties,
    create_kernel_cache,
    get_last_error_string,
    graph,
    graph_cache,
    jit,
)
from .enums import (
    attention_implementation,
    behavior_note,
    build_plan_policy,
    convolution_mode,
    cudnnGraphNotSupportedError,
    data_type,
    diagonal_alignment,
    heur_mode,
    knob_type,
    moe_grouped_matmul_mode,
    norm_forward_phase,
    numerical_note,
    reduction_mode,
    reshape_mode,
    scalar_type,
    tensor_reordering,
)
from .graph import knob, pygraph
from .handles import create_handle, destroy_handle, get_stream, set_stream
from .tensors import Tensor as tensor
from .wrapper import Graph

# The version of cudnn-frontend whose interface this module has.
__version__ = "1.23.0"

__all__ = [
    "Graph",
    "attention_implementation",
    "backend_version",
    "backend_version_string",
    "behavior_note",
    "build_plan_policy",
    "convolution_mode",
    "create_device_properties",
    "create_handle",
    "create_kernel_cache",
    "cudnnGraphNotSupportedError",
    "data_type",
    "destroy_handle",
    "diagonal_alignment",
    "get_last_error_string",
    "get_stream",
    "graph",
    "graph_cache",
    "heur_mode",
    "jit",
    "knob",
    "knob_type",
    "moe_grouped_matmul_mode",
    "norm_forward_phase",
    "numerical_note",
    "pygraph",
    "reduction_mode",
    "reshape_mode",
    "scalar_type",
    "set_stream",
    "tensor",
    "tensor_reordering",
]
