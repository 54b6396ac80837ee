# SPDX-License-Identifier: Apache-2.0
"""pyminidnn.cudnn_compat: programs in the style of cudnn-frontend against float64 NumPy, and what is refused.

tests/compat/run.py runs the tests of cudnn-frontend itself.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import reference
from reference import rounded, tolerance
from support import Result, assert_close, framed, tensor, values_of

import pyminidnn as dnn
import pyminidnn.cudnn_compat as cudnn
from pyminidnn.cudnn_compat.inference import RULES

FLOAT, HALF, BFLOAT16 = cudnn.data_type.FLOAT, cudnn.data_type.HALF, cudnn.data_type.BFLOAT16
DTYPES = {FLOAT: "float32", HALF: "float16", BFLOAT16: "bfloat16", cudnn.data_type.BOOLEAN: "bool",
          cudnn.data_type.INT32: "int32", cudnn.data_type.INT8: "int8", cudnn.data_type.DOUBLE: "float64"}  # fmt: skip


def drawn(shape: Sequence[int], dtype: str = "float16", seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Random values that `dtype` holds, as float64."""
    return rounded(np.random.default_rng(seed).standard_normal(shape) * scale, dtype)


def channels_last(shape: Sequence[int]) -> list[int]:
    strides, step = [1] * len(shape), 1
    for i in [1, *range(len(shape) - 1, 1, -1), 0]:
        strides[i] = step
        step *= shape[i]
    return strides


class Program:
    """A pygraph with its variant pack."""

    def __init__(self, device: str, io: Any = HALF, intermediate: Any = FLOAT, compute: Any = FLOAT) -> None:
        self.device, self.handle = device, cudnn.create_handle(device)
        self.g = cudnn.pygraph(
            handle=self.handle, io_data_type=io, intermediate_data_type=intermediate, compute_data_type=compute
        )
        self.pack: dict[Any, Any] = {}

    def put(self, values: np.ndarray, dtype: str = "float16", layout: str | None = None) -> Any:
        """A tensor of the graph with these values on the device."""
        array = tensor(values, dtype, self.device)
        if layout is not None:
            array = array.to(layout=layout)  # type: ignore[arg-type]
        strides = array.strides
        t = self.g.tensor(dim=array.shape, stride=strides, data_type=array.dtype)
        self.pack[t] = array
        return t

    def number(self, value: float, rank: int = 4) -> Any:
        """A tensor that is passed by value."""
        t = self.g.tensor(dim=[1] * rank, stride=[1] * rank, data_type=FLOAT, is_pass_by_value=True)
        self.pack[t] = np.full([1] * rank, value, "float32")
        return t

    def run(self, *results: tuple[Any, Any]) -> list[dnn.DeviceTensor]:
        """Builds the graph with these results (tensor, data_type), executes it and returns their memory."""
        for t, kind in results:
            t.set_output(True).set_data_type(kind)
        self.g.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        made = []
        for t, kind in results:
            made.append(framed(t.get_dim(), t.get_stride(), DTYPES[kind], self.device))
            self.pack[t] = made[-1][0]
        self.g.execute(self.pack, None, handle=self.handle)
        assert all(untouched() for _, untouched in made)
        return [memory for memory, _ in made]


# ---- programs


def test_convolution_with_bias_and_clipped_relu(device: str) -> None:
    p = Program(device)
    x, w, b = drawn((3, 8, 11, 9), seed=1), drawn((16, 8, 3, 3), seed=2, scale=0.2), drawn((1, 16, 1, 1), seed=3)
    conv = p.g.conv_fprop(
        image=p.put(x, layout="NHWC"), weight=p.put(w, layout="NHWC"), pre_padding=[1, 0], post_padding=[0, 2],
        stride=[2, 1], dilation=[1, 2],
    )  # fmt: skip
    y = p.g.relu(p.g.bias(input=conv, bias=p.put(b)), lower_clip=-0.25, upper_clip=1.5)
    (got,) = p.run((y, HALF))
    options: dict[str, Any] = {"padding": [(1, 0), (0, 2)], "stride": [2, 1], "dilation": [1, 2]}
    plain = reference.conv_forward(x, w, b.ravel(), **options)
    scale = reference.conv_forward(abs(x), abs(w), abs(b.ravel()), **options)
    assert y.get_stride() == channels_last(plain.shape)
    assert_close(got, Result(np.clip(plain, -0.25, 1.5), tolerance("float16", 72, scale) + 2.0**-10))


