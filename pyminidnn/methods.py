# SPDX-License-Identifier: Apache-2.0
"""What a DeviceTensor does as an array: operators on mixed operands, methods, printing, copies and pickles.

cpp/bindings/operators_py.cpp computes operators on operands of one dtype. It calls binary(), in_place(), unary() and
matrix_multiply() for all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from . import _C
from ._C import DeviceTensor, DTypeError, EngineReport, Handle, KernelSpec, NotSupported, Report, ShapeError
from .conversion import bits, from_bits, has_dlpack, operand
from .ops.matmul import matmul
from .ops.pointwise import pointwise
from .ops.reduce import reduce
from .ops.transform import concat, transform
from .options import DTypeLike, DTypeName, Pointwise, ReduceMode
from .refusals import short

_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_OF_BOOL: dict[Pointwise, Pointwise] = {
    "add": "logical_or",
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
}
_FLOATING = ("float32", "float64", "float16", "bfloat16")
# NumPy prints an array with a number of this magnitude in scientific notation. NumPy 2.3 made it depend on the dtype.
_SCIENTIFIC_FROM = (
    {"float32": 1e6, "float16": 1e3, "bfloat16": 1e6} if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else {}
)
_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def binary(op: Pointwise, a: Any, b: Any) -> Any:
    """The result of an operator on two operands, one of which is a tensor: by NumPy's rules of promotion."""
    operands = _operands(op, a, b)
    if operands is None:
        return NotImplemented
    if op in ("eq", "ne") and None in operands:
        return NotImplemented
    return pointwise(*_promoted(op, *operands))


def in_place(op: Pointwise, a: DeviceTensor, b: Any) -> Any:
    """a op= b: the result is cast to the dtype of a, if NumPy casts so ("same kind")."""
    operands = _operands(op, a, b)
    if operands is None:
        return NotImplemented
    op, x, y = _promoted(op, *operands)
    result = pointwise(op, x, y)
    if result.shape != a.shape:
        raise ShapeError(
            f"{op}: b does not broadcast to a {list(a.shape)}, which holds the result {list(result.shape)}"
        )
    if not np.can_cast(_like_numpy(result.dtype), _like_numpy(a.dtype), "same_kind"):
        raise DTypeError(f"{op}: the result is {result.dtype}, which does not fit a in place; a is {a.dtype}")
    transform(result, out=a)
    return a


def unary(op: Pointwise, a: DeviceTensor) -> DeviceTensor:
    """The result of a unary operator on a dtype that the function does not take."""
    if a.dtype == "bool" and op == "bitwise_not":
        return pointwise("logical_not", a)
    if a.dtype == "bool" and op == "abs":
        return a.to(copy=True)
    # pointwise() raises an error that lists the dtypes that `op` supports.
    return pointwise(op, a)


def matrix_multiply(a: Any, b: Any) -> Any:
    """a @ b, with one-dimensional operands as in NumPy."""
    operands = _operands("matmul", a, b)
    if operands is None or any(isinstance(x, (bool, int, float)) for x in (a, b)):
        return NotImplemented
    _, x, y = _promoted("mul", *operands)
    row, column = x.ndim == 1, y.ndim == 1
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"matmul: a and b must have a dimension; got {list(x.shape)} and {list(y.shape)}")
    if x.dtype == "bool":
        raise DTypeError(f"matmul: a and b are bool; supported are integers, {', '.join(_FLOATING)}")
    result = _batches(x.reshape((1, *x.shape)) if row else x, y.reshape((*y.shape, 1)) if column else y)
    shape = list(result.shape)
    if row:
        del shape[-1 if column else -2]
    if column:
        del shape[-1]
    return result.reshape(shape)


def _batches(a: DeviceTensor, b: DeviceTensor) -> DeviceTensor:
    """a @ b for two dimensions or more. matmul() takes five at most; beyond it, all batches become one dimension."""
    product = matmul if a.dtype in _FLOATING else _integer_product
    if max(a.ndim, b.ndim) <= 5:
        return product(a, b)
    from .array_api import broadcast_to

    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"matmul: a and b must have batches that broadcast; got {list(a.shape[:-2])} and {list(b.shape[:-2])}"
        ) from None
    count = math.prod(lead)
    x, y = (broadcast_to(t, (*lead, *t.shape[-2:])).reshape((count, *t.shape[-2:])) for t in (a, b))
    result = product(x, y)
    return result.reshape((*lead, *result.shape[-2:]))


