# SPDX-License-Identifier: Apache-2.0
"""The elements in repr(tensor) have the text of NumPy's array2string, character by character, with all print options."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import _C
from pyminidnn.methods import _SCIENTIFIC_FROM, _has_text

HEAD = "DeviceTensor("


def expected(a: np.ndarray, t: dnn.DeviceTensor) -> str:
    values = np.array2string(a, separator=", ", prefix=HEAD)
    edge = np.get_printoptions()["edgeitems"]
    cut = t.size > np.get_printoptions()["threshold"] and any(size > 2 * edge + 1 for size in t.shape)
    shape = f", shape={t.shape}" if t.size == 0 or cut else ""
    return f"{HEAD}{values}{shape}, dtype='{t.dtype}', layout='{t.layout}', device='{t.device}')"


def drawn_shape(r: np.random.Generator) -> tuple[int, ...]:
    kind = r.integers(12)
    if kind < 5:
        return (int(r.integers(1, 40)),)
    if kind == 5:
        return (int(r.integers(100, 400)),)
    if kind == 6:
        return ()
    if kind == 7:
        return (2, 0, 3)
    return tuple(int(n) for n in r.integers(1, 10, int(r.integers(2, 5))))


def drawn_values(r: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in float64: some with few digits, some with many, of one magnitude or of many."""
    n = math.prod(shape)
    normal = r.standard_normal(n)
    kinds = [
        normal,
        normal * 10.0 ** r.integers(-12, 12),
        normal * 10.0 ** r.integers(-5, 6, n),
        np.exp(normal * r.uniform(0, 50)) * r.choice([1.0, -1.0], n),
        np.round(normal, int(r.integers(0, 6))),
        np.abs(np.round(normal * 10.0 ** r.integers(1, 9))),
        np.ldexp(1.0, r.integers(-40, 40, n)),
        np.ldexp(1.0, r.integers(-1074, 1024, n)),
        np.arange(n) * 0.125,
        np.full(n, r.choice([0.0, -0.0, 1.0, 0.1, -1e-5, 99999.5, 999999.5, 1e6, 1e8, 1e16, 1e-45, 5e-324, 1.8e308])),
    ]
    values = kinds[r.integers(len(kinds))].copy()
    if r.random() < 0.3:
        values[r.random(n) < r.choice([0.1, 1.0])] = r.choice([np.nan, np.inf, -np.inf])
    if r.random() < 0.2:
        values[r.random(n) < 0.3] = r.choice([0.0, -0.0, np.inf, -np.inf, np.nan])
    return values.reshape(shape)


def drawn_array(r: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "bool":
        return r.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        low = 0 if limits.min == 0 or r.random() < 0.3 else limits.min
        drawn = np.asarray(r.integers(low, limits.max, shape, dtype, endpoint=True))
        return drawn // drawn.dtype.type(r.choice([1, 10, 100]))
    with np.errstate(over="ignore"):
        return np.asarray(drawn_values(r, shape).astype(dtype))


def drawn_options(r: np.random.Generator) -> dict[str, Any]:
    choices: dict[str, list[Any]] = {
        "precision": [0, 1, 2, 3, 4, 6, 8, 12, 17, 30],
        "threshold": [0, 5, 20, 1000, 10**9],
        "edgeitems": [1, 2, 3, 5],
        "linewidth": [1, 20, 40, 75, 120, 10**6],
        "suppress": [True, False],
        "sign": ["-", "+", " "],
        "floatmode": ["fixed", "unique", "maxprec", "maxprec_equal"],
        "nanstr": ["nan", "NA", "not a number", " "],
        "infstr": ["inf", "oo", "infinity and more"],
    }
    return {name: r.choice(np.array(of, object)) for name, of in choices.items() if r.random() < 0.3}


@pytest.mark.parametrize("dtype", _C.dtypes)
def test_text_of_drawn_arrays_is_that_of_numpy(dtype: str, device: str) -> None:
    r = np.random.default_rng(_C.dtypes.index(dtype))
    for i in range(300 if device == "cpu" else 30):
        shape = drawn_shape(r)
        a = drawn_array(r, "float32" if dtype == "bfloat16" else dtype, shape)
        t = dnn.asarray(a, dtype=dtype, device=device)
        if r.random() < 0.3 and t.ndim > 1:
            t = t.permute([*range(1, t.ndim), 0])
        a = t.to(dtype="float32" if dtype == "bfloat16" else dtype).numpy()
        options = drawn_options(r)
        with np.printoptions(**options):
            assert _has_text(np.get_printoptions())
            assert repr(t) == str(t) == expected(a, t), (i, options)


def text_of(a: np.ndarray) -> str:
    return _C.array_text(
        dnn.asarray(a),
        options=np.get_printoptions(),
        scientific_from=_SCIENTIFIC_FROM.get(str(a.dtype), 1e8),
        summarize=False,
        prefix_width=0,
    )


@pytest.mark.parametrize("mode", ["unique", "maxprec", "maxprec_equal", "fixed"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_text_of_single_numbers_is_that_of_numpy(dtype: str, mode: str) -> None:
    r = np.random.default_rng(0)
    width = 8 * np.dtype(dtype).itemsize
    exponents = {16: (-24, 16), 32: (-149, 128), 64: (-1074, 1024)}[width]
    powers = np.ldexp(np.ones((), dtype), np.arange(*exponents)).astype(dtype)
    bits = r.integers(0, 2 ** (width - 1), 500, f"uint{width}")
    numbers = np.concatenate([powers, bits.view(dtype)])
    for precision in (3, 8, 17):
        with np.printoptions(floatmode=mode, precision=precision):
            for i, number in enumerate(numbers):
                with np.errstate(over="ignore", invalid="ignore"):
                    longer = number * numbers.dtype.type(1.2345678912345678)
                # The longer number makes NumPy write more digits of the other one than identify it.
                a = np.array([number, longer][: 1 + i % 2])
                assert text_of(a) == np.array2string(a, separator=", ")


def test_text_of_float16_is_that_of_numpy() -> None:  # their digits are computed otherwise; every third number
    for number in np.arange(0, 0x7C00, 3, "uint16").view("float16"):
        assert text_of(number.reshape(1)) == np.array2string(number.reshape(1), separator=", ")


@pytest.mark.parametrize(
    "options",
    [
        {"formatter": {"all": lambda x: "a number"}},
        {"legacy": "1.13"},
        {"legacy": "1.21"},
        {"nanstr": "nan\nnan"},
        {"nanstr": "ñan"},
        {"precision": 1000},
        {"edgeitems": 0},
    ],
    ids=lambda options: next(iter(options)),  # the text of a lambda differs in each process of pytest-xdist
)
def test_numpy_itself_writes_with_other_options(options: dict[str, Any], device: str) -> None:
    a = np.array([1.5, np.nan, -2.0], "float32")
    t = dnn.asarray(a, device=device)
    with np.printoptions(**options):
        assert not _has_text(np.get_printoptions())
        assert repr(t) == expected(a, t)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
def test_print_is_several_times_faster_than_array2string(dtype: str) -> None:
    t = dnn.asarray(np.random.default_rng(0).standard_normal(1000) * 100, dtype=dtype)
    a = t.to(dtype="float32" if dtype == "bfloat16" else dtype).numpy()

    def seconds(call: Any) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(lambda: repr(t)) < seconds(lambda: np.array2string(a, separator=", ")) / 2
