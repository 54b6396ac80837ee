# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of every family: Sample (inputs, call, expected results), tensors with given strides,
comparison."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import unittest.mock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reference
from cases import Case, Operand

import pyminidnn as dnn
from pyminidnn import _C, calibrate


@dataclass
class Result:
    """One expected output: float64 values, and the largest difference that rounding explains, as a number or an
    array."""

    want: np.ndarray
    tolerance: float | np.ndarray


@dataclass
class Sample:
    """A case with values. `call` runs the public function on tensors of `inputs`, in order, with the engine named
    `algo`, and returns its outputs as a sequence. `results` are the expected outputs. A call with one output accepts it
    as `out`."""

    # The inputs as float64 arrays. Their values are already rounded to the dtype of the case.
    inputs: dict[str, np.ndarray]
    # `call` has the signature call(tensors: dict[str, DeviceTensor], algo: str, out=None).
    call: Callable[..., Sequence[dnn.DeviceTensor]]
    results: list[Result]
    # The dtypes of those inputs whose dtype differs from the dtype of the case.
    dtypes: dict[str, str] = field(default_factory=dict)


def tensor(values: np.ndarray, dtype: str, device: str, operand: Operand | None = None) -> dnn.DeviceTensor:
    """Values as a tensor with the operand's layout or strides. Gaps between strided elements hold NaN, so a test
    notices if they are read. Along a broadcast dimension (stride 0), the values must be equal."""
    values = np.asarray(values, dtype="float64")
    if operand is None or operand.strides is None:
        layout = None if operand is None else operand.layout
        return dnn.asarray(values, dtype=dtype, layout=layout).to(device=device)
    reach = sum(abs(s) * max(n - 1, 0) for s, n in zip(operand.strides, operand.shape, strict=True)) + 1
    buffer = np.full(reach, np.nan if dtype in REAL else 0, dtype="float64")
    low = sum(min(s, 0) * max(n - 1, 0) for s, n in zip(operand.strides, operand.shape, strict=True))
    view = np.lib.stride_tricks.as_strided(buffer[-low:], operand.shape, [s * 8 for s in operand.strides])
    view[...] = values
    flat = dnn.asarray(buffer, dtype=dtype).to(device=device)
    return flat.as_strided(operand.shape, operand.strides, -low)


def out_for(case: Case, out: dnn.DeviceTensor | None, shape: Sequence[int], like: dnn.DeviceTensor) -> Any:
    """`out`, if it is given or the case does not cast. Otherwise a new tensor of the output dtype, in the layout of
    `like`."""
    if out is not None or case.out_dtype == case.dtype:
        return out
    layout = None if like.layout == "strided" else like.layout
    return dnn.empty(tuple(shape), dtype=case.out_dtype, layout=layout, device=like.device)


REAL = ("float32", "float64", "float16", "bfloat16")
INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
MARGIN = 64  # number of guard elements before and after a framed tensor in memory


def framed(
    shape: Sequence[int], strides: Sequence[int], dtype: str, device: str
) -> tuple[dnn.DeviceTensor, Callable[[], bool]]:
    """An output filled with poison (NaN, or 85 for integers) between margins of poison, and a function that checks the
    margins. Elements that an engine does not write keep the poison; writes outside the output change the margins."""
    poison = float("nan") if dtype in REAL else 1.0 if dtype == "bool" else 85.0
    reach = sum(abs(s) * max(n - 1, 0) for s, n in zip(strides, shape, strict=True)) + 1
    low = sum(min(s, 0) * max(n - 1, 0) for s, n in zip(strides, shape, strict=True))
    flat = dnn.full((reach + 2 * MARGIN,), poison, dtype=dtype, device=device)

    def margins_untouched() -> bool:
        values = values_of(flat)
        edges = np.concatenate([values[:MARGIN], values[-MARGIN:]])
        return np.array_equal(edges, np.full(2 * MARGIN, poison), equal_nan=True)

    return flat.as_strided(shape, strides, MARGIN - low), margins_untouched


