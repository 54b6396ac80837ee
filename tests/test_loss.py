# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy: samples for the case lines, properties, comparison with torch, special values and errors."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
SMOOTHING = 0.1


def targets(rng: np.random.Generator, shape: tuple[int, ...], classes: int, ignored: int) -> np.ndarray:
    t = rng.integers(0, classes, shape)
    return np.where(rng.random(shape) < 0.2, ignored, t) if t.size > 1 else t


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def sample(case: Case) -> Sample:
    rng = generator(case)
    axis, shape = int(case.attributes["axis"]), case.operands["x"].shape
    keywords = {
        "axis": axis,
        "reduction": case.attributes["reduction"],
        "ignore_index": int(case.attributes.get("ignore", -100)),
        "label_smoothing": SMOOTHING if "smoothed" in case.words else 0.0,
    }
    x = reference.rounded(rng.normal(0, 3, shape), case.dtype)
    target = targets(rng, without(shape, axis), shape[axis], keywords["ignore_index"])
    dtypes = {"target": "int32" if case.attributes.get("classes") == "i32" else "int64"}
    acc = reference.accumulator(case.dtype)
    loss, lse = reference.cross_entropy_forward(x, target, **keywords)
    # The tolerance depends on the largest |x| of a row plus |lse|, where lse is log(sum(exp(x))) of the row. The
    # library computes x - lse, and both operands are rounded.
    depth = np.abs(np.moveaxis(x, axis, -1)).max(axis=-1) + np.abs(lse)
    rows = max(int((target != keywords["ignore_index"]).sum()), 1)
    if case.direction == "forward":
        each = reference.tolerance(acc, shape[axis], 4 + 2 * depth)
        total = {"none": each, "sum": each.sum(), "mean": each.sum() / rows}[keywords["reduction"]]
        return Sample(
            {"x": x, "target": target},
            lambda t, algo, out=None: dnn.cross_entropy_forward(t["x"], t["target"], **keywords, algo=algo),
            [Result(loss, total), Result(lse, each)],
            dtypes,
        )
    lse = reference.rounded(lse, acc)
    dy = reference.rounded(rng.normal(0, 1, np.shape(loss)), acc)
    want = reference.cross_entropy_backward(dy, x, target, **keywords)
    g = np.expand_dims(np.broadcast_to(np.abs(dy), lse.shape) / (rows if keywords["reduction"] == "mean" else 1), axis)
    p = np.exp(x - np.expand_dims(lse, axis))
    rounding = reference.tolerance(acc, 9, g * (p * (1 + 2 * np.expand_dims(depth, axis)) + 1))
    smallest = {"float16": 2.0**-24, "bfloat16": 2.0**-133}.get(case.dtype, 0.0)
    return Sample(
        {"x": x, "target": target, "lse": lse, "dy": dy},
        lambda t, algo, out=None: [
            dnn.cross_entropy_backward(t["dy"], t["x"], t["target"], t["lse"], **keywords, algo=algo, out=out)
        ],
        [Result(want, reference.EPS[case.dtype] * np.abs(want) + rounding + smallest)],
        dtypes | {"lse": acc, "dy": acc},
    )


def classes(values: np.ndarray, device: str, dtype: str = "int64") -> dnn.DeviceTensor:
    return dnn.asarray(values.astype(dtype)).to(device=device)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradient_is_the_limit_of_differences(reduction: str, smoothing: float, device: str) -> None:
    rng = np.random.default_rng(0)
    x, direction = rng.normal(0, 1, (2, 3, 9, 4))
    target = classes(targets(rng, (3, 4), 9, -100), device)
    keywords = {"reduction": reduction, "label_smoothing": smoothing}
    h = 1e-5
    (up, _), (down, _), (loss, lse) = (
        dnn.cross_entropy_forward(tensor(x + s * direction, "float64", device), target, **keywords) for s in (h, -h, 0)
    )
    dy = rng.normal(0, 1, loss.shape)
    dx = dnn.cross_entropy_backward(
        tensor(dy, "float64", device), tensor(x, "float64", device), target, lse, **keywords
    )
    difference = (dy * (values_of(up) - values_of(down))).sum() / (2 * h)
    assert abs(difference - (values_of(dx) * direction).sum()) < 1e-8
    # The softmax of a row does not change if a constant is added to the row. So the gradient of each row has the sum 0.
    assert np.abs(values_of(dx).sum(axis=1)).max() < 1e-13


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_agrees_with_torch(reduction: str, smoothing: float) -> None:
    import torch

    x = torch.randn(4, 11, 5, 6, dtype=torch.float64).requires_grad_()
    target = torch.randint(0, 11, (4, 5, 6))
    target[1, 2] = 3
    keywords = {"ignore_index": 3, "label_smoothing": smoothing, "reduction": reduction}
    want = torch.nn.functional.cross_entropy(x, target, **keywords)
    dy = torch.randn_like(want)
    want.backward(dy)
    loss, lse = dnn.cross_entropy_forward(x.detach(), target, **keywords)
    np.testing.assert_allclose(loss.numpy(), want.detach().numpy(), atol=1e-13)
    dx = dnn.cross_entropy_backward(dy, x.detach(), target, lse, **keywords)
    np.testing.assert_allclose(dx.numpy(), x.grad.numpy(), atol=1e-13)