def _integer_product(a: DeviceTensor, b: DeviceTensor) -> DeviceTensor:
    """The product of integer matrices, which wraps around. There is no engine for integers.

    The operands are divided into digits of 16 bits. Products of digits are below 2^32, so float64 holds the sum of 2^20
    of them exactly, and matmul() computes it. The sums are put together in int64.
    """
    most = 2**20
    if a.shape[-1] > most:
        return _integer_product(a[..., :most], b[..., :most, :]) + _integer_product(a[..., most:], b[..., most:, :])
    count = (a.dtype.itemsize + 1) // 2
    first, second = _digits(a, count), _digits(b, count)
    total: Any = None
    for i in range(count):
        for j in range(count - i):
            part = matmul(first[i], second[j]).to(dtype="int64") << 16 * (i + j)
            total = part if total is None else total + part
    result: DeviceTensor = total.to(dtype=a.dtype)
    return result


def _digits(t: DeviceTensor, count: int) -> list[DeviceTensor]:
    """The digits of 16 bits of integers, the least significant first, as float64. The last one is signed."""
    digits = [*((t >> 16 * i) & 0xFFFF for i in range(count - 1)), t >> 16 * (count - 1)]
    return [d.to(dtype="float64") for d in digits]


def _operands(op: str, a: Any, b: Any) -> tuple[Any, Any] | None:
    """The operands as tensors on one device. Numbers of Python stay; None if an operand is no array."""
    found: list[Any] = []
    for name, x in zip("ab", (a, b), strict=True):
        if isinstance(x, (DeviceTensor, bool, int, float)) and not isinstance(x, np.generic):
            found.append(x)
        elif isinstance(x, (np.ndarray, np.generic)) or has_dlpack(x) or hasattr(x, "__array__"):
            found.append(operand(x, f"{op}: {name}"))
        else:
            return None
    device = (a if isinstance(a, DeviceTensor) else b).device
    moved = [
        x.to(device=device) if isinstance(x, DeviceTensor) and x is not given and x.device == "cpu" else x
        for x, given in zip(found, (a, b), strict=True)
    ]
    return moved[0], moved[1]


def _promoted(op: Pointwise, a: Any, b: Any) -> tuple[Pointwise, Any, Any]:
    """The function and the operands in one dtype. A Python number has the dtype of the tensor, if its kind allows."""
    dtype = _result_dtype(a, b, compares=op in _COMPARISONS)
    if op == "div" and dtype not in _FLOATING:
        dtype = "float64"
    if dtype == "bool":
        op = _OF_BOOL.get(op, op)
        if op in ("floor_div", "mod", "pow", "left_shift", "right_shift"):
            dtype = "int8"
    x, y = (x.to(dtype=dtype) if isinstance(x, DeviceTensor) else x for x in (a, b))
    return op, x, y


def _result_dtype(a: Any, b: Any, compares: bool) -> Any:
    if isinstance(a, DeviceTensor) and isinstance(b, DeviceTensor):
        return _C.promoted(a.dtype, b.dtype)
    tensor, number = (a, b) if isinstance(a, DeviceTensor) else (b, a)
    return dtype_with_number(tensor.dtype, number, compares)


def dtype_with_number(dtype: str, number: Any, compares: bool) -> str:
    """The dtype of a result of a tensor and a Python number: that of the tensor if the kind of the number allows."""
    if isinstance(number, bool) or dtype in _FLOATING:
        return dtype
    if isinstance(number, float):
        return "float64"
    if dtype == "bool":
        return "int64"
    if compares and not _C.holds(dtype, number):
        return "int64" if _C.holds("int64", number) else "float64"
    return dtype


def _like_numpy(dtype: str) -> str:
    """The dtype, or for bfloat16, which NumPy lacks, one of the same kind."""
    return "float16" if dtype == "bfloat16" else str(dtype)


def described(t: DeviceTensor) -> str:
    """The values as NumPy prints them, dtype, layout and device. Beyond 1,000 elements, only the edges are read."""
    if t._recorded:
        return t._description().replace(", device=", ", recorded, device=")
    if _C.recording():
        with _C.RecordingPause():
            return described(t)
    options: dict[str, Any] = dict(np.get_printoptions())
    shown = _edges(t, options)
    summarized = t.size > options["threshold"]
    head = "DeviceTensor("
    if _has_text(options):
        values = _C.array_text(
            shown.to(device="cpu"),
            options=options,
            scientific_from=_SCIENTIFIC_FROM.get(t.dtype, 1e8),
            summarize=summarized,
            prefix_width=len(head),
        )
    else:
        array = (shown.to(dtype="float32") if shown.dtype == "bfloat16" else shown).numpy()
        threshold = 0 if summarized else options["threshold"]
        values = np.array2string(array, separator=", ", prefix=head, threshold=threshold)
    shape = f", shape={t.shape}" if t.size == 0 or shown is not t else ""
    return f"{head}{values}{shape}, dtype='{t.dtype}', layout='{t.layout}', device='{t.device}')"


