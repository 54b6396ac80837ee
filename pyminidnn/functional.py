# SPDX-License-Identifier: Apache-2.0
"""Everyday spellings: torch.nn.functional's names, argument names and order, over the functions of pyminidnn.

Each function is a few lines around a function of this package, which its docstring names; dtypes, numerics and errors
are described there. Gradients are explicit: X_backward takes dy, the gradient of X's result, then what X took, and
returns the gradients of X's tensors in their order, None for an argument that was None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from . import _C
from ._C import DeviceTensor, ShapeError
from .conversion import ArrayLike, asarray, operands
from .ops.activation import activation_backward, activation_forward
from .ops.attention import attention_backward, attention_forward
from .ops.batch_norm import batch_norm_backward as _batch_norm_backward
from .ops.batch_norm import batch_norm_forward_inference, batch_norm_forward_training
from .ops.conv import conv_backward_bias, conv_backward_data, conv_backward_filter, conv_forward
from .ops.gather import gather, gather_backward
from .ops.layer_norm import group_norm_backward as _group_norm_backward
from .ops.layer_norm import group_norm_forward, layer_norm_forward, rms_norm_forward
from .ops.layer_norm import layer_norm_backward as _layer_norm_backward
from .ops.layer_norm import rms_norm_backward as _rms_norm_backward
from .ops.loss import cross_entropy_backward as _cross_entropy_backward
from .ops.loss import cross_entropy_forward
from .ops.matmul import matmul
from .ops.pooling import adaptive_pool_backward, adaptive_pool_forward, pool_backward, pool_forward
from .ops.reduce import reduce
from .ops.softmax import softmax_backward as _softmax_backward
from .ops.softmax import softmax_forward
from .options import Activation, LossReduction
from .refusals import refusal

PerDimension: TypeAlias = "int | Sequence[int]"
Padding: TypeAlias = "int | Sequence[int] | Literal['valid', 'same']"


def conv2d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: int = 1,
) -> DeviceTensor:
    """conv_forward(): a convolution of [N, C, H, W] with [K, C/groups, R, S].

    conv1d and conv3d are the same function for one and three spatial dimensions.

    padding  "valid" is 0; "same" gives the size of the input, with stride 1 only; if the total is odd, the larger side
             is behind
    """
    x, w = asarray(input), asarray(weight)
    pads = _pads("conv2d", padding, w, stride, dilation)
    return conv_forward(x, w, bias, stride=stride, padding=pads, dilation=dilation, groups=groups)


def conv2d_backward(
    dy: ArrayLike,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerDimension = 1,
    padding: Padding = 0,
    dilation: PerDimension = 1,
    groups: int = 1,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None]:
    """The gradients of input, weight and bias: conv_backward_data(), _filter() and _bias()."""
    x, w = asarray(input), asarray(weight)
    pads = _pads("conv2d_backward", padding, w, stride, dilation)
    options: dict[str, Any] = {"stride": stride, "padding": pads, "dilation": dilation, "groups": groups}
    return (
        conv_backward_data(dy, w, x.shape, **options),
        conv_backward_filter(dy, x, w.shape, **options),
        None if bias is None else conv_backward_bias(dy),
    )


def conv_transpose2d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerDimension = 1,
    padding: PerDimension = 0,
    output_padding: PerDimension = 0,
    groups: int = 1,
    dilation: PerDimension = 1,
) -> DeviceTensor:
    """A transposed convolution of [N, K, H, W] with [K, C/groups, R, S]: conv_backward_data() of a convolution with
    these arguments.

    conv_transpose1d and conv_transpose3d are the same function for one and three spatial dimensions.
    """
    x, w = asarray(input), asarray(weight)
    shape = [x.shape[0], w.shape[1] * groups]
    for i in range(x.ndim - 2):
        reach = _each(dilation, i) * (w.shape[2 + i] - 1) + 1
        grown = (x.shape[2 + i] - 1) * _each(stride, i) + reach - 2 * _each(padding, i)
        shape.append(grown + _each(output_padding, i))
    y = conv_backward_data(x, w, shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return y if bias is None else y + asarray(bias, device=y.device).reshape((-1,) + (1,) * (x.ndim - 2))


def conv_transpose2d_backward(
    dy: ArrayLike,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerDimension = 1,
    padding: PerDimension = 0,
    output_padding: PerDimension = 0,
    groups: int = 1,
    dilation: PerDimension = 1,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None]:
    """The gradients of input, weight and bias: conv_forward(), conv_backward_filter() and conv_backward_bias()."""
    x, w = asarray(input), asarray(weight)
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    dx = conv_forward(dy, w, **options)
    # The slices remove the elements of dx that output_padding adds.
    dx = dx[tuple(slice(0, n) for n in x.shape)]
    dw = conv_backward_filter(x, dy, w.shape, **options)
    return dx, dw, None if bias is None else conv_backward_bias(dy)


conv1d = conv3d = conv2d
conv1d_backward = conv3d_backward = conv2d_backward
conv_transpose1d = conv_transpose3d = conv_transpose2d
conv_transpose1d_backward = conv_transpose3d_backward = conv_transpose2d_backward


def max_pool2d(
    input: ArrayLike,
    kernel_size: PerDimension,
    stride: PerDimension | None = None,
    padding: PerDimension = 0,
    dilation: PerDimension = 1,
    ceil_mode: bool = False,
) -> DeviceTensor:
    """pool_forward() with mode "max", for one to three spatial dimensions."""
    return pool_forward(input, kernel_size, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)


def max_pool2d_backward(
    dy: ArrayLike,
    input: ArrayLike,
    kernel_size: PerDimension,
    stride: PerDimension | None = None,
    padding: PerDimension = 0,
    dilation: PerDimension = 1,
    ceil_mode: bool = False,
    *,
    y: ArrayLike | None = None,
) -> DeviceTensor:
    """pool_backward() with mode "max". y is the result of max_pool2d(); without y, it is computed again."""
    y = max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode) if y is None else y
    return pool_backward(
        dy, input, y, kernel_size, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode
    )


def avg_pool2d(
    input: ArrayLike,
    kernel_size: PerDimension,
    stride: PerDimension | None = None,
    padding: PerDimension = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> DeviceTensor:
    """pool_forward() with mode "avg" or "avg_exclude_padding", for one to three spatial dimensions."""
    mode = _average(count_include_pad)
    return pool_forward(input, kernel_size, mode=mode, stride=stride, padding=padding, ceil_mode=ceil_mode)


def avg_pool2d_backward(
    dy: ArrayLike,
    input: ArrayLike,
    kernel_size: PerDimension,
    stride: PerDimension | None = None,
    padding: PerDimension = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> DeviceTensor:
    """pool_backward() of avg_pool2d()."""
    mode = _average(count_include_pad)
    options: dict[str, Any] = {"mode": mode, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    return pool_backward(dy, input, pool_forward(input, kernel_size, **options), kernel_size, **options)


def adaptive_avg_pool2d(input: ArrayLike, output_size: PerDimension) -> DeviceTensor:
    """adaptive_pool_forward() with mode "avg_exclude_padding"."""
    return adaptive_pool_forward(input, output_size, mode="avg_exclude_padding")


def adaptive_avg_pool2d_backward(dy: ArrayLike, input: ArrayLike, output_size: PerDimension) -> DeviceTensor:
    """adaptive_pool_backward() of adaptive_avg_pool2d()."""
    return adaptive_pool_backward(dy, input, adaptive_avg_pool2d(input, output_size), mode="avg_exclude_padding")


max_pool1d = max_pool3d = max_pool2d
max_pool1d_backward = max_pool3d_backward = max_pool2d_backward
avg_pool1d = avg_pool3d = avg_pool2d
avg_pool1d_backward = avg_pool3d_backward = avg_pool2d_backward


def linear(input: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> DeviceTensor:
    """input @ weight^T + bias, for input [..., K] and weight [N, K]: matmul() with transpose_b=True."""
    x, w = asarray(input), asarray(weight)
    y = matmul(x.reshape((-1, x.shape[-1])), w, transpose_b=True, bias=bias)
    return y.reshape((*x.shape[:-1], w.shape[0]))


def linear_backward(
    dy: ArrayLike, input: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None]:
    """The gradients of input, weight and bias."""
    g, x, w = asarray(dy), asarray(input), asarray(weight)
    rows = g.reshape((-1, g.shape[-1]))
    dx = matmul(rows, w).reshape(x.shape)
    dw = matmul(rows, x.reshape((-1, x.shape[-1])), transpose_a=True)
    return dx, dw, None if bias is None else reduce(rows, "sum", axis=0)


class _Function(Protocol):
    def __call__(self, input: ArrayLike) -> DeviceTensor: ...


class _Gradient(Protocol):
    def __call__(self, dy: ArrayLike, input: ArrayLike) -> DeviceTensor: ...


def _activation(name: str, mode: Activation) -> _Function:
    def function(input: ArrayLike) -> DeviceTensor:
        # Error texts call a tensor by the name of the argument that is this tensor.
        (input,) = operands(None, input)
        return activation_forward(input, mode)

    function.__name__ = function.__qualname__ = name
    # Texts of errors take the name of the function from its code object.
    function.__code__ = function.__code__.replace(co_name=name)
    function.__doc__ = f'activation_forward(input, "{mode}").'
    return function


def _activation_backward(name: str, mode: Activation) -> _Gradient:
    def function(dy: ArrayLike, input: ArrayLike) -> DeviceTensor:
        return activation_backward(dy, input, activation_forward(input, mode), mode)

    function.__name__ = function.__qualname__ = f"{name}_backward"
    function.__code__ = function.__code__.replace(co_name=function.__name__)
    function.__doc__ = f'activation_backward() of activation_forward(input, "{mode}").'
    return function


relu, relu_backward = _activation("relu", "relu"), _activation_backward("relu", "relu")
sigmoid, sigmoid_backward = _activation("sigmoid", "sigmoid"), _activation_backward("sigmoid", "sigmoid")
tanh, tanh_backward = _activation("tanh", "tanh"), _activation_backward("tanh", "tanh")
gelu, gelu_backward = _activation("gelu", "gelu"), _activation_backward("gelu", "gelu")
silu, silu_backward = _activation("silu", "silu"), _activation_backward("silu", "silu")
elu, elu_backward = _activation("elu", "elu"), _activation_backward("elu", "elu")
softplus, softplus_backward = _activation("softplus", "softplus"), _activation_backward("softplus", "softplus")
hardswish, hardswish_backward = _activation("hardswish", "hardswish"), _activation_backward("hardswish", "hardswish")
mish, mish_backward = _activation("mish", "mish"), _activation_backward("mish", "mish")
leaky_relu = _activation("leaky_relu", "leaky_relu")
leaky_relu_backward = _activation_backward("leaky_relu", "leaky_relu")


def softmax(input: ArrayLike, dim: int = -1) -> DeviceTensor:
    """softmax_forward(input, axis=dim)."""
    (input,) = operands(None, input)
    return softmax_forward(input, axis=dim)


def softmax_backward(dy: ArrayLike, y: ArrayLike, dim: int = -1) -> DeviceTensor:
    """The gradient of softmax()'s input. It takes y, softmax()'s result, in place of the input."""
    return _softmax_backward(dy, y, axis=dim)


def log_softmax(input: ArrayLike, dim: int = -1) -> DeviceTensor:
    """softmax_forward(input, axis=dim, log=True)."""
    (input,) = operands(None, input)
    return softmax_forward(input, axis=dim, log=True)


def log_softmax_backward(dy: ArrayLike, y: ArrayLike, dim: int = -1) -> DeviceTensor:
    """The gradient of log_softmax()'s input. It takes y, log_softmax()'s result, in place of the input."""
    return _softmax_backward(dy, y, axis=dim, log=True)


def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    seed: int = 0,
    offset: int = 0,
) -> DeviceTensor:
    """attention_forward() of tensors with two dimensions or more: [..., heads, rows, size], [heads, rows, size] or
    [rows, size].

    attn_mask is its bias. Without enable_gqa, query, key and value must have equal numbers of heads. seed and offset
    select the random numbers of dropout.
    """
    q, k, v = operands(None, query, key, value)
    options: dict[str, Any] = {"dropout": dropout_p, "causal": is_causal, "scale": scale, "seed": seed,
                               "offset": offset}  # fmt: skip
    _, (o, _) = _attention(q, k, v, attn_mask, enable_gqa, options)
    return o.reshape((*q.shape[:-1], v.shape[-1]))


def scaled_dot_product_attention_backward(
    dy: ArrayLike,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    seed: int = 0,
    offset: int = 0,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of query, key and value.

    It computes the result again; attention_backward() takes it from attention_forward().
    """
    q, k, v, g = operands(None, query, key, value, dy)
    options: dict[str, Any] = {"dropout": dropout_p, "causal": is_causal, "scale": scale, "seed": seed,
                               "offset": offset}  # fmt: skip
    four, (o, lse) = _attention(q, k, v, attn_mask, enable_gqa, options)
    dq, dk, dv = attention_backward(g.reshape(o.shape), *four, o, lse, **options)
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def _four_dimensions(t: DeviceTensor) -> DeviceTensor:
    if t.ndim < 2:
        raise refusal(ShapeError, t, f"must have two dimensions or more; got {t.shape}")
    return t if t.ndim == 4 else t.reshape((-1, *((1,) * (3 - t.ndim)), *t.shape[-3:]))


