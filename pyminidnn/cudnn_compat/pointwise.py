# SPDX-License-Identifier: Apache-2.0
"""The methods of a pygraph that make nodes of functions of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .enums import (
    NOT_SET,
    integer,
    real,
)
from .nodes import Nodes
from .tensors import Tensor


class Pointwise(Nodes):
    """Functions of elements: activations and their gradients, arithmetic, comparisons and selection."""

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


def _clips(slope: float | None, lower: float | None, upper: float | None) -> dict[str, Any]:
    return {
        "slope": 0.0 if slope is None else real("negative_slope", slope),
        "lower": 0.0 if lower is None else real("lower_clip", lower),
        "upper": None if upper is None else real("upper_clip", upper),
    }


def _unary(kind: str, text: str) -> Callable[..., Tensor]:
    def method(self: Pointwise, input: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        return self._one(kind, [input], {}, compute_data_type, name)

    return _named(method, kind, text)


def _ab(kind: str, text: str) -> Callable[..., Tensor]:
    def method(self: Pointwise, a: Tensor, b: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        return self._one(kind, [a, b], {}, compute_data_type, name)

    return _named(method, kind, text)


def _inputs(kind: str, text: str) -> Callable[..., Tensor]:
    def method(
        self: Pointwise, input0: Tensor, input1: Tensor, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        return self._one(kind, [input0, input1], {}, compute_data_type, name)

    return _named(method, kind, text)


def _comparison(kind: str, text: str) -> Callable[..., Tensor]:
    def method(
        self: Pointwise, input: Tensor, comparison: Tensor, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        return self._one(kind, [input, comparison], {}, compute_data_type, name)

    return _named(method, kind, text)


def _gradient(kind: str, text: str) -> Callable[..., Tensor]:
    def method(
        self: Pointwise, loss: Tensor, input: Tensor, compute_data_type: Any = NOT_SET, name: str = ""
    ) -> Tensor:
        return self._one(kind, [loss, input], {}, compute_data_type, name)

    return _named(method, kind, text)


def _bias(self: Pointwise, input: Tensor, bias: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
    return self._one("bias", [input, bias], {}, compute_data_type, name)


def _scale(self: Pointwise, input: Tensor, scale: Tensor, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
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
        setattr(Pointwise, _kind, _make(_kind, _text))
for _kind in GRADIENTS:
    setattr(Pointwise, f"{_kind}_backward", _gradient(f"{_kind}_backward", f"The gradient of {_kind}: loss times f'"))
setattr(Pointwise, "bias", _named(_bias, "bias", "input + bias"))  # noqa: B010
setattr(Pointwise, "scale", _named(_scale, "scale", "input scale"))  # noqa: B010
