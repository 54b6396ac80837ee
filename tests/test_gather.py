# SPDX-License-Identifier: Apache-2.0
"""Gather: samples for the case lines, NumPy's take, views at any address, indices that another thread writes or that are
out of range, errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import INTEGERS, REAL, Result, Sample, values_of

import pyminidnn as dnn


def sample(case: Case) -> Sample:
    rng = generator(case)
    x_shape, index_shape = case.operands["x"].shape, case.operands["index"].shape
    axis = case.integers("axis", 0)
    rows = x_shape[axis]
    index = rng.integers(-rows, rows, index_shape)
    dtypes = {"index": case.attributes.get("indices", "i64").replace("i", "int")}
    if case.direction == "forward":
        low, high = (-100, 100) if case.dtype in REAL else INTEGERS.get(case.dtype, (0, 1))
        x = rng.integers(max(low, -100), min(high, 100), x_shape, endpoint=True).astype("float64")

        def gather(
            t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
        ) -> list[dnn.DeviceTensor]:
            return [dnn.gather(t["x"], t["index"], axis=axis, algo=algo, out=out)]

        return Sample({"x": x, "index": index}, gather, [Result(reference.gather(x, index, axis=axis), 0)], dtypes)

    dy_shape = x_shape[:axis] + index_shape + x_shape[axis + 1 :]
    dy = reference.rounded(rng.normal(size=dy_shape), case.dtype)
    want = reference.gather_backward(dy, index, x_shape, axis=axis)
    scale = reference.gather_backward(np.abs(dy), index, x_shape, axis=axis)

    def gather_backward(
        t: dict[str, dnn.DeviceTensor], algo: str | None, out: dnn.DeviceTensor | None = None
    ) -> list[dnn.DeviceTensor]:
        return [dnn.gather_backward(t["dy"], t["index"], x_shape, axis=axis, algo=algo, out=out)]

    most = np.bincount(index.ravel() % rows, minlength=1).max()
    tolerance = reference.tolerance(case.dtype, max(most, 1), scale)
    return Sample({"dy": dy, "index": index}, gather_backward, [Result(want, tolerance)], dtypes)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_as_numpy(axis: int, device: str) -> None:
    x = np.arange(3 * 5 * 8.0).reshape(3, 5, 8)
    t = dnn.asarray(x, device=device)
    for index in (
        np.array(2),
        np.array([-1, 0, 2, 2]),
        np.array([[0, -3], [1, 1], [2, 0]], "int32"),
        np.zeros((0, 2), "int64"),
    ):
        got = dnn.gather(t, index, axis=axis)
        np.testing.assert_array_equal(values_of(got), np.take(x, index, axis))
        dx = dnn.gather_backward(got, index, x.shape, axis=axis)
        counts = np.bincount(index.ravel() % x.shape[axis], minlength=x.shape[axis])
        shape = [-1 if d == axis % 3 else 1 for d in range(3)]
        np.testing.assert_array_equal(values_of(dx), x * counts.reshape(shape))


def test_gather_at_any_address(device: str) -> None:
    x = np.arange(2000.0, dtype="float32").reshape(50, 40)
    index = np.array([3, -1, 3, 0, 49])
    whole = dnn.asarray(np.concatenate([[0], x.ravel()]).astype("float32"), device=device)
    t = whole.as_strided((50, 40), (40, 1), 1)
    np.testing.assert_array_equal(values_of(dnn.gather(t, index)), x[index])
    dy = whole.as_strided((5, 40), (40, 1), 1)
    want = np.zeros((50, 40))
    np.add.at(want, index, x[:5])
    np.testing.assert_array_equal(values_of(dnn.gather_backward(dy, index, (50, 40))), want)


def test_gather_backward_while_another_thread_writes_the_index() -> None:
    """All indices are valid at all times. The test uses a separate process, because a write beyond a block would end
    it."""
    code = """
import threading, numpy as np, pyminidnn as dnn
index, dy, stop = np.zeros(200_000, "int64"), np.ones((200_000, 2), "float32"), False
def write():
    while not stop:
        index[:] = 0
        index[:] = 999
writer = threading.Thread(target=write)
writer.start()
for algo in ("contiguous_rows", "reference") * 20:
    dx = dnn.gather_backward(dy, index, (1000, 2), algo=algo).numpy()
    assert dx.sum() == 400_000, dx.sum()
stop = True
writer.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_an_index_beyond_the_axis(device: str) -> None:
    x, index = dnn.asarray(np.ones((4, 6)), device=device), dnn.asarray(np.array([1, 4, -5]), device=device)
    if device == "cpu":
        out = dnn.full((3, 6), 7.0, dtype="float64")
        with pytest.raises(dnn.ShapeError, match=r"gather: index must be from -4 to 3 for axis 0; got 4 as element 1"):
            dnn.gather(x, index, out=out)
        assert (out.numpy() == 7).all()
        with pytest.raises(dnn.ShapeError, match="gather_backward: index must be from -4 to 3 for axis 0; got 4"):
            dnn.gather_backward(out, index, (4, 6))
        return
    assert values_of(dnn.gather(x, index)).sum(1).tolist() == [6, 0, 0]
    assert values_of(dnn.gather_backward(dnn.full((3, 6), 1.0, dtype="float64", device=device), index, (4, 6))).sum(
        1
    ).tolist() == [0, 6, 0, 0]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: dnn.gather(x, np.zeros(2)), "gather: index must be int32 or int64; got float64"),
        (lambda x: dnn.gather(x, np.zeros(2, int), axis=2), "gather: axis must be from -2 to 1 for x"),
        (lambda x: dnn.gather(x, np.zeros((1,) * 8, int)), "has 9 dimensions; at most 8 are supported"),
        (lambda x: dnn.gather_backward(x, np.zeros(2, int), (5, 6)), r"gather_backward: dy must be \[2, 6\]"),
        (lambda x: dnn.gather_backward(x.astype(int), np.zeros(4, int), (5, 6)), "gather_backward: dy is int64"),
    ],
)
def test_errors(call: Callable[[np.ndarray], object], text: str) -> None:
    with pytest.raises(dnn.Error, match=text):
        call(np.zeros((4, 6)))
