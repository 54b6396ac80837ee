# SPDX-License-Identifier: Apache-2.0
"""t[key] and t[key] = value against NumPy, with keys drawn at random and with the special ones by hand."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn.indexing import _assign_by_map


def drawn_key(rng: random.Random, shape: tuple[int, ...], arrays: bool) -> Any:
    """A key for an array of that shape. With `arrays`, some parts are arrays of integers or of bool."""
    parts: list[Any] = []
    at = 0
    together = (rng.choice([(), (2,), (3, 2), (1, 2)]), rng.choice([(), (2,), (1,)]))
    while at < len(shape):
        n = shape[at]
        kind = rng.randrange(9 if arrays else 5)
        if kind == 0 and n:
            parts.append(rng.randrange(-n, n))
        elif kind == 1:
            parts.append(None)
            continue
        elif kind in (2, 3):
            ends = [None, *range(-n - 2, n + 3)]
            parts.append(slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, -1, -2, 3])))
        elif kind == 4 and Ellipsis not in [p for p in parts if p is Ellipsis]:
            parts.append(Ellipsis)
            at += rng.randrange(len(shape) - at + 1)
            continue
        elif kind in (5, 6) and n:
            parts.append(np.array(np.random.default_rng(rng.randrange(99)).integers(-n, n, rng.choice(together))))
        elif kind == 7:
            parts.append(np.random.default_rng(rng.randrange(99)).integers(0, 2, n).astype("bool"))
        else:
            parts.append(slice(None))
        at += 1
        if rng.random() < 0.2:
            break
    return tuple(parts) if len(parts) != 1 or rng.random() < 0.5 else parts[0]


def outcome(function: Any) -> Any:
    try:
        return function()
    except (IndexError, ValueError) as error:
        return error


@pytest.mark.parametrize("arrays", [False, True], ids=["views", "arrays"])
@pytest.mark.parametrize("seed", range(150))
def test_drawn_keys(seed: int, arrays: bool, device: str) -> None:
    rng = random.Random(seed)
    shape = tuple(
        rng.choice([1, 2, 3, 5, 0] if rng.random() < 0.1 else [1, 2, 3, 5]) for _ in range(rng.randrange(1, 5))
    )
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    t = dnn.asarray(x.copy(), device=device)
    key = drawn_key(rng, shape, arrays)
    want, got = outcome(lambda: x[key]), outcome(lambda: t[key])
    if isinstance(want, Exception) or np.ndim(want) > 8:
        assert isinstance(got, (dnn.IndexingError, dnn.ShapeError)), (shape, key, got)
        return
    want = np.asarray(want)
    assert isinstance(got, dnn.DeviceTensor), (shape, key, got)
    np.testing.assert_array_equal(got.numpy(), want, err_msg=f"{shape} {key}")
    assert got.shape == want.shape
    # Assigns three kinds of values: an array of the shape of the selection, a Python number, and a NumPy number.
    for value in (np.random.default_rng(seed).random(want.shape, dtype="float32"), 7.0, np.float32(2)):
        changed, mine, mapped = x.copy(), t.copy(), t.copy()
        changed[key] = value
        mine[key] = dnn.asarray(value, device=device) if isinstance(value, np.ndarray) else value
        np.testing.assert_array_equal(mine.numpy(), changed, err_msg=f"{shape} {key} = {value}")
        if any(isinstance(p, np.ndarray) for p in (key if isinstance(key, tuple) else (key,))):
            _assign_by_map(mapped, key, value)
            np.testing.assert_array_equal(mapped.numpy(), changed, err_msg=f"{shape} {key} = {value}, by a map")


def test_keys_that_are_tensors_and_lists(device: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    t = dnn.asarray(x, device=device)
    np.testing.assert_array_equal(t[[2, 0]].numpy(), x[[2, 0]])
    np.testing.assert_array_equal(t[t > 5].numpy(), x[x > 5])
    np.testing.assert_array_equal(t[dnn.asarray([2, -1], device=device)].numpy(), x[[2, -1]])
    np.testing.assert_array_equal(t[:, dnn.asarray([[2], [1]], device=device)].numpy(), x[:, [[2], [1]]])
    np.testing.assert_array_equal(t[t.sum(1) > 7, 1:].numpy(), x[x.sum(1) > 7, 1:])
    np.testing.assert_array_equal(t[[]].numpy(), x[[]])
    assert t[np.bool_(True)].shape == (1, 3, 4) and t[False].shape == (0, 3, 4)
    assert t[np.int64(1), 2].item() == 6 and t[()].shape == (3, 4)
    t[t > 5] = -1
    assert t.tolist() == np.where(x > 5, -1, x).tolist()


def test_views_share_memory_and_overlap(device: str) -> None:
    t = dnn.arange(10, device=device)
    t[2:5][1] = 100
    assert t.tolist() == [0, 1, 2, 100, 4, 5, 6, 7, 8, 9]
    t[1:] = t[:-1]
    assert t.tolist() == [0, 0, 1, 2, 100, 4, 5, 6, 7, 8]
    t[::-1] = t
    assert t.tolist() == [8, 7, 6, 5, 4, 100, 2, 1, 0, 0]
    t[0] += 1
    assert t[0].item() == 9


@pytest.mark.parametrize(
    "change, kind, text",
    [
        (lambda t: t[3], IndexError, "index 3 is out of range for dimension 0, which has 3 elements"),
        (lambda t: t[0, -5], dnn.IndexingError, "index -5 is out of range for dimension 1, which has 4"),
        (lambda t: t[0, 0, 0], dnn.IndexingError, "too many indices: 3 for a tensor of 2 dimensions"),
        (lambda t: t[..., ...], dnn.IndexingError, "one ellipsis"),
        (lambda t: t[[3]], dnn.IndexingError, "index 3 is out of range for a dimension of 3 elements"),
        (lambda t: t[[1.5]], dnn.IndexingError, "an index must be an integer"),
        (lambda t: t["a"], dnn.IndexingError, "an index must be an integer"),
        (lambda t: t[np.ones((2, 4), "bool")], dnn.IndexingError, "a mask [2, 4] does not match"),
        (lambda t: t[[0, 1], [0, 1, 2]], dnn.IndexingError, "index arrays must broadcast"),
        (lambda t: t.__setitem__(0, [1.0, 2.0]), dnn.ShapeError, "broadcast"),
        (lambda t: t.__delitem__(0), TypeError, "cannot be deleted"),
    ],
)  # fmt: skip
def test_errors(change: Any, kind: type[Exception], text: str, device: str) -> None:
    x = np.arange(12.0, dtype="float32").reshape(3, 4)
    t = dnn.asarray(x.copy(), device=device)
    with pytest.raises(kind) as caught:
        change(t)
    assert text in str(caught.value)
    np.testing.assert_array_equal(t.numpy(), x)
