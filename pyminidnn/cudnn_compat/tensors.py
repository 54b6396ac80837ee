# SPDX-License-Identifier: Apache-2.0
"""The tensors of a pygraph: descriptions that methods of the graph read and return. They have no memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..refusals import short
from .enums import NOT_SET, integer, member, scalar_type, tensor_reordering, type_of


class Described(NamedTuple):
    """The sizes, the strides in elements, and the data_type of a tensor, after inference."""

    dim: tuple[int, ...]
    stride: tuple[int, ...]
    kind: Any

    @property
    def reach(self) -> int:
        """The number of elements from the first to the last one in memory."""
        if 0 in self.dim:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride, strict=True))


def ints(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    """The values as a tuple of ints. Errors call them `name`."""
    try:
        return tuple(value.__index__() for value in values)
    except (TypeError, AttributeError):
        raise ValueError(f"{name} must be a sequence of ints; got {short(values)}") from None


def packed(dim: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor without gaps. `order` lists the dimensions from the innermost one to the outermost."""
    strides, step = [0] * len(dim), 1
    for i in order:
        strides[i] = step
        step *= dim[i]
    return tuple(strides)


def row_major(dim: Sequence[int]) -> tuple[int, ...]:
    """Strides with the last dimension innermost."""
    return packed(dim, range(len(dim) - 1, -1, -1))


def channels_last(dim: Sequence[int]) -> tuple[int, ...]:
    """Strides with dimension 1 innermost, then the last dimension and those before it. Rank 1: row-major."""
    if len(dim) < 2:
        return row_major(dim)
    return packed(dim, [1, *range(len(dim) - 1, 1, -1), 0])


