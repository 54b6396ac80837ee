# SPDX-License-Identifier: Apache-2.0
"""Softmax: samples for the case lines, properties, long rows, comparison with torch, special values and errors."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
# For each dtype, the distance between subnormal numbers. For float64, it is taken as 0.
SMALLEST = {"float64": 0.0, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


def few_roundings(dtype: str, scale: np.ndarray) -> np.ndarray:
    """The error of intermediate results in the accumulator: exp and log are within 2 ulp, other steps within half an
    ulp."""
    return reference.tolerance(reference.accumulator(dtype), 9, scale)


def forward_tolerance(
    z: np.ndarray, want: np.ndarray, dtype: str, axis: int, log: bool, rounded: bool = False
) -> np.ndarray:
    # Let m be the largest logit. x - m is rounded before exp, so exp has a relative error of up to |x - m| roundings,
    # and the sum has their weighted mean. The logarithm turns relative errors into absolute ones. With a mask, scale x
    # + mask has two more roundings. Masked elements are exact.
    masked = z == -np.inf
    size = np.where(masked, 0, np.abs(z))
    depth = np.where(masked, 0, z.max(axis=axis, keepdims=True) - z)
    if rounded:
        depth = depth + 2 * size + 2 * size.max(axis=axis, keepdims=True)
    want = np.where(want == -np.inf, 0, want)
    share = np.where(masked, 0, np.exp(want)) if log else want
    mean_depth = (share * depth).sum(axis=axis, keepdims=True)
    scale = 1 + depth + mean_depth + np.abs(want) if log else want * (1 + depth + mean_depth)
    return reference.tolerance(dtype, z.shape[axis], np.abs(want)) + few_roundings(dtype, scale) + 2 * SMALLEST[dtype]


def backward_tolerance(dy: np.ndarray, y: np.ndarray, dtype: str, axis: int, log: bool) -> np.ndarray:
    scale = backward_scale(dy, y, axis, log)
    return reference.tolerance(dtype, dy.shape[axis], scale) + few_roundings(dtype, scale) + SMALLEST[dtype]


def backward_scale(dy: np.ndarray, y: np.ndarray, axis: int, log: bool) -> np.ndarray:
    """The formula of the gradient with all terms positive."""
    if log:
        return np.abs(dy) + np.exp(y) * np.abs(dy).sum(axis=axis, keepdims=True)
    return y * (np.abs(dy) + np.abs(dy * y).sum(axis=axis, keepdims=True))


def sample(case: Case) -> Sample:
    rng = generator(case)
    axis, log = int(case.attributes["axis"]), "log" in case.words
    scale = -0.375 if "scaled" in case.words else 1.0
    shape = next(iter(case.operands.values())).shape
    x = reference.rounded(rng.normal(0, 3, shape), case.dtype)
    inputs, dtypes, mask = {"x": x}, {}, None
    name = next((n for n in ("keep", "mask") if n in case.operands), "")
    if name:
        strides = case.operands[name].strides or shape
        # The shape of the mask before the mask is broadcast to the shape of x.
        own = [1 if s == 0 else n for n, s in zip(shape, strides, strict=True)]
        mask = reference.rounded(rng.normal(0, 1, own), case.dtype) if name == "mask" else rng.random(own) < 0.6
        if name == "keep":
            mask[(slice(None),) * axis + (0,)] = True  # each row keeps at least one element
            dtypes[name] = "bool"
        mask = inputs[name] = np.broadcast_to(mask, shape)
    y = reference.softmax_forward(x, axis=axis, log=log, scale=scale, mask=mask)
    if case.direction == "forward":
        z = reference.logits(x, scale=scale, mask=mask)
        return Sample(
            inputs,
            lambda t, algo, out=None: [
                dnn.softmax_forward(t["x"], axis=axis, log=log, scale=scale, mask=t.get(name), algo=algo, out=out)
            ],
            [Result(y, forward_tolerance(z, y, case.dtype, axis, log, scale != 1 or name != ""))],
            dtypes,
        )
    y = reference.rounded(y, case.dtype)
    dy = reference.rounded(rng.normal(0, 1, shape), case.dtype)
    want = reference.softmax_backward(dy, y, axis=axis, log=log, scale=scale)
    return Sample(
        {"y": y, "dy": dy},
        lambda t, algo, out=None: [
            dnn.softmax_backward(t["dy"], t["y"], axis=axis, log=log, scale=scale, algo=algo, out=out)
        ],
        [Result(want, backward_tolerance(dy, y, case.dtype, axis, log))],
    )


def engines(device: str, dtype: str = "float32") -> list[str]:
    """The engines that accept dense rows of the dtype."""
    (report,) = dnn.explain(dnn.softmax_forward, dnn.zeros((2, 3), dtype=dtype, device=device))
    return [e.name for e in report.engines if not e.why_not]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_properties(axis: int, layout: str, device: str) -> None:
    x = np.random.default_rng(0).normal(0, 3, (3, 17, 5, 6))
    t = dnn.asarray(x, layout=layout).to(device=device)
    y = dnn.softmax_forward(t, axis=axis)
    assert y.layout == layout
    np.testing.assert_allclose(values_of(y).sum(axis=axis), 1, rtol=1e-14)
    shifted = dnn.asarray(x + 1e3, layout=layout).to(device=device)
    np.testing.assert_allclose(values_of(dnn.softmax_forward(shifted, axis=axis)), values_of(y), rtol=1e-11)
    log_y = dnn.softmax_forward(t, axis=axis, log=True)
    np.testing.assert_allclose(np.exp(values_of(log_y)), values_of(y), rtol=1e-13)
    # The results of a row always add up to 1, so the gradient of their sum is zero. The gradient of any function of the
    # results adds up to zero along a row.
    ones = dnn.full(y.shape, 1, dtype="float64", layout=layout, device=device)
    assert np.abs(values_of(dnn.softmax_backward(ones, y, axis=axis))).max() < 1e-15
    dx = dnn.softmax_backward(t, y, axis=axis)
    assert np.abs(values_of(dx).sum(axis=axis)).max() < 1e-13
    dx = dnn.softmax_backward(t, log_y, axis=axis, log=True)
    assert np.abs(values_of(dx).sum(axis=axis)).max() < 1e-12


@pytest.mark.parametrize("log", [False, True])
def test_gradient_is_the_limit_of_differences(log: bool, device: str) -> None:
    rng = np.random.default_rng(1)
    x, dy, direction = rng.normal(0, 1, (3, 4, 9))
    h = 1e-5
    up, down = (values_of(dnn.softmax_forward(tensor(x + s * direction, "float64", device), log=log)) for s in (h, -h))
    y = dnn.softmax_forward(tensor(x, "float64", device), log=log)
    dx = values_of(dnn.softmax_backward(tensor(dy, "float64", device), y, log=log))
    assert abs((dy * (up - down)).sum() / (2 * h) - (dx * direction).sum()) < 1e-8


@pytest.mark.parametrize("log", [False, True])
def test_a_million_equal_elements(log: bool, device: str) -> None:
    # Equal terms have rounding errors of the same sign. In plain float32, a sum of a million terms of 0.7 would have an
    # error of several percent.
    n = 1_000_000
    x = np.full((1, n), np.float32(np.log(0.7)), "float64")
    x[0, 0] = 0
    want = reference.softmax_forward(x, log=log)
    for engine in engines(device):
        y = dnn.softmax_forward(tensor(x, "float32", device), log=log, algo=engine)
        assert_close(y, Result(want, few_roundings("float32", np.abs(want) + log)), engine)
    dy = np.full((1, n), np.float32(0.7), "float64")
    y = reference.rounded(want, "float32")
    want = reference.softmax_backward(dy, y, log=log)
    result = Result(want, few_roundings("float32", backward_scale(dy, y, 1, log)))
    for engine in engines(device):
        dx = dnn.softmax_backward(tensor(dy, "float32", device), tensor(y, "float32", device), log=log, algo=engine)
        assert_close(dx, result, engine)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity(dtype: str, log: bool, device: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array(
        [[1, 2, nan, 3], [-inf] * 4, [0, inf, 1, 2], [inf, inf, 0, 0], [-inf, 1, 1, -inf], [3e4, -3e4, 3e4, 0]]
    )
    x = reference.rounded(x, dtype)
    with np.errstate(all="ignore"):
        want = reference.softmax_forward(x, log=log)
    assert np.isnan(want[:4]).all() and not np.isnan(want[4:]).any()
    for engine in engines(device, dtype):
        y = dnn.softmax_forward(tensor(x, dtype, device), log=log, algo=engine)
        tolerance = reference.tolerance(dtype, 16, np.nan_to_num(np.abs(want), posinf=0) + 1)
        assert_close(y, Result(want, tolerance), engine)
        # If a row of y or dy has a NaN, the gradient of that row has a NaN. The gradient of row 4, whose neighbours
        # have NaNs, must be finite.
        dy = np.ones_like(x)
        dy[5, 1] = nan
        dx = values_of(dnn.softmax_backward(tensor(dy, dtype, device), y, log=log, algo=engine))
        assert np.isnan(dx[[0, 1, 2, 3, 5]]).all() and np.isfinite(dx[4]).all()


@pytest.mark.parametrize("shape", [(3, 5), (3, 64), (3, 300), (2, 9000), (1, 140001), (2, 40, 12)])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("scale", [1.0, -1.0, 0.75, 0.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_large_magnitude(dtype: str, scale: float, log: bool, shape: tuple[int, ...], device: str) -> None:
    """Only the differences within a row matter, for rows that fit the lanes of a warp, a block and a cluster. exp(-88)
    is below the normal numbers of float32 and bfloat16."""
    rng = np.random.default_rng(6)
    for centre, spread in ((-1e9, 0), (1e9, 5e6), (6e4, 0), (-6e4, 40), (88, 0), (-88, 40), (0, 60)):
        if abs(centre) > 65504 and dtype == "float16":
            continue
        x = reference.rounded(centre + spread * rng.normal(size=shape), dtype)
        t = tensor(x, dtype, device)
        want = reference.softmax_forward(x, log=log, scale=scale)
        tolerance = forward_tolerance(scale * x, want, dtype, 1, log, abs(scale) not in (0, 1))
        (report,) = dnn.explain(dnn.softmax_forward, t, log=log, scale=scale)
        for engine in (e.name for e in report.engines if not e.why_not):
            y = dnn.softmax_forward(t, log=log, scale=scale, algo=engine)
            assert_close(y, Result(want, tolerance), f"{engine} around {centre} by {spread}")


@pytest.mark.parametrize("shape, axis", [((3, 40), 1), ((3, 200), 1), ((3, 40, 50), 1), ((2, 9, 5), 1)])
def test_no_gradient_where_the_logarithm_is_minus_infinity(shape: tuple[int, ...], axis: int, device: str) -> None:
    """Elements whose logarithm is -inf, for all ways in which engines traverse rows."""
    x = np.random.default_rng(5).normal(size=shape).astype("float32")
    x[:, 2] = -np.inf
    y = dnn.softmax_forward(dnn.asarray(x, device=device), axis=axis, log=True)
    (report,) = dnn.explain(dnn.softmax_backward, y, y, axis=axis, log=True)
    for engine in (e.name for e in report.engines if not e.why_not):
        dx = values_of(dnn.softmax_backward(dnn.asarray(np.ones(shape, "float32"), device=device), y, axis=axis,
                                            log=True, algo=engine))  # fmt: skip
        assert (dx[:, 2] == 0).all() and np.isfinite(dx).all(), engine


# The shapes have rows shorter than a vector, rows that end in the middle of their last vector, and long rows.
@pytest.mark.parametrize("shape", [(77, 3), (150, 24), (67, 100), (2, 5, 300)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("log", [False, True])
def test_in_place(log: bool, dtype: str, shape: tuple[int, ...], device: str) -> None:
    rng = np.random.default_rng(2)
    x, dy = rng.normal(0, 1, shape), rng.normal(0, 1, shape)
    for engine in engines(device):
        keywords = {"axis": -1, "log": log, "algo": engine}
        t = tensor(x, dtype, device)
        y = dnn.softmax_forward(t, **keywords)
        assert dnn.softmax_forward(t, **keywords, out=t).data_ptr == t.data_ptr
        np.testing.assert_array_equal(values_of(t), values_of(y))
        want = values_of(dnn.softmax_backward(tensor(dy, dtype, device), y, **keywords))
        for name in ("dy", "y"):
            tensors = {"dy": tensor(dy, dtype, device), "y": y.to(copy=True)}
            dnn.softmax_backward(tensors["dy"], tensors["y"], **keywords, out=tensors[name])
            np.testing.assert_array_equal(values_of(tensors[name]), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_at_any_address(dtype: str, device: str) -> None:
    rng = np.random.default_rng(5)
    t = tensor(rng.normal(0, 2, (8, 64)), dtype, device)
    keep, add = rng.random(513) < 0.7, rng.normal(0, 1, 513)
    for whole in (dnn.asarray(keep).to(device=device), tensor(add, dtype, device)):
        shifted = whole.as_strided((8, 64), (64, 1), 1)
        want = values_of(dnn.softmax_forward(t, mask=shifted.to(copy=True)))
        # With an unaligned mask, another engine may be selected. Its results may differ by one or two roundings.
        assert_close(dnn.softmax_forward(t, mask=shifted), Result(want, 2 * reference.EPS[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_and_scales(dtype: str, device: str) -> None:
    rng = np.random.default_rng(4)
    x = reference.rounded(rng.normal(0, 2, (2, 3, 8, 16)), dtype)
    causal = np.tril(np.ones((8, 16), bool))
    bias = reference.rounded(rng.normal(0, 1, (3, 1, 16)), dtype)
    t = tensor(x, dtype, device)
    for mask in (causal, bias):
        m = dnn.asarray(mask).to(device=device) if mask.dtype == bool else tensor(mask, dtype, device)
        for log in (False, True):
            want = reference.softmax_forward(x, axis=-1, log=log, scale=0.25, mask=mask)
            tolerance = reference.tolerance(dtype, 16, np.abs(np.where(np.isinf(want), 0, want)) + 4)
            y = dnn.softmax_forward(t, axis=-1, log=log, scale=0.25, mask=m)
            assert_close(y, Result(want, tolerance))
            dx = values_of(dnn.softmax_backward(t, y, axis=-1, log=log, scale=0.25))
            assert np.isfinite(dx).all() and (dx[np.isinf(want) if log else want == 0] == 0).all()
    # If the mask keeps no element of a row, the results of that row are NaN, as for a row of -inf.
    nothing = np.ones((8, 16), bool)
    nothing[3] = False
    y = values_of(dnn.softmax_forward(t, axis=-1, mask=dnn.asarray(nothing).to(device=device)))
    assert np.isnan(y[:, :, 3]).all() and np.isfinite(np.delete(y, 3, axis=2)).all()


def test_broadcast_inputs(device: str) -> None:
    row = np.random.default_rng(3).normal(0, 1, 6)
    # The stride between rows is 0, so all rows are equal.
    x = tensor(row, "float64", device).as_strided((4, 6), (0, 1))
    y = values_of(dnn.softmax_forward(x))
    np.testing.assert_allclose(y, reference.softmax_forward(np.tile(row, (4, 1))), rtol=1e-14)
    # The stride between columns is 0, so all columns are equal.
    x = tensor(row, "float64", device).as_strided((6, 4), (1, 0))
    np.testing.assert_array_equal(values_of(dnn.softmax_forward(x)), np.full((6, 4), 0.25))


def test_empty(device: str) -> None:
    for shape in ((4, 0), (0, 4), (2, 0, 3)):
        x = dnn.empty(shape, device=device)
        assert dnn.softmax_forward(x).shape == shape
        assert dnn.softmax_backward(x, x).shape == shape


@pytest.mark.torch
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_agrees_with_torch(axis: int, log: bool) -> None:
    import torch

    x = torch.randn(4, 17, 5, 6, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    dy = torch.randn(4, 17, 5, 6, dtype=torch.float64)
    want = (torch.log_softmax if log else torch.softmax)(x, axis)
    want.backward(dy)
    y = dnn.softmax_forward(x.detach(), axis=axis, log=log)
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), atol=1e-14)
    dx = dnn.softmax_backward(dy, y, axis=axis, log=log)
    np.testing.assert_allclose(dx.numpy(), x.grad.numpy(), atol=1e-13)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.softmax_forward(x, axis=2), dnn.ShapeError,
         "softmax_forward: axis must be from -2 to 1 for x [2, 3]; got 2"),
        (lambda x: dnn.softmax_forward(x, axis=-3), dnn.ShapeError, "axis must be from -2 to 1 for x [2, 3]; got -3"),
        (lambda x: dnn.softmax_forward(x.reshape((6,))), dnn.ShapeError, "axis must be from -1 to 0 for x [6]; got 1"),
        (lambda x: dnn.softmax_forward(x.as_strided((), (), 0), axis=0), dnn.ShapeError,
         "softmax_forward: x must have 1 to 8 dimensions; got []"),
        (lambda x: dnn.softmax_forward(x.to(dtype="int32")), dnn.DTypeError, "x is int32; supported are"),
        (lambda x: dnn.softmax_backward(x, x.reshape((6,))), dnn.ShapeError,
         "softmax_backward: y must be [2, 3] like dy; got [6]"),
        (lambda x: dnn.softmax_backward(x.to(dtype="float64"), x), dnn.DTypeError,
         "dy is float64, y is float32; cast one"),
        (lambda x: dnn.softmax_forward(x, out=dnn.empty((3, 2), device=x.device)), dnn.ShapeError,
         "out must be [2, 3]; got [3, 2]"),
        (lambda x: dnn.softmax_forward(x, out=x.as_strided((2, 3), (1, 2))), dnn.ShapeError,
         "out overlaps x without being the same elements"),
        (lambda x: dnn.softmax_forward(x, mask=x.reshape((3, 2))), dnn.ShapeError,
         "softmax_forward: mask [3, 2] does not broadcast to x [2, 3]"),
        (lambda x: dnn.softmax_forward(x, mask=x.to(dtype="int8")), dnn.DTypeError,
         "mask must be bool (true keeps an element) or float32, the dtype of x (added to x); got int8"),
        (lambda x: dnn.softmax_forward(x, algo="warp"), dnn.NotSupported, "algo='warp' names no engine for "),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)  # the failed call has not changed x