def _attention(
    q: DeviceTensor,
    k: DeviceTensor,
    v: DeviceTensor,
    mask: ArrayLike | None,
    enable_gqa: bool,
    options: dict[str, Any],
) -> tuple[tuple[DeviceTensor, DeviceTensor, DeviceTensor], tuple[DeviceTensor, DeviceTensor]]:
    """q, k and v with four dimensions, and the results of attention_forward(). `options` receives the mask."""
    four = _four_dimensions(q), _four_dimensions(k), _four_dimensions(v)
    heads, kv_heads = four[0].shape[1], four[1].shape[1]
    if heads != kv_heads and not enable_gqa:
        text = f"has {kv_heads} heads, and query has {heads}; pass enable_gqa=True for groups"
        raise refusal(ShapeError, four[1], text)
    if mask is not None:
        (bias,) = operands(None, mask)
        if bias.ndim > 4:
            bias = bias.reshape((-1, *bias.shape[-3:]))
        options["bias"] = bias.to(device=q.device)
    return four, attention_forward(*four, **options)


def batch_norm(
    input: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike,
    bias: ArrayLike,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> DeviceTensor:
    """batch_norm_forward_training(), which updates the running statistics, or batch_norm_forward_inference()."""
    if training:
        return batch_norm_forward_training(
            input, weight, bias, running_mean=running_mean, running_var=running_var, momentum=momentum, eps=eps
        )[0]
    if running_mean is None or running_var is None:
        raise ShapeError("batch_norm: running_mean and running_var must be given unless training=True; got None")
    return batch_norm_forward_inference(input, weight, bias, running_mean, running_var, eps=eps)


def batch_norm_backward(
    dy: ArrayLike, input: ArrayLike, weight: ArrayLike, eps: float = 1e-5
) -> tuple[DeviceTensor, ...]:
    """The gradients of input, weight and bias of batch_norm(training=True), whose statistics are computed again."""
    x = asarray(input)
    zero = weight - asarray(weight)
    _, mean, inv_std = batch_norm_forward_training(x, weight, zero, eps=eps)
    return _batch_norm_backward(dy, x, weight, mean, inv_std)


def layer_norm(
    input: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> DeviceTensor:
    """layer_norm_forward() over the last dimensions, whose sizes are `normalized_shape`."""
    axis = _normalized_axis("layer_norm", input, normalized_shape)
    return layer_norm_forward(input, weight, bias, axis=axis, eps=eps)[0]


def layer_norm_backward(
    dy: ArrayLike,
    input: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    eps: float = 1e-5,
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of input, weight and bias of layer_norm(), whose statistics are computed again."""
    axis = _normalized_axis("layer_norm_backward", input, normalized_shape)
    _, mean, inv_std = layer_norm_forward(input, axis=axis, eps=eps)
    return _layer_norm_backward(dy, input, weight, mean, inv_std, axis=axis)


def rms_norm(
    input: ArrayLike, normalized_shape: int | Sequence[int], weight: ArrayLike | None = None, eps: float = 1e-5
) -> DeviceTensor:
    """rms_norm_forward() over the last dimensions, whose sizes are `normalized_shape`."""
    return rms_norm_forward(input, weight, axis=_normalized_axis("rms_norm", input, normalized_shape), eps=eps)[0]


def rms_norm_backward(
    dy: ArrayLike,
    input: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    eps: float = 1e-5,
) -> tuple[DeviceTensor, DeviceTensor]:
    """The gradients of input and weight of rms_norm(), whose statistics are computed again."""
    axis = _normalized_axis("rms_norm_backward", input, normalized_shape)
    _, inv_rms = rms_norm_forward(input, axis=axis, eps=eps)
    return _rms_norm_backward(dy, input, weight, inv_rms, axis=axis)


def group_norm(
    input: ArrayLike, num_groups: int, weight: ArrayLike | None = None, bias: ArrayLike | None = None, eps: float = 1e-5
) -> DeviceTensor:
    """group_norm_forward()."""
    return group_norm_forward(input, num_groups, weight, bias, eps=eps)[0]


def group_norm_backward(
    dy: ArrayLike, input: ArrayLike, num_groups: int, weight: ArrayLike | None = None, eps: float = 1e-5
) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    """The gradients of input, weight and bias of group_norm(), whose statistics are computed again."""
    _, mean, inv_std = group_norm_forward(input, num_groups, eps=eps)
    return _group_norm_backward(dy, input, num_groups, weight, mean, inv_std)


def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    *,
    ignore_index: int = -100,
    reduction: LossReduction = "mean",
    label_smoothing: float = 0.0,
) -> DeviceTensor:
    """cross_entropy_forward() along dimension 1, of logits and indices of classes. torch's weight is not supported."""
    return cross_entropy_forward(
        input, target, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )[0]


def cross_entropy_backward(
    dy: ArrayLike | float,
    input: ArrayLike,
    target: ArrayLike,
    *,
    ignore_index: int = -100,
    reduction: LossReduction = "mean",
    label_smoothing: float = 0.0,
) -> DeviceTensor:
    """The gradient of the logits: cross_entropy_backward(), after cross_entropy_forward() for its statistics."""
    options: dict[str, Any] = {
        "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing
    }  # fmt: skip
    loss, lse = cross_entropy_forward(input, target, **options)
    if isinstance(dy, (int, float)):
        dy = _C.full(loss.shape, float(dy), dtype=loss.dtype, device=loss.device)
    return _cross_entropy_backward(dy, input, target, lse, **options)


def mse_loss(input: ArrayLike, target: ArrayLike) -> DeviceTensor:
    """The mean of (input - target)^2."""
    difference = asarray(input) - target
    return reduce(difference * difference, "mean")


def mse_loss_backward(dy: float, input: ArrayLike, target: ArrayLike) -> DeviceTensor:
    """The gradient of mse_loss()'s input for a dy that is a number."""
    difference: DeviceTensor = asarray(input) - target
    return difference * (2 * dy / max(difference.size, 1))


def embedding(input: ArrayLike, weight: ArrayLike) -> DeviceTensor:
    """Rows of weight by index: gather(weight, input)."""
    return gather(weight, input)


def embedding_backward(dy: ArrayLike, input: ArrayLike, weight: ArrayLike) -> DeviceTensor:
    """The gradient of weight: gather_backward()."""
    return gather_backward(dy, input, asarray(weight).shape)


def sgd_step(
    parameters: Sequence[DeviceTensor],
    gradients: Sequence[ArrayLike],
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    buffers: list[DeviceTensor] | None = None,
) -> None:
    """One step of stochastic gradient descent, in place: g += weight_decay p; b = momentum b + g; p -= lr b.

    buffers  the list of b; an empty list is filled at the first step. It is needed if momentum is not 0
    """
    if momentum and buffers is None:
        raise ShapeError("sgd_step: buffers must be a list if momentum is not 0; pass [] before the first step")
    for i, (p, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        g = asarray(gradient, device=p.device)
        if weight_decay:
            g = g + p * weight_decay
        if momentum and buffers is not None:
            if i == len(buffers):
                buffers.append(g.copy())
            else:
                buffers[i] *= momentum
                buffers[i] += g
            g = buffers[i]
        p -= g * lr


def adam_step(
    parameters: Sequence[DeviceTensor],
    gradients: Sequence[ArrayLike],
    state: dict[str, Any],
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """One step of AdamW, in place. `state` is a dict, empty before the first step, which holds the moments.

    p *= 1 - lr weight_decay;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
    p -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    With weight_decay=0, this is Adam. Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
    """
    state["step"] = step = state.get("step", 0) + 1
    moments = state.setdefault("moments", [])
    one, two = betas
    for i, (p, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        g = asarray(gradient, device=p.device)
        if i == len(moments):
            moments.append((g * 0, g * 0))
        m, v = moments[i]
        m *= one
        m += g * (1 - one)
        v *= two
        v += g * g * (1 - two)
        if weight_decay:
            p *= 1 - lr * weight_decay
        root = (v * (1 / (1 - two**step))) ** 0.5
        p -= m * (lr / (1 - one**step)) / (root + eps)


def _each(value: PerDimension, i: int) -> int:
    return value if isinstance(value, int) else value[i]


def _average(count_include_pad: bool) -> Any:
    return "avg" if count_include_pad else "avg_exclude_padding"


def _pads(call: str, padding: Padding, w: DeviceTensor, stride: PerDimension, dilation: PerDimension) -> Any:
    """Padding as conv_forward() takes it."""
    if padding == "valid":
        return 0
    if padding != "same":
        if isinstance(padding, str):
            raise ShapeError(f'{call}: padding must be ints, "valid" or "same"; got {padding!r}')
        return padding
    rank = w.ndim - 2
    if any(_each(stride, i) != 1 for i in range(rank)):
        raise ShapeError(f'{call}: padding="same" needs stride 1; got stride {stride}')
    totals = [_each(dilation, i) * (w.shape[2 + i] - 1) for i in range(rank)]
    return [(n // 2, n - n // 2) for n in totals]


def _normalized_axis(call: str, input: ArrayLike, normalized_shape: int | Sequence[int]) -> int:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    x = asarray(input)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{call}: normalized_shape must be the last sizes of input {list(x.shape)}; got {list(shape)}")
    return x.ndim - len(shape)