@pytest.mark.parametrize("groups, rank", [(1, 2), (4, 2), (2, 3)])
def test_gradients_of_a_convolution(device: str, groups: int, rank: int) -> None:
    sizes, window = (9, 8, 5)[:rank], (3, 2, 3)[:rank]
    x, w = drawn((2, 8, *sizes), seed=1), drawn((12, 8 // groups, *window), seed=2)
    options: dict[str, Any] = {"padding": [1] * rank, "stride": [2] * rank, "dilation": [1] * rank}
    dy = drawn(reference.conv_output_shape(x.shape, w.shape, **options), seed=3)

    p = Program(device)
    dx = p.g.conv_dgrad(loss=p.put(dy), filter=p.put(w), **options).set_dim(x.shape)
    (got,) = p.run((dx, FLOAT))
    want = reference.conv_backward_data(dy, w, x.shape, groups=groups, **options)
    scale = reference.conv_backward_data(abs(dy), abs(w), x.shape, groups=groups, **options)
    assert_close(got, Result(want, tolerance("float32", w.size, scale)))

    p = Program(device)
    dw = p.g.conv_wgrad(image=p.put(x), loss=p.put(dy), **options).set_dim(w.shape)
    (got,) = p.run((dw, HALF))
    want = reference.conv_backward_filter(dy, x, w.shape, groups=groups, **options)
    scale = reference.conv_backward_filter(abs(dy), abs(x), w.shape, groups=groups, **options)
    assert_close(got, Result(want, tolerance("float16", dy.size, scale)))


@pytest.mark.parametrize("intermediate", [FLOAT, BFLOAT16])
def test_product_with_bias_and_gelu(device: str, intermediate: Any) -> None:
    """A weight that all batches share. BFLOAT16 intermediates are rounded, FLOAT ones are not."""
    a, b, bias = (drawn(s, "bfloat16", i) for i, s in enumerate(((3, 17, 24), (1, 24, 40), (1, 1, 40))))
    p = Program(device, BFLOAT16, intermediate)
    y = p.g.gelu(p.g.bias(p.g.matmul(A=p.put(a, "bfloat16"), B=p.put(b, "bfloat16")), p.put(bias, "bfloat16")))
    (got,) = p.run((y, BFLOAT16))
    kind = DTYPES[intermediate]
    total = rounded(rounded(a @ b, kind) + bias, kind)
    scale = abs(a) @ abs(b) + abs(bias)
    error = tolerance(kind, 24, scale) * 2.5  # gelu's slope is below 1.13, and two values are rounded
    assert_close(got, Result(reference.activation_forward(total, "gelu"), tolerance("bfloat16", 1, scale) + error))


def test_products_of_integers_are_exact(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (2, 9, 3000)), rng.integers(-128, 128, (2, 3000, 5))
    a[0], b[0] = rng.integers(100, 128, a[0].shape), rng.integers(100, 128, b[0].shape)  # sums above 2^24
    x, w = rng.integers(-128, 128, (2, 40, 6, 6)), rng.integers(-128, 128, (4, 40, 3, 3))
    integer = cudnn.data_type.INT32
    p = Program(device, cudnn.data_type.INT8, integer, integer)
    product = p.g.matmul(p.put(a, "int8"), p.put(b, "int8"))
    conv = p.g.conv_fprop(p.put(x, "int8"), p.put(w, "int8"), padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    got, of_conv = p.run((product, integer), (p.g.identity(conv), integer))
    assert_close(got, Result(a @ b, 0))
    assert_close(of_conv, Result(reference.conv_forward(x, w, padding=1), 0))


def test_scale_bias_relu_before_a_convolution_with_statistics(device: str) -> None:
    x, w = drawn((4, 16, 8, 8), seed=1), drawn((24, 16, 3, 3), seed=2, scale=0.1)
    s, b = drawn((1, 16, 1, 1), seed=3), drawn((1, 16, 1, 1), seed=4)
    p = Program(device, HALF, HALF)
    before = p.g.relu(p.g.bias(p.g.scale(p.put(x, layout="NHWC"), p.put(s)), p.put(b)))
    conv = p.g.conv_fprop(before, p.put(w, layout="NHWC"), padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    total, squares = p.g.genstats(conv)
    y, sums, sums_of_squares = p.run((conv, HALF), (total, FLOAT), (squares, FLOAT))
    h = np.maximum(rounded(rounded(x * s, "float16") + b, "float16"), 0)
    scale = reference.conv_forward(h, abs(w), padding=1)
    assert_close(y, Result(reference.conv_forward(h, w, padding=1), tolerance("float16", 144, scale)))
    stored = values_of(y)  # the statistics are those of the rounded y
    for got, terms in ((sums, stored), (sums_of_squares, stored**2)):
        want = terms.sum((0, 2, 3), keepdims=True)
        assert_close(got, Result(want, tolerance("float32", 256, abs(terms).sum((0, 2, 3), keepdims=True))))


@pytest.mark.parametrize("in_place", [True, False])
def test_batch_norm_and_running_statistics(in_place: bool, device: str) -> None:
    """The next running statistics may share the memory of the previous ones, which do not change otherwise."""
    x, shape = drawn((4, 6, 5, 5), seed=1, scale=3), (1, 6, 1, 1)
    scale, bias, mean, var = (drawn(shape, "float32", seed) for seed in range(2, 6))
    p = Program(device)
    running = [p.put(mean, "float32"), p.put(abs(var), "float32")]
    y, m, inv, next_mean, next_var = p.g.batchnorm(
        input=p.put(x), scale=p.put(scale, "float32"), bias=p.put(bias, "float32"), in_running_mean=running[0],
        in_running_var=running[1], epsilon=p.number(1e-3), momentum=p.number(0.25),
    )  # fmt: skip
    relu = p.g.relu(y)
    mask = p.g.cmp_gt(relu, p.put(np.zeros(x.shape)))
    for t, old in zip((next_mean, next_var), running, strict=True):
        t.set_output(True).set_data_type(FLOAT)
        p.pack[t] = p.pack[old] if in_place else dnn.zeros(shape, device=device)
    got, positive, got_mean, got_inv = p.run(
        (relu, HALF), (mask, cudnn.data_type.BOOLEAN), (m, FLOAT), (inv, FLOAT)
    )  # fmt: skip
    if not in_place:
        assert np.array_equal(values_of(p.pack[running[0]]), mean)
        assert np.array_equal(values_of(p.pack[running[1]]), abs(var))
    eps, momentum = float(np.float32(1e-3)), 0.25
    want, want_mean, want_inv, *new = reference.batch_norm_forward_training(
        x, scale, bias, running_mean=mean.ravel(), running_var=abs(var).ravel(), momentum=momentum, eps=eps
    )
    assert_close(got, Result(np.maximum(want, 0), tolerance("float16", 100, abs(want).max() + abs(scale).max())))
    assert np.array_equal(values_of(positive), values_of(got) > 0)
    for t, w in ((got_mean, want_mean), (got_inv, want_inv), (p.pack[next_mean], new[0]), (p.pack[next_var], new[1])):
        assert_close(t, Result(w.reshape(shape), tolerance("float32", 100, abs(x).max() ** 2)))


def test_gradient_of_batch_norm_and_relu(device: str) -> None:
    """Inference and the gradient of relu before the gradient of the norm, as in a fused backward pass."""
    x, dy, shape = drawn((4, 6, 5, 5), seed=1), drawn((4, 6, 5, 5), seed=2), (1, 6, 1, 1)
    scale, bias, mean = (drawn(shape, "float32", seed) for seed in (3, 4, 5))
    inv = rounded(1 / (1 + abs(drawn(shape, "float32", 6))), "float32")
    p = Program(device)
    gx, gs, gm, gi = (p.put(v, k) for v, k in ((x, "float16"), (scale, "float32"), (mean, "float32"), (inv, "float32")))
    y = p.g.batchnorm_inference(input=gx, mean=gm, inv_variance=gi, scale=gs, bias=p.put(bias, "float32"))
    masked = p.g.relu_backward(loss=p.put(dy), input=y).set_data_type(HALF)
    results = p.g.batchnorm_backward(grad=masked, input=gx, scale=gs, mean=gm, inv_variance=gi)
    got = p.run(*zip(results, (HALF, FLOAT, FLOAT), strict=True))
    before = scale * (x - mean) * inv + bias
    assert abs(before).min() > 1e-5  # so that rounding does not change a sign
    wants = reference.batch_norm_backward(dy * (before > 0), x, scale.ravel(), mean.ravel(), inv.ravel())
    for t, want, kind in zip(got, wants, ("float16", "float32", "float32"), strict=True):
        want = want if want.ndim == 4 else want.reshape(shape)
        assert_close(t, Result(want, tolerance(kind, 100, 100 * (1 + abs(want).max()) if want.size == 6 else 10)))


@pytest.mark.parametrize("shape, inside", [((6, 40, 1, 1), (1,)), ((3, 5, 24), (2,)), ((2, 12, 3, 4), (1,))])
def test_layer_norm_and_its_gradient(device: str, shape: tuple[int, ...], inside: tuple[int, ...]) -> None:
    parameters = tuple(n if i in inside else 1 for i, n in enumerate(shape))
    statistics = tuple(1 if i in inside else n for i, n in enumerate(shape))
    rows = [i for i in range(len(shape)) if i not in inside]
    x, dy = drawn(shape, "bfloat16", 1), drawn(shape, "bfloat16", 2)
    scale, bias = drawn(parameters, "bfloat16", 3), drawn(parameters, "bfloat16", 4)
    p = Program(device, BFLOAT16)
    gx, gs = p.put(x, "bfloat16"), p.put(scale, "bfloat16")
    y, mean, inv = p.g.layernorm(
        norm_forward_phase=cudnn.norm_forward_phase.TRAINING, input=gx, scale=gs, bias=p.put(bias, "bfloat16"),
        epsilon=p.number(1e-3, len(shape)),
    )  # fmt: skip
    got = p.run((y, BFLOAT16), (mean, FLOAT), (inv, FLOAT))
    assert tuple(mean.get_dim()) == statistics
    wants = reference.row_norm_forward(x, scale, bias, rows=rows, parameters=parameters, eps=float(np.float32(1e-3)))
    for t, want, kind in zip(got, wants, ("bfloat16", "float32", "float32"), strict=True):
        assert_close(t, Result(want, tolerance(kind, 40, abs(want).max() + 1)))

    q = Program(device, BFLOAT16)
    m, i = (q.put(values_of(t), "float32") for t in got[1:])
    results = q.g.layernorm_backward(
        grad=q.put(dy, "bfloat16"), input=q.put(x, "bfloat16"), scale=q.put(scale, "bfloat16"), mean=m, inv_variance=i
    )
    gradients = q.run(*((t, BFLOAT16) for t in results))
    wants = reference.row_norm_backward(dy, x, scale, wants[1], wants[2], rows=rows, parameters=parameters)
    for t, want in zip(gradients, wants, strict=True):
        want = want.reshape(shape if want.size == x.size else parameters)
        assert_close(t, Result(want, tolerance("bfloat16", x.size, abs(want).max() + 1)))


@pytest.mark.parametrize("has_bias", [False, True])
def test_rms_norm_and_its_gradient(device: str, has_bias: bool) -> None:
    shape, parameters = (10, 48, 1, 1), (1, 48, 1, 1)
    x, dy, scale, bias = (drawn(s, seed=i) for i, s in enumerate((shape, shape, parameters, parameters)))
    p = Program(device)
    y, inv = p.g.rmsnorm(
        cudnn.norm_forward_phase.TRAINING, input=p.put(x), scale=p.put(scale), epsilon=p.number(1e-3),
        bias=p.put(bias) if has_bias else None,
    )  # fmt: skip
    got = p.run((y, HALF), (inv, FLOAT))
    options: dict[str, Any] = {"rows": [0, 2, 3], "parameters": parameters, "centered": False}
    shift = bias if has_bias else 0 * bias
    want, _, want_inv = reference.row_norm_forward(x, scale, shift, eps=float(np.float32(1e-3)), **options)
    assert_close(got[0], Result(want, tolerance("float16", 48, abs(want).max())))
    assert_close(got[1], Result(want_inv, tolerance("float32", 48, want_inv)))

    q = Program(device)
    results = q.g.rmsnorm_backward(q.put(dy), q.put(x), q.put(scale), q.put(values_of(got[1]), "float32"), has_bias)
    assert (results[2] is not None) == has_bias
    gradients = q.run(*((t, FLOAT) for t in results if t is not None))
    wants = reference.row_norm_backward(dy, x, scale, 0, want_inv, **options)
    for t, w in zip(gradients, wants, strict=False):
        w = w.reshape(shape if w.size == x.size else parameters)
        assert_close(t, Result(w, tolerance("float32", x.size, 20)))


def test_instance_norm_and_its_gradient(device: str) -> None:
    shape, parameters = (3, 4, 6, 7), (1, 4, 1, 1)
    x, dy, scale, bias = (drawn(s, seed=i) for i, s in enumerate((shape, shape, parameters, parameters)))
    p = Program(device)
    y, mean, inv = p.g.instancenorm(
        cudnn.norm_forward_phase.TRAINING, p.put(x), p.put(scale), p.put(bias), p.number(1e-5)
    )
    got = p.run((y, HALF), (mean, FLOAT), (inv, FLOAT))
    options: dict[str, Any] = {"rows": [0, 1], "parameters": parameters}
    wants = reference.row_norm_forward(x, scale, bias, eps=float(np.float32(1e-5)), **options)
    for t, want, kind in zip(got, wants, ("float16", "float32", "float32"), strict=True):
        assert_close(t, Result(want, tolerance(kind, 42, abs(want).max() + 1)))
    q = Program(device)
    statistics = [q.put(values_of(t), "float32") for t in got[1:]]
    gradients = q.run(*((t, HALF) for t in q.g.instancenorm_backward(q.put(dy), q.put(x), q.put(scale), *statistics)))
    wants = reference.row_norm_backward(dy, x, scale, wants[1], wants[2], **options)
    for t, want in zip(gradients, wants, strict=True):
        want = want.reshape(shape if want.size == x.size else parameters)
        assert_close(t, Result(want, tolerance("float16", 126, abs(want).max() + 5)))


def test_adaptive_layer_norm_and_its_gradient(device: str) -> None:
    """Each sample has a scale and a bias of its own."""
    shape, parameters = (3, 7, 20), (3, 1, 20)
    x, dy, scale, bias = (drawn(s, seed=i) for i, s in enumerate((shape, shape, parameters, parameters)))
    p = Program(device)
    y, mean, inv = p.g.adalayernorm(
        cudnn.norm_forward_phase.TRAINING, p.put(x), p.put(scale), p.put(bias), p.number(1e-5, 3)
    )
    got = p.run((y, HALF), (mean, FLOAT), (inv, FLOAT))
    wants = reference.row_norm_forward(x, scale, bias, rows=[0, 1], parameters=parameters, eps=float(np.float32(1e-5)))
    for t, want, kind in zip(got, wants, ("float16", "float32", "float32"), strict=True):
        assert_close(t, Result(want, tolerance(kind, 20, abs(want).max() + 1)))
    q = Program(device)
    statistics = [q.put(values_of(t), "float32") for t in got[1:]]
    gradients = q.run(*((t, FLOAT) for t in q.g.adalayernorm_backward(q.put(dy), q.put(x), q.put(scale), *statistics)))
    wants = reference.row_norm_backward(dy, x, scale, wants[1], wants[2], rows=[0, 1], parameters=parameters)
    for t, want in zip(gradients, wants, strict=True):
        want = want.reshape(shape if want.size == x.size else parameters)
        assert_close(t, Result(want, tolerance("float32", 60, abs(want).max() + 10)))


def test_rotary_embedding_in_place(device: str) -> None:
    """Both results overwrite inputs that the graph reads: views of one array, whose rows alternate in memory."""
    n, rows, width = 4, 10, 8
    x, angle = drawn((n, rows, width)), drawn((1, rows, width // 2), "float32", 1)
    cos, sin = rounded(np.cos(angle), "float32"), rounded(np.sin(angle), "float32")
    p = Program(device)
    memory = tensor(x, "float16", device)
    halves = [memory[..., : width // 2], memory[..., width // 2 :]]
    one, two = (p.g.tensor_like(h) for h in halves)
    c, s = p.put(cos, "float32"), p.put(sin, "float32")
    first = p.g.sub(p.g.mul(one, c), p.g.mul(two, s)).set_output(True)  # written before `one` is read again
    second = p.g.add(p.g.mul(two, c), p.g.mul(one, s)).set_output(True)
    assert first.set_data_type(HALF) is first
    p.g.build([cudnn.heur_mode.A])
    pack = dict(zip((one, two, first, second), halves * 2, strict=True))
    p.g.execute(p.pack | pack, None, handle=p.handle)
    a, b = x[..., : width // 2], x[..., width // 2 :]
    want = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    assert_close(memory, Result(want, tolerance("float16", 2, abs(x).max() * 2)))


def test_reductions(device: str) -> None:
    x = drawn((3, 5, 4), "float32", 1)
    x[0, 0] = 0
    modes = {"ADD": "sum", "MUL": "prod", "MIN": "min", "MAX": "max", "AMAX": "amax", "AVG": "mean", "NORM1": "norm1",
             "NORM2": "norm2"}  # fmt: skip
    for name, mode in [*modes.items(), ("MUL_NO_ZEROS", "prod")]:
        p = Program(device, FLOAT)
        y = p.g.reduction(p.put(x, "float32"), mode=cudnn.reduction_mode[name]).set_dim([3, 1, 4])
        (got,) = p.run((y, FLOAT))
        values = np.where(x == 0, 1, x) if name == "MUL_NO_ZEROS" else x
        want = reference.reduce(values, mode, axis=1, keepdims=True)
        assert_close(got, Result(want, tolerance("float32", 5, abs(want).max() + 1)), name)


def test_functions_of_elements(device: str) -> None:
    """Every function of one element, and its gradient, against the oracle of the library's own function."""
    x, dy = drawn((5, 7), "float32", 1), drawn((5, 7), "float32", 2)
    unary = ["abs", "neg", "exp", "sqrt", "rsqrt", "log", "reciprocal", "ceil", "floor", "sin", "cos", "tan", "erf"]
    for name in unary:
        values = abs(x) + 0.5 if name in ("sqrt", "rsqrt", "log", "reciprocal") else x
        values = rounded(values, "float32")
        p = Program(device, FLOAT)
        (got,) = p.run((getattr(p.g, name)(p.put(values, "float32")), FLOAT))
        want = reference.pointwise(name, values)
        assert_close(got, Result(want, tolerance("float32", 16, abs(want) + 1)), name)
    modes = {"tanh": "tanh", "sigmoid": "sigmoid", "elu": "elu", "gelu": "gelu", "gelu_approx_tanh": "gelu_tanh",
             "softplus": "softplus", "swish": "silu", "relu": "relu"}  # fmt: skip
    for name, mode in modes.items():
        p = Program(device, FLOAT)
        t = p.put(x, "float32")
        y, dx = p.run(
            (getattr(p.g, name)(t), FLOAT), (getattr(p.g, f"{name}_backward")(p.put(dy, "float32"), t), FLOAT)
        )
        forward = reference.activation_forward(x, mode)
        backward = reference.activation_backward(dy, x, forward, mode)
        assert_close(y, Result(forward, tolerance("float32", 16, abs(forward) + 1)), name)
        assert_close(dx, Result(backward, tolerance("float32", 16, abs(backward) + 1)), name)


def test_casts_round(device: str) -> None:
    """A virtual HALF rounds float32. A float becomes the nearest integer."""
    x = drawn((4, 33), "float32", scale=50)
    p = Program(device, FLOAT)
    t = p.put(x, "float32")
    half = p.g.identity(t).set_data_type(HALF)
    integer = cudnn.data_type.INT32
    between = p.g.identity(p.g.identity(t).set_data_type(integer))
    back, whole, also_whole = p.run((p.g.identity(half), FLOAT), (p.g.identity(t), integer), (between, FLOAT))
    assert np.array_equal(values_of(back), rounded(x, "float16"))
    assert np.array_equal(values_of(whole), np.rint(x)) and np.array_equal(values_of(also_whole), np.rint(x))


@pytest.mark.parametrize("kind", [HALF, FLOAT])
def test_virtual_tensors_round_in_large_chains(kind: Any, device: str) -> None:
    """One kernel may compute a chain. A virtual HALF overflows in it, and a virtual FLOAT does not."""
    x = np.full((64, 4096), 300.0)
    p = Program(device, HALF, kind)
    t = p.put(x)
    square = p.g.mul(t, t)
    (y,) = p.run((p.g.div(p.g.add(square, square), p.put(x * 10)), HALF))
    assert np.array_equal(values_of(y), np.full_like(x, np.inf if kind == HALF else 60.0))


def test_a_result_between_two_nodes_may_be_in_memory(device: str) -> None:
    a, b = drawn((2, 6, 8)), drawn((2, 8, 4), seed=1)
    p = Program(device)
    y = p.g.matmul(p.put(a), p.put(b))
    product, relu = p.run((y, FLOAT), (p.g.relu(y), FLOAT))
    assert_close(product, Result(a @ b, tolerance("float32", 8, abs(a) @ abs(b))))
    assert np.array_equal(values_of(relu), np.maximum(values_of(product), 0))


def test_functions_with_attributes(device: str) -> None:
    x, dy = drawn((5, 7), "float32", 1), drawn((5, 7), "float32", 2)
    p = Program(device, FLOAT)
    a, g = p.put(x, "float32"), p.put(dy, "float32")
    clips: dict[str, Any] = {"negative_slope": 0.5, "lower_clip": -0.25, "upper_clip": 1.0}
    leaky, relu = p.g.leaky_relu(a, 0.125), p.g.relu(a, **clips)
    of_leaky, of_relu = p.g.leaky_relu_backward(g, a, 0.125), p.g.relu_backward(g, a, **clips)
    swish, of_swish = p.g.swish(a, swish_beta=2.0), p.g.swish_backward(g, a, swish_beta=2.0)
    remainder = p.g.mod(a, p.put(np.full((5, 7), 0.75), "float32"))
    got = p.run(*((t, FLOAT) for t in (leaky, relu, of_leaky, of_relu, swish, of_swish, remainder)))
    sigmoid = 1 / (1 + np.exp(-2 * x))
    wants = [
        np.where(x > 0, x, x / 8),
        np.minimum(np.where(x > -0.25, x, -0.25 + 0.5 * (x + 0.25)), 1),
        np.where(x > 0, dy, dy / 8),
        np.where(x >= 1, 0, np.where(x > -0.25, dy, dy / 2)),
        x * sigmoid,
        dy * (sigmoid + 2 * x * sigmoid * (1 - sigmoid)),
        np.fmod(x, 0.75),
    ]
    for t, want in zip(got, wants, strict=True):
        assert_close(t, Result(want, tolerance("float32", 4, abs(want) + 1)))


def test_mask_from_indices(device: str) -> None:
    """Scores below the diagonal are kept, the others become a large negative number."""
    x = drawn((2, 6, 6), "float32")
    p = Program(device, FLOAT, FLOAT)
    scores = p.put(x, "float32")
    row, column = (p.g.gen_index(scores, axis).set_data_type(cudnn.data_type.INT32) for axis in (1, 2))
    keep = p.g.logical_not(p.g.cmp_lt(row, column).set_data_type(cudnn.data_type.BOOLEAN))
    keep.set_data_type(cudnn.data_type.BOOLEAN)
    low = p.g.tensor_scalar(-1e9, cudnn.scalar_type.COMPILE_TIME_CONST)
    (got,) = p.run((p.g.binary_select(scores, low, keep), FLOAT))
    assert np.array_equal(values_of(got), np.where(np.tri(6) > 0, x, np.float32(-1e9)))


def test_views_and_concatenation(device: str) -> None:
    x, y = drawn((4, 6, 8), seed=1), drawn((4, 6, 8), seed=2)
    p = Program(device)
    part = p.g.slice(p.put(x), [slice(1, None), slice(None, None, 2), slice(2, 6)])
    swapped = p.g.transpose(part, [0, 2, 1])
    rows = p.g.reshape(p.put(y)).set_dim([24, 8]).set_stride([8, 1])
    logical = p.g.reshape(swapped, reshape_mode=cudnn.reshape_mode.LOGICAL).set_dim([4, 9])
    both = p.g.concatenate([part, part], axis=2)
    last = p.put(drawn((2, 3, 4, 5)), layout="NHWC")
    joined = p.g.concatenate([last, last], axis=1)
    got = p.run(*((t, HALF) for t in (swapped, rows, logical, both, joined)))
    assert joined.get_stride() == channels_last((2, 6, 4, 5))
    assert np.array_equal(values_of(got.pop()), np.concatenate([drawn((2, 3, 4, 5))] * 2, 1))
    want = x[1:, ::2, 2:6]
    wants = [want.swapaxes(1, 2), y.reshape(24, 8), want.swapaxes(1, 2).reshape(4, 9), np.concatenate([want] * 2, 2)]
    for t, w in zip(got, wants, strict=True):
        assert np.array_equal(values_of(t), w)


CONVOLUTION: dict[str, Any] = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}


def chain_of_a_convolution(p: Program) -> Any:
    x, w, b, r = (
        drawn((2, 8, 5, 5)),
        drawn((8, 8, 3, 3), seed=1),
        drawn((1, 8, 1, 1), seed=2),
        drawn((2, 8, 5, 5), seed=3),
    )
    conv = p.g.conv_fprop(p.put(x), p.put(w), **CONVOLUTION)
    want = reference.conv_forward(x, w, b.ravel(), r, padding=1, activation="relu")
    return p.g.relu(p.g.add(p.put(r), p.g.bias(conv, p.put(b)))), want


def chain_of_a_product(p: Program) -> Any:
    a, b, bias, c = drawn((2, 6, 8)), drawn((2, 8, 4), seed=1), drawn((1, 1, 4), seed=2), drawn((2, 6, 4), seed=3)
    y = p.g.swish(p.g.identity(p.g.add(p.g.bias(p.g.matmul(p.put(a), p.put(b)), p.put(bias)), p.put(c))))
    return y, reference.activation_forward(a @ b + bias + c, "silu")


def rounded_between(p: Program) -> Any:
    a, b = drawn((2, 6, 8)), drawn((2, 8, 4), seed=1)
    y = p.g.matmul(p.put(a), p.put(b)).set_data_type(HALF)
    return p.g.relu(y), np.maximum(a @ b, 0)


def read_twice(p: Program) -> Any:
    a, b = drawn((2, 6, 8)), drawn((2, 8, 4), seed=1)
    y = p.g.matmul(p.put(a), p.put(b))
    return p.g.mul(p.g.relu(y), y), np.maximum(a @ b, 0) * (a @ b)


def with_a_slope(p: Program) -> Any:
    a, b = drawn((2, 6, 8)), drawn((2, 8, 4), seed=1)
    return p.g.leaky_relu(p.g.matmul(p.put(a), p.put(b)), 0.25), reference.activation_forward(
        a @ b, "leaky_relu", alpha=0.25
    )


def bias_of_another_dimension(p: Program) -> Any:
    a, b, bias = drawn((2, 6, 8)), drawn((2, 8, 4), seed=1), drawn((1, 6, 1), seed=2)
    return p.g.bias(p.g.matmul(p.put(a), p.put(b)), p.put(bias)), a @ b + bias


def norm_and_relu(p: Program) -> Any:
    x, one = drawn((2, 8, 5, 5)), drawn((1, 8, 1, 1), "float32", 1)
    s = p.put(one, "float32")
    y, *_ = p.g.batchnorm(p.put(x), s, s, None, None, p.number(0.5), None)
    return p.g.relu(y), np.maximum(reference.batch_norm_forward_training(x, one, one, eps=0.5)[0], 0)


def norm_whose_mean_is_read(p: Program) -> Any:
    x, one = drawn((2, 8, 5, 5)), drawn((1, 8, 1, 1), "float32", 1)
    s = p.put(one, "float32")
    y, mean, *_ = p.g.batchnorm(p.put(x), s, s, None, None, p.number(0.5), None)
    shift = p.g.neg(mean)  # before relu
    want, m, *_ = reference.batch_norm_forward_training(x, one, one, eps=0.5)
    relu = p.g.relu(y).set_data_type(HALF)
    return p.g.add(relu, shift), np.maximum(want, 0) - m.reshape(1, 8, 1, 1)


@pytest.mark.parametrize(
    "chain, families",
    [
        (chain_of_a_convolution, ["conv"]),
        (chain_of_a_product, ["matmul"]),
        (norm_and_relu, ["batch_norm"]),
        (rounded_between, ["matmul", "activation"]),
        (read_twice, ["matmul", "activation", "pointwise", "transform"]),
        (with_a_slope, ["matmul", "activation", "transform"]),
        (bias_of_another_dimension, ["matmul", "transform", "pointwise", "transform"]),
        (norm_whose_mean_is_read, None),
    ],
)
def test_bias_residual_and_activation_join_the_product(chain: Any, families: list[str] | None, device: str) -> None:
    p = Program(device)
    y, want = chain(p)
    (got,) = p.run((y, HALF))
    assert_close(got, Result(want, tolerance("float16", 100, abs(want) + 30)))
    nodes = [family for family, *_ in list(p.g._recordings.values())[-1]._ended().nodes]
    assert families is None or nodes == families


@pytest.mark.parametrize("kind, relu", [(HALF, False), (HALF, True), (FLOAT, True), (BFLOAT16, False)])
def test_statistics_join_the_convolution(kind: Any, relu: bool, device: str) -> None:
    """The statistics are those of y as it is stored. The convolution cannot write BFLOAT16 from HALF, so nothing joins."""
    x, w = drawn((2, 8, 5, 5)), drawn((8, 8, 3, 3), seed=1)
    p = Program(device)
    conv = p.g.conv_fprop(p.put(x), p.put(w), **CONVOLUTION)
    y = (p.g.relu(conv) if relu else conv).set_data_type(kind)
    total, squares = p.g.genstats(y)
    got, sums, sums_of_squares = p.run((y, kind), (total, FLOAT), (squares, FLOAT))
    scale = reference.conv_forward(abs(x), abs(w), padding=1)
    want = reference.conv_forward(x, w, padding=1, activation="relu" if relu else None)
    assert_close(got, Result(want, tolerance(DTYPES[kind], 72, scale)))
    for t, terms in ((sums, values_of(got)), (sums_of_squares, values_of(got) ** 2)):
        limit = tolerance("float32", 50, abs(terms).sum((0, 2, 3), keepdims=True))
        assert_close(t, Result(terms.sum((0, 2, 3), keepdims=True), limit))
    families = [family for family, *_ in list(p.g._recordings.values())[-1]._ended().nodes]
    assert ("reduce" in families) == (kind is BFLOAT16)


class Drawn:
    """A random graph of integers in float32, and what NumPy makes of it. All results are exact."""

    OPS = ("add", "sub", "mul", "max", "min", "neg", "abs", "relu", "select", "sum", "largest", "product", "slice",
           "transpose", "reshape")  # fmt: skip

    def __init__(self, seed: int, device: str) -> None:
        self.rng, self.device = np.random.default_rng(seed), device
        self.p = Program(device, FLOAT)
        self.values: list[tuple[Any, np.ndarray]] = []
        self.inputs = [self.drawn_input((2, 3, 4)) for _ in range(3)]
        for _ in range(self.rng.integers(2, 12)):
            t, value = self.node()
            if abs(value).max(initial=0) < 2**20:
                self.values.append((t, value))

    def drawn_input(self, shape: tuple[int, ...]) -> Any:
        values = self.rng.integers(-3, 4, shape).astype("float64")
        order = self.rng.permutation(3)
        memory = tensor(values.transpose(order), "float32", self.device).permute(*np.argsort(order).tolist())
        t = self.p.g.tensor(dim=memory.shape, stride=memory.strides, data_type=FLOAT)
        self.p.pack[t] = memory
        self.values.append((t, values))
        return t

    def pick(self, shape: tuple[int, ...] | None = None) -> tuple[Any, np.ndarray]:
        fits = [(t, v) for t, v in self.values if shape is None or v.shape == shape]
        return fits[self.rng.integers(len(fits))]

    def node(self) -> tuple[Any, np.ndarray]:
        g, rng, op = self.p.g, self.rng, self.OPS[self.rng.integers(len(self.OPS))]
        (a, x), axis = self.pick(), int(self.rng.integers(3))
        b, y = self.pick(x.shape)
        match op:
            case "add" | "sub" | "mul":
                return getattr(g, op)(a, b), {"add": x + y, "sub": x - y, "mul": x * y}[op]
            case "max" | "min":
                return getattr(g, op)(a, b), np.maximum(x, y) if op == "max" else np.minimum(x, y)
            case "neg" | "abs" | "relu":
                return getattr(g, op)(a), {"neg": -x, "abs": abs(x), "relu": np.maximum(x, 0)}[op]
            case "select":
                return g.binary_select(a, b, g.cmp_gt(a, b)), np.maximum(x, y)
            case "sum" | "largest":
                mode = cudnn.reduction_mode.ADD if op == "sum" else cudnn.reduction_mode.MAX
                want = x.sum(axis, keepdims=True) if op == "sum" else x.max(axis, keepdims=True)
                return g.reduction(a, mode).set_dim(want.shape), want
            case "product":
                swapped = g.transpose(b, [0, 2, 1])
                return g.matmul(a, swapped), x @ y.swapaxes(1, 2)
            case "slice":
                part = [slice(int(rng.integers(n)), None, int(rng.integers(1, 3))) for n in x.shape]
                return g.slice(a, part), x[tuple(part)]
            case "transpose":
                order = rng.permutation(3).tolist()
                return g.transpose(a, order), x.transpose(order)
            case _:
                shape = [1, x.size, 1]
                return g.reshape(a, reshape_mode=cudnn.reshape_mode.LOGICAL).set_dim(shape), x.reshape(shape)

    def check(self) -> None:
        """Runs the graph with some results in memory. One result may overwrite an input."""
        results = [v for v in self.values if v[0] not in self.inputs and self.rng.random() < 0.5] or self.values[-1:]
        results = [v for v in results if v[0] not in self.inputs]
        if not results:
            return
        for t, _ in results:
            t.set_output(True)
        self.p.g.build([cudnn.heur_mode.A])
        used = set(self.p.g._descriptions())
        for t, _ in results:
            self.p.pack[t] = framed(t.get_dim(), t.get_stride(), "float32", self.device)[0]
        t, _ = results[int(self.rng.integers(len(results)))]
        over = self.inputs[0]
        if over in used and t.get_dim() == over.get_dim() and t.get_stride() == over.get_stride():
            self.p.pack[t] = self.p.pack[over]
        self.p.g.execute(self.p.pack, None)
        for t, want in results:
            assert np.array_equal(values_of(self.p.pack[t]), want), t.get_name()


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_graphs_are_exact(device: str, first: int) -> None:
    for seed in range(first, first + 20):
        Drawn(seed, device).check()


# ---- building, executing, saving


def product(device: str, m: int = 8) -> tuple[Program, list[Any]]:
    p = Program(device)
    a, b, factor = p.put(drawn((1, m, 16))), p.put(drawn((1, 16, 8), seed=1)), p.number(2.0, 3)
    y = p.g.mul(p.g.matmul(a, b), factor).set_output(True).set_data_type(FLOAT)
    p.g.build([cudnn.heur_mode.A])
    return p, [a, b, factor, y]


def scaled(p: Program, a: Any, b: Any, factor: float) -> Result:
    x, w = values_of(p.pack[a]), values_of(p.pack[b])
    return Result(factor * (x @ w), tolerance("float32", 16, factor * (abs(x) @ abs(w))))


def test_numbers_may_change_between_executions(device: str) -> None:
    p, (a, b, factor, y) = product(device)
    out = dnn.zeros((1, 8, 8), device=device)
    for value in (2.0, 2.0, 0.5, *range(3, 20)):
        p.g.execute(p.pack | {y: out, factor: np.full((1, 1, 1), value, "float32")}, None)
        assert_close(out, scaled(p, a, b, value))
    assert len(p.g._recordings) == 16


def test_a_changed_tensor_changes_the_graph(device: str) -> None:
    p, (*_, y) = product(device)
    out = dnn.zeros((1, 8, 8), device=device)
    p.g.execute(p.pack | {y: out}, None)
    y.set_data_type(HALF)
    p.g.build([cudnn.heur_mode.A])
    half = dnn.zeros((1, 8, 8), dtype="float16", device=device)
    p.g.execute(p.pack | {y: half}, None)
    assert np.array_equal(values_of(half), rounded(values_of(out), "float16"))


def test_threads_may_execute_a_graph(device: str) -> None:
    p, (a, _, factor, y) = product(device)
    wrong = []

    def execute(seed: int) -> None:
        x = tensor(drawn((1, 8, 16), seed=seed), "float16", device)
        for k in range(20):
            value = float(1 + (seed + k) % 3)
            out = dnn.zeros((1, 8, 8), device=device)
            p.g.execute(p.pack | {a: x, factor: np.full(1, value, "float32"), y: out}, None)
            want = value * (values_of(x) @ values_of(b))
            wrong.append(abs(values_of(out) - want).max() > 1e-3)

    b = p.pack[p.g.tensors[1]]
    threads = [threading.Thread(target=execute, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 80


def test_shapes_may_be_overridden(device: str) -> None:
    p, (a, b, _, y) = product(device)
    p.pack[a] = tensor(drawn((1, 20, 16), seed=7), "float16", device)
    out = dnn.zeros((1, 20, 8), device=device)
    p.g.execute(p.pack | {y: out}, None, override_uids=[a.get_uid()], override_shapes=[[1, 20, 16]],
                override_strides=[[320, 16, 1]])  # fmt: skip
    assert_close(out, scaled(p, a, b, 2))
    with pytest.raises(ValueError, match="equal lengths"):
        p.g.execute(p.pack, None, override_uids=[a.get_uid()])


def test_execution_by_uid_and_address(device: str) -> None:
    """Memory is read at its address, with the sizes and strides of the graph. It may be larger than they need."""
    p, (a, b, factor, y) = product(device)
    host = np.full((1,), 3.0, "float32")
    out = dnn.zeros((4, 100), device=device)
    entries = {a: p.pack[a].data_ptr, b: p.pack[b], factor: host.ctypes.data, y: out}
    pack: dict[Any, Any] = {t.get_uid(): v for t, v in entries.items()}
    p.g.execute_plan_at_index(pack | {None: 1, 999: out}, None, 0, handle=p.handle)
    assert_close(out.reshape(400)[:64].reshape(1, 8, 8), scaled(p, a, b, 3))
    assert not values_of(out).ravel()[64:].any()
    out *= 0
    uids = p.g._get_variant_pack_uids_sorted()
    addresses = {a.get_uid(): p.pack[a].data_ptr, b.get_uid(): p.pack[b].data_ptr, y.get_uid(): out.data_ptr}
    p.g._execute_with_ptrs([addresses.get(uid, host.ctypes.data) for uid in uids], 0)
    assert_close(out.reshape(400)[:64].reshape(1, 8, 8), scaled(p, a, b, 3))


def test_a_saved_graph_computes_the_same(device: str) -> None:
    p, (a, b, _, y) = product(device)
    data = p.g.serialize()
    for arguments in ((p.handle, data), (p.handle, list(data)), (data.decode(),)):
        g = cudnn.pygraph(handle=p.handle)
        g.deserialize(*arguments)
        assert g.key() == p.g.key() and g.get_execution_plan_count() >= 1
        out = dnn.zeros((1, 8, 8), device=device)
        g.execute({t.get_uid(): v for t, v in (p.pack | {y: out}).items()}, None)
        assert_close(out, scaled(p, a, b, 2))
    for wrong in ("", "{}", '{"format": "pyminidnn.cudnn_compat 1"}', b"[]"):
        with pytest.raises(ValueError, match="deserialize: the data"):
            cudnn.pygraph(handle=p.handle).deserialize(wrong)


def test_jit_and_cached_graphs(device: str) -> None:
    made = []

    @cudnn.jit(heur_modes=[cudnn.heur_mode.A])
    @cudnn.graph_cache(key_fn=lambda handle, x: tuple(x.shape), maxsize=1)
    def twice(handle: Any, x: Any) -> Any:
        made.append(x.shape)
        with cudnn.graph(handle, io_data_type=FLOAT) as (g, _):
            t = g.tensor_like(x)
            return g, [t, g.add(t, t).set_output(True)]

    handle = cudnn.create_handle(device)
    for shape in ((2, 3), (2, 3), (4, 1), (2, 3)):
        x, y = dnn.ones(shape, device=device), dnn.zeros(shape, device=device)
        g, (of_x, of_y) = twice(handle, x)
        g.execute({of_x: x, of_y: y}, None, handle)
        assert (values_of(y) == 2).all()
    assert made == [(2, 3), (4, 1), (2, 3)]


def of_a_product(device: str, **options: Any) -> tuple[Any, Any, Any, Any]:
    """A Graph of y = relu(a @ b), a, b and its result."""
    a, b = tensor(drawn((1, 6, 8)), "float16", device), tensor(drawn((1, 8, 4), seed=1), "float16", device)
    with cudnn.Graph(
        handle=cudnn.create_handle(device), intermediate_data_type=FLOAT, compute_data_type=FLOAT, **options
    ) as g:
        y = g.relu(g.matmul(a, B=b, name="product")).set_output(True).set_data_type(FLOAT).set_name("y")
    product = values_of(a) @ values_of(b)
    error = tolerance("float32", 8, abs(values_of(a)) @ abs(values_of(b)))
    return g, (a, b), y, Result(np.maximum(product, 0), error)


def test_a_graph_is_called_with_arrays(device: str) -> None:
    g, (a, b), y, want = of_a_product(device, inputs=["product::0", "product::B"], outputs=["y"])
    assert_close(values_of(dnn.from_dlpack(g(a, b))), want)
    g.set_io_tuples([b, a], [y])
    assert_close(values_of(dnn.from_dlpack(g(b, a, handle=cudnn.create_handle(device)))), want)
    given: dict[Any, Any] = {"product::0": a, "product::B": b}
    assert g(given) is given and set(given) == {"product::0", "product::B", "relu.0::OUT_0"}
    assert_close(values_of(dnn.from_dlpack(given["relu.0::OUT_0"])), want)
    out = dnn.zeros((1, 6, 4), device=device)
    g({"product::0": a, g._read["product::B"].get_uid(): b, y: out})
    assert_close(out, want)


def test_misuse_of_a_graph_with_arrays() -> None:
    g, (a, b), _, _ = of_a_product("cpu")
    for call, text in (
        (lambda: g(a, b), "needs set_io_tuples() before it"),
        (lambda: g.set_io_tuples(["product::A"], ["y"]), "input 0 is no input of a node; got 'product::A'"),
        (lambda: g.set_io_tuples(["product::0"], ["y"]), "product::B is in memory, but neither among the inputs nor"),
        (lambda: g.set_io_tuples([a, a, b], ["y"]), "is there twice"),
        (lambda: g.set_io_tuples([a, b], ["product::C"]), "'product::C' is virtual"),
        (lambda: g.set_io_tuples("ab", ["y"]), "inputs must be a list or tuple; got 'ab'"),
        (lambda: g({"product::0": a}), "the variant pack lacks"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            call()
    g.set_io_tuples([a, b], ["y"])
    with pytest.raises(ValueError, match="the graph has 2 inputs; got 1 arguments"):
        g(a)
    with pytest.raises(RuntimeError, match="execute is a method of pygraph, which Graph does not have"):
        g.execute({}, None)
    with cudnn.Graph(handle=cudnn.create_handle("cpu"), io_data_type=HALF) as g:
        g.relu(a, name="same")
        with pytest.raises(ValueError, match="a node of the graph has the name 'same' already"):
            g.relu(a, name="same")
        with pytest.raises(RuntimeError, match="after the end of its `with` block"):
            g(a)
        g._graph.nodes[0].outputs[0].set_output(True)


def test_queries_about_plans(device: str) -> None:
    p, (a, *_) = product(device)
    g = p.g
    names = [g.get_plan_name_at_index(i) for i in range(g.get_execution_plan_count())]
    assert len(set(names)) == len(names) == g.get_engine_count()
    assert all(name.startswith(f"{device.split(':')[0]}.matmul.") for name in names)
    assert g.get_workspace_size() == g.get_workspace_size_plan_at_index(0) == 0 and g.temporary_bytes() > 0
    assert cudnn.behavior_note.RUNTIME_COMPILATION in g.get_behavior_notes_for_plan_at_index(0)
    assert g.query_tensor_attributes_of_uid(a.get_uid()) is a
    (knob,) = g.get_knobs_for_engine(g.get_engine_count() - 1)
    assert (knob.type, knob.min_value, knob.max_value) == (cudnn.knob_type.KERNEL_CFG, 0, 0)
    for call in (g.get_plan_name_at_index, g.get_knobs_for_engine, g.build_plan_at_index):
        with pytest.raises(RuntimeError, match="must be below .* of the graph; got 1000"):
            call(1000)
    q, _ = product(device)
    q.g._changed()
    for i, name in enumerate(names):
        q.g.create_execution_plan(i, {cudnn.knob_type.KERNEL_CFG: 0})
        assert q.g.get_plan_name_at_index(i) == name
    with pytest.raises(RuntimeError, match="the engine has one knob"):
        q.g.create_execution_plan(0, {cudnn.knob_type.STAGES: 2})


def test_every_plan_computes_the_graph(device: str) -> None:
    p, (a, b, _, y) = product(device)
    with pytest.raises(RuntimeError, match="execute: the graph has no plan 1; call build"):
        p.g.execute_plan_at_index(p.pack, None, 1)
    p.g.build_plans(cudnn.build_plan_policy.ALL)
    for i in range(p.g.get_execution_plan_count()):
        out = dnn.zeros((1, 8, 8), device=device)
        p.g.execute_plan_at_index(p.pack | {y: out}, None, i)
        assert_close(out, scaled(p, a, b, 2), p.g.get_plan_name_at_index(i))


def test_a_graph_of_large_tensors_is_built_without_memory_for_them() -> None:
    g = new()
    a, b = image(g, 1, 2**15, 2**15), image(g, 1, 2**15, 2**15)
    g.matmul(a, b).set_output(True)
    g.build([cudnn.heur_mode.A])
    assert g.get_execution_plan_count() == 1 and g.get_plan_name_at_index(0) == "pyminidnn.matmul"


def test_plans_may_be_deselected(device: str) -> None:
    def without(p: Program) -> None:
        p.g.deselect_engines([p.g.get_plan_name_at_index(0)])

    p, _ = product(device)
    names = [p.g.get_plan_name_at_index(i) for i in range(p.g.get_execution_plan_count())]
    without(p)
    p.g.check_support()
    assert p.g.get_plan_name_at_index(0) == names[1]
    for refuse, text in (
        (lambda g: g.deselect_engines(["matmul"]), "all plans are deselected: by their names"),
        (lambda g: g.deselect_behavior_notes([cudnn.behavior_note.RUNTIME_COMPILATION]), "names RUNTIME_COMPILATION"),
        (lambda g: g.select_behavior_notes([cudnn.behavior_note.CUBLASLT_DEPENDENCY]), "demands CUBLASLT_DEPENDENCY"),
        (lambda g: g.deselect_workspace_greater_than(8), r"deselect_workspace_greater_than\(8\) forbids it"),
    ):
        q, _ = product(device)
        refuse(q.g)
        with pytest.raises(cudnn.cudnnGraphNotSupportedError, match=text):
            q.g.check_support()


def test_true_float32_without_tensor_cores(device: str) -> None:
    a, b = drawn((1, 16, 64), "float32"), drawn((1, 64, 16), "float32", 1)
    p = Program(device, FLOAT)
    p.g.deselect_numeric_notes([cudnn.numerical_note.TENSOR_CORE])
    (got,) = p.run((p.g.matmul(p.put(a, "float32"), p.put(b, "float32")), FLOAT))
    assert_close(got, Result(a @ b, tolerance("float32", 64, abs(a) @ abs(b))))


def test_handles_and_streams(device: str) -> None:
    handle = cudnn.create_handle(device)
    cudnn.set_stream(handle=handle, stream=0)
    assert cudnn.get_stream(handle) == 0 and handle.device == device
    p, _ = product(device)
    cudnn.destroy_handle(handle)
    with pytest.raises(RuntimeError, match="destroyed"):
        p.g.execute(p.pack, None, handle=handle)
    with pytest.raises(ValueError, match="handle must be one of create_handle"):
        cudnn.get_stream(7)


@pytest.mark.gpu
@pytest.mark.torch
def test_a_stream_of_torch_and_a_cuda_graph() -> None:
    """execute() with the same memory as before only launches kernels, so a CUDA graph can capture it."""
    import torch

    p, (a, b, _, y) = product("cuda:0")
    x, w, out = (torch.from_dlpack(p.pack[a]), torch.from_dlpack(p.pack[b]), torch.zeros(1, 8, 8, device="cuda"))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    cudnn.set_stream(p.handle, stream.cuda_stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        pack = p.pack | {a: x, b: w, y: out}
        p.g.execute(pack, None, p.handle)
        with torch.cuda.graph(captured, stream=stream):
            p.g.execute(pack, None, p.handle)
    x += 1
    captured.replay()
    torch.cuda.synchronize()
    assert_close(dnn.from_dlpack(out), scaled(p, a, b, 2))


@pytest.mark.torch
def test_arrays_and_dtypes_of_torch() -> None:
    import torch

    p = Program("cpu")
    x, w = torch.randn(2, 8, 6, 6).half(), torch.randn(4, 8, 3, 3).half().requires_grad_()
    a = p.g.tensor(dim=x.size(), stride=x.stride(), data_type=x.dtype)
    y = p.g.conv_fprop(a, p.g.tensor_like(w), padding=[1, 1], stride=[1, 1], dilation=[1, 1]).set_output(True)
    y.set_data_type(torch.float32)
    p.g.build([cudnn.heur_mode.A])
    out = torch.zeros(2, 4, 6, 6).to(memory_format=torch.channels_last)
    p.g.execute({a: x, p.g.tensors[1]: w, y: out}, None)
    want = reference.conv_forward(x.double().numpy(), w.detach().double().numpy(), padding=1)
    assert_close(out.double().numpy(), Result(want, tolerance("float32", 72, 100.0)))


# ---- misuse and what is not supported


def new(**types: Any) -> Any:
    return cudnn.pygraph(
        handle=cudnn.create_handle("cpu"), **{"io_data_type": HALF, "intermediate_data_type": FLOAT} | types
    )


def image(g: Any, *dim: int, **attributes: Any) -> Any:
    return g.tensor(dim=dim, stride=channels_last(dim), **attributes)


WINDOW: dict[str, Any] = {"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1]}


def without_stride(g: Any) -> None:
    g.conv_fprop(image(g, 1, 4, 5, 5), image(g, 2, 4, 3, 3), padding=[0, 0], dilation=[1, 1])


def unequal_channels(g: Any) -> None:
    g.conv_fprop(image(g, 1, 4, 5, 5), image(g, 2, 3, 3, 3), **WINDOW)


def gradient_without_sizes(g: Any) -> None:
    g.conv_dgrad(image(g, 1, 2, 3, 3), image(g, 2, 4, 3, 3), **WINDOW)


def unequal_k(g: Any) -> None:
    g.matmul(image(g, 1, 4, 5), image(g, 1, 4, 5))


def no_broadcast(g: Any) -> None:
    g.add(image(g, 4, 5), image(g, 4, 3))


def without_type(g: Any) -> None:
    g.intermediate = cudnn.data_type.NOT_SET
    g.relu(image(g, 4, 5))


def of_another_graph(g: Any) -> None:
    g.relu(new().relu(image(g, 4, 5)))


def equal_uids(g: Any) -> None:
    g.add(image(g, 4, 5, uid=3), image(g, 4, 5, uid=3))


def wrong_sizes(g: Any) -> None:
    g.relu(image(g, 4, 5)).set_dim([4, 6])


def wrong_scale(g: Any) -> None:
    epsilon = g.tensor_scalar(1e-5, cudnn.scalar_type.RUNTIME_PARAM)
    g.rmsnorm(cudnn.norm_forward_phase.INFERENCE, image(g, 4, 5), image(g, 1, 6), epsilon=epsilon)


def wrong_reduction(g: Any) -> None:
    g.reduction(image(g, 4, 5), cudnn.reduction_mode.ADD).set_dim([2, 5])


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda g: None, "validate: the graph has no nodes"),
        (without_stride, "stride must have 2 numbers, one for each spatial dimension; got []"),
        (unequal_channels, "weight [2, 3, 3, 3] does not fit image [1, 4, 5, 5]"),
        (gradient_without_sizes, "the sizes of its result must be set; call set_dim()"),
        (unequal_k, "A [1, 4, 5] and B [1, 4, 5] must be [..., M, K] and [..., K, N]"),
        (no_broadcast, "sizes [4, 5] and [4, 3] cannot be broadcast to one shape"),
        (without_type, "pass intermediate_data_type to pygraph()"),
        (of_another_graph, "is virtual, and no node of this graph makes it"),
        (equal_uids, "validate: uid 3 belongs to two tensors"),
        (wrong_sizes, "has the sizes [4, 6]; the node makes [4, 5]"),
        (wrong_scale, "scale [1, 6] must have 1 or the size of input [4, 5]"),
        (wrong_reduction, "the result [2, 5] must have 1 or the size of the input [4, 5] in each dimension"),
    ],
)
def test_misuse_is_a_value_error(make: Any, text: str) -> None:
    g = new()
    make(g)
    with pytest.raises(ValueError, match=re.escape(text)) as raised:
        g.build([cudnn.heur_mode.A])
    assert not g.nodes or "validate" in text or re.search(r"\(line \d+ of test_cudnn_compat.py\)", str(raised.value))


def eight_bit_floats(g: Any) -> None:
    g.relu(image(g, 4, 5, data_type=cudnn.data_type.FP8_E4M3))


def half_sums(g: Any) -> None:
    g.relu(image(g, 4, 5), compute_data_type=HALF)


def reordered(g: Any) -> None:
    g.relu(image(g, 4, 5, reordering_type=cudnn.tensor_reordering.F16x16))


def of_integers(g: Any) -> None:
    kind = cudnn.data_type.INT32
    g.matmul(image(g, 1, 4, 4, data_type=kind), image(g, 1, 4, 4, data_type=kind))


def padded(g: Any) -> None:
    g.matmul(image(g, 1, 4, 4), image(g, 1, 4, 4), padding=1.0)


def without_statistics(g: Any) -> None:
    g.instancenorm_backward(image(g, 1, 4, 4, 4), image(g, 1, 4, 4, 4), image(g, 1, 4, 1, 1))


def epsilon_in_memory(g: Any) -> None:
    g.rmsnorm(cudnn.norm_forward_phase.INFERENCE, image(g, 4, 5), image(g, 1, 5), epsilon=image(g, 1, 1))


def several_gpus(g: Any) -> None:
    x, c, e = image(g, 1, 4, 2, 2), image(g, 1, 4, 1, 1), image(g, 1, 1, 1, 1, is_pass_by_value=True)
    g.batchnorm(x, c, c, c, c, e, e, peer_stats=[c])


@pytest.mark.parametrize(
    "make, text",
    [
        (
            eight_bit_floats,
            "has the data_type FP8_E4M3, and 8-bit and 4-bit floats and packed integers are not supported",
        ),
        (half_sums, "compute_data_type HALF is not supported; FLOAT is (DOUBLE for doubles)"),
        (reordered, "is ragged, reordered or packed, which is not supported"),
        (of_integers, "products of int32 are not supported"),
        (padded, "padding=1.0 is not supported; only 0 is"),
        (without_statistics, "mean and inv_variance must be given, as instancenorm returns them"),
        (epsilon_in_memory, "must be passed by value: make it with is_pass_by_value=True"),
        (several_gpus, "statistics over several GPUs are not supported"),
        (lambda g: g.sdpa_fp8(image(g, 4, 5)), "sdpa_fp8: attention in 8-bit floats is not supported"),
        (lambda g: g.populate_cuda_graph(1, {}, 0, 0), "populate_cuda_graph is not supported; capture execute()"),
    ],
)
def test_what_is_not_supported(make: Any, text: str) -> None:
    g = new()
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match=re.escape(text)):
        make(g)
        g.build([cudnn.heur_mode.A])


def test_execution_checks_the_variant_pack() -> None:
    p, (a, _, factor, y) = product("cpu")
    out = dnn.zeros((1, 8, 8))
    with pytest.raises(ValueError, match=r"execute: the variant pack lacks .*uid 5"):
        p.g.execute(p.pack, None)
    for t, wrong, text in (
        (
            a,
            dnn.zeros((1, 8, 15), dtype="float16"),
            "needs memory of 128 elements for sizes [1, 8, 16] and strides [128, 16, 1]",
        ),
        (a, dnn.zeros((1, 8, 16)), "is float16 in the graph; got an array of float32"),
        (a, [1.0], "must be an array or an address; got [1.0]"),
        (y, None, "the variant pack lacks"),
        (factor, np.zeros(2, "float32"), "is passed by value, so it must have one element"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            p.g.execute(p.pack | {y: out} | {t: wrong}, None)
    with pytest.raises(ValueError, match="handle must be one of create_handle"):
        p.g.execute(p.pack | {y: out}, None, handle=7)


def test_a_graph_must_be_built() -> None:
    g = new()
    x = image(g, 4, 5)
    y = g.relu(x).set_output(True)
    for step in (lambda: None, g.validate, g.build_operation_graph, g.create_execution_plans, lambda: g.build()):
        step()
        with pytest.raises(RuntimeError, match="execute: the graph has no plan; call build"):
            g.execute({x: dnn.zeros((4, 5), dtype="float16"), y: dnn.zeros((4, 5), dtype="float16")}, None)
    g.build([cudnn.heur_mode.A])
    g.relu(y)  # a graph that grows must be built again
    with pytest.raises(RuntimeError, match="no plan"):
        g.execute({}, None)


def test_types_of_other_libraries() -> None:
    t = cudnn.tensor()
    for given, kind in (
        (np.float16, HALF),
        (np.dtype("f4"), FLOAT),
        (dnn.bfloat16, BFLOAT16),
        ("float32", FLOAT),
        (HALF, HALF),
    ):
        assert t.set_data_type(given).get_data_type() is kind
    with pytest.raises(ValueError, match="data_type must be a cudnn.data_type or the dtype of an array"):
        t.set_data_type("float33")
    with pytest.raises(ValueError, match="dim must be a sequence of ints"):
        t.set_dim([1.5])
    with pytest.raises(AttributeError, match="no attribute 'conv'"):
        new().conv  # noqa: B018


NODE_METHODS = sorted({*RULES, "leaky_relu", "leaky_relu_backward"})
NONSENSE = (None, -1, 0, 1.5, "relu", b"x", [], [1.5], [None], {}, float("nan"), 2**70, HALF, FLOAT, object(), np.zeros(3), slice(3),
            [slice(None)] * 4, cudnn.reduction_mode.NOT_SET, cudnn.norm_forward_phase.NOT_SET, cudnn.convolution_mode.CONVOLUTION)  # fmt: skip


@pytest.mark.parametrize("name", NODE_METHODS)
def test_nonsense_is_refused_by_an_error_of_this_module(name: str) -> None:
    """Each argument in turn is replaced by nonsense. A call and build() raise ValueError or RuntimeError, or succeed."""
    parameters = inspect.signature(getattr(cudnn.pygraph, name)).parameters
    for replaced in list(parameters)[1:]:
        for value in NONSENSE:
            g = new()
            usual = {
                "mode": cudnn.reduction_mode.ADD, "norm_forward_phase": cudnn.norm_forward_phase.TRAINING, "axis": 1,
                "slices": [slice(None)] * 4, "permutation": [0, 1, 3, 2], "negative_slope": 0.5, "has_dbias": True,
                "inputs": [image(g, 2, 4, 3, 3)], "epsilon": g.tensor_scalar(1e-3, cudnn.scalar_type.RUNTIME_PARAM),
                "momentum": g.tensor_scalar(0.1, cudnn.scalar_type.RUNTIME_PARAM),
                "padding": 0.0 if name == "matmul" else [1, 1], "stride": [1, 1], "dilation": [1, 1], "generate_stats": True,
                "stats": image(g, 2, 4, 3, 1),
            }  # fmt: skip
            defaults = {
                n: usual.get(n, image(g, 2, 4, 3, 3))
                for n, p in parameters.items()
                if n in usual or p.default is p.empty
            }
            del defaults["self"]
            try:
                result = getattr(g, name)(**defaults | {replaced: value})
                for t in result if isinstance(result, list) else [result]:
                    if t is not None and name in ("conv_dgrad", "conv_wgrad", "reshape"):
                        t.set_dim([2, 4, 3, 3])
                g.build([cudnn.heur_mode.A])
            except (ValueError, RuntimeError) as error:
                assert len(str(error)) < 1000
