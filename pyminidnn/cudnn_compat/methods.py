# SPDX-License-Identifier: Apache-2.0
"""The methods of a pygraph that make tensors and nodes. They write down what is asked, and compute nothing."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..conversion import asarray
from ..graph import _line_of_user
from ..refusals import short
from . import enums
from .enums import (
    NOT_SET,
    convolution_mode,
    cudnnGraphNotSupportedError,
    integer,
    member,
    norm_forward_phase,
    real,
    reduction_mode,
    reshape_mode,
    tensor_reordering,
    type_of,
)
from .tensors import Tensor, ints, scalar

_STATISTICS = ("Y", "MEAN", "INV_VARIANCE")
_GRADIENTS = ("DX", "DSCALE", "DBIAS")
# The names of the results of a node after "node::", as in cudnn-frontend. That of a function of elements is OUT_0.
RESULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["conv_fprop", "reduction", "reshape", "transpose", "slice", "concatenate"], ("Y",)),
    **dict.fromkeys(["layernorm", "adalayernorm", "instancenorm"], _STATISTICS),
    **{f"{norm}_backward": _GRADIENTS for norm in ("batchnorm", "layernorm", "adalayernorm", "instancenorm")},
    "conv_dgrad": ("DX",),
    "conv_wgrad": ("DW",),
    "matmul": ("C",),
    "genstats": ("SUM", "SQ_SUM"),
    "batchnorm": (*_STATISTICS, "NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR"),
    "batchnorm_inference": ("Y",),
    "rmsnorm": ("Y", "INV_VARIANCE"),
    "rmsnorm_backward": ("DX", "Dscale", "Dbias"),
}


# The positions of inputs that may be None.
_OPTIONAL = {
    **dict.fromkeys(["layernorm", "adalayernorm", "rmsnorm", "instancenorm"], (2,)),
    "batchnorm": (3, 4, 6),
    "instancenorm_backward": (3, 4),
}


@dataclass(eq=False)
class Node:
    """A call of a method: its name, tensors (None: left out), attributes, compute type and the line that made it."""

    kind: str
    inputs: list[Tensor | None]
    outputs: list[Tensor | None]
    attributes: dict[str, Any]
    compute: Any
    name: str
    where: str

    def label(self) -> str:
        """The node in texts of errors."""
        return f"{self.kind} '{self.name}'" if self.name else self.kind


class Methods:
    """The part of pygraph that writes nodes down."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []

    def _changed(self) -> None:
        """Called after each change of the graph."""

    # ---- tensors

    def tensor(
        self,
        dim: Sequence[int],
        stride: Sequence[int],
        data_type: Any = NOT_SET,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: Tensor | None = None,
        reordering_type: Any = tensor_reordering.NONE,
        name: str = "",
        uid: int = -1,
    ) -> Tensor:
        """A tensor of the user with these sizes and strides (in elements). data_type NOT_SET: that of the graph."""
        t = Tensor().set_dim(dim).set_stride(stride).set_data_type(data_type).set_name(name)
        t.virtual, t.by_value = bool(is_virtual), bool(is_pass_by_value)
        t.ragged, t.reordering = ragged_offset, reordering_type
        if uid != -1:
            t.set_uid(uid)
        return self._added(t)

    _make_tensor = tensor

    def tensor_like(self, input: Any, name: str = "") -> Tensor:
        """A tensor with the attributes of another tensor (without its uid), or with the description of an array.

        An array in host memory is passed by value: always on a GPU, and with one element on the CPU.
        """
        t = Tensor()
        if isinstance(input, Tensor):
            t.dim, t.stride = tuple(input.get_dim()), tuple(input.get_stride())
            t.kind, t.virtual, t.by_value = input.get_data_type(), input.virtual, input.by_value
            t.value, t.constant, t.alignment = input.value, input.constant, input.alignment
        else:
            array = asarray(input.detach() if hasattr(input, "detach") else input)
            t.dim, t.stride = tuple(array.shape), tuple(array.strides)
            t.kind = type_of(array.dtype)
            t.by_value = array.device == "cpu" and (array.size == 1 or self.device().startswith("cuda"))
        return self._added(t.set_name(name))

    def tensor_scalar(self, value: float, scalar_type: Any) -> Tensor:
        """A tensor of one number, which is part of the graph. A variant pack may give another one for RUNTIME_PARAM."""
        return self._added(scalar(value, scalar_type))

    def device(self) -> str:
        """The device that the graph is built for."""
        raise NotImplementedError

    def _added(self, t: Tensor) -> Tensor:
        self.tensors.append(t)
        return t

    # ---- products

    def conv_fprop(
        self,
        image: Tensor,
        weight: Tensor,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        convolution_mode: Any = convolution_mode.CROSS_CORRELATION,
        compute_data_type: Any = NOT_SET,
        name: str = "",
        *,
        pre_padding: Sequence[int] = (),
        post_padding: Sequence[int] = (),
    ) -> Tensor:
        """The convolution of image [N, C, spatial...] with weight [K, C/groups, window...]."""
        attributes = _window(padding, pre_padding, post_padding, stride, dilation, convolution_mode)
        return self._one("conv_fprop", [image, weight], attributes, compute_data_type, name)

    def conv_dgrad(
        self,
        loss: Tensor,
        filter: Tensor,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        convolution_mode: Any = convolution_mode.CROSS_CORRELATION,
        compute_data_type: Any = NOT_SET,
        name: str = "",
        *,
        pre_padding: Sequence[int] = (),
        post_padding: Sequence[int] = (),
    ) -> Tensor:
        """The gradient of conv_fprop's image. set_dim() of the result must give the image's sizes."""
        attributes = _window(padding, pre_padding, post_padding, stride, dilation, convolution_mode)
        return self._one("conv_dgrad", [loss, filter], attributes, compute_data_type, name)

    def conv_wgrad(
        self,
        image: Tensor,
        loss: Tensor,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        convolution_mode: Any = convolution_mode.CROSS_CORRELATION,
        compute_data_type: Any = NOT_SET,
        name: str = "",
        *,
        pre_padding: Sequence[int] = (),
        post_padding: Sequence[int] = (),
    ) -> Tensor:
        """The gradient of conv_fprop's weight. set_dim() of the result must give the weight's sizes."""
        attributes = _window(padding, pre_padding, post_padding, stride, dilation, convolution_mode)
        return self._one("conv_wgrad", [image, loss], attributes, compute_data_type, name)

    def matmul(
        self, A: Tensor, B: Tensor, compute_data_type: Any = NOT_SET, padding: float = 0.0, name: str = ""
    ) -> Tensor:
        """A @ B for A [..., M, K] and B [..., K, N]; sizes of 1 before the last two are broadcast."""
        return self._one("matmul", [A, B], {"padding": real("matmul: padding", padding)}, compute_data_type, name)

    # ---- reductions and views

    def reduction(self, input: Tensor, mode: Any, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        """Reduces the dimensions that are 1 in the result, whose sizes set_dim() must give."""
        attributes = {"mode": member("reduction: mode", mode, reduction_mode)}
        return self._one("reduction", [input], attributes, compute_data_type, name)

    def genstats(self, input: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> list[Tensor]:
        """The sums of each channel's elements and of their squares, both [1, C, 1...]."""
        return self._many("genstats", [input], 2, {}, compute_data_type, name)

    def slice(
        self,
        input: Tensor,
        slices: Sequence[builtins.slice] = (),
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> Tensor:
        """A view of input[slices], one slice with a positive step for each dimension."""
        dim = _checked("slice", input).get_dim()
        if not isinstance(slices, (list, tuple)) or [type(s) for s in slices] != [builtins.slice] * len(dim):
            raise ValueError(f"slice: slices must be {len(dim)} slices, one for each dimension; got {short(slices)}")
        ranges = [list(s.indices(n)) for s, n in zip(slices, dim, strict=True)]
        return self._one("slice", [input], {"slices": ranges}, compute_data_type, name)

    def reshape(self, input: Tensor, name: str = "", reshape_mode: Any = reshape_mode.VIEW_ONLY) -> Tensor:
        """The input with the sizes (and strides) that set_dim() and set_stride() of the result give.

        VIEW_ONLY: the same memory under the new sizes and strides. LOGICAL: the same elements in row-major order.
        """
        attributes = {"mode": member("reshape: reshape_mode", reshape_mode, enums.reshape_mode)}
        return self._one("reshape", [input], attributes, NOT_SET, name)

    def transpose(
        self, input: Tensor, permutation: Sequence[int], compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        """A view whose dimension i is dimension permutation[i] of the input."""
        order = ints("permutation", permutation)
        return self._one("transpose", [input], {"permutation": list(order)}, compute_data_type, name)

    def concatenate(
        self, inputs: Sequence[Tensor], axis: int, in_place_index: int | None = None, name: str = ""
    ) -> Tensor:
        """Concatenates tensors along `axis`. in_place_index names the input that may share memory with the result."""
        if not isinstance(inputs, (list, tuple)) or not inputs:
            raise ValueError(f"concatenate: inputs must be a list of at least one tensor; got {short(inputs)}")
        return self._one("concatenate", list(inputs), {"axis": integer("concatenate: axis", axis)}, NOT_SET, name)

    # ---- norms

    def batchnorm(
        self,
        input: Tensor,
        scale: Tensor,
        bias: Tensor,
        in_running_mean: Tensor | None,
        in_running_var: Tensor | None,
        epsilon: Tensor,
        momentum: Tensor | None,
        peer_stats: Sequence[Tensor] = (),
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor | None]:
        """Batch normalization in training: [y, mean, inv_variance, next running mean, next running variance]."""
        _no_peers("batchnorm", peer_stats)
        tensors = [input, scale, bias, in_running_mean, in_running_var, epsilon, momentum]
        running = in_running_mean is not None
        return self._node("batchnorm", tensors, [True] * 3 + [running] * 2, {}, compute_data_type, name)

    def batchnorm_inference(
        self,
        input: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        scale: Tensor,
        bias: Tensor,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> Tensor:
        """scale (input - mean) inv_variance + bias, with tensors [1, C, 1...] but for the input."""
        return self._one("batchnorm_inference", [input, mean, inv_variance, scale, bias], {}, compute_data_type, name)

    def batchnorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        peer_stats: Sequence[Tensor] = (),
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor]:
        """The gradients of batchnorm's input, scale and bias."""
        _no_peers("batchnorm_backward", peer_stats)
        tensors = [grad, input, scale, mean, inv_variance]
        return self._many("batchnorm_backward", tensors, 3, {}, compute_data_type, name)

    def layernorm(
        self,
        norm_forward_phase: Any,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None,
        epsilon: Tensor,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor | None]:
        """Layer normalization over the dimensions in which scale is not 1: [y, mean, inv_variance]."""
        return self._norm("layernorm", norm_forward_phase, [input, scale, bias, epsilon], 2, compute_data_type, name)

    def layernorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor]:
        """The gradients of layernorm's input, scale and bias."""
        tensors = [grad, input, scale, mean, inv_variance]
        return self._many("layernorm_backward", tensors, 3, {}, compute_data_type, name)

    def adalayernorm(
        self,
        norm_forward_phase: Any,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Tensor | None = None,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor | None]:
        """layernorm with a scale and a bias for each sample: dimension 0 is not normalized."""
        return self._norm("adalayernorm", norm_forward_phase, [input, scale, bias, epsilon], 2, compute_data_type, name)

    def adalayernorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor,
        inv_variance: Tensor,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor]:
        """The gradients of adalayernorm's input, scale and bias."""
        tensors = [grad, input, scale, mean, inv_variance]
        return self._many("adalayernorm_backward", tensors, 3, {}, compute_data_type, name)

    def rmsnorm(
        self,
        norm_forward_phase: Any,
        input: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        epsilon: Tensor | None = None,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor | None]:
        """RMS normalization over the dimensions in which scale is not 1: [y, inv_variance]."""
        return self._norm("rmsnorm", norm_forward_phase, [input, scale, bias, epsilon], 1, compute_data_type, name)

    def rmsnorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        inv_variance: Tensor,
        has_dbias: bool,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor | None]:
        """The gradients of rmsnorm's input, scale and bias (None without has_dbias)."""
        tensors = [grad, input, scale, inv_variance]
        present = [True, True, bool(has_dbias)]
        return self._node("rmsnorm_backward", tensors, present, {}, compute_data_type, name)

    def instancenorm(
        self,
        norm_forward_phase: Any,
        input: Tensor,
        scale: Tensor,
        bias: Tensor,
        epsilon: Tensor,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor | None]:
        """Instance normalization of input [N, C, spatial...]: [y, mean, inv_variance], the statistics [N, C, 1...]."""
        return self._norm("instancenorm", norm_forward_phase, [input, scale, bias, epsilon], 2, compute_data_type, name)

    def instancenorm_backward(
        self,
        grad: Tensor,
        input: Tensor,
        scale: Tensor,
        mean: Tensor | None = None,
        inv_variance: Tensor | None = None,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> list[Tensor]:
        """The gradients of instancenorm's input, scale and bias."""
        tensors = [grad, input, scale, mean, inv_variance]
        return self._many("instancenorm_backward", tensors, 3, {}, compute_data_type, name)

    # ---- functions of elements with attributes

    def relu(
        self,
        input: Tensor,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> Tensor:
        """min(x, upper_clip) above lower_clip (0), else lower_clip + negative_slope (0) times (x - lower_clip)."""
        return self._one("relu", [input], _clips(negative_slope, lower_clip, upper_clip), compute_data_type, name)

    def relu_backward(
        self,
        loss: Tensor,
        input: Tensor,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: Any = NOT_SET,
        name: str = "",
    ) -> Tensor:
        """The gradient of relu: loss between the clips, 0 at upper_clip and above, else negative_slope times loss."""
        attributes = _clips(negative_slope, lower_clip, upper_clip)
        return self._one("relu_backward", [loss, input], attributes, compute_data_type, name)

    def leaky_relu(
        self, input: Tensor, negative_slope: float, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        """relu() with a negative slope."""
        return self._one("relu", [input], _clips(negative_slope, None, None), compute_data_type, name)

    def leaky_relu_backward(
        self, loss: Tensor, input: Tensor, negative_slope: float, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        """relu_backward() with a negative slope."""
        attributes = _clips(negative_slope, None, None)
        return self._one("relu_backward", [loss, input], attributes, compute_data_type, name)

    def swish(
        self, input: Tensor, swish_beta: float | None = None, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        """x / (1 + e^(-swish_beta x)); swish_beta is 1 by default."""
        beta = 1.0 if swish_beta is None else real("swish_beta", swish_beta)
        return self._one("swish", [input], {"beta": beta}, compute_data_type, name)

    def swish_backward(
        self,
        loss: Tensor,
        input: Tensor,
        compute_data_type: Any = NOT_SET,
        swish_beta: float | None = None,
        name: str = "",
    ) -> Tensor:
        """The gradient of swish."""
        beta = 1.0 if swish_beta is None else real("swish_beta", swish_beta)
        return self._one("swish_backward", [loss, input], {"beta": beta}, compute_data_type, name)

    def gen_index(self, input: Tensor, axis: int, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        """The index of each element of the input along `axis`."""
        return self._one("gen_index", [input], {"axis": integer("gen_index: axis", axis)}, compute_data_type, name)

    def binary_select(
        self, input0: Tensor, input1: Tensor, mask: Tensor, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        """input0 where the mask is true, else input1."""
        return self._one("binary_select", [input0, input1, mask], {}, compute_data_type, name)

    # ---- how nodes are written down

    def _one(
        self, kind: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], compute: Any, name: str
    ) -> Tensor:
        (output,) = self._many(kind, inputs, 1, attributes, compute, name)
        return output

    def _many(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        count: int,
        attributes: dict[str, Any],
        compute: Any,
        name: str,
    ) -> list[Tensor]:
        made = self._node(kind, inputs, [True] * count, attributes, compute, name)
        return [t for t in made if t is not None]

    def _norm(
        self, kind: str, phase: Any, tensors: Sequence[Tensor | None], statistics: int, compute: Any, name: str
    ) -> list[Tensor | None]:
        member(f"{kind}: norm_forward_phase", phase, norm_forward_phase)
        if tensors[3] is None:
            raise ValueError(f"{kind}: epsilon must be a tensor that is passed by value; got None")
        training = phase is norm_forward_phase.TRAINING
        return self._node(kind, tensors, [True] + [training] * statistics, {}, compute, name)

    def _node(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        present: Sequence[bool],
        attributes: dict[str, Any],
        compute: Any,
        name: str,
    ) -> list[Tensor | None]:
        """Adds a node. `present` says of each result whether there is one."""
        for i, t in enumerate(inputs):
            if t is not None or i not in _OPTIONAL.get(kind, ()):
                _checked(kind, t)
        outputs: list[Tensor | None] = []
        for i, there in enumerate(present):
            label = f"{name or f'{kind}.{len(self.nodes)}'}::{RESULTS.get(kind, ('OUT_0',))[i]}"
            outputs.append(self._added(Tensor().set_is_virtual(True).set_name(label)) if there else None)
        where = _line_of_user()
        self.nodes.append(Node(kind, list(inputs), outputs, attributes, type_of(compute), str(name), where))
        self._changed()
        return outputs


def _unary(kind: str, text: str) -> Callable[..., Tensor]:
    def method(self: Methods, input: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        return self._one(kind, [input], {}, compute_data_type, name)

    return _named(method, kind, text)


def _ab(kind: str, text: str) -> Callable[..., Tensor]:
    def method(self: Methods, a: Tensor, b: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        return self._one(kind, [a, b], {}, compute_data_type, name)

    return _named(method, kind, text)


def _inputs(kind: str, text: str) -> Callable[..., Tensor]:
    def method(
        self: Methods, input0: Tensor, input1: Tensor, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        return self._one(kind, [input0, input1], {}, compute_data_type, name)

    return _named(method, kind, text)


def _comparison(kind: str, text: str) -> Callable[..., Tensor]:
    def method(
        self: Methods, input: Tensor, comparison: Tensor, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        return self._one(kind, [input, comparison], {}, compute_data_type, name)

    return _named(method, kind, text)


def _gradient(kind: str, text: str) -> Callable[..., Tensor]:
    def method(self: Methods, loss: Tensor, input: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        return self._one(kind, [loss, input], {}, compute_data_type, name)

    return _named(method, kind, text)


def _bias(self: Methods, input: Tensor, bias: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
    return self._one("bias", [input, bias], {}, compute_data_type, name)


def _scale(self: Methods, input: Tensor, scale: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
    return self._one("scale", [input, scale], {}, compute_data_type, name)


def _named(method: Any, kind: str, text: str) -> Callable[..., Tensor]:
    method.__name__ = kind
    method.__qualname__ = f"pygraph.{kind}"
    method.__doc__ = text + "."
    return method  # type: ignore[no-any-return]


UNARY = {
    "abs": "|input|", "neg": "-input", "exp": "e^input", "log": "The natural logarithm", "sqrt": "The square root",
    "rsqrt": "1 / sqrt(input)", "reciprocal": "1 / input", "ceil": "The smallest integer not below the input",
    "floor": "The largest integer not above the input", "sin": "The sine", "cos": "The cosine", "tan": "The tangent",
    "erf": "The error function", "identity": "The input, cast to the result's type", "tanh": "The hyperbolic tangent",
    "sigmoid": "1 / (1 + e^-input)", "elu": "The input above 0, else e^input - 1",
    "gelu": "The input times its normal distribution function", "gelu_approx_tanh": "gelu, approximated by a tanh",
    "softplus": "log(1 + e^input)", "logical_not": "Whether the input is zero",
}  # fmt: skip
BINARY_AB = {
    "add": "a + b", "sub": "a - b", "mul": "a b", "div": "a / b", "add_square": "a + b^2",
    "logical_and": "Whether a and b are both true", "logical_or": "Whether a or b is true",
}  # fmt: skip
BINARY_INPUTS = {
    "max": "The larger element", "min": "The smaller element", "pow": "input0^input1",
    "mod": "The remainder of input0 / input1, with the sign of input0",
}  # fmt: skip
COMPARISONS = {
    "cmp_eq": "input == comparison", "cmp_neq": "input != comparison", "cmp_gt": "input > comparison",
    "cmp_ge": "input >= comparison", "cmp_lt": "input < comparison", "cmp_le": "input <= comparison",
}  # fmt: skip
GRADIENTS = ("tanh", "sigmoid", "elu", "gelu", "gelu_approx_tanh", "softplus")

for _make, _table in ((_unary, UNARY), (_ab, BINARY_AB), (_inputs, BINARY_INPUTS), (_comparison, COMPARISONS)):
    for _kind, _text in _table.items():
        setattr(Methods, _kind, _make(_kind, _text))
for _kind in GRADIENTS:
    setattr(Methods, f"{_kind}_backward", _gradient(f"{_kind}_backward", f"The gradient of {_kind}: loss times f'"))
setattr(Methods, "bias", _named(_bias, "bias", "input + bias"))  # noqa: B010
setattr(Methods, "scale", _named(_scale, "scale", "input scale"))  # noqa: B010


def _window(
    padding: Sequence[int] | None,
    pre_padding: Sequence[int],
    post_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    mode: Any,
) -> dict[str, Any]:
    if padding is not None:
        pre_padding = post_padding = padding
    return {
        "pre_padding": list(ints("pre_padding", pre_padding)),
        "post_padding": list(ints("post_padding", post_padding)),
        "stride": list(ints("stride", stride)),
        "dilation": list(ints("dilation", dilation)),
        "mode": member("convolution_mode", mode, convolution_mode),
    }


def _clips(slope: float | None, lower: float | None, upper: float | None) -> dict[str, Any]:
    return {
        "slope": 0.0 if slope is None else real("negative_slope", slope),
        "lower": 0.0 if lower is None else real("lower_clip", lower),
        "upper": None if upper is None else real("upper_clip", upper),
    }


def _checked(kind: str, t: Any) -> Tensor:
    if not isinstance(t, Tensor):
        raise ValueError(f"{kind}: each input must be a tensor of a pygraph; got {short(t)}")
    return t


def _no_peers(kind: str, peer_stats: Sequence[Tensor]) -> None:
    if not isinstance(peer_stats, (list, tuple)):
        raise ValueError(f"{kind}: peer_stats must be a list of tensors; got {short(peer_stats)}")
    if peer_stats:
        raise cudnnGraphNotSupportedError(
            f"{kind}: statistics over several GPUs are not supported; peer_stats must be empty, got {len(peer_stats)} "
            f"tensors ({_line_of_user()})"
        )
