# SPDX-License-Identifier: Apache-2.0
"""The CTC loss: samples for the case lines, all paths of tiny problems, comparison with torch, special cases, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, outputs_by_threads, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
UNUSED = 7.0  # what samples have where the library must not read
OPTIONS = ("blank", "reduction", "zero_infinity", "logits")


def labels_of(rng: np.random.Generator, count: int, classes: int, blank: int) -> np.ndarray:
    """Labels that are no blanks, with repeats."""
    labels = np.delete(np.arange(classes), blank)[rng.integers(0, max(classes - 1, 1), count)] if classes > 1 else None
    return np.zeros(0, int) if count == 0 or labels is None else np.where(rng.random(count) < 0.3, labels[0], labels)


def lengths_of(
    rng: np.random.Generator, steps: int, sequences: int, most: int, total: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and labels of each sequence: full ones, short ones, and 0 of either."""
    inputs = rng.integers(0, steps, sequences, endpoint=True)
    inputs[rng.random(sequences) < 0.6] = steps
    labels = np.minimum(rng.integers(0, most, sequences, endpoint=True), inputs // 2)
    if total is not None:  # together at most the labels that there are; the last sequences may have none
        labels = np.diff(np.minimum(np.cumsum(labels), total), prepend=0)
    return inputs, labels


def sample(case: Case) -> Sample:
    rng = generator(case)
    shape, target_shape = case.operands["x"].shape, case.operands["targets"].shape
    steps, sequences, classes = shape
    options: dict[str, Any] = {
        "blank": int(case.attributes.get("blank", 0)),
        "reduction": case.attributes["reduction"],
        "zero_infinity": "zero_infinity" in case.words,
        "logits": "logits" in case.words,
    }
    x = rng.normal(0, 2, shape)
    x = reference.rounded(x if options["logits"] else reference.log_softmax(x)[0], case.dtype)
    targets = labels_of(rng, int(np.prod(target_shape)), classes, options["blank"]).reshape(target_shape)
    total = target_shape[0] if len(target_shape) == 1 else None
    most = 2 * target_shape[0] // sequences if total is not None else target_shape[1]
    lengths = lengths_of(rng, steps, sequences, most, total)
    operands = {"x": x, "targets": targets, "input_lengths": lengths[0], "target_lengths": lengths[1]}
    dtypes = {
        "targets": "int32" if case.attributes.get("labels") == "i32" else "int64",
        **{
            name: "int32" if case.attributes.get(name) == "i32" else "int64"
            for name in ("input_lengths", "target_lengths")
        },
    }
    if case.direction == "forward":
        want = reference.ctc_loss_forward(**operands, **options)

        def forward(t: dict[str, dnn.DeviceTensor], algo: str | None, out: Any = None) -> list[dnn.DeviceTensor]:
            loss, _ = dnn.ctc_loss_forward(*(t[name] for name in operands), **options, algo=algo)
            return [loss if out is None else dnn.transform(loss, out=out)]

        return Sample(operands, forward, [Result(want, loss_tolerance(operands, options, case.dtype))], dtypes)
    acc = reference.accumulator(case.dtype)
    names = ("alpha", "exponents", "lse")
    choice = {name: options[name] for name in ("blank", "logits")}
    saved = {
        n: reference.rounded(v, acc)
        for n, v in zip(names, reference.ctc_saved(**operands, **choice, unused=UNUSED), strict=False)
    }
    dloss = reference.rounded(rng.normal(0, 1, (sequences,) if options["reduction"] == "none" else ()), acc)
    want = reference.ctc_loss_backward(dloss, **operands, **options)
    return Sample(
        {**operands, **saved, "dloss": dloss},
        lambda t, algo, out=None: [
            dnn.ctc_loss_backward(
                t["dloss"], *(t[n] for n in operands), [t[n] for n in saved], **options, algo=algo, out=out
            )
        ],
        [Result(want, gradient_tolerance(dloss, operands, options, case.dtype, want))],
        dtypes | dict.fromkeys((*saved, "dloss"), acc),
    )


def path_error(operands: dict[str, np.ndarray], options: dict[str, Any], dtype: str) -> np.ndarray:
    """For each sequence, a bound of the relative error of products over the steps of a path. A step multiplies by an
    exponential and adds three numbers, which makes some eight roundings. Logits minus their lse are rounded, too. The
    oracle adds logarithms of paths, which may be large."""
    acc = reference.accumulator(dtype)
    errors = []
    for rows, _, _ in reference.ctc_sequences(
        *(operands[n] for n in ("x", "targets", "input_lengths", "target_lengths"))
    ):
        steps, largest = len(rows), np.abs(np.where(np.isfinite(rows), rows, 0.0)).max(initial=0.0)
        each = reference.tolerance(acc, max(steps, 1), 8 + 2 * largest * options["logits"])
        errors.append(each + reference.EPS["float64"] * np.sqrt(steps) * steps * largest)
    return np.array(errors)


def loss_tolerance(operands: dict[str, np.ndarray], options: dict[str, Any], dtype: str) -> np.ndarray:
    losses, counts = reference.ctc_losses(**operands, **{name: options[name] for name in ("blank", "logits")})
    acc = reference.accumulator(dtype)
    each = path_error(operands, options, dtype) + 4 * reference.EPS[acc] * np.where(np.isfinite(losses), losses, 0)
    if options["reduction"] == "none":
        return each
    weights = 1 / np.maximum(counts, 1) / len(counts) if options["reduction"] == "mean" else np.ones(len(counts))
    return np.float64((each * weights).sum())


def gradient_tolerance(
    dloss: np.ndarray, operands: dict[str, np.ndarray], options: dict[str, Any], dtype: str, want: np.ndarray
) -> np.ndarray:
    _, counts = reference.ctc_losses(**operands, **{name: options[name] for name in ("blank", "logits")})
    g = np.abs(np.broadcast_to(dloss, counts.shape))
    if options["reduction"] == "mean":
        g = g / np.maximum(counts, 1) / len(counts)
    # softmax and the posterior are at most 1. Posteriors have the errors of alpha, beta and their sum.
    most = 3 * path_error(operands, options, dtype) * g
    smallest = {"float16": 2.0**-24, "bfloat16": 2.0**-133}.get(dtype, 0.0)
    finite = np.where(np.isfinite(want), np.abs(want), 0)
    return reference.EPS[dtype] * finite + most[None, :, None] + smallest


def usable(dtype: str, device: str, targets: Any = ((1,),), sequences: int = 1) -> list[str]:
    x, ones = dnn.zeros((2, sequences, 3), dtype=dtype, device=device), integers([1] * sequences, device)
    (report,) = dnn.explain(dnn.ctc_loss_forward, x, integers(targets, device), ones, ones)
    return [e.name for e in report.engines if not e.why_not]


def integers(values: Any, device: str, dtype: str = "int64") -> dnn.DeviceTensor:
    return dnn.asarray(np.array(values, dtype), device=device)


def both(
    x: np.ndarray, targets: Any, input_lengths: Any, target_lengths: Any, dtype: str, device: str, dloss: Any = None, **options: Any
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The loss and dx."""
    t = tensor(x, dtype, device)
    rest = [integers(v, device) for v in (targets, input_lengths, target_lengths)]
    loss, saved = dnn.ctc_loss_forward(t, *rest, **options)
    one = dnn.asarray(
        np.ones(loss.shape) if dloss is None else np.asarray(dloss, "float64"), dtype=loss.dtype, device=device
    )
    return values_of(loss), values_of(dnn.ctc_loss_backward(one, t, *rest, saved, **options))


def check(
    x: np.ndarray, targets: Any, input_lengths: Any, target_lengths: Any, dtype: str, device: str, **options: Any
) -> None:
    """Compares every engine, forward and backward, with the oracle."""
    options = {"blank": 0, "reduction": "none", "zero_infinity": False, "logits": False} | options
    x = reference.rounded(x, dtype)
    operands = {
        "x": x,
        "targets": np.array(targets),
        "input_lengths": np.array(input_lengths),
        "target_lengths": np.array(target_lengths),
    }
    want = reference.ctc_loss_forward(**operands, **options)
    dloss = reference.rounded(np.random.default_rng(5).normal(0, 1, want.shape), reference.accumulator(dtype))
    gradient = reference.ctc_loss_backward(dloss, **operands, **options)
    for algo in usable(dtype, device, targets, x.shape[1]):
        loss, dx = both(*operands.values(), dtype, device, dloss, **options, algo=algo)
        assert_close(loss, Result(want, loss_tolerance(operands, options, dtype)), algo)
        assert_close(dx, Result(gradient, gradient_tolerance(dloss, operands, options, dtype, gradient)), algo)


def probabilities(steps: int, sequences: int, classes: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    return reference.log_softmax(np.random.default_rng(seed).normal(0, spread, (steps, sequences, classes)))[0]


def collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(c for c, _ in itertools.groupby(path) if c != blank)


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("labels", [(), (1,), (1, 1), (1, 3), (3, 1, 3), (1, 1, 1), (3, 3, 1, 1)])
def test_all_paths_of_tiny_problems(labels: tuple[int, ...], blank: int, device: str) -> None:
    """The definition: the sum over all paths, and for the gradient the share of those with a class at a step."""
    steps, classes = 5, 4
    log_p = probabilities(steps, 1, classes)
    total, share = 0.0, np.zeros((steps, classes))
    for path in itertools.product(range(classes), repeat=steps):
        if collapsed(path, blank) == labels:
            p = np.exp(log_p[np.arange(steps), 0, path].sum())
            total += p
            share[np.arange(steps), path] += p
    with np.errstate(invalid="ignore", divide="ignore"):
        loss, gradient = -np.log(total), np.exp(log_p[:, 0]) - share / total
    targets = np.array(labels, int).reshape(1, -1)
    for algo in usable("float64", device):
        got, dx = both(
            log_p, targets, [steps], [len(labels)], "float64", device, reduction="none", blank=blank, algo=algo
        )
        np.testing.assert_allclose(got, [loss], rtol=1e-13)
        np.testing.assert_allclose(dx[:, 0], gradient if total else np.full(share.shape, np.nan), atol=1e-14)
    np.testing.assert_allclose(
        reference.ctc_losses(log_p, targets, [steps], [len(labels)], blank=blank)[0], [loss], rtol=1e-13
    )


def test_known_losses_of_others(device: str) -> None:
    """The example of TensorFlow's and PyTorch's tests, and that of warp-ctc: two steps, the second label after the
    first."""
    p = np.array([
        [[0.633766, 0.221185, 0.0917319, 0.0129757, 0.0142857, 0.0260553], [0.30176, 0.28562, 0.0831517, 0.0862751, 0.0816851, 0.161508]],
        [[0.111121, 0.588392, 0.278779, 0.0055756, 0.00569609, 0.010436], [0.24082, 0.397533, 0.0557226, 0.0546814, 0.0557528, 0.19549]],
        [[0.0357786, 0.633813, 0.321418, 0.00249248, 0.00272882, 0.0037688], [0.230246, 0.450868, 0.0389607, 0.038309, 0.0391602, 0.202456]],
        [[0.0663296, 0.643849, 0.280111, 0.00283995, 0.0035545, 0.00331533], [0.280884, 0.429522, 0.0326593, 0.0339046, 0.0326856, 0.190345]],
        [[0.458235, 0.396634, 0.123377, 0.00648837, 0.00903441, 0.00623107], [0.423286, 0.315517, 0.0338439, 0.0393744, 0.0339315, 0.154046]],
    ])  # fmt: skip
    targets = [[0, 1, 2, 1, 0], [0, 1, 1, 0, 5]]
    for algo in usable("float32", device):
        loss, _ = both(np.log(p), targets, [5, 5], [5, 4], "float32", device, blank=5, reduction="none", algo=algo)
        np.testing.assert_allclose(loss, [3.34211, 5.42262], rtol=1e-5)
        two = np.array([[[0.1, 0.6, 0.1, 0.1, 0.1]], [[0.1, 0.1, 0.6, 0.1, 0.1]]])
        loss, _ = both(two, [1, 2], [2], [2], "float32", device, logits=True, reduction="sum", algo=algo)
        softmax = np.exp(two) / np.exp(two).sum(2, keepdims=True)
        np.testing.assert_allclose(loss, -np.log(softmax[0, 0, 1] * softmax[1, 0, 2]), rtol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("concatenated", [False, True])
def test_agrees_with_torch(concatenated: bool, zero_infinity: bool, reduction: str) -> None:
    import torch

    rng = np.random.default_rng(3)
    x = torch.tensor(rng.normal(size=(30, 6, 9))).log_softmax(2).requires_grad_()
    target_lengths = [7, 0, 3, 25, 1, 9]  # 25 labels are too many for 30 steps with their repeats
    rows = [np.where(rng.random(25) < 0.5, 4, rng.integers(0, 8, 25)) for _ in range(6)]
    targets = (
        np.concatenate([r[:n] for r, n in zip(rows, target_lengths, strict=True)]) if concatenated else np.array(rows)
    )
    rest = [torch.tensor(targets), torch.tensor([30, 30, 12, 30, 29, 25]), torch.tensor(target_lengths)]
    options: dict[str, Any] = {"blank": 8, "reduction": reduction, "zero_infinity": zero_infinity}
    want = torch.nn.functional.ctc_loss(x, *rest, **options)
    dloss = torch.tensor(rng.normal(size=tuple(want.shape)))
    want.backward(dloss)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        t = x.detach().to(dtype)
        loss, saved = dnn.ctc_loss_forward(t, *rest, **options)
        np.testing.assert_allclose(loss.numpy(), want.detach().numpy(), rtol=tolerance)
        if reduction == "none" or zero_infinity:  # torch makes all gradients NaN if one loss is infinite
            dx = dnn.ctc_loss_backward(dloss.to(dtype), t, *rest, saved, **options)
            np.testing.assert_allclose(dx.numpy(), x.grad.numpy(), atol=10 * tolerance)


@pytest.mark.torch
def test_logits_have_the_gradient_of_torch() -> None:
    import torch

    logits = torch.randn(40, 3, 12, dtype=torch.float64).requires_grad_()
    rest = [torch.randint(1, 12, (3, 10)), torch.tensor([40, 33, 21]), torch.tensor([10, 4, 9])]
    want = torch.nn.functional.ctc_loss(logits.log_softmax(2), *rest)
    want.backward()
    loss, saved = dnn.ctc_loss_forward(logits.detach(), *rest, logits=True)
    dx = dnn.ctc_loss_backward(torch.tensor(1.0, dtype=torch.float64), logits.detach(), *rest, saved, logits=True)
    assert abs(loss.item() - want.item()) < 1e-12
    np.testing.assert_allclose(dx.numpy(), logits.grad.numpy(), atol=1e-14)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_gradient_is_the_limit_of_differences(reduction: str, device: str) -> None:
    rng = np.random.default_rng(0)
    x, direction = rng.normal(0, 1, (2, 9, 3, 5))
    rest = [integers(v, device) for v in ([[1, 2, 2], [3, 4, 1], [4, 4, 4]], [9, 7, 8], [3, 2, 1])]
    h = 1e-5
    (up, _), (down, _), (loss, saved) = (
        dnn.ctc_loss_forward(tensor(x + s * direction, "float64", device), *rest, reduction=reduction, logits=True)
        for s in (h, -h, 0)
    )
    dloss = rng.normal(0, 1, loss.shape)
    dx = dnn.ctc_loss_backward(
        tensor(dloss, "float64", device), tensor(x, "float64", device), *rest, saved, reduction=reduction, logits=True
    )
    difference = (dloss * (values_of(up) - values_of(down))).sum() / (2 * h)
    assert abs(difference - (values_of(dx) * direction).sum()) < 1e-8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("logits", [False, True])
def test_rows_of_the_gradient_have_the_sum_0(dtype: str, logits: bool, device: str) -> None:
    x = probabilities(60, 4, 13, spread=3) + (3.0 if logits else 0.0)
    targets = np.random.default_rng(1).integers(1, 13, (4, 11))
    for algo in usable(dtype, device):
        _, dx = both(
            x, targets, [60, 50, 60, 30], [11, 3, 0, 11], dtype, device, reduction="sum", logits=logits, algo=algo
        )
        assert np.abs(dx.sum(axis=2)).max() < 32 * reference.EPS[dtype] * (1 if logits else np.abs(x).max())
        assert np.abs(dx).max() > 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes(dtype: str, device: str) -> None:
    p = probabilities(12, 5, 7)
    every = [[1, 2, 3], [4, 4, 5], [6, 1, 1], [2, 2, 2], [1, 2, 1]]
    check(p, every, [12] * 5, [3] * 5, dtype, device)
    check(p, every, [12, 0, 0, 5, 1], [3, 0, 2, 3, 1], dtype, device)  # no steps; as few as suffice
    check(p, every, [2, 4, 3, 4, 3], [3, 3, 3, 3, 3], dtype, device)  # too few steps, but for the last sequence
    check(p, every, [2, 4, 3, 4, 3], [3, 3, 3, 3, 3], dtype, device, zero_infinity=True)
    check(p, every, [12] * 5, [0] * 5, dtype, device, reduction="mean")
    check(p, every, [99, -5, 12, 12, 12], [99, 3, -1, 2**40, -(2**40)], dtype, device)  # lengths are clamped
    check(p, np.zeros((5, 0)), [12] * 5, [0] * 5, dtype, device)
    check(p[:1], [[1], [2], [3], [4], [5]], [1] * 5, [1, 1, 0, 1, 0], dtype, device, reduction="sum")
    check(np.zeros((4, 2, 1)), np.zeros((2, 0)), [4, 3], [0, 0], dtype, device)  # one class, which is the blank
    check(p, [1, 1, 2, 3, 4, 6, 6, 6], [12] * 5, [3, 0, 4, 9, 1], dtype, device, reduction="mean")  # too few labels


@pytest.mark.parametrize("dtype", DTYPES)
def test_labels_that_are_no_classes(dtype: str, device: str) -> None:
    """A label outside of the classes, or the blank, makes its own sequence NaN, and no other. It is read nowhere."""
    p = probabilities(8, 6, 5)
    targets = [[1, 5], [1, 2], [-1, 2], [2, 0], [2**31 - 1, 1], [3, -(2**31)]]
    for zero_infinity in (False, True):
        check(p, targets, [8] * 6, [2] * 6, dtype, device, zero_infinity=zero_infinity)
        check(p, targets, [8] * 6, [1] * 6, dtype, device, zero_infinity=zero_infinity)


@pytest.mark.parametrize("dtype", DTYPES)
def test_probabilities_of_0(dtype: str, device: str) -> None:
    """Classes with a log-probability of -inf, whose gradient is 0, also where they are labels; and no path at all."""
    p = probabilities(10, 4, 6)
    p[3:7, 0, 1] = p[2, 0, 0] = -np.inf
    p[:, 1, 2] = -np.inf  # its label 2 can not be read
    p[4, 2] = -np.inf
    check(p, [[1, 2, 1], [1, 2, 3], [1, 2, 3], [5, 5, 5]], [10] * 4, [3] * 4, dtype, device)
    check(p, [[1, 2, 1], [1, 2, 3], [1, 2, 3], [5, 5, 5]], [10] * 4, [3] * 4, dtype, device, zero_infinity=True)
    check(p * 3, [[1, 2, 1], [1, 3, 3], [1, 2, 3], [5, 5, 5]], [10, 10, 4, 10], [3] * 4, dtype, device, logits=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_beyond_the_range_of_floats(dtype: str, device: str) -> None:
    """Each step is so unlikely that its probability, or that of a few steps, is no float. Posteriors stay exact."""
    for scale in (30.0, 200.0, 5000.0):
        p = -scale * np.abs(np.random.default_rng(2).normal(1, 1, (40, 2, 6)))
        check(p, [[1, 2, 2, 3], [4, 4, 4, 5]], [40, 35], [4, 4], dtype, device)
    p = np.where(np.arange(6) == 0, 0.0, -400.0) + np.zeros((60, 2, 6))  # blanks are certain; labels are not
    check(p, [[1, 2, 2, 3], [4, 4, 4, 5]], [60, 55], [4, 4], dtype, device)
    p[:, :, 1:] = -1e9  # as good as -inf
    loss, dx = both(p, [[1, 2], [3, 4]], [60, 60], [2, 0], dtype, device, reduction="none")
    assert loss[0] == np.inf and loss[1] == 0 and np.isnan(dx[:, 0]).all() and (dx[:, 1] == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_values_stay_in_their_sequence(value: float, device: str) -> None:
    p = probabilities(9, 3, 5)
    p[4, 1, 2] = value
    for algo in usable("float32", device):
        for logits in (False, True):
            loss, dx = both(
                p, [[1, 2]] * 3, [9] * 3, [2] * 3, "float32", device, reduction="none", logits=logits, algo=algo
            )
            assert np.isnan(loss).tolist() == [False, True, False]
            assert np.isnan(dx[:, 1]).any(axis=1).all() and np.isfinite(dx[:, [0, 2]]).all()
        beyond = [[1, 2]] * 3, [9, 4, 9], [2] * 3
        loss, dx = both(p, *beyond, "float32", device, reduction="none", logits=True, algo=algo)
        assert np.isfinite(loss).all() and np.isfinite(dx).all() and (dx[4:, 1] == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_near_convergence(dtype: str, device: str) -> None:
    """The softmax is nearly the posterior. The difference has the accuracy of float32, not that of dx's dtype."""
    labels = np.array([1, 2, 2, 3])
    path = np.repeat([1, 0, 2, 0, 2, 3, 0], 4)
    x = np.where(np.arange(5) == path[:, None], 9.0, 0.0)[:, None, :] + np.zeros((28, 2, 5))
    x += np.random.default_rng(0).normal(0, 0.5, x.shape)
    check(x, [labels, labels], [28, 28], [4, 4], dtype, device, logits=True)


def test_long_targets(device: str) -> None:
    rng = np.random.default_rng(7)
    p = probabilities(40, 1, 5)
    check(p, rng.integers(1, 5, (1, 1500)), [40], [1500], "float32", device)  # more labels than steps
    x = rng.normal(0, 1, (3300, 1, 3))
    targets = np.where(rng.random(1500) < 0.5, 1, 2)
    check(x, targets, [3300], [1500], "float32", device, logits=True)


@pytest.mark.parametrize("labels", [0, 1, 31, 32, 33, 63, 64, 255, 256, 257, 511, 512, 1000])
def test_labels_at_the_borders_of_warps_and_strips(labels: int, device: str) -> None:
    """A warp has 32 states, a block of cuda.ctc.wavefront 512. Some labels equal others far away."""
    rng = np.random.default_rng(labels)
    steps = labels + labels // 3 + 15  # no multiple of the steps between two barriers
    targets = rng.integers(1, 20, (2, labels))
    targets[0, ::7] = 3
    x = rng.normal(0, 2, (steps, 2, 20))
    lengths = [steps, steps - 1], [labels, max(labels - 1, 0)]
    check(x, targets, *lengths, "float32", device, logits=True)
    check(reference.log_softmax(x)[0], targets, *lengths, "bfloat16", device)


def test_few_steps_around_a_chunk(device: str) -> None:
    """Steps that are a multiple of those between two barriers, one less and one more; and fewer than warps need to
    follow each other."""
    for steps in (1, 2, 7, 8, 9, 15, 16, 17):
        p = probabilities(steps, 3, 6, seed=steps)
        check(p, [[1, 2, 1, 3]] * 3, [steps, steps - 1, steps], [4, 2, 0], "float32", device)
        check(p, np.ones((3, 70), int), [steps] * 3, [70, 1, 33], "float32", device, zero_infinity=True)


def test_concatenated_targets_of_different_lengths(device: str) -> None:
    """One sequence has far more labels than the others, for which a block of cuda.ctc.wavefront is made."""
    rng = np.random.default_rng(6)
    lengths = [3, 0, 40, 31, 32, 250, 7]
    targets = np.where(rng.random(sum(lengths)) < 0.2, 5, rng.integers(1, 20, sum(lengths)))
    x = rng.normal(0, 2, (330, 7, 20))
    check(x, targets, [330, 20, 300, 17, 330, 330, 0], lengths, "float32", device, logits=True)
    check(reference.log_softmax(x)[0], targets, [330] * 7, lengths, "float16", device)


def test_many_labels_and_many_steps(device: str) -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(0, 2, (3300, 1, 25))
    check(x, rng.integers(1, 25, (1, 3000)), [3300], [3000], "float32", device, logits=True)
    p = probabilities(6000, 1, 12, spread=12)  # a loss of more than 50,000
    check(p, rng.integers(1, 12, (1, 40)), [6000], [40], "float32", device)


def test_losses_beyond_the_range_of_exponents(device: str) -> None:
    """The largest loss of cuda.ctc.wavefront is 2^29 log 2. Other engines have no limit."""
    p = np.full((400, 1, 3), -1.9e6)
    for algo in usable("float32", device):
        loss, _ = both(p, [[1, 2]], [400], [2], "float32", device, reduction="none", algo=algo)
        most = 2.0**29 * np.log(2) if algo == "cuda.ctc.wavefront" else np.inf
        np.testing.assert_allclose(loss, [min(7.6e8, most)], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_permutation_of_the_sequences_changes_no_bits(dtype: str, device: str) -> None:
    rng = np.random.default_rng(4)
    p = probabilities(25, 300, 8)
    targets, inputs, labels = rng.integers(1, 8, (300, 9)), rng.integers(10, 26, 300), rng.integers(0, 10, 300)
    order = rng.permutation(300)
    for algo in usable(dtype, device):
        options: dict[str, Any] = {"reduction": "none", "logits": True, "algo": algo}
        loss, dx = both(p, targets, inputs, labels, dtype, device, **options)
        other = both(p[:, order], targets[order], inputs[order], labels[order], dtype, device, **options)
        assert bytes(loss[order]) == bytes(other[0]) and bytes(dx[:, order]) == bytes(other[1])
        concatenated = np.concatenate([t[:n] for t, n in zip(targets, labels, strict=True)])
        other = both(p, concatenated, inputs, labels, dtype, device, **options)
        assert bytes(loss) == bytes(other[0]) and bytes(dx) == bytes(other[1])


def test_one_sequence_without_a_dimension(device: str) -> None:
    p = probabilities(11, 1, 6)
    for targets, lengths in (([1, 2, 2], ([11], [3])), ([1, 2, 2, 5], (11, 3))):
        for reduction in ("none", "sum", "mean"):
            loss, dx = both(p[:, 0], targets, *lengths, "float64", device, reduction=reduction)
            same = both(p, [targets], [11], [3], "float64", device, reduction=reduction)
            assert loss.shape == () and dx.shape == (11, 6)
            assert loss == same[0].reshape(()) and (dx == same[1][:, 0]).all()


def test_nothing(device: str) -> None:
    none = dnn.zeros((5, 0, 3), device=device)
    rest = [integers(np.zeros(shape), device) for shape in ((0, 4), 0, 0)]
    assert values_of(dnn.ctc_loss_forward(none, *rest, reduction="sum")[0]) == 0
    assert np.isnan(values_of(dnn.ctc_loss_forward(none, *rest)[0]))
    loss, saved = dnn.ctc_loss_forward(none, *rest, reduction="none")
    assert loss.shape == (0,)
    assert dnn.ctc_loss_backward(loss, none, *rest, saved, reduction="none").shape == (5, 0, 3)
    for logits in (False, True):
        loss, dx = both(
            np.zeros((0, 2, 3)), [[1], [1]], [0, 7], [0, 1], "float32", device, reduction="none", logits=logits
        )
        assert loss.tolist() == [0, np.inf] and dx.shape == (0, 2, 3)


def test_a_loss_of_logits_is_never_negative(device: str) -> None:
    """The only class has the probability 1, whatever its logit is."""
    x = np.random.default_rng(0).normal(0, 50, (300, 8, 1))
    for algo in usable("float32", device):
        loss, dx = both(
            x, np.zeros((8, 0)), [300] * 8, [0] * 8, "float32", device, reduction="none", logits=True, algo=algo
        )
        assert (loss >= 0).all() and (loss < 1e-4).all() and np.abs(dx).max() < 1e-4


def test_a_gradient_of_0_gives_0(device: str) -> None:
    p = probabilities(6, 2, 4)
    for algo in usable("float32", device):
        _, dx = both(p, [[1, 2], [3, 1]], [6, 6], [2, 2], "float32", device, [0.0, 1.0], reduction="none", algo=algo)
        assert (dx[:, 0] == 0).all() and (dx[:, 1] != 0).all()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    code = """
import zlib, numpy as np, pyminidnn as dnn
rng = np.random.default_rng(0)
x = rng.normal(size=(30, 40, 50)).astype("float32")
rest = rng.integers(1, 50, (40, 9)), rng.integers(20, 31, 40), rng.integers(0, 10, 40)
loss, saved = dnn.ctc_loss_forward(x, *rest, logits=True)
dx = dnn.ctc_loss_backward(np.float32(1), x, *rest, saved, logits=True)
print(loss.numpy().tobytes().hex(), zlib.crc32(dx.numpy().tobytes()))
"""
    assert len(outputs_by_threads(code)) == 1


@pytest.mark.parametrize(
    "change, kind, text",
    [
        ({"x": np.zeros(4)}, dnn.ShapeError, "ctc_loss_forward: x must have 2 to 3 dimensions; got [4]"),
        ({"x": np.zeros((5, 2, 0))}, dnn.ShapeError, "ctc_loss_forward: x [5, 2, 0] has no classes"),
        ({"blank": 4}, dnn.ShapeError, "blank must be a class of x [5, 2, 4], from 0 to 3; got 4"),
        ({"blank": -1}, dnn.ShapeError, "blank must be a class of x [5, 2, 4], from 0 to 3; got -1"),
        ({"reduction": "max"}, dnn.ShapeError, "reduction must be 'none', 'sum' or 'mean'; got 'max'"),
        ({"targets": np.zeros((3, 2), int)}, dnn.ShapeError,
         "targets must be [2, labels] for x [5, 2, 4], or [labels of all sequences]; got [3, 2]"),
        ({"targets": np.zeros((2, 2), "float32")}, dnn.DTypeError, "targets must be int64 or int32; got float32"),
        ({"input_lengths": np.ones(2)}, dnn.DTypeError, "input_lengths must be int64 or int32; got float64"),
        ({"input_lengths": np.ones(3, int)}, dnn.ShapeError, "input_lengths must be [2] for the sequences of x; got [3]"),
        ({"target_lengths": np.ones((), int)}, dnn.ShapeError, "target_lengths must be [2] for the sequences of x; got []"),
        ({"x": np.zeros((5, 4)), "targets": np.zeros((1, 2), int)}, dnn.ShapeError, "targets must be [labels] for x [5, 4]; got [1, 2]"),
        ({"algo": "cudnn"}, dnn.NotSupported, "algo='cudnn' names no engine for ctc forward f64 x=5x2x4 targets=2x2 reduction=mean"),
    ],
)  # fmt: skip
def test_errors(change: dict[str, Any], kind: type[Exception], text: str, device: str) -> None:
    arguments = {"x": np.zeros((5, 2, 4)), "targets": np.ones((2, 2), int), "input_lengths": np.array([5, 5]),
                 "target_lengths": np.array([2, 2]), **change}  # fmt: skip
    with pytest.raises(kind) as caught:
        dnn.ctc_loss_forward(
            **{n: dnn.asarray(v, device=device) if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
        )
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "change, kind, text",
    [
        ({"dloss": np.ones(3)}, dnn.ShapeError, "dloss must be [] like the result of ctc_loss_forward; got [3]"),
        ({"dloss": np.ones((), "float32")}, dnn.DTypeError, "dloss must be float64; got float32"),
        ({"saved": [np.zeros(50)] * 3}, dnn.ShapeError, "saved has 3 tensors; ctc_loss_forward returns 2 with logits=False"),
        ({"saved": [np.zeros(50)] * 2, "logits": True}, dnn.ShapeError, "saved has 2 tensors; ctc_loss_forward returns 3 with logits=True"),
        ({"saved": [np.zeros(50)]}, dnn.ShapeError, "saved must be the 2 or 3 tensors of ctc_loss_forward; got [DeviceTensor("),
        ({"saved": [np.zeros(49), np.zeros(50)]}, dnn.ShapeError, "alpha of saved must be [50] like the result of ctc_loss_forward; got [49]"),
        ({"saved": [np.zeros(50), np.zeros(50, "float32")]}, dnn.DTypeError, "exponents of saved must be float64; got float32"),
        ({"reduction": "none"}, dnn.ShapeError, "dloss must be [2] like the result of ctc_loss_forward; got []"),
    ],
)  # fmt: skip
def test_errors_of_backward(change: dict[str, Any], kind: type[Exception], text: str, device: str) -> None:
    arguments = {"dloss": np.ones(()), "x": np.zeros((5, 2, 4)), "targets": np.ones((2, 2), int),
                 "input_lengths": np.array([5, 5]), "target_lengths": np.array([2, 2]), "saved": [np.zeros(50)] * 2, **change}  # fmt: skip
    move = lambda v: dnn.asarray(v, device=device) if isinstance(v, np.ndarray) else v
    with pytest.raises(kind) as caught:
        dnn.ctc_loss_backward(**{n: [move(t) for t in v] if n == "saved" else move(v) for n, v in arguments.items()})
    assert text in str(caught.value)


def test_dx_must_not_overlap_the_operands(device: str) -> None:
    x, rest = dnn.zeros((5, 2, 4), device=device), [integers(v, device) for v in ([[1], [2]], [5, 5], [1, 1])]
    loss, saved = dnn.ctc_loss_forward(x, *rest)
    with pytest.raises(dnn.ShapeError, match="out"):
        dnn.ctc_loss_backward(loss, x, *rest, saved, out=x)
