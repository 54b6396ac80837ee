# SPDX-License-Identifier: Apache-2.0
"""pyminidnn.functional against torch.nn.functional and its gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import functional as ours

torch = pytest.importorskip("torch")
theirs = torch.nn.functional
pytestmark = pytest.mark.torch

# Each case has the name of a function, the shapes of its tensor arguments, and its other arguments as keywords. torch's
# function of the same name has the same keywords.
CASES: list[tuple[str, tuple[tuple[int, ...] | None, ...], dict[str, Any]]] = [
    ("conv2d", ((2, 3, 7, 6), (4, 3, 3, 3), (4,)), {"stride": 2, "padding": 1}),
    ("conv2d", ((2, 4, 7, 6), (4, 2, 3, 2), None), {"padding": "same", "groups": 2, "dilation": 2}),
    ("conv1d", ((2, 3, 9), (4, 3, 3), (4,)), {"padding": "valid"}),
    ("conv3d", ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), (3,)), {"stride": (1, 2, 1)}),
    ("conv_transpose2d", ((2, 3, 4, 5), (3, 4, 3, 3), (4,)), {"stride": 2, "padding": 1, "output_padding": 1}),
    ("conv_transpose1d", ((2, 4, 5), (4, 2, 3), (4,)), {"groups": 2}),
    ("max_pool2d", ((2, 3, 7, 6),), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", ((2, 3, 7, 6),), {"kernel_size": 2}),
    ("avg_pool2d", ((2, 3, 7, 6),), {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False}),
    ("adaptive_avg_pool2d", ((2, 3, 7, 6),), {"output_size": (2, 3)}),
    ("linear", ((5, 2, 3), (4, 3), (4,)), {}),
    ("linear", ((5, 3), (4, 3), None), {}),
    *((name, ((4, 5),), {}) for name in (
        "relu", "sigmoid", "tanh", "gelu", "silu", "elu", "softplus", "hardswish", "mish", "leaky_relu")),
    ("layer_norm", ((4, 3, 5), "normalized_shape", (3, 5), (3, 5)), {"normalized_shape": (3, 5)}),
    ("layer_norm", ((4, 5), "normalized_shape", None, None), {"normalized_shape": (5,)}),
    ("rms_norm", ((4, 5), "normalized_shape", (5,)), {"normalized_shape": (5,), "eps": 1e-5}),
    ("group_norm", ((2, 6, 3, 2), "num_groups", (6,), (6,)), {"num_groups": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "options"), CASES, ids=lambda v: v if isinstance(v, str) else None)
def test_values_and_gradients(name: str, shapes: Any, options: dict[str, Any], device: str) -> None:
    rng = np.random.default_rng(0)
    options = dict(options)
    # A string among the shapes is the name of a keyword argument. torch takes this argument at the string's position.
    arrays = [options.pop(s) if isinstance(s, str) else None if s is None else rng.normal(size=s) for s in shapes]
    their = [torch.tensor(a, requires_grad=True) if isinstance(a, np.ndarray) else a for a in arrays]
    mine = [dnn.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in arrays]
    want = getattr(theirs, name)(*their, **options)
    got = getattr(ours, name)(*mine, **options)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-11)
    dy = rng.normal(size=tuple(want.shape))
    want.backward(torch.tensor(dy))
    if name.endswith("norm"):  # backward functions of norms take no bias: its gradient does not depend on it
        mine = mine[: {"rms_norm": 3}.get(name, 3)]
    gradients = getattr(ours, f"{name}_backward")(dnn.asarray(dy, device=device), *mine, **options)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    expected = [t for t in their if not isinstance(t, (tuple, int))]
    for mine_of, t in zip(gradients, expected, strict=False):
        if t is not None:
            np.testing.assert_allclose(mine_of.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, device: str) -> None:
    x, dy = np.random.default_rng(0).normal(size=(2, 4, 5))
    t = torch.tensor(x, requires_grad=True)
    want = getattr(theirs, name)(t, 0)
    y = getattr(ours, name)(dnn.asarray(x, device=device), 0)
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-12)
    want.backward(torch.tensor(dy))
    dx = getattr(ours, f"{name}_backward")(dnn.asarray(dy, device=device), y, 0)
    np.testing.assert_allclose(dx.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 2, 4, 5, 8), (2, 4, 5, 8), (4, 5, 8), (5, 8)], ids=len)
@pytest.mark.parametrize("masked", ["not", "causal", "bool", "added"])
def test_attention(shape: tuple[int, ...], masked: str, device: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v, dy = (rng.normal(size=shape) for _ in range(4))
    options: dict[str, Any] = {"is_causal": masked == "causal", "scale": 0.3}
    masks = {"bool": rng.random(shape[:-1] + shape[-2:-1]) < 0.8, "added": rng.normal(size=(5, 5))}
    t = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    mask = masks.get(masked)
    if masked == "bool":
        mask[..., 0] = True  # each row sees a column
    their_mask = None if mask is None else torch.tensor(mask)
    want = theirs.scaled_dot_product_attention(*t, attn_mask=their_mask, **options)
    mine = [dnn.asarray(x, device=device) for x in (q, k, v)]
    options["attn_mask"] = None if mask is None else dnn.asarray(mask, device=device)
    got = ours.scaled_dot_product_attention(*mine, **options)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-11)
    want.backward(torch.tensor(dy))
    gradients = ours.scaled_dot_product_attention_backward(dnn.asarray(dy, device=device), *mine, **options)
    for got, want in zip(gradients, t, strict=True):
        np.testing.assert_allclose(got.numpy(), want.grad.numpy(), rtol=1e-8, atol=1e-10)


def test_attention_of_groups_of_heads(device: str) -> None:
    q, k = dnn.ones((1, 4, 2, 8), device=device), dnn.ones((1, 2, 3, 8), device=device)
    assert ours.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape == (1, 4, 2, 8)
    with pytest.raises(dnn.ShapeError, match="key has 2 heads, and query has 4; pass enable_gqa=True"):
        ours.scaled_dot_product_attention(q, k, k)


def test_batch_norm(device: str) -> None:
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 4, 3, 5, 2))
    weight, bias, mean, var = rng.normal(size=3), rng.normal(size=3), np.zeros(3), np.ones(3)
    t = [torch.tensor(v, requires_grad=True) for v in (x, weight, bias)]
    their_mean, their_var = torch.tensor(mean), torch.tensor(var)
    want = theirs.batch_norm(t[0], their_mean, their_var, t[1], t[2], training=True)
    mine = [dnn.asarray(v, device=device) for v in (x, mean, var, weight, bias)]
    got = ours.batch_norm(*mine, training=True)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(mine[1].numpy(), their_mean.numpy(), rtol=1e-9)
    np.testing.assert_allclose(mine[2].numpy(), their_var.numpy(), rtol=1e-9)
    want.backward(torch.tensor(dy))
    for got, want in zip(ours.batch_norm_backward(dnn.asarray(dy, device=device), mine[0], mine[3]), t, strict=True):
        np.testing.assert_allclose(got.numpy(), want.grad.numpy(), rtol=1e-8, atol=1e-10)
    inference = theirs.batch_norm(torch.tensor(x), their_mean, their_var, t[1], t[2]).detach().numpy()
    np.testing.assert_allclose(ours.batch_norm(*mine).numpy(), inference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction: str, device: str) -> None:
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(6, 4)), np.array([0, 3, -100, 1, 2, 2])
    options = {"reduction": reduction, "label_smoothing": 0.1}
    t = torch.tensor(x, requires_grad=True)
    want = theirs.cross_entropy(t, torch.tensor(target), **options)
    got = ours.cross_entropy(dnn.asarray(x, device=device), dnn.asarray(target, device=device), **options)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-9)
    want.backward(torch.ones_like(want))
    dx = ours.cross_entropy_backward(1.0, dnn.asarray(x, device=device), dnn.asarray(target, device=device), **options)
    np.testing.assert_allclose(dx.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_other_losses_and_embedding(device: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 4))
    t = torch.tensor(x, requires_grad=True)
    want = theirs.mse_loss(t, torch.tensor(y))
    np.testing.assert_allclose(ours.mse_loss(dnn.asarray(x, device=device), y).item(), want.item(), rtol=1e-12)
    want.backward()
    np.testing.assert_allclose(
        ours.mse_loss_backward(1.0, dnn.asarray(x, device=device), y).numpy(), t.grad.numpy(), rtol=1e-12
    )
    index, weight = np.array([[2, 0], [2, 1]]), torch.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    rows = theirs.embedding(torch.tensor(index), weight)
    dy = rng.normal(size=(2, 2, 4))
    rows.backward(torch.tensor(dy))
    mine, at = dnn.asarray(weight.detach().numpy(), device=device), dnn.asarray(index, device=device)
    np.testing.assert_allclose(ours.embedding(at, mine).numpy(), rows.detach().numpy())
    got = ours.embedding_backward(dnn.asarray(dy, device=device), at, mine)
    np.testing.assert_allclose(got.numpy(), weight.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("step", "optimizer", "options"),
    [
        (lambda p, g, state: ours.sgd_step(p, g, 0.1), torch.optim.SGD, {"lr": 0.1}),
        (lambda p, g, state: ours.sgd_step(p, g, 0.1, 0.9, 0.01, state.setdefault("b", [])), torch.optim.SGD,
         {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (lambda p, g, state: ours.adam_step(p, g, state, weight_decay=0.1), torch.optim.AdamW, {"weight_decay": 0.1}),
    ],
)  # fmt: skip
def test_optimisers(step: Callable[..., None], optimizer: Any, options: dict[str, Any], device: str) -> None:
    rng = np.random.default_rng(0)
    start = [rng.normal(size=(3, 4)), rng.normal(size=5)]
    mine = [dnn.asarray(a, device=device) for a in start]
    their = [torch.tensor(a, requires_grad=True) for a in start]
    theirs_step, state = optimizer(their, **options), {}
    for _ in range(4):
        gradients = [rng.normal(size=a.shape) for a in start]
        for p, g in zip(their, gradients, strict=True):
            p.grad = torch.tensor(g)
        theirs_step.step()
        step(mine, gradients, state)
    for p, q in zip(mine, their, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-9)


def test_errors() -> None:
    x, w = dnn.ones((1, 1, 4, 4)), dnn.ones((1, 1, 3, 3))
    with pytest.raises(dnn.ShapeError, match='padding="same" needs stride 1'):
        ours.conv2d(x, w, stride=2, padding="same")
    with pytest.raises(dnn.ShapeError, match='padding must be ints, "valid" or "same"'):
        ours.conv2d(x, w, padding="full")
    with pytest.raises(dnn.ShapeError, match="normalized_shape must be the last sizes"):
        ours.layer_norm(x, 5)
    with pytest.raises(dnn.ShapeError, match="buffers must be a list"):
        ours.sgd_step([x], [x], 0.1, momentum=0.9)
    with pytest.raises(dnn.ShapeError, match="running_mean and running_var must be given"):
        ours.batch_norm(x, None, None, dnn.ones((1,)), dnn.ones((1,)))
