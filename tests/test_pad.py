# SPDX-License-Identifier: Apache-2.0
"""Padding: samples for the case lines, every mode and layout against NumPy, views at any address, errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, framed, values_for_copies, values_of

import pyminidnn as dnn


def sample(case: Case) -> Sample:
    x = values_for_copies(case, generator(case))
    widths, mode = case.padding(x.ndim), case.attributes["mode"]
    want = reference.pad(x, widths, mode=mode, value=85)
    want = np.where(want == 85, 1, want) if case.dtype == "bool" else want

    def pad(
        t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
    ) -> list[dnn.DeviceTensor]:
        return [dnn.pad(t["x"], widths, mode=mode, value=85, algo=algo, out=out)]

    return Sample({"x": x}, pad, [Result(want, 0)])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64"])
def test_pad(dtype: str, mode: str, layout: str, device: str) -> None:
    values = np.random.default_rng(3).integers(0, 100, (3, 6, 5, 4)).astype(dtype)
    x = dnn.asarray(values, layout=layout)
    for widths in (0, 2, [0, (1, 5), (4, 0), 3], [(2, 0), 0, 0, (0, 3)]):
        pairs = [(w, w) if isinstance(w, int) else w for w in ([widths] * 4 if isinstance(widths, int) else widths)]
        options = {"constant_values": 7} if mode == "constant" else {}
        want = np.pad(x.numpy(), pairs, {"replicate": "edge"}.get(mode, mode), **options)
        got = dnn.pad(x.to(device=device), widths, mode=mode, value=7)
        assert got.layout == layout
        np.testing.assert_array_equal(values_of(got), want, err_msg=str(widths))
        out, margins_untouched = framed(want.shape, got.strides, dtype, device)
        dnn.pad(x.to(device=device), widths, mode=mode, value=7, out=out)
        np.testing.assert_array_equal(values_of(out), want)
        assert margins_untouched()


@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect"])
def test_pad_at_any_address(mode: str, device: str) -> None:
    """Views that begin between multiples of 16 bytes: the first vector begins before y, or words are narrower than
    usual."""
    values = np.arange(3000) % 251
    for dtype, shape in (
        ("uint8", (3, 5, 33)),
        ("float16", (3, 5, 32)),
        ("float32", (2, 9, 16)),
        ("float64", (3, 5, 8)),
    ):
        x = dnn.asarray(values.astype(dtype), device=device)
        strides = (shape[1] * shape[2], shape[2], 1)
        for widths in ([0, 1, 2], [1, 2, 0]):
            for first, second in ((0, 1), (1, 0), (3, 5)):
                part = x.as_strided(shape, strides, first)
                want = np.pad(values_of(part), [(w, w) for w in widths], {"replicate": "edge"}.get(mode, mode))
                out = dnn.full(3000, 85, dtype=dtype, device=device)
                y = out.as_strided(want.shape, (want.shape[1] * want.shape[2], want.shape[2], 1), second)
                dnn.pad(part, widths, mode=mode, out=y)
                np.testing.assert_array_equal(values_of(y), want)
                around = np.delete(values_of(out), np.s_[second : second + want.size])
                assert (around == 85).all()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: dnn.pad(x, [1]), "pad: widths must have an entry for each of the 2 dimensions of x .*; got 1"),
        (lambda x: dnn.pad(x, -1), "pad: widths must be 0 or more"),
        (
            lambda x: dnn.pad(x, (0, 6), mode="reflect"),
            "widths of dimension 1 .* must be at most 5 for mode 'reflect'; got 6",
        ),
        (
            lambda x: dnn.pad(x[:0], 1, mode="replicate"),
            "widths of dimension 0 .* must be at most 0 for mode 'replicate'; got 1",
        ),
        (lambda x: dnn.pad(x, 1, mode="wrap"), "pad: mode must be .*; got 'wrap'"),
        (lambda x: dnn.pad(x, 1, out=np.zeros((6, 7))), r"pad: out must be \[6, 8\]"),
        (lambda x: dnn.pad(x, 0, out=x), "pad: out shares memory with x"),
    ],
)
def test_errors(call: Callable[[np.ndarray], object], text: str) -> None:
    with pytest.raises(dnn.Error, match=text):
        call(np.zeros((4, 6)))
