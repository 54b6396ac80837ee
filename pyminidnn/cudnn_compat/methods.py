# SPDX-License-Identifier: Apache-2.0
"""The methods of a pygraph that make nodes of products, reductions, views and norms."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from ..graph import _line_of_user
from ..refusals import short
from . import enums
from .attention import Attention
from .enums import (
    NOT_SET,
    convolution_mode,
    cudnnGraphNotSupportedError,
    integer,
    member,
    real,
    reduction_mode,
    reshape_mode,
)
from .pointwise import Pointwise
from .tensors import Tensor, ints


class Methods(Pointwise, Attention):
    """All methods that make nodes."""

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
        """The gradient of conv_fprop's image. set_dim() of the result must set the image's sizes."""
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
        """The gradient of conv_fprop's weight. set_dim() of the result must set the weight's sizes."""
        attributes = _window(padding, pre_padding, post_padding, stride, dilation, convolution_mode)
        return self._one("conv_wgrad", [image, loss], attributes, compute_data_type, name)

    def matmul(
        self, A: Tensor, B: Tensor, compute_data_type: Any = NOT_SET, padding: float = 0.0, name: str = ""
    ) -> Tensor:
        """A @ B for A [..., M, K] and B [..., K, N]; sizes of 1 before the last two are broadcast."""
        return self._one("matmul", [A, B], {"padding": real("matmul: padding", padding)}, compute_data_type, name)

    # ---- reductions and views

    def reduction(self, input: Tensor, mode: Any, compute_data_type: Any = NOT_SET, name: str = "") -> Tensor:
        """Reduces the dimensions that are 1 in the result, whose sizes set_dim() must set."""
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
        if not isinstance(slices, (list, tuple)) or any(type(s) is not builtins.slice for s in slices):
            raise ValueError(f"slice: slices must be a list of slices; got {short(slices)}")
        parts = [[None if n is None else integer("slices", n) for n in (s.start, s.stop, s.step)] for s in slices]
        return self._one("slice", [input], {"slices": parts}, compute_data_type, name)

    def reshape(self, input: Tensor, name: str = "", reshape_mode: Any = reshape_mode.VIEW_ONLY) -> Tensor:
        """The input with the sizes (and strides) that set_dim() and set_stride() of the result set.

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


def _no_peers(kind: str, peer_stats: Sequence[Tensor]) -> None:
    if not isinstance(peer_stats, (list, tuple)):
        raise ValueError(f"{kind}: peer_stats must be a list of tensors; got {short(peer_stats)}")
    if peer_stats:
        raise cudnnGraphNotSupportedError(
            f"{kind}: statistics over several GPUs are not supported; peer_stats must be empty, got {len(peer_stats)} "
            f"tensors ({_line_of_user()})"
        )