def ordered_like(dim: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Packed strides whose dimensions have the order of `strides`. Further dimensions are outermost."""
    order = sorted(range(min(len(strides), len(dim))), key=lambda i: strides[i])
    return packed(dim, [*order, *range(len(order), len(dim))])


class Tensor:
    """A tensor of a pygraph: name, sizes, strides, element type and role. Methods that set an attribute return self.

    What the user does not set is inferred by validate(). get_dim(), get_stride() and get_data_type() then return it.
    """

    def __init__(self) -> None:
        self.name = ""
        self.dim: tuple[int, ...] = ()
        self.stride: tuple[int, ...] = ()
        self.kind: Any = NOT_SET
        self.inferred: Described | None = None
        self.virtual = self.by_value = False
        self.fetched = False  # whether execute() reads the number from the memory of the device
        self.value: Any = None  # the number of a tensor that tensor_scalar() made
        self.constant = False  # whether `value` is fixed when the graph is built
        self.uid, self.has_uid = 0, False
        self.reordering = tensor_reordering.NONE
        self.alignment = 16
        self.vector = (1, -1)  # the number of packed elements, and their dimension
        self.ragged: Tensor | None = None

    def get_name(self) -> str:
        """The name of the tensor."""
        return self.name

    def set_name(self, name: str) -> Tensor:
        """Sets the name."""
        self.name = str(name)
        return self

    def get_data_type(self) -> Any:
        """The data_type, NOT_SET before it is known."""
        return self.inferred.kind if self.kind is NOT_SET and self.inferred else self.kind

    def set_data_type(self, data_type: Any) -> Tensor:
        """Sets the element type: a cudnn.data_type, or a dtype of torch, NumPy or pyminidnn."""
        self.kind = type_of(data_type)
        return self

    _set_data_type = set_data_type

    def get_dim(self) -> list[int]:
        """The sizes; empty before they are known."""
        return list(self.inferred.dim if not self.dim and self.inferred else self.dim)

    def set_dim(self, dim: Sequence[int]) -> Tensor:
        """Sets the sizes."""
        self.dim = ints("dim", dim)
        return self

    def get_stride(self) -> list[int]:
        """The strides, in elements; empty before they are known."""
        return list(self.inferred.stride if not self.stride and self.inferred else self.stride)

    def set_stride(self, stride: Sequence[int]) -> Tensor:
        """Sets the strides, in elements."""
        self.stride = ints("stride", stride)
        return self

    def get_is_virtual(self) -> bool:
        """Whether the tensor exists only while the graph runs."""
        return self.virtual

    def set_is_virtual(self, value: bool) -> Tensor:
        """Sets whether the tensor exists only while the graph runs."""
        self.virtual = bool(value)
        return self

    def set_output(self, value: bool) -> Tensor:
        """set_is_virtual(not value): an output has memory of the user."""
        return self.set_is_virtual(not value)

    def get_is_pass_by_value(self) -> bool:
        """Whether the tensor is one number in host memory."""
        return self.by_value

    def set_is_pass_by_value(self, value: bool) -> Tensor:
        """Sets whether the tensor is one number in host memory."""
        self.by_value = bool(value)
        return self

    @property
    def is_number(self) -> bool:
        """Whether a recording contains the value of the tensor."""
        return self.by_value or self.fetched

    def get_has_compile_time_constant(self) -> bool:
        """Whether tensor_scalar() fixed the value."""
        return self.constant

    def get_uid(self) -> int:
        """The number of the tensor in variant packs; 0 before build_operation_graph(), if none was set."""
        return self.uid

    def set_uid(self, uid: int) -> Tensor:
        """Sets the number of the tensor in variant packs."""
        self.uid, self.has_uid = integer("uid", uid), True
        return self

    def get_reordering_type(self) -> Any:
        """The reordering of the elements."""
        return self.reordering

    def set_reordering_type(self, value: Any) -> Tensor:
        """Sets the reordering of the elements. Only NONE is supported."""
        self.reordering = value
        return self

    def get_alignment(self) -> int:
        """The alignment of the memory, in bytes."""
        return self.alignment

    def set_alignment(self, value: int) -> Tensor:
        """Sets the alignment of the memory, in bytes. It has no effect: the address tells the alignment."""
        self.alignment = integer("alignment", value)
        return self

    def get_vector_count(self) -> int:
        """The number of elements that are packed into one."""
        return self.vector[0]

    def get_vector_dimension(self) -> int:
        """The dimension along which elements are packed; -1: none."""
        return self.vector[1]

    def set_vector_count_and_dimension(self, count: int, dimension: int) -> Tensor:
        """Sets the packing of elements. Only a count of 1 is supported."""
        self.vector = (integer("count", count), integer("dimension", dimension))
        return self

    def set_ragged_offset(self, value: Tensor | None) -> Tensor:
        """Sets the offsets of ragged rows, which are not supported."""
        self.ragged = value
        return self

    def label(self) -> str:
        """The tensor in texts of errors."""
        return f"'{self.name}'" if self.name else f"the tensor with uid {self.uid}" if self.uid else "a tensor"

    def __repr__(self) -> str:
        kind = "virtual" if self.virtual else "by value" if self.by_value else "in memory"
        return (
            f"tensor(name={self.name!r}, uid={self.uid}, dim={self.get_dim()}, stride={self.get_stride()}, "
            f"data_type={self.get_data_type().name}, {kind})"
        )


def scalar(value: float, when: Any) -> Tensor:
    """The tensor of one number. The type is INT32 for an int of 32 bits, INT64 for other ints, FLOAT for a float."""
    if type(value) not in (int, float):
        raise ValueError(f"tensor_scalar: value must be an int or a float; got {short(value)}")
    member("tensor_scalar: scalar_type", when, scalar_type)
    t = Tensor()
    t.dim = t.stride = (1,)
    t.by_value, t.value, t.constant = True, value, when is scalar_type.COMPILE_TIME_CONST
    small = isinstance(value, int) and -(2**31) <= value < 2**31
    return t.set_data_type("float32" if isinstance(value, float) else "int32" if small else "int64")
