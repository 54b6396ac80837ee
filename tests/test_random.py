# SPDX-License-Identifier: Apache-2.0
"""Random numbers: Philox against published vectors, samples for the case lines, distributions, replay and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, tensor, values_of

import pyminidnn as dnn
from pyminidnn import _C

SEED, OFFSET, P = 0x123456789ABC, 2**40 + 7, 0.3
SMALLEST = {"float32": 0.0, "float64": 0.0, "float16": 2.0**-25, "bfloat16": 0.0}


def sample(case: Case) -> Sample:
    if case.direction == "dropout":
        operand = case.operands["x"]
        shape = operand.shape
        distinct = tuple(
            1 if operand.strides and s == 0 else n for n, s in zip(shape, operand.strides or shape, strict=True)
        )
        x = np.broadcast_to(reference.rounded(generator(case).normal(0, 3, distinct), case.dtype), shape)
        want = reference.random.dropout_forward(x, P, seed=SEED, offset=OFFSET)
        call = lambda t, algo, out=None: [dnn.dropout_forward(t["x"], P, seed=SEED, offset=OFFSET, algo=algo, out=out)]
        return Sample({"x": x}, call, [Result(want, reference.tolerance(case.dtype, 2, np.abs(want)))])
    operand = case.operands["y"]
    layout = None if operand.layout == "contiguous" else operand.layout
    named = {"seed": SEED, "offset": OFFSET, "dtype": case.dtype}
    if case.direction == "uniform":
        want = reference.random.random_uniform(operand.shape, low=-1, high=3, **named)
        tolerance = reference.tolerance(case.dtype, 2, np.abs(want) + 1)
    else:
        want = reference.random.random_normal(operand.shape, mean=1, std=2, **named)
        # A normal random number is z = r cos(angle) or r sin(angle), where r = sqrt(-2 log u). Rounding changes u by up
        # to e = 2^-24, and near u = 1, this changes r by up to e / r or sqrt(2 e). The tolerance uses |z| <= r in place
        # of r.
        e, z = 2.0**-53 if case.dtype == "float64" else 2.0**-24, np.abs(want - 1) / 2
        near_zero = 2 * np.minimum(math.sqrt(2 * e), e / np.maximum(z, e))
        tolerance = reference.tolerance(case.dtype, 64, np.abs(want) + 2) + near_zero

    def call(t: dict[str, dnn.DeviceTensor], algo: str, out: dnn.DeviceTensor | None = None) -> list[dnn.DeviceTensor]:
        options = {"device": t["like"].device, "layout": layout, "algo": algo, **named}
        if case.direction == "uniform":
            return [dnn.random_uniform(operand.shape, low=-1, high=3, **options)]
        return [dnn.random_normal(operand.shape, mean=1, std=2, **options)]

    return Sample({"like": np.zeros(1)}, call, [Result(want, tolerance)])


@pytest.mark.parametrize(
    "counter, key, want",
    [  # from the file kat_vectors of Random123, for philox 4x32 with 10 rounds
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ],
)  # fmt: skip
def test_philox_against_published_vectors(counter: list[int], key: list[int], want: list[int]) -> None:
    assert _C.philox(counter, key) == want
    assert reference.random.philox([[c] for c in counter], key).ravel().tolist() == want


def test_uniform_bits(device: str) -> None:
    """The bits are equal on every device, not only close."""
    got = dnn.random_uniform((1001,), seed=SEED, offset=5, device=device)
    np.testing.assert_array_equal(values_of(got), reference.random.random_uniform((1001,), seed=SEED, offset=5))
    got = dnn.random_uniform((1001,), seed=SEED, offset=5, device=device, dtype="float64")
    np.testing.assert_array_equal(
        values_of(got), reference.random.random_uniform((1001,), seed=SEED, offset=5, dtype="float64")
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_engines_agree_bit_by_bit(dtype: str, device: str) -> None:
    x = tensor(np.linspace(-3, 3, 1001), dtype, device)
    where = {"seed": SEED, "offset": OFFSET}
    bits = set()
    for algo in dnn.engines("random", device):
        y = dnn.random_uniform(1001, low=-1.3, high=2.7, dtype=dtype, device=device, algo=algo, **where)
        bits.add(bytes(values_of(y)) + bytes(values_of(dnn.dropout_forward(x, P, algo=algo, **where))))
    assert len(bits) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions(dtype: str, device: str) -> None:
    """Moments and counts of a million numbers, within 5 standard deviations of the expected values."""
    n = 1_000_000
    u = values_of(dnn.random_uniform((n,), seed=1, dtype=dtype, device=device))
    assert 0 <= u.min() < 1e-4 and 1 - 1e-4 < u.max() < 1
    assert abs(u.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)
    counts = np.histogram(u, 256, (0, 1))[0]
    assert abs(((counts - n / 256) ** 2 / (n / 256)).sum() - 255) < 5 * math.sqrt(2 * 255)
    z = values_of(dnn.random_normal((n,), seed=2, dtype=dtype, device=device))
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 5 * math.sqrt(variance / n)
    for lag in (1, 2, 3, 4, 1024):
        assert abs((u[lag:] - 0.5) @ (u[:-lag] - 0.5)) < 5 * math.sqrt(n) / 12
        assert abs(z[lag:] @ z[:-lag]) < 5 * math.sqrt(n)
    other = values_of(dnn.random_uniform((n,), seed=1, offset=1, dtype=dtype, device=device))
    assert abs((u - 0.5) @ (other - 0.5)) < 5 * math.sqrt(n) / 12


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_stays_below_high(dtype: str, device: str) -> None:
    """There are few numbers between the bounds, so rounding would often reach the upper one."""
    # `high` is 1000 plus 8 times the distance between neighbouring numbers near 1000.
    high = 1000 + 8 * 512 * float(np.finfo(dtype).eps)
    for algo in dnn.engines("random", device):
        try:
            u = values_of(
                dnn.random_uniform(100_003, seed=3, low=1000, high=high, dtype=dtype, device=device, algo=algo)
            )
        except dnn.NotSupported:
            continue
        assert u.min() == 1000 and 1000 < u.max() < high
        assert (
            values_of(dnn.random_uniform(5, seed=3, low=2.5, high=2.5, dtype=dtype, device=device, algo=algo)) == 2.5
        ).all()


@pytest.mark.parametrize("p", [0.0, 0.25, 0.9, 1.0])
def test_dropout_keeps_its_share_and_replays(p: float, device: str) -> None:
    n = 100_000
    x = tensor(np.ones(n), "float32", device)
    y = values_of(dnn.dropout_forward(x, p, seed=3, offset=4))
    kept = y != 0
    assert abs(kept.mean() - (1 - p)) <= 5 * math.sqrt(p * (1 - p) / n)
    assert set(np.unique(y)) <= {0.0, float(np.float32(1 / (1 - p)))} if p < 1 else not kept.any()
    dx = values_of(dnn.dropout_backward(x, p, seed=3, offset=4))
    np.testing.assert_array_equal(dx, y)
    if 0 < p < 1:
        assert (values_of(dnn.dropout_forward(x, p, seed=3, offset=5)) != y).any()


def test_the_mask_does_not_depend_on_the_layout(device: str) -> None:
    x = tensor(np.ones((2, 3, 4, 5)), "float32", device)
    first, last = dnn.dropout_forward(x, 0.5, seed=1), dnn.dropout_forward(x.to(layout="NHWC"), 0.5, seed=1)
    assert last.layout == "NHWC"
    np.testing.assert_array_equal(values_of(first), values_of(last))
    assert dnn.dropout_forward(x, 0.5, seed=1, out=x).data_ptr == x.data_ptr
    np.testing.assert_array_equal(values_of(x), values_of(first))


def test_nan_is_dropped_too(device: str) -> None:
    x = tensor(np.full(64, np.nan), "float32", device)
    y = values_of(dnn.dropout_forward(x, 0.5, seed=1))
    assert (y == 0).any() and np.isnan(y).any()


def test_empty(device: str) -> None:
    assert dnn.random_normal((0, 3), seed=0, device=device).shape == (0, 3)
    assert dnn.dropout_forward(dnn.empty((0, 3), device=device), 0.5, seed=0).shape == (0, 3)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda d: dnn.random_uniform((2,), seed=-1, device=d), dnn.ShapeError,
         "random_uniform: seed and offset must not be negative; got -1 and 0"),
        (lambda d: dnn.random_normal((2,), seed=0, dtype="int32", device=d), dnn.DTypeError,
         "random_normal: dtype must be float32, float64, float16 or bfloat16; got int32"),
        (lambda d: dnn.random_uniform((2,), seed=0, low=5, high=1, device=d), dnn.ShapeError,
         "random_uniform: low must not be above high, and high - low must be finite in float32; got low=5 and high=1"),
        (lambda d: dnn.random_uniform((2,), seed=0, low=float("nan"), device=d), dnn.ShapeError, "got low=nan and high=1"),
        (lambda d: dnn.random_uniform((2,), seed=0, low=-3e38, high=3e38, device=d), dnn.ShapeError, "finite in float32"),
        (lambda d: dnn.random_uniform((2,), seed=0, low=-1e308, high=1e308, dtype="float64", device=d), dnn.ShapeError,
         "random_uniform: low must not be above high, and high - low must be finite in float64"),
        (lambda d: dnn.random_normal((2,), seed=0, std=-1, device=d), dnn.ShapeError,
         "random_normal: mean must be finite, and std finite and not negative; got mean=0 and std=-1"),
        (lambda d: dnn.dropout_forward(dnn.zeros((2,), device=d), 1.5, seed=0), dnn.ShapeError,
         "dropout_forward: p must be from 0 to 1; got 1.5"),
        (lambda d: dnn.dropout_backward(dnn.zeros((2,), device=d), float("nan"), seed=0), dnn.ShapeError,
         "dropout_backward: p must be from 0 to 1"),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    with pytest.raises(kind) as caught:
        call(device)
    assert text in str(caught.value)