def drawn(case: Case, rng: np.random.Generator, name: str, mean: float) -> np.ndarray:
    """Random values for an operand. Its shape is that of x if the case names none. Along dimensions of stride 0, values
    are equal."""
    operand = case.operand(name, case.operands["x"].shape)
    strides = operand.strides or operand.shape
    distinct = tuple(1 if s == 0 else n for n, s in zip(operand.shape, strides, strict=True))
    return np.broadcast_to(reference.rounded(rng.normal(mean, 2, distinct), case.dtype), operand.shape)


def values_for_copies(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Random values of x of any dtype. Along dimensions of stride 0, values are equal."""
    operand = case.operands["x"]
    strides = operand.strides or operand.shape
    distinct = tuple(1 if operand.strides and s == 0 else n for n, s in zip(operand.shape, strides, strict=True))
    if case.dtype in REAL:
        # The random numbers have both signs. Some are outside of the ranges of int8 and uint8.
        x = reference.rounded(rng.normal(0, 100, distinct), case.dtype)
    else:
        low, high = INTEGERS.get(case.dtype, (0, 1))
        x = rng.integers(max(low, -(2**53)), min(high, 2**53), distinct, endpoint=True).astype("float64")
    return np.broadcast_to(x, operand.shape)


def zeros(x: dnn.DeviceTensor, n: int = 3, dtype: str = "float32") -> dnn.DeviceTensor:
    """n zeros, on the device of x."""
    return dnn.zeros((n,), dtype=dtype, device=x.device)


def values_of(t: dnn.DeviceTensor) -> np.ndarray:
    return t.to(device="cpu", dtype="float64").numpy()


_graphs = tempfile.TemporaryDirectory()


def reloaded(graph: dnn.Graph) -> dnn.Graph:
    """The graph after it was saved and loaded."""
    file = f"{_graphs.name}/graph.json"
    # Thousands of cases need neither a folder each nor the disk, which also replacing an existing file would wait for.
    with unittest.mock.patch("os.fsync", lambda file: None):
        graph.save(file)
    loaded = dnn.Graph.load(file)
    os.unlink(file)
    return loaded


def outputs_by_threads(code: str) -> set[str]:
    """The outputs of a program with 1, 2 and 64 threads; 64 is more than most calls have chunks of work."""
    return {
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": n}, capture_output=True,
                       text=True, check=True).stdout
        for n in ("1", "2", "64")
    }  # fmt: skip


def assert_close(got: dnn.DeviceTensor | np.ndarray, result: Result, what: str = "") -> None:
    """Checks that NaN and Inf are exactly where they are expected, and that all other elements are within the
    tolerance.

    For a tensor, the tolerance is at least the smallest positive number of its dtype, and Inf is right where the
    expected number is larger than the largest one of that dtype.
    """
    want, tolerance = np.asarray(result.want, "float64"), np.asarray(result.tolerance, "float64")
    largest = np.inf  # the largest finite number of the dtype of `got`; inf for other results
    if isinstance(got, dnn.DeviceTensor) and got.dtype in reference.EPS:
        tolerance = np.maximum(tolerance, reference.SUBNORMAL[got.dtype])
        largest = reference.LARGEST[got.dtype]
    got = values_of(got) if isinstance(got, dnn.DeviceTensor) else np.asarray(got, "float64")
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    with np.errstate(invalid="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        finite = np.isfinite(got) & np.isfinite(want)
        close = finite & (np.abs(got - want) <= tolerance)
        close |= np.isinf(got) & (np.sign(got) == np.sign(want)) & (np.abs(want) + tolerance > largest)
    wrong = ~(same | close)
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        limit = np.broadcast_to(tolerance, want.shape)[at]
        raise AssertionError(
            f"{what}: {wrong.sum()} of {want.size} elements are wrong; at {at} got {got[at]!r}, want {want[at]!r}, "
            f"tolerance {limit:.3g}"
        )


@functools.cache
def calibrated() -> set[tuple[str, str]]:
    """The kinds of problems and the CPU engines that `pyminidnn calibrate` measures. Without a factor of its own, an
    engine has the mean of others, which is wrong for an engine whose estimate contains those of others."""
    with dnn.Handle("cpu"):
        reports = [r for call in calibrate.problems() for r in _C.dry_run(call, "explain")]
    able = [(r, e) for r in reports for e in r.engines if not e.why_not]
    return {(_C.cost_kind(r.problem), e.name) for r, e in able if e.estimate_us < 20_000}
