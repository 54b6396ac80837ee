# SPDX-License-Identifier: Apache-2.0
"""What tests of every family share: a Sample (inputs, call, expected results), tensors with given strides, comparison."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reference
from cases import Case, Operand

import pyminidnn as dnn


@dataclass
class Result:
    """One expected output: float64 values and the largest difference that rounding explains, a number or an array."""

    want: np.ndarray
    tolerance: float | np.ndarray


@dataclass
class Sample:
    """A case made concrete. `call` runs the public function on tensors of `inputs`, in order, with one engine by name,
    and returns its outputs as a sequence; `results` is what they must be. A call with one output takes it as `out`."""

    inputs: dict[str, np.ndarray]  # float64, already rounded to the case's dtype
    call: Callable[..., Sequence[dnn.DeviceTensor]]  # call(tensors: dict[str, DeviceTensor], algo: str, out=None)
    results: list[Result]
    dtypes: dict[str, str] = field(default_factory=dict)  # of inputs that are not of the case's dtype


def tensor(values: np.ndarray, dtype: str, device: str, operand: Operand | None = None) -> dnn.DeviceTensor:
    """Values as a tensor with the operand's layout or strides. Gaps between strided elements hold NaN, so that reading
    one is seen; a broadcast operand (stride 0) must hold equal values along that dimension."""
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
    """`out`, or where a case asks for another dtype than its operands' and gives none, a new one in the layout of one."""
    if out is not None or case.out_dtype == case.dtype:
        return out
    layout = None if like.layout == "strided" else like.layout
    return dnn.empty(tuple(shape), dtype=case.out_dtype, layout=layout, device=like.device)


REAL = ("float32", "float64", "float16", "bfloat16")
MARGIN = 64  # elements on each side of a framed tensor


def framed(
    shape: Sequence[int], strides: Sequence[int], dtype: str, device: str
) -> tuple[dnn.DeviceTensor, Callable[[], bool]]:
    """An output full of poison (NaN, or 85 in integers) between margins of it, and a check that these still are: what an
    engine does not write stays poison, and what it writes beside the output does not."""
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
    """Values for an operand, which is of the shape of x if the case gives none; where its stride is 0 they are the same."""
    operand = case.operand(name, case.operands["x"].shape)
    strides = operand.strides or operand.shape
    distinct = tuple(1 if s == 0 else n for n, s in zip(operand.shape, strides, strict=True))
    return np.broadcast_to(reference.rounded(rng.normal(mean, 2, distinct), case.dtype), operand.shape)


def zeros(x: dnn.DeviceTensor, n: int = 3, dtype: str = "float32") -> dnn.DeviceTensor:
    """n of them, on the device of x."""
    return dnn.zeros((n,), dtype=dtype, device=x.device)


def values_of(t: dnn.DeviceTensor) -> np.ndarray:
    return t.to(device="cpu", dtype="float64").numpy()


def outputs_by_threads(code: str) -> set[str]:
    """What a program prints with one thread, with two, and with more than there are pieces of most work."""
    return {
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": n}, capture_output=True,
                       text=True, check=True).stdout
        for n in ("1", "2", "64")
    }  # fmt: skip


def assert_close(got: dnn.DeviceTensor | np.ndarray, result: Result, what: str = "") -> None:
    """NaN and Inf where they are expected, nowhere else, and the rest within the tolerance.

    Of a tensor, the tolerance is at least its dtype's least number; and Inf is right where the dtype has no number so
    large as the expected one.
    """
    want, tolerance = np.asarray(result.want, "float64"), np.asarray(result.tolerance, "float64")
    largest = np.inf  # magnitude of what a tensor holds
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
