# SPDX-License-Identifier: Apache-2.0
"""Convolution: samples for the case lines, adjoints, torch's opinion, empty and special values, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, Operand, generator
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
TF32 = 2.0**-10  # two operands, each rounded by at most 2^-11 of itself


def draw(rng: np.random.Generator, operand: Operand, dtype: str) -> np.ndarray:
    """Normal values; one per distinct element, since strides of zero repeat them."""
    strides = operand.strides or operand.shape
    distinct = [1 if operand.strides and s == 0 else n for n, s in zip(operand.shape, strides, strict=True)]
    return np.broadcast_to(reference.rounded(rng.normal(0, 1, distinct), dtype), operand.shape)


def attributes_of(case: Case) -> dict[str, Any]:
    spatial = len(case.operands["dy" if "dy" in case.operands else "x"].shape) - 2
    return {
        "stride": case.integers("stride", 1),
        "padding": case.padding(spatial),
        "dilation": case.integers("dilation", 1),
        "groups": case.integers("groups", 1),
        "mode": case.attributes.get("mode", "cross_correlation"),
    }


def handle_of(t: dnn.DeviceTensor, case: Case) -> dnn.Handle | None:
    return dnn.Handle(device=t.device, math="ieee") if case.attributes.get("math") == "ieee" else None


def sum_tolerance(case: Case, terms: float, scale: np.ndarray) -> np.ndarray:
    """For sums of `terms` products whose sizes add up to `scale`, stored in the case's dtype."""
    tolerance = reference.tolerance(case.dtype, terms, scale)
    if case.dtype == "float32" and case.attributes.get("math") != "ieee":
        tolerance = tolerance + TF32 * scale
    return tolerance


def sample(case: Case) -> Sample:
    rng = generator(case)
    if case.direction == "backward_bias":
        dy = draw(rng, case.operands["dy"], case.dtype)
        tolerance = reference.tolerance(case.dtype, dy.size / dy.shape[1], reference.conv_backward_bias(np.abs(dy)))
        call = lambda t, algo, out=None: [dnn.conv_backward_bias(t["dy"], algo=algo, out=out)]
        return Sample({"dy": dy}, call, [Result(reference.conv_backward_bias(dy), tolerance)])

    attributes = attributes_of(case)
    if case.direction == "backward_data":
        dy, w = (draw(rng, case.operands[name], case.dtype) for name in ("dy", "w"))
        shape = case.operands["dx"].shape
        want = reference.conv_backward_data(dy, w, shape, **attributes)
        scale = reference.conv_backward_data(np.abs(dy), np.abs(w), shape, **attributes)
        terms = w.size / w.shape[1] / attributes["groups"]
        call = lambda t, algo, out=None: [
            dnn.conv_backward_data(
                t["dy"], t["w"], shape, **attributes, algo=algo, out=out, handle=handle_of(t["dy"], case)
            )
        ]
        return Sample({"dy": dy, "w": w}, call, [Result(want, sum_tolerance(case, terms, scale))])
    if case.direction == "backward_filter":
        dy, x = (draw(rng, case.operands[name], case.dtype) for name in ("dy", "x"))
        shape = case.operands["dw"].shape
        want = reference.conv_backward_filter(dy, x, shape, **attributes)
        scale = reference.conv_backward_filter(np.abs(dy), np.abs(x), shape, **attributes)
        call = lambda t, algo, out=None: [
            dnn.conv_backward_filter(
                t["dy"], t["x"], shape, **attributes, algo=algo, out=out, handle=handle_of(t["dy"], case)
            )
        ]
        return Sample({"dy": dy, "x": x}, call, [Result(want, sum_tolerance(case, dy.size / dy.shape[1], scale))])

    x, w = (draw(rng, case.operands[name], case.dtype) for name in ("x", "w"))
    activation = case.attributes.get("activation")
    bias, filters, step = None, w.shape[0], case.integers("bias_stride", 1)
    bias_memory = reference.rounded(rng.normal(0, 1, (filters - 1) * step + 1), case.dtype)
    if "bias" in case.words:
        bias = np.lib.stride_tricks.as_strided(bias_memory, (filters,), (8 * step,))
    before = reference.conv_forward(x, w, bias, **attributes)
    want = reference.activation_forward(before, activation or "identity")
    scale = reference.conv_forward(np.abs(x), np.abs(w), None if bias is None else np.abs(bias), **attributes)
    # The activations used here are steeper than 1.13 nowhere; their own few steps round values below 1 + |before|.
    tolerance = 1.13 * sum_tolerance(case, w.size / w.shape[0] + 1, scale)
    if activation:
        tolerance = tolerance + reference.tolerance(case.dtype, 8, np.abs(want)) + reference.EPS[case.dtype] / 64

    def call(t: dict[str, dnn.DeviceTensor], algo: str | None, out: Any = None) -> list[dnn.DeviceTensor]:
        b = None if bias is None else t["bias"].as_strided((filters,), (step,), 0)
        y = dnn.conv_forward(
            t["x"], t["w"], b, **attributes, activation=activation, algo=algo, out=out, handle=handle_of(t["x"], case)
        )
        return [y]

    inputs = {"x": x, "w": w} | ({} if bias is None else {"bias": bias_memory})
    return Sample(inputs, call, [Result(want, tolerance)])
