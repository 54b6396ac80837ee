# SPDX-License-Identifier: Apache-2.0
"""Calls for type checkers; tests/test_typing.py runs them. Each line with `type: ignore` must be an error, and each line
without it must not be: a checker also reports comments that ignore nothing."""

from __future__ import annotations

import numpy as np

import pyminidnn as dnn
from pyminidnn import functional

x: dnn.DeviceTensor = dnn.zeros(2, 3, dtype="float32", layout="contiguous", device="cpu")

# ---- dtypes: names, NumPy's codes, objects and types
dnn.ones((2, 3), dtype="bf16").astype("f8").to(dtype=np.float16).to(dtype=np.dtype("int8")).astype(float)
dnn.tensor([1, 2], dtype=dnn.float64).astype(x.dtype)
dnn.arange(3, dtype="float33")  # type: ignore[arg-type]
dnn.ones(2, dtype="f5")  # type: ignore[arg-type]
dnn.empty_like(x, dtype="complex64")  # type: ignore[arg-type]
dnn.transform(x, dtype="float")
dnn.transform(x, dtype="uint16")  # type: ignore[arg-type]
dnn.random_uniform((2,), seed=1, dtype="flaot32")  # type: ignore[arg-type]
x.astype("flaot32")  # type: ignore[arg-type]
x.to(dtype="flaot32")  # type: ignore[arg-type]
dnn.DeviceTensor((2,), dtype="flaot32")  # type: ignore[arg-type]

# ---- layouts
dnn.empty(2, 3, 4, 5, layout="NHWC").to(layout="NCHW")
dnn.empty(2, 3, 4, 5, layout="NWHC")  # type: ignore[arg-type]
dnn.transform(x, layout="nchw")  # type: ignore[arg-type]
x.to(layout="strided")  # type: ignore[arg-type]
dnn.asarray(x, layout="C")  # type: ignore[arg-type]
assert x.layout == "strided"

# ---- handles and the log
with dnn.Handle("cpu", math="ieee", threads=2) as handle:
    dnn.relu(x)
dnn.Handle(math="fp32")  # type: ignore[arg-type]
math: int = handle.math  # type: ignore[assignment]
dnn.set_log_level("debug")

# ---- modes
dnn.activation_forward(x, "gelu")
dnn.activation_forward(x, "swish")  # type: ignore[arg-type]
dnn.activation_backward(x, x, x, "Relu")  # type: ignore[arg-type]
dnn.conv_forward(x, x, activation="relu", mode="convolution")
dnn.conv_forward(x, x, mode="correlation")  # type: ignore[arg-type]
dnn.conv_forward(x, x, activation="relu6")  # type: ignore[arg-type]
dnn.conv_backward_data(x, x, (1,), mode="")  # type: ignore[arg-type]
dnn.matmul(x, x, activation="none")  # type: ignore[arg-type]
dnn.batch_norm_forward_training(x, x, x, activation="gelu")  # type: ignore[arg-type]
dnn.pool_forward(x, 2, mode="avg_exclude_padding")
dnn.pool_forward(x, 2, mode="average")  # type: ignore[arg-type]
dnn.adaptive_pool_forward(x, 2, mode="mean")  # type: ignore[arg-type]
dnn.global_pool_forward(x, mode="min")  # type: ignore[arg-type]
dnn.pool_forward_with_indices(x, 2, index_dtype="int8")  # type: ignore[arg-type]
dnn.pad(x, 1, mode="reflect")
dnn.pad(x, 1, mode="edge")  # type: ignore[arg-type]
dnn.cross_entropy_forward(x, x, reduction="none")
dnn.cross_entropy_forward(x, x, reduction="avg")  # type: ignore[arg-type]
functional.cross_entropy(x, x, reduction="avg")  # type: ignore[arg-type]
functional.conv2d(x, x, padding="same")
functional.conv2d(x, x, padding="full")  # type: ignore[arg-type]
dnn.reduce(x, "norm2")
dnn.reduce(x, "norm3")  # type: ignore[arg-type]
dnn.pointwise("where", x, x, x)
dnn.pointwise("add3", x, x, x)  # type: ignore[arg-type]
dnn.engines("conv")
dnn.engines("norm")  # type: ignore[arg-type]

# ---- other arguments
dnn.save("weights.npz", {"x": x, "y": np.ones(3)})
y: dict[str, dnn.DeviceTensor] = dnn.load("weights.npz", device="cuda:0")
dnn.save("weights.npz", [x])  # type: ignore[arg-type]
dnn.synchronize()
dnn.synchronize(0)  # type: ignore[arg-type]
dnn.zeros("2")  # type: ignore[arg-type]
dnn.softmax(x, "1")  # type: ignore[arg-type]
dnn.relu(x, 1)  # type: ignore[call-arg]
z: dnn.DeviceTensor = -x + 1 @ x == x[0, ..., None]
n: int = x.itemsize + x.ndim + len(x)
