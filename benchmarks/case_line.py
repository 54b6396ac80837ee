# SPDX-License-Identifier: Apache-2.0
"""A case line: a problem in the text form that the library prints, such as "softmax forward f32 x=4x1000 axis=1"."""

from __future__ import annotations

from dataclasses import dataclass, field

DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8",
          "i32": "int32", "i64": "int64", "bool": "bool"}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """A tensor of a case: "64x3x7x7", "64x3x7x7:nhwc" or, with strides in elements, "4x5:s1,4"."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None  # None: the tensor is dense in `layout`
    layout: str = "contiguous"

    @staticmethod
    def parse(text: str) -> Operand:
        shape_text, _, order = text.partition(":")
        shape = () if shape_text == "scalar" else tuple(map(int, shape_text.split("x")))
        if order.startswith("s"):
            return Operand(shape, strides=tuple(map(int, order[1:].split(","))))
        return Operand(shape, layout=order.upper() or "contiguous")


@dataclass(frozen=True)
class Case:
    text: str  # the case line after braces are expanded, without the comment at its end
    family: str
    direction: str
    dtype: str  # "float32"
    # The words of `text` that have no "=" and are no operands. An example is the mode of an activation.
    words: tuple[str, ...] = ()
    # The tensors that `text` names, such as x=4x1000. The keys are their names.
    operands: dict[str, Operand] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    def operand(self, name: str, shape: tuple[int, ...]) -> Operand:
        """The operand of that name. If the line leaves it out, it is dense, in the layout of the first operand."""
        if name in self.operands:
            return self.operands[name]
        first = next(iter(self.operands.values()), Operand(()))
        if name in ("o", "do") and first.strides is not None:  # of attention: in the order of q's strides
            return Operand(tuple(shape), strides=in_order_of(first.strides, first.shape, shape))
        if self.family == "rnn" and name in ("y", "dy"):  # steps come first in memory, or sequences if they do so in x
            of_x = first.strides or (0, 0)
            if len(shape) == 3 and min(shape[:2]) > 1 and abs(of_x[1]) > abs(of_x[0]):
                return Operand(tuple(shape), strides=(shape[2], shape[0] * shape[2], 1))
            return Operand(tuple(shape))
        has_layout = first.strides is None and len(first.shape) == len(shape)
        return Operand(tuple(shape), layout=first.layout if has_layout else "contiguous")

    @property
    def out_dtype(self) -> str:
        """The operands' dtype, unless the case casts: "to=i8"."""
        return DTYPES[self.attributes["to"]] if "to" in self.attributes else self.dtype

    def integers(self, name: str, default: int | tuple[int, ...]) -> int | tuple[int, ...]:
        """An attribute such as "stride=2" or "stride=2,1"."""
        if name not in self.attributes:
            return default
        values = tuple(map(int, self.attributes[name].split(",")))
        return values if len(values) > 1 else values[0]

    def padding(self, rank: int) -> tuple[tuple[int, int], ...]:
        """(before, after) of each of `rank` spatial dimensions: "pad=1", "pad=1,0", "pad=1:2", "pad=1:2,0"."""
        sides = [tuple(map(int, p.split(":"))) for p in self.attributes.get("pad", "0").split(",")]
        pairs = tuple((s[0], s[-1]) for s in sides)
        return pairs if len(pairs) == rank else pairs * rank


def in_order_of(strides: tuple[int, ...], like: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense tensor whose dimensions have the order of those of a tensor [like] with `strides`. Dimensions
    of size 1 keep their places."""
    rank = range(len(like))
    longest_first = iter(sorted((i for i in rank if like[i] > 1), key=lambda i: -abs(strides[i])))
    order = [i if like[i] == 1 else next(longest_first) for i in rank]
    dense, step = [1] * len(like), 1
    for i in reversed(order):
        dense[i], step = step, step * max(shape[i], 1)
    return tuple(dense)


OPERAND_NAMES = {"x", "w", "y", "dx", "dy", "dw", "a", "b", "c", "residual", "out", "mask", "keep", "target", "means",
                 "index", "targets", "q", "k", "v", "o", "do"}  # fmt: skip


def parse(text: str) -> Case:
    family, direction, dtype, *rest = text.split()
    words = tuple(w for w in rest if "=" not in w)
    pairs = [w.split("=", 1) for w in rest if "=" in w]
    operands = {k: Operand.parse(v) for k, v in pairs if k in OPERAND_NAMES}
    attributes = {k: v for k, v in pairs if k not in OPERAND_NAMES}
    if "bias" in attributes:  # that of attention, which has a dtype and a shape of its own: "bias=f32:1x4x65x63"
        attributes["bias"], _, operand = attributes["bias"].partition(":")
        operands["bias"] = Operand.parse(operand)
    return Case(text, family, direction, DTYPES[dtype], words, operands, attributes)