@pytest.mark.parametrize("shape", [(6, 5), (6, 64), (3, 3000), (2, 40, 12)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_large_magnitude(dtype: str, shape: tuple[int, ...], device: str) -> None:
    """The loss is a difference of large numbers, with an error of a few roundings of the result. lse is one of the
    large numbers."""
    rng = np.random.default_rng(2)
    acc = reference.accumulator(dtype)
    target = rng.integers(0, shape[1], without(shape, 1))
    for centre, spread in ((-1e9, 0), (1e9, 5e6), (6e4, 0), (-6e4, 40), (88, 0), (-88, 40)):
        if abs(centre) > 65504 and dtype == "float16":
            continue
        x = reference.rounded(centre + spread * rng.normal(size=shape), dtype)
        t, c = tensor(x, dtype, device), classes(target, device)
        largest = x.max(axis=1, keepdims=True)
        want, _ = reference.cross_entropy_forward(x - largest, target, reduction="none")
        lse = want + np.take_along_axis(x, target[:, None], 1)[:, 0]
        (report,) = dnn.explain(dnn.cross_entropy_forward, t, c, reduction="none")
        for engine in (e.name for e in report.engines if not e.why_not):
            got = dnn.cross_entropy_forward(t, c, reduction="none", algo=engine)
            what = f"{engine} around {centre} by {spread}"
            assert_close(got[0], Result(want, reference.tolerance(acc, shape[1], 4 + 2 * want)), what)
            assert_close(got[1], Result(lse, reference.tolerance(acc, shape[1], 4 + np.abs(lse))), what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype: str, device: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[1, 2, nan, 3], [-inf] * 4, [0, inf, 1, 2], [-inf, 1, 1, -inf], [-inf, 1, 1, -inf], [5, 4, 3, 2]])
    # The last target, 7, is not the number of a class.
    target = np.array([0, 1, 1, 1, 0, 7])
    for algo in usable(dtype, device):
        t, c = tensor(x, dtype, device), classes(target, device)
        loss, lse = dnn.cross_entropy_forward(t, c, reduction="none", algo=algo)
        values = values_of(loss)
        assert np.isnan(values[[0, 1, 2, 5]]).all() and values[4] == inf
        assert abs(values[3] - np.log(2)) < 1e-6 and np.isfinite(values_of(lse)[3:]).all()
        dy = dnn.full(loss.shape, 1, dtype=loss.dtype, device=device)
        dx = values_of(dnn.cross_entropy_backward(dy, t, c, lse, reduction="none", algo=algo))
        assert np.isnan(dx[[0, 1, 2, 5]]).any(axis=1).all() and np.isfinite(dx[[3, 4]]).all()
        # If all rows are ignored, the mean loss is 0 / 0, which is NaN. The gradient is zero.
        none = classes(np.full(6, -100), device)
        loss, lse = dnn.cross_entropy_forward(t, none, algo=algo)
        assert np.isnan(values_of(loss)) and loss.shape == ()
        dy = dnn.full((), 1, dtype=loss.dtype, device=device)
        assert (values_of(dnn.cross_entropy_backward(dy, t, none, lse, algo=algo)) == 0).all()


def usable(dtype: str, device: str) -> list[str]:
    x, target = dnn.zeros((2, 3), dtype=dtype, device=device), classes(np.zeros(2), device)
    (report,) = dnn.explain(dnn.cross_entropy_forward, x, target)
    return [e.name for e in report.engines if not e.why_not]


def test_in_place_and_empty(device: str) -> None:
    rng = np.random.default_rng(1)
    x, target = rng.normal(0, 1, (5, 300)), classes(rng.integers(0, 300, 5), device)
    for algo in usable("float32", device):
        t = tensor(x, "float32", device)
        loss, lse = dnn.cross_entropy_forward(t, target, algo=algo)
        dy = dnn.full((), 1, device=device)
        want = values_of(dnn.cross_entropy_backward(dy, t, target, lse, algo=algo))
        dnn.cross_entropy_backward(dy, t, target, lse, algo=algo, out=t)
        np.testing.assert_array_equal(values_of(t), want)
    nothing, no_target = dnn.empty((0, 3), device=device), classes(np.zeros(0), device)
    loss, lse = dnn.cross_entropy_forward(nothing, no_target, reduction="none")
    assert loss.shape == lse.shape == (0,)
    loss, _ = dnn.cross_entropy_forward(nothing, no_target, reduction="sum")
    assert values_of(loss) == 0
    assert dnn.cross_entropy_backward(dnn.full((), 1, device=device), nothing, no_target, lse).shape == (0, 3)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x, t: dnn.cross_entropy_forward(x, t, axis=2), dnn.ShapeError,
         "cross_entropy_forward: axis must be from -2 to 1 for x [2, 3]; got 2"),
        (lambda x, t: dnn.cross_entropy_forward(x, t, reduction="max"), dnn.ShapeError,
         "reduction must be 'none', 'sum' or 'mean'; got 'max'"),
        (lambda x, t: dnn.cross_entropy_forward(x, t, label_smoothing=1.5), dnn.ShapeError,
         "label_smoothing must be from 0 to 1; got 1.5"),
        (lambda x, t: dnn.cross_entropy_forward(x, x), dnn.DTypeError, "target must be int64 or int32; got float32"),
        (lambda x, t: dnn.cross_entropy_forward(x, t, axis=0), dnn.ShapeError,
         "target must be [3] like x without axis; got [2]"),
        (lambda x, t: dnn.cross_entropy_forward(x.as_strided((2, 0), (1, 1)), t), dnn.ShapeError,
         "x [2, 0] has no classes along axis 1"),
        (lambda x, t: dnn.cross_entropy_backward(x, x, t, x), dnn.ShapeError, "dy must be [] like"),
        (lambda x, t: dnn.cross_entropy_backward(dnn.full((), 1, dtype="float16", device=x.device), x, t, x),
         dnn.DTypeError, "dy must be float32; got float16"),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x, t = tensor(np.ones((2, 3)), "float32", device), classes(np.zeros(2), device)
    with pytest.raises(kind) as caught:
        call(x, t)
    assert text in str(caught.value)