def _has_text(options: Mapping[str, Any]) -> bool:
    """Whether _C.array_text() writes what NumPy's array2string() writes with these options, in a tenth of the time."""
    return (
        options["formatter"] is None
        and options["legacy"] is False
        and type(options["linewidth"]) is type(options["edgeitems"]) is int
        and 1 <= options["edgeitems"] < 2**31
        and -(2**31) < options["linewidth"] < 2**31
        and 0 <= options["precision"] <= _C.max_text_precision
        and all(type(s) is str and s.isascii() and s.isprintable() for s in (options["nanstr"], options["infstr"]))
    )


def _edges(t: DeviceTensor, options: Mapping[str, Any]) -> DeviceTensor:
    """The tensor itself, or, if NumPy would summarise it, one in which 7 elements stand for each longer dimension.

    NumPy prints 3 of them at each end, and dots for the others.
    """
    edge = options["edgeitems"]
    if t.size <= options["threshold"]:
        return t
    for axis, size in enumerate(t.shape):
        if size > 2 * edge + 1:
            first, last = (
                (slice(None),) * axis + (slice(edge + 1),),
                (slice(None),) * axis + (slice(size - edge, None),),
            )
            t = concat([t[first], t[last]], axis)
    return t


# For mypy, the class Methods is a subclass of DeviceTensor. At run time, the methods of the class are copied to
# DeviceTensor itself.
if TYPE_CHECKING:
    _Base = DeviceTensor
else:
    _Base = object


