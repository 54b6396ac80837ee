# SPDX-License-Identifier: Apache-2.0
"""Tensors of more than 2^31 elements, to find indices of 32 bits. All elements are compared with torch's on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import pyminidnn as dnn

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.big]

MORE = 2**31 + 1029


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()
    dnn.empty_cache("cuda:0")


def random(*shape: int, dtype: object = None) -> object:
    return torch.randn(shape, device="cuda", dtype=dtype or torch.bfloat16)


def agree(ours: dnn.DeviceTensor, theirs: object, tolerance: float) -> None:
    ours = torch.from_dlpack(ours)
    assert ours.shape == theirs.shape
    for a, b in zip(ours.flatten().split(1 << 28), theirs.flatten().split(1 << 28), strict=True):
        assert ((a.float() - b.float()).abs() <= tolerance * (1 + b.float().abs())).all()


def test_activation() -> None:
    x = random(MORE)
    agree(dnn.activation_forward(x, "relu"), torch.relu(x), 0)


@pytest.mark.parametrize("engine", ["vectorized", "generic"])
def test_transform(engine: str) -> None:
    x = torch.randint(0, 100, (MORE,), device="cuda", dtype=torch.uint8)
    agree(dnn.transform(x, algo=engine), x, 0)


def test_layout_change() -> None:
    x = torch.randint(0, 100, (3, 5, 12000, 12000), device="cuda", dtype=torch.uint8)
    y = torch.from_dlpack(dnn.asarray(x, layout="NHWC"))
    assert y.stride(1) == 1
    assert torch.equal(y, x)


def test_pad() -> None:
    x = torch.randint(0, 100, (3, 5, 12000, 12000), device="cuda", dtype=torch.uint8)
    assert torch.equal(torch.from_dlpack(dnn.pad(x, [0, 0, 1, (0, 3)]))[:, :, 1:-1, :-3], x)


def test_gather() -> None:
    x = torch.randint(0, 100, (2**21 + 3, 1024), device="cuda", dtype=torch.uint8)
    index = torch.randint(0, x.shape[0], (2**21 + 3,), device="cuda")
    assert torch.equal(torch.from_dlpack(dnn.gather(x, index)), x[index])


@pytest.mark.parametrize("axis, shape", [(0, (MORE,)), (1, (2**21 + 3, 1024)), (0, (1024, 2**21 + 3))])
def test_reduce(axis: int, shape: tuple[int, ...]) -> None:
    x = random(*shape)
    agree(dnn.reduce(x, "max", axis=axis), x.amax(axis), 0)
    agree(dnn.reduce(x, "argmax", axis=axis), x.argmax(axis), 0)
    agree(dnn.reduce(x, "sum", axis=axis), x.sum(axis, dtype=torch.float32).bfloat16(), 2**-6)


@pytest.mark.parametrize("axis, shape", [(1, (2**21 + 3, 1024)), (0, (1024, 2**21 + 3))])
def test_softmax(axis: int, shape: tuple[int, int]) -> None:
    x = random(*shape)
    agree(dnn.softmax_forward(x, axis=axis), torch.softmax(x, axis), 2**-7)


def test_loss() -> None:
    x, target = random(2**21 + 3, 1024), torch.randint(0, 1024, (2**21 + 3,), device="cuda")
    chunks = zip(x.split(1 << 18), target.split(1 << 18), strict=True)
    want = torch.cat([torch.nn.functional.cross_entropy(a.float(), t, reduction="none") for a, t in chunks])
    agree(dnn.cross_entropy_forward(x, target, reduction="none")[0], want, 2**-14)


def test_ctc() -> None:
    x, some = random(40, 700, 80000), slice(690, 700)
    targets = torch.randint(1, 80000, (700, 9), device="cuda")
    rest = targets, torch.full((700,), 40, device="cuda"), torch.full((700,), 9, device="cuda")
    loss, saved = dnn.ctc_loss_forward(x, *rest, reduction="none", logits=True)
    dx = dnn.ctc_loss_backward(torch.ones(700, device="cuda"), x, *rest, saved, reduction="none", logits=True)
    part = x[:, some].float().requires_grad_()
    want = torch.nn.functional.ctc_loss(part.log_softmax(2), *(t[some] for t in rest), reduction="none")
    want.sum().backward()
    agree(loss[some], want.detach(), 2**-14)
    agree(dx[:, some], part.grad, 2**-7)


def test_pointwise() -> None:
    x = random(MORE)
    agree(dnn.add(x, x), x + x, 0)


def test_random() -> None:
    x = torch.ones(MORE, device="cuda", dtype=torch.bfloat16)
    y = torch.from_dlpack(dnn.dropout_forward(x, 0.5, seed=3))
    for some in y.split(1 << 28):
        kept = int((some == 2).sum())
        assert kept + int((some == 0).sum()) == some.numel()
        assert abs(kept - some.numel() / 2) <= 4 * some.numel() ** 0.5
    assert torch.equal(torch.from_dlpack(dnn.dropout_backward(x, 0.5, seed=3)), y)


def test_pooling() -> None:
    x = random(1, 1, 46342, 46342)
    agree(dnn.pool_forward(x, (2, 2)), torch.nn.functional.max_pool2d(x, 2), 0)


def test_batch_norm() -> None:
    x = random(3, 2, 20000, 18000)
    scale, bias, mean, var = (torch.rand(2, device="cuda") + 0.5 for _ in range(4))
    want = torch.nn.functional.batch_norm(x, mean, var, scale.bfloat16(), bias.bfloat16())
    ours = dnn.batch_norm_forward_inference(x, scale.bfloat16().float(), bias.bfloat16().float(), mean, var)
    agree(ours, want, 2**-6)
    y, saved_mean, _ = dnn.batch_norm_forward_training(x, scale, bias)
    assert y.size == x.numel()
    assert abs(saved_mean.numpy()).max() < 1e-3  # 10^9 normal numbers have a mean near 0


def test_layer_norm() -> None:
    x = random(2**16, 2**15 + 1)
    agree(dnn.layer_norm_forward(x)[0], torch.nn.functional.layer_norm(x, x.shape[1:]), 2**-6)


def test_lrn() -> None:
    x = random(5, 8, 7400, 7400)
    agree(dnn.lrn_forward(x, 5), torch.nn.functional.local_response_norm(x, 5), 2**-6)


def test_matmul() -> None:
    a, b = random(65536, 16), random(16, 32800)
    agree(dnn.matmul(a, b), a @ b, 2**-6)


def test_conv() -> None:
    x, w = random(1, 1, 46342, 46342), random(1, 1, 1, 3)
    want = torch.zeros_like(x, dtype=torch.float32)
    want[..., 1:] += x[..., :-1].float() * w[0, 0, 0, 0].float()
    want += x.float() * w[0, 0, 0, 1].float()
    want[..., :-1] += x[..., 1:].float() * w[0, 0, 0, 2].float()
    agree(dnn.conv_forward(x, w, padding=(0, 1), algo="direct"), want, 2**-6)


@pytest.mark.parametrize("channels_last", [False, True])
def test_depthwise_conv(channels_last: bool) -> None:
    x, w = random(2, 8, 12000, 12000), random(8, 1, 3, 3)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    want = torch.nn.functional.conv2d(x, w, padding=1, groups=8)
    agree(dnn.conv_forward(x, w, padding=1, groups=8, algo="depthwise"), want, 2**-6)


def fast_engines(call: Callable[..., object], *operands: object, **options: object) -> list[str]:
    engines = dnn.explain(call, *operands, **options)[0].engines
    return [e.name for e in engines if not e.why_not and not e.name.endswith("generic")]


def test_attention() -> None:
    """q, k and v have more than 2^31 elements each, and there are more than 2^33 scores."""
    shape = 128, 128, 1025, 128
    q, k, v, do = (random(*shape) for _ in range(4))
    for a, b in zip(q.split(1), k.split(1), strict=True):
        a.mul_(0.5), b.mul_(0.5)
    want = [torch.empty_like(q) for _ in range(4)]
    for i in range(shape[0]):
        leaves = [t[i : i + 1].detach().requires_grad_() for t in (q, k, v)]
        o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        for to, result in zip(want, (o, *torch.autograd.grad(o, leaves, do[i : i + 1])), strict=True):
            to[i] = result[0].detach()
    forward, backward = dnn.attention_forward, dnn.attention_backward
    for engine in fast_engines(forward, q, k, v, causal=True):
        o, lse = forward(q, k, v, causal=True, algo=engine)
        agree(o, want[0], 2**-5)
    engines = fast_engines(backward, do, q, k, v, o, lse, causal=True)
    assert len(engines) >= 2
    for engine in engines:
        for ours, theirs in zip(backward(do, q, k, v, o, lse, causal=True, algo=engine), want[1:], strict=True):
            agree(ours, theirs, 2**-5)
            del ours


def test_dropout_of_attention() -> None:
    """The random words of more than 2^33 scores: all engines drop the same ones."""
    q, k, v = (random(128, 128, 1025, 64) for _ in range(3))
    first = None
    for engine in fast_engines(dnn.attention_forward, q, k, v, dropout=0.5, seed=3):
        o = torch.from_dlpack(dnn.attention_forward(q, k, v, dropout=0.5, seed=3, algo=engine)[0])
        first = o if first is None else first
        agree(o, first, 2**-6)


@pytest.mark.parametrize("steps, batch, inputs", [(2, 2**20 + 7, 1024), (64, 2**24 + 3, 1)])
def test_rnn(steps: int, batch: int, inputs: int) -> None:
    """x and dx, or y, dgates and the reserve, have more than 2^31 elements. Each step is compared from the state that
    the library has before it."""
    x, dy, w, u = random(steps, batch, inputs), random(steps, batch, 2), random(2, inputs), random(2, 2)
    w.div_(inputs**0.5)
    net = {"mode": "tanh", "hidden_size": 2, "bias": False}
    forward = dnn.rnn_forward(x, [w, u], training=True, **net)
    y, reserve = torch.from_dlpack(forward[0]), forward[3]
    gradients = dnn.rnn_backward_data(dy, None, None, y, [w, u], reserve, **net)
    dx, dgates = torch.from_dlpack(gradients[0]), torch.from_dlpack(gradients[3])[0, 0]
    weights, before, after = torch.zeros_like(w, dtype=torch.float32), torch.zeros_like(y[0]), torch.zeros_like(y[0])
    for t in range(steps):
        agree(y[t], torch.tanh(x[t].float() @ w.float().T + before.float() @ u.float().T), 2**-6)
        before = y[t]
    for t in reversed(range(steps)):
        agree(dgates[t], (dy[t].float() + after.float() @ u.float()) * (1 - y[t].float() ** 2), 2**-6)
        agree(dx[t], dgates[t].float() @ w.float(), 2**-6)
        weights += dgates[t].float().T @ x[t].float()
        after = dgates[t]
    if inputs > 1:  # the generic engine adds up all rows for each weight, one after the other
        # The sums have `rows` terms near 1, so errors of their roundings grow as sqrt(rows), as the sums do.
        size = (steps * batch) ** 0.5
        for engine in fast_engines(dnn.rnn_backward_weights, x, None, y, gradients[3], reserve, **net):
            ours = dnn.rnn_backward_weights(x, None, y, gradients[3], reserve, algo=engine, **net)[0]
            agree(torch.from_dlpack(ours).float() / size, weights / size, 2**-6)
