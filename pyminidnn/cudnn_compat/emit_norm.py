# SPDX-License-Identifier: Apache-2.0
"""The calls of pyminidnn that compute the norms of a pygraph.

Scales, biases and statistics have the rank of the input there, and any float type. Here they are vectors in float32
(float64 for doubles), so they are reshaped and cast.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._C import DeviceTensor
from ..ops.batch_norm import batch_norm_backward, batch_norm_forward_training
from ..ops.layer_norm import (
    instance_norm_backward,
    instance_norm_forward,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm_backward,
    rms_norm_forward,
)
from ..ops.pointwise import pointwise
from ..ops.reduce import reduce
from ..ops.transform import transform
from .inference import normalized, unsupported
from .nodes import Node
from .replay import FLOATING, Emit, Replay, cast
from .tensors import Tensor

Results = Sequence[DeviceTensor | None]


def _parameter(r: Replay, t: Tensor | None, like: DeviceTensor, shape: Sequence[int]) -> DeviceTensor:
    """A scale, bias or statistic in the dtype that a norm of `like` takes, with this shape."""
    return cast(r.value(t), _statistic(like.dtype)).reshape(tuple(shape))


def _statistic(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _together(r: Replay, n: Node, inputs: Sequence[Tensor | None]) -> list[DeviceTensor]:
    """Inputs in one dtype that is not narrower than that of the first result."""
    dtypes = {r.dtype(t) for t in (*inputs, n.outputs[0])}
    if not dtypes <= set(FLOATING):
        raise unsupported(n, f"norms of {', '.join(sorted(dtypes))} are not supported; floats are")
    one = dtypes.pop() if len(dtypes) == 1 else _statistic("float64" if "float64" in dtypes else "")
    return [cast(r.value(t), one) for t in inputs]


def _channels(r: Replay, n: Node, x: DeviceTensor, *tensors: Tensor | None) -> list[DeviceTensor]:
    for t in tensors:
        if t is not None and r.known[t].reach and r.value(t).size != x.shape[1]:
            raise ValueError(f"{n.label()} ({n.where}): {t.label()} must have {x.shape[1]} elements, one for each "
                             f"channel; got {list(r.shape(t))}")  # fmt: skip
    return [_parameter(r, t, x, (x.shape[1],)) for t in tensors]


def _batchnorm(r: Replay, n: Node) -> Results:
    x, scale, bias, mean, var, epsilon, momentum = n.inputs
    (value,) = _together(r, n, [x])
    gamma, beta = _channels(r, n, value, scale, bias)
    eps, activation = r.number(epsilon), n.attributes.get("activation")
    if mean is None or var is None:
        y, saved_mean, inv_std = batch_norm_forward_training(value, gamma, beta, eps=eps, activation=activation)
        return [y, saved_mean, inv_std, None, None]
    # The norm updates running statistics in place. The inputs of the graph must not change, so copies are passed.
    running = [transform(t) for t in _channels(r, n, value, mean, var)]
    y, saved_mean, inv_std = batch_norm_forward_training(
        value, gamma, beta, running_mean=running[0], running_var=running[1], momentum=r.number(momentum), eps=eps,
        activation=activation,
    )  # fmt: skip
    return [y, saved_mean, inv_std, *running]


def _batchnorm_inference(r: Replay, n: Node) -> Results:
    x, mean, inv_variance, scale, bias = n.inputs
    (y,) = n.outputs
    wide = _statistic("float64" if "float64" in (r.dtype(x), r.dtype(y)) else "")
    value, m, inv, gamma, beta = (cast(r.value(t), wide) for t in (x, mean, inv_variance, scale, bias))
    factor = pointwise("mul", inv, gamma)
    return [pointwise("multiply_add", pointwise("sub", value, m), factor, beta, out=r.out(y, wide))]


def _batchnorm_backward(r: Replay, n: Node) -> Results:
    grad, x, scale, mean, inv_variance = n.inputs
    dy, value = _together(r, n, [grad, x])
    gamma, m, inv = _channels(r, n, value, scale, mean, inv_variance)
    return list(batch_norm_backward(dy, value, gamma, m, inv))


class _Rows:
    """The input of a norm of rows, with the normalized dimensions last."""

    def __init__(self, r: Replay, n: Node, x: Tensor | None, scale: Tensor | None) -> None:
        assert x is not None and scale is not None
        inside = normalized(n, r.known[x], r.known[scale])
        shape = r.known[x].dim
        self.kept = [i for i in range(len(shape)) if i not in inside]
        self.order = self.kept + inside
        self.axis = len(self.kept)
        self.outer = [shape[i] for i in self.kept]
        self.inner = [shape[i] for i in inside] or [1]
        self.lengthened = not inside  # without a normalized dimension, each element is a row

    def rows_last(self, t: DeviceTensor) -> DeviceTensor:
        """The tensor with the normalized dimensions last."""
        t = t.permute(*self.order)
        return t.as_strided((*t.shape, 1), (*t.strides, 1)) if self.lengthened else t

    def back(self, t: DeviceTensor) -> DeviceTensor:
        """The inverse of rows_last()."""
        if self.lengthened:
            t = t.as_strided(t.shape[:-1], t.strides[:-1])
        return t.permute(*sorted(range(len(self.order)), key=self.order.__getitem__))


def _layernorm(r: Replay, n: Node) -> Results:
    x, scale, bias, epsilon = n.inputs
    rows = _Rows(r, n, x, scale)
    (value,) = _together(r, n, [x])
    gamma = _parameter(r, scale, value, rows.inner)
    beta = None if bias is None else _parameter(r, bias, value, rows.inner)
    y, mean, inv_std = layer_norm_forward(rows.rows_last(value), gamma, beta, axis=rows.axis, eps=r.number(epsilon))
    return [rows.back(y), mean, inv_std]


def _layernorm_backward(r: Replay, n: Node) -> Results:
    grad, x, scale, mean, inv_variance = n.inputs
    rows = _Rows(r, n, x, scale)
    dy, value = _together(r, n, [grad, x])
    gamma = _parameter(r, scale, value, rows.inner)
    m, inv = (_parameter(r, t, value, rows.outer) for t in (mean, inv_variance))
    dx, dscale, dbias = layer_norm_backward(rows.rows_last(dy), rows.rows_last(value), gamma, m, inv, axis=rows.axis)
    return [rows.back(dx), dscale, dbias]


def _rmsnorm(r: Replay, n: Node) -> Results:
    x, scale, bias, epsilon = n.inputs
    rows = _Rows(r, n, x, scale)
    (value,) = _together(r, n, [x])
    if bias is not None:
        value = cast(value, _statistic(value.dtype))  # so that y is rounded once, after the bias
    gamma = _parameter(r, scale, value, rows.inner)
    y, inv_rms = rms_norm_forward(rows.rows_last(value), gamma, axis=rows.axis, eps=r.number(epsilon))
    result = rows.back(y)
    if bias is not None:
        result = pointwise("add", result, cast(r.value(bias), result.dtype))
    return [result, inv_rms]


def _rmsnorm_backward(r: Replay, n: Node) -> Results:
    grad, x, scale, inv_variance = n.inputs
    rows = _Rows(r, n, x, scale)
    dy, value = _together(r, n, [grad, x])
    gamma = _parameter(r, scale, value, rows.inner)
    inv = _parameter(r, inv_variance, value, rows.outer)
    dx, dscale = rms_norm_backward(rows.rows_last(dy), rows.rows_last(value), gamma, inv, axis=rows.axis)
    dbias = None
    if n.outputs[2] is not None:
        dbias = reduce(cast(dy, _statistic(dy.dtype)), "sum", axis=rows.kept)
    return [rows.back(dx), dscale, dbias]


def _wide(r: Replay, tensors: Sequence[Tensor | None]) -> str:
    return _statistic("float64" if "float64" in {r.dtype(t) for t in tensors if t is not None} else "")


def _adalayernorm(r: Replay, n: Node) -> Results:
    x, scale, bias, epsilon = n.inputs
    (y, *_) = n.outputs
    rows = _Rows(r, n, x, scale)
    wide = _wide(r, [x, y])
    value = cast(r.value(x), wide)
    plain, mean, inv_std = layer_norm_forward(rows.rows_last(value), axis=rows.axis, eps=r.number(epsilon))
    x_hat, gamma = rows.back(plain), cast(r.value(scale), wide)
    if bias is None:
        return [pointwise("mul", x_hat, gamma), mean, inv_std]
    return [pointwise("multiply_add", x_hat, gamma, cast(r.value(bias), wide)), mean, inv_std]


def _adalayernorm_backward(r: Replay, n: Node) -> Results:
    grad, x, scale, mean, inv_variance = n.inputs
    rows = _Rows(r, n, x, scale)
    wide = _wide(r, [grad, x, n.outputs[0]])
    dy, value, gamma = (cast(r.value(t), wide) for t in (grad, x, scale))
    m, inv = (_parameter(r, t, value, rows.outer) for t in (mean, inv_variance))
    g = pointwise("mul", dy, gamma)
    dx, _, _ = layer_norm_backward(rows.rows_last(g), rows.rows_last(value), None, m, inv, axis=rows.axis)
    shape = [n_ if i in rows.kept else 1 for i, n_ in enumerate(value.shape)]
    x_hat = pointwise("mul", pointwise("sub", value, m.reshape(tuple(shape))), inv.reshape(tuple(shape)))
    axes = [i for i, (a, b) in enumerate(zip(value.shape, gamma.shape, strict=True)) if a != b]
    terms = [pointwise("mul", dy, x_hat), dy]
    return [rows.back(dx), *(reduce(t, "sum", axis=axes, keepdims=True) if axes else t for t in terms)]


def _instancenorm(r: Replay, n: Node) -> Results:
    x, scale, bias, epsilon = n.inputs
    (value,) = _together(r, n, [x])
    gamma, beta = _channels(r, n, value, scale, bias)
    return list(instance_norm_forward(value, gamma, beta, eps=r.number(epsilon)))


def _instancenorm_backward(r: Replay, n: Node) -> Results:
    grad, x, scale, mean, inv_variance = n.inputs
    if mean is None or inv_variance is None:
        raise unsupported(n, "mean and inv_variance must be given, as instancenorm returns them")
    dy, value = _together(r, n, [grad, x])
    (gamma,) = _channels(r, n, value, scale)
    m, inv = (_parameter(r, t, value, value.shape[:2]) for t in (mean, inv_variance))
    return list(instance_norm_backward(dy, value, gamma, m, inv))


NORMS: dict[str, Emit] = {
    "batchnorm": _batchnorm,
    "batchnorm_inference": _batchnorm_inference,
    "batchnorm_backward": _batchnorm_backward,
    "layernorm": _layernorm,
    "layernorm_backward": _layernorm_backward,
    "rmsnorm": _rmsnorm,
    "rmsnorm_backward": _rmsnorm_backward,
    "adalayernorm": _adalayernorm,
    "adalayernorm_backward": _adalayernorm_backward,
    "instancenorm": _instancenorm,
    "instancenorm_backward": _instancenorm_backward,
}