class Methods(_Base):
    """The methods of a DeviceTensor that are written in Python. They are installed on it below."""

    __array_priority__ = 1000  # array + tensor then calls the operator of the tensor, not NumPy's

    def __repr__(self) -> str:
        return described(self)

    def __str__(self) -> str:
        return described(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __iter__(self) -> Iterator[DeviceTensor]:
        if self.ndim == 0:
            raise DTypeError("iter: a tensor without dimensions cannot be iterated")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __copy__(self) -> DeviceTensor:
        return self.to(copy=True)

    def __deepcopy__(self, memo: Any) -> DeviceTensor:
        return self.to(copy=True)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        host = self.to(device="cpu")
        # The dimensions are sorted by stride, so the array is contiguous for every dense layout. Protocol 5 of pickle
        # then passes the memory of the array on without a copy.
        order = sorted(range(self.ndim), key=lambda i: -host.strides[i])
        if not host.permute(order).is_contiguous():
            host, order = host.contiguous(), list(range(self.ndim))
        return _restored, (bits(host.permute(order)), str(self.dtype), self.device, order)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(4)

    def __complex__(self) -> complex:
        return complex(float(self))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the Python array API standard, as a module (pyminidnn.array_api).

        api_version  None or a version of the standard; NotSupported for versions later than 2024.12
        """
        from . import array_api

        if api_version not in (None, *_API_VERSIONS):
            raise NotSupported(
                f"__array_namespace__: api_version must be None or one of {', '.join(_API_VERSIONS)}; "
                f"got {short(api_version)}"
            )
        return array_api

    def __jax_array__(self) -> Any:
        """The tensor as an array of JAX, for jax.numpy.asarray(t). It may share the memory of the tensor."""
        from jax import numpy as jnp

        return jnp.from_dlpack(self.contiguous())

    @property
    def T(self) -> DeviceTensor:
        """A view with the dimensions in reverse order."""
        return self.permute(tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> DeviceTensor:
        """A view with the last two dimensions swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT: the tensor must have two dimensions or more; it has {self.ndim}")
        return self.permute((*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    def reshape(self, *shape: Any) -> DeviceTensor:
        """The same elements in row-major order under another shape, ints or a sequence.

        It is a view where strides allow, else a copy. One size may be -1, which stands for the size that the others
        imply.
        """
        return self._reshape(shape[0] if len(shape) == 1 else shape)

    def permute(self, *axes: Any) -> DeviceTensor:
        """A view whose dimension i is dimension axes[i] of this tensor; negative axes count from the end."""
        return self._permute(axes[0] if len(axes) == 1 else axes)

    def transpose(self, *axes: Any) -> DeviceTensor:
        """A view with the dimensions in the order of `axes`, or in reverse order without axes."""
        return self.T if not axes or (len(axes) == 1 and axes[0] is None) else self.permute(*axes)

    def tolist(self) -> Any:
        """The elements as Python numbers, in nested lists. Waits for the GPU."""
        host = self.to(dtype="float32") if self.dtype == "bfloat16" else self
        return host.numpy().tolist()

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> DeviceTensor:
        """The elements cast to `dtype`, as in to(). copy=False: the tensor itself, if it has the dtype already."""
        return self.to(dtype=dtype, copy=copy)

    def copy(self) -> DeviceTensor:
        """A new tensor with the same elements, on the same device."""
        return self.to(copy=True)

    def clone(self) -> DeviceTensor:
        """copy(), by torch's name."""
        return self.to(copy=True)

    def cpu(self) -> DeviceTensor:
        """The tensor on the CPU; itself if it is there already."""
        return self.to(device="cpu")

    def cuda(self, index: int = 0) -> DeviceTensor:
        """The tensor on GPU `index`; itself if it is there already."""
        return self.to(device=f"cuda:{_C.integer(index)}")

    def to_device(self, device: str, /, *, stream: Any = None) -> DeviceTensor:
        """The tensor on `device`; itself if it is there already.

        stream  CUDA only: the stream of `device` that copies, as in Handle(); None: that of the current handle
        """
        if stream is None:
            return self.to(device=device)
        with Handle(device, stream=stream):
            return self.to(device=device)

    def contiguous(self) -> DeviceTensor:
        """The tensor in row-major order; itself if it is stored so."""
        return self if self.is_contiguous() else transform(self, layout="contiguous")

    def is_contiguous(self) -> bool:
        """Whether the elements are stored in row-major order, without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return self.size == 0
            expected *= size
        return True

    def flatten(self) -> DeviceTensor:
        """A copy of the elements in one dimension, in row-major order."""
        return self.reshape((-1,)) if not self.is_contiguous() else self.to(copy=True).reshape((-1,))

    def ravel(self) -> DeviceTensor:
        """The elements in one dimension, in row-major order: a view where strides allow, else a copy."""
        return self.reshape((-1,))

    def squeeze(self, axis: int | Sequence[int] | None = None) -> DeviceTensor:
        """A view without the dimensions of one element: all of them, or those of `axis`."""
        rank = self.ndim
        wanted = range(rank) if axis is None else _C.integers(axis)
        axes = {a + rank if a < 0 else a for a in wanted}
        for a in axes if axis is not None else ():
            if not 0 <= a < rank or self.shape[a] != 1:
                raise ShapeError(f"squeeze: axis must name dimensions of one element of {list(self.shape)}; got {axis}")
        return self[tuple(0 if i in axes and n == 1 else slice(None) for i, n in enumerate(self.shape))]

    def unsqueeze(self, axis: int) -> DeviceTensor:
        """A view with a dimension of one element before dimension `axis`; -1 adds it at the end."""
        axis = _C.integer(axis)
        at = axis + self.ndim + 1 if axis < 0 else axis
        if not 0 <= at <= self.ndim:
            raise ShapeError(f"unsqueeze: axis must be from {-self.ndim - 1} to {self.ndim}; got {axis}")
        return self[(slice(None),) * at + (None,)]

    def fill_(self, value: Any) -> DeviceTensor:
        """Sets all elements to `value`; returns the tensor."""
        self[...] = value
        return self

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize


def _reduction(mode: ReduceMode) -> Any:
    def method(self: DeviceTensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        return reduce(self, mode, axis=axis, keepdims=keepdims)

    method.__name__ = mode
    # Texts of errors take the name of the method from its code object.
    method.__code__ = method.__code__.replace(co_name=mode)
    method.__doc__ = f'reduce(self, "{mode}", axis=axis, keepdims=keepdims)'
    return method


_REDUCTIONS: tuple[ReduceMode, ...] = ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all")
for _mode in _REDUCTIONS:
    setattr(Methods, _mode, _reduction(_mode))
for _name, _member in vars(Methods).items():
    if _name not in (
        "__module__",
        "__dict__",
        "__weakref__",
        "__doc__",
        "__qualname__",
        "__firstlineno__",
        "__static_attributes__",
    ):
        if callable(_member):
            _member.__qualname__ = f"DeviceTensor.{_member.__name__}"
        setattr(DeviceTensor, _name, _member)


def _not_copied(self: object, protocol: SupportsIndex = 4) -> Any:
    raise DTypeError(f"copy: a {type(self).__name__} can be neither copied nor pickled")


# Without these methods, Python would make a copy of a Handle or Report that has no C++ value.
for _kind in (Handle, Report, EngineReport, KernelSpec):
    for _name in ("__reduce__", "__reduce_ex__"):
        setattr(_kind, _name, _not_copied)


def _restored(values: np.ndarray[Any, Any], dtype: DTypeName, device: str, order: Sequence[int]) -> DeviceTensor:
    """The tensor of a pickle, on its device. Dimension i of `values` is dimension order[i] of the tensor."""
    places = sorted(range(len(order)), key=lambda i: order[i])
    return from_bits(values, dtype).permute(places).to(device=device)
