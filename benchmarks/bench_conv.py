# SPDX-License-Identifier: Apache-2.0
"""Convolutions against torch (cuDNN on a GPU), whose tensors are in NCHW or NHWC, whichever is faster: the host's time
for a tiny call, the three passes of ResNet-50's layers in every arithmetic, and layers that are difficult for an
implicit product. Lists: resnet {bf16,fp16,tf32} nhwc, resnet ieee nchw, fp16 nchw, depthwise, large, one-channel,
three-channel. The lists statistics (against conv2d and batch_norm_stats) and bias (its gradient) have no target."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from types import SimpleNamespace

import torch
from report import Target
from runner import ARITHMETIC, Arithmetic, Row, in_orders, main

import pyminidnn as dnn

PASSES = ("forward", "backward_data", "backward_filter")
ORDERS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Layer:
    channels: int
    size: int | tuple[int, int]
    filters: int
    window: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    batch: int = 64

    @property
    def padding(self) -> int:
        return self.window // 2 * self.dilation

    @property
    def x(self) -> tuple[int, int, int, int]:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        return self.batch, self.channels, height, width

    @property
    def w(self) -> tuple[int, int, int, int]:
        return self.filters, self.channels // self.groups, self.window, self.window

    @property
    def y(self) -> tuple[int, int, int, int]:
        height, width = ((n + 2 * self.padding - self.dilation * (self.window - 1) - 1) // self.stride + 1
                         for n in self.x[2:])  # fmt: skip
        return self.batch, self.filters, height, width

    @property
    def label(self) -> str:
        size = "x".join(map(str, self.x[2:])) if isinstance(self.size, tuple) else self.size
        label = f"{self.channels}>{self.filters} {self.window}x{self.window} {size}"
        more = {"s": self.stride, "d": self.dilation, "g": self.groups}
        return label + "".join(f" {name}{value}" for name, value in more.items() if value != 1)


RESNET = [
    Layer(3, 224, 64, 7, stride=2),
    Layer(64, 56, 64, 1),
    Layer(64, 56, 64, 3),
    Layer(64, 56, 256, 1),
    Layer(256, 56, 64, 1),
    Layer(256, 56, 128, 1),
    Layer(128, 56, 128, 3, stride=2),
    Layer(128, 28, 512, 1),
    Layer(256, 56, 512, 1, stride=2),
    Layer(512, 28, 128, 1),
    Layer(128, 28, 128, 3),
    Layer(512, 28, 256, 1),
    Layer(256, 28, 256, 3, stride=2),
    Layer(256, 14, 1024, 1),
    Layer(512, 28, 1024, 1, stride=2),
    Layer(1024, 14, 256, 1),
    Layer(256, 14, 256, 3),
    Layer(1024, 14, 512, 1),
    Layer(512, 14, 512, 3, stride=2),
    Layer(512, 7, 2048, 1),
    Layer(1024, 14, 2048, 1, stride=2),
    Layer(2048, 7, 512, 1),
    Layer(512, 7, 512, 3),
]
# The first layer of ResNet. In training, its gradient with respect to the image is not needed.
FIRST = RESNET[0]
FOUR = [Layer(64, 56, 64, 3), Layer(128, 28, 128, 3), Layer(256, 14, 256, 3), Layer(1024, 14, 256, 1)]
DEPTHWISE = [Layer(144, 56, 144, 3, groups=144), Layer(384, 14, 384, 7, groups=384), Layer(128, 56, 128, 3, groups=32)]
LARGE = [Layer(256, 64, 256, 3, dilation=2, batch=16), Layer(64, 512, 64, 3, batch=4), Layer(320, 64, 320, 5, batch=8)]
BIASED = [Layer(64, 56, 256, 1), Layer(128, 28, 512, 1), Layer(1024, 14, 256, 1)]
EPS = 1e-5  # eps that torch's batch_norm_stats takes
PLANE = Layer(1, (1024, 2048), 1, 3, batch=1)
PIXELS = Layer(3, 224, 64, 3, batch=32)

TARGETS = {
    "resnet bf16 nhwc": Target(1.1, 0.85),
    "resnet fp16 nhwc": Target(1.1, 0.85),
    "resnet tf32 nhwc": Target(1.1, 0.85),
    "resnet ieee nchw": Target(1.1, 0.8),
    "fp16 nchw": Target(1.3, 1.0),
    "depthwise": Target(1.5, 1.0),
    "large": Target(1.0, 0.9),
    "one-channel": Target(3.0),
    "three-channel": Target(1.5),
}


@dataclass
class Case:
    """A layer in one arithmetic and layout, and its tensors, which are made when a row first needs them."""

    layer: Layer
    arithmetic: Arithmetic
    nhwc: bool
    device: str

    @cached_property
    def theirs(self) -> dict[str, SimpleNamespace]:
        shapes, dtype = (self.layer.x, self.layer.w, self.layer.y), getattr(torch, self.arithmetic.dtype)
        made = in_orders(*(torch.randn(shape, device=self.device).to(dtype) for shape in shapes))
        return {order: SimpleNamespace(x=x, w=w, dy=dy) for order, (x, w, dy) in made.items()}

    @cached_property
    def ours(self) -> SimpleNamespace:
        theirs = self.theirs["nhwc" if self.nhwc else "nchw"]
        return SimpleNamespace(**{name: dnn.from_dlpack(t) for name, t in vars(theirs).items()})

    @cached_property
    def attributes(self) -> dict[str, object]:
        a = self.layer
        handle = dnn.Handle(self.device, math=self.arithmetic.math)
        return {"stride": a.stride, "padding": a.padding, "dilation": a.dilation, "groups": a.groups, "handle": handle}

    def run_ours(self, direction: str) -> dnn.DeviceTensor | tuple[dnn.DeviceTensor, ...]:
        t = self.ours
        if direction == "forward":
            return dnn.conv_forward(t.x, t.w, **self.attributes)
        if direction == "forward_statistics":
            return dnn.conv_forward_statistics(t.x, t.w, **self.attributes)
        if direction == "backward_bias":
            return dnn.conv_backward_bias(t.dy)
        if direction == "backward_data":
            return dnn.conv_backward_data(t.dy, t.w, self.layer.x, **self.attributes)
        return dnn.conv_backward_filter(t.dy, t.x, self.layer.w, **self.attributes)

    def run_torch(self, direction: str, order: str) -> torch.Tensor | tuple[torch.Tensor, ...]:
        t, a = self.theirs[order], self.layer
        if direction == "forward_statistics":
            y = self.run_torch("forward", order)
            return y, *torch.batch_norm_stats(y, EPS)
        if direction == "backward_bias":
            return t.dy.sum((0, 2, 3))
        if direction == "forward":
            return torch.conv2d(t.x, t.w, None, a.stride, a.padding, a.dilation, a.groups)
        pair = [a.stride] * 2, [a.padding] * 2, [a.dilation] * 2
        wanted = [direction == "backward_data", direction == "backward_filter", False]
        made = torch.ops.aten.convolution_backward(t.dy, t.x, t.w, None, *pair, False, [0, 0], a.groups, wanted)
        return made[wanted.index(True)]

    def sums(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """y and the two sums of our statistics, computed from torch's mean and inverse standard deviation."""
        y, mean, inv_std = results
        n = y.numel() / len(mean)
        return [y, n * mean, n * (inv_std**-2 - EPS + mean**2)]

    def terms(self, direction: str) -> int:
        """The number of terms of the longest sum."""
        a = self.layer
        positions, channels = math.prod(a.y) // a.filters, math.prod(a.w[1:])
        if direction == "backward_data":
            return channels * a.filters // a.channels
        return {"forward": channels, "forward_statistics": max(channels, positions)}.get(direction, positions)

    def name(self, direction: str) -> str:
        """The name of the problem, as the library prints it."""

        def operand(name: str, shape: tuple[int, ...]) -> str:
            # The suffix is "nhwc" only if the order of the elements in memory differs from NCHW.
            last = self.nhwc and shape[1] > 1 and math.prod(shape[2:]) > 1
            return plain(name, shape) + (":nhwc" if last else "")

        def plain(name: str, shape: tuple[int, ...]) -> str:
            return f" {name}={'x'.join(map(str, shape))}"

        a = self.layer
        operands = {
            "forward": operand("x", a.x) + operand("w", a.w),
            "backward_data": operand("dy", a.y) + operand("w", a.w) + plain("dx", a.x),
            "backward_filter": operand("dy", a.y) + operand("x", a.x) + plain("dw", a.w),
        }
        if direction == "backward_bias":
            return f"conv {direction} {self.arithmetic.short}" + operand("dy", a.y)
        operands["forward_statistics"] = operands["forward"]
        more = {"stride": (a.stride, 1), "pad": (a.padding, 0), "dilation": (a.dilation, 1), "groups": (a.groups, 1)}
        attributes = "".join(f" {name}={value}" for name, (value, default) in more.items() if value != default)
        return f"conv {direction} {self.arithmetic.short}{operands[direction]}{attributes}{self.arithmetic.suffix}"

    def bytes(self, direction: str) -> float:
        a = self.layer
        item = getattr(torch, self.arithmetic.dtype).itemsize
        if direction == "backward_bias":
            return math.prod(a.y) * item
        # Counts the bytes of x that windows read, as whole rows of pixels in NCHW, because skipped pixels of a row do
        # not reduce the memory traffic. All bytes of dx are written.
        height, width = (min(n, p * a.window) for n, p in zip(a.x[2:], a.y[2:], strict=True))
        met = a.x[0] * a.x[1] * height * (width if self.nhwc else a.x[3])
        x = math.prod(a.x) if direction == "backward_data" else met
        return (x + math.prod(a.w) + math.prod(a.y)) * item

    def rows(self, name: str, passes: tuple[str, ...] = PASSES) -> Iterator[Row]:
        for d in passes:
            products = 1 if d == "backward_bias" else math.prod(self.layer.w[1:])
            yield Row(self.name(d), partial(self.run_ours, d), {o: partial(self.run_torch, d, o) for o in ORDERS},
                      self.bytes(d), 2.0 * math.prod(self.layer.y) * products, self.arithmetic.ceiling,
                      terms=self.terms(d), seen=(list, self.sums if d == "forward_statistics" else list),
                      searched=d != "backward_bias", list=name, label=self.layer.label)  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    x, w = torch.randn(2, 4, 8, 8, device=device), torch.randn(4, 4, 3, 3, device=device)
    tx, tw = dnn.from_dlpack(x), dnn.from_dlpack(w)
    yield Row("host: conv forward f32 x=2x4x8x8 w=4x4x3x3 pad=1", lambda: dnn.conv_forward(tx, tw, padding=1),
              lambda: torch.conv2d(x, w, padding=1), host=True)  # fmt: skip

    def case(layer: Layer, arithmetic: str, nhwc: bool) -> Case:
        if device == "cpu":
            layer = Layer(**{**vars(layer), "batch": 1})
        return Case(layer, ARITHMETIC[arithmetic], nhwc, device)

    for arithmetic, order in (("bf16", "nhwc"), ("fp16", "nhwc"), ("tf32", "nhwc"), ("ieee", "nchw")):
        for layer in RESNET:
            passes = tuple(p for p in PASSES if layer is not FIRST or p != "backward_data")
            yield from case(layer, arithmetic, order == "nhwc").rows(f"resnet {arithmetic} {order}", passes)
    for layer in FOUR:
        yield from case(layer, "fp16", False).rows("fp16 nchw")
    for arithmetic in ("bf16", "ieee"):
        for layer in DEPTHWISE:
            yield from case(layer, arithmetic, arithmetic == "bf16").rows("depthwise")
    for layer in LARGE:
        yield from case(layer, "bf16", True).rows("large")
    for layer in RESNET if device != "cpu" else ():  # torch has batch_norm_stats on GPUs only
        yield from case(layer, "bf16", True).rows("statistics", ("forward_statistics",))
    for arithmetic, nhwc in product(("bf16", "fp16", "ieee", "f64"), (True, False)):
        for layer in BIASED:
            yield from case(layer, arithmetic, nhwc).rows("bias", ("backward_bias",))
    yield from case(PLANE, "ieee", False).rows("one-channel", ("forward",))
    yield from case(PIXELS, "ieee", False).rows("three-channel")


if __name__ == "__main__":
    main(rows, __doc__, TARGETS)
