# SPDX-License-Identifier: Apache-2.0
"""Functions of elements: samples for the case lines, broadcasting as in NumPy, special values and errors."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import Case, Operand, generator
from support import REAL, Result, Sample, assert_close, tensor, values_of

import pyminidnn as dnn

POINTWISE = reference.POINTWISE
INTEGERS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
INTEGERS_ONLY = {"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
TESTS = {"isnan", "isinf", "isfinite", "signbit", "logical_not", "eq", "ne", "lt", "le", "gt", "ge",
         "logical_and", "logical_or", "logical_xor"}  # fmt: skip
POSITIVE = {"sqrt", "rsqrt", "log", "log1p", "log2", "log10", "reciprocal"}
# The absolute error of rounding a tiny result. It is half of the distance between subnormal numbers; in float32, it is
# the whole distance.
SMALLEST = {"float32": 2.0**-149, "float64": 0.0, "float16": 2.0**-25, "bfloat16": 2.0**-134}


def drawn(rng: np.random.Generator, operand: Operand, dtype: str, op: str, name: str) -> np.ndarray:
    strides = operand.strides or operand.shape
    distinct = tuple(1 if operand.strides and s == 0 else n for n, s in zip(operand.shape, strides, strict=True))
    if dtype == "bool":
        x = rng.integers(0, 2, distinct).astype("float64")
    elif dtype in INTEGERS:
        # The inputs have few distinct values, so that some elements of different inputs are equal.
        x = rng.integers(0 if dtype == "uint8" else -9, 10, distinct).astype("float64")
        if op in ("mod", "floor_div") and name == "b":
            x[x == 0] = 3
        if op in ("pow", "left_shift", "right_shift") and name == "b":
            x = np.abs(x)
    else:
        x = rng.normal(0, 3, distinct)
        if op in POSITIVE or (op == "pow" and name == "a"):
            x = np.abs(x) + 0.1
        if op in ("asin", "acos", "atanh"):
            x = rng.uniform(-1, 1, distinct)
        if op == "acosh":
            x = np.abs(x) + 1
        if op in TESTS:
            x = np.round(x)
    return np.broadcast_to(reference.rounded(x, dtype), operand.shape)


def sample(case: Case) -> Sample:
    rng = generator(case)
    op = case.direction
    inputs, dtypes = {}, {}
    for name in ("a", "b", "c"):
        if name not in case.operands:
            continue
        dtypes[name] = "bool" if op == "where" and name == "a" else case.dtype
        inputs[name] = drawn(rng, case.operands[name], dtypes[name], op, name)
    want = reference.pointwise(op, *inputs.values())
    tolerance: float | np.ndarray = 0.0
    if case.dtype in INTEGERS and op not in TESTS:
        low, high = INTEGERS[case.dtype]
        if case.dtype != "int64":
            want = (want - low) % (high - low + 1) + low
    elif case.dtype in REAL and op not in TESTS:
        # The inputs are exact, and the functions have an error of a few ulp. If terms of a sum of products cancel,
        # their rounding errors remain.
        largest = np.float64(0)
        if op in ("lerp", "multiply_add", "add_square"):
            largest = sum(np.abs(x) for x in inputs.values()) * (2 + np.abs(inputs["b"]) + np.abs(inputs.get("c", 0)))
        if op == "logaddexp":  # the larger operand plus a logarithm, which may cancel it
            largest = np.maximum(np.abs(inputs["a"]), np.abs(inputs["b"]))
        accumulator = reference.EPS[reference.accumulator(case.dtype)]
        tolerance = reference.tolerance(case.dtype, 16, np.abs(want)) + 4 * accumulator * largest + SMALLEST[case.dtype]
        # If a float16 result overflows, it is Inf in the library and in the oracle.
        want = reference.rounded(want, case.dtype) if case.dtype == "float16" else want
    call = lambda t, algo, out=None: [dnn.pointwise(op, *t.values(), algo=algo, out=out)]
    return Sample(inputs, call, [Result(want, tolerance)], dtypes)


@pytest.mark.parametrize("op", POINTWISE)
def test_every_function_by_its_name(op: str, device: str) -> None:
    rng = np.random.default_rng(0)
    arity = POINTWISE[op].__code__.co_argcount if hasattr(POINTWISE[op], "__code__") else POINTWISE[op].nin if hasattr(POINTWISE[op], "nin") else 1  # fmt: skip
    values = [np.abs(rng.normal(0, 2, 40)) + 0.1 for _ in range(arity)]
    dtype = "int64" if op in INTEGERS_ONLY else "float64"
    if dtype == "int64":
        values = [np.floor(v) for v in values]
    tensors = [tensor(v, dtype, device) for v in values]
    if op == "where":
        values[0] = (values[0] > 1).astype("float64")
        tensors[0] = tensor(values[0], "bool", device)
    got = getattr(dnn, op)(*tensors)
    assert_close(got, Result(reference.pointwise(op, *values), 1e-13), op)
    assert got.dtype == ("bool" if op in TESTS else dtype)


@pytest.mark.parametrize("op", sorted(POINTWISE.keys() - INTEGERS_ONLY))
def test_nan_and_infinity(op: str, device: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 300.0])
    a, b = (x.ravel() for x in np.meshgrid(special, special))
    function = getattr(dnn, op)
    arity = function.__code__.co_argcount
    values = [a, b, np.full_like(a, 2.0)][:arity]
    tensors = [tensor(v, "float64", device) for v in values]
    if op == "where":
        values[0] = (a == a).astype("float64")
        tensors[0] = tensor(values[0], "bool", device)
    assert_close(function(*tensors), Result(reference.pointwise(op, *values), 1e-13 * (1 + 300.0**2)), op)


def test_numpy_broadcasting(device: str) -> None:
    rng = np.random.default_rng(1)
    shapes = [((4, 5), (5,)), ((4, 1), (1, 5)), ((3, 4, 5), (4, 1)), ((), (2, 3)), ((2, 1, 3), (7, 1)), ((1,), (1, 1))]
    for one, other in shapes:
        a, b = rng.normal(size=one), rng.normal(size=other)
        got = dnn.add(tensor(a, "float64", device), tensor(b, "float64", device))
        np.testing.assert_array_equal(values_of(got), a + b)
        assert got.shape == (a + b).shape


def test_numbers_take_the_dtype_of_the_other_operand(device: str) -> None:
    x = tensor(np.array([1.0, 2.0, 3.0]), "float16", device)
    assert dnn.add(x, 1).dtype == "float16"
    np.testing.assert_array_equal(values_of(dnn.sub(10, x)), [9, 8, 7])
    np.testing.assert_array_equal(values_of(dnn.clamp(x, 1.5, 2.5)), [1.5, 2, 2.5])
    mask = dnn.gt(x, 1.5)
    np.testing.assert_array_equal(values_of(dnn.where(mask, x, 0)), [0, 2, 3])
    big = dnn.asarray(np.array([2**62], "int64"), device=device)
    assert dnn.add(big, 2**60 + 1).to(device="cpu").numpy()[0] == 2**62 + 2**60 + 1


def test_numbers_outside_the_dtype_of_the_other_operand(device: str) -> None:
    """Such numbers are neither truncated nor saturated: eq(int8 127, 300) is false."""
    for dtype, held, others in [
        ("int8", [-128, 127], [300, -129, 0.5, 2.0, float("nan")]),
        ("uint8", [0, 255], [-1, 256, 1.7]),
        ("int32", [-(2**31), 2**31 - 1], [2**31, 2**40, float("inf")]),
        ("int64", [-(2**63), 2**63 - 1], [2**63, 10**400, 1e3]),
        ("bool", [True, 0], [2, -1, 0.5]),
    ]:
        x = dnn.asarray(np.array([0, 1], "bool" if dtype == "bool" else dtype), device=device)
        for number in held:
            assert values_of(dnn.eq(x, number)).tolist() == [number == 0, number == 1]
        for number in others:
            with pytest.raises(dnn.DTypeError, match=f"ge: a is .*, and the other operand is {dtype}"):
                dnn.ge(number, x)
    for function in (dnn.add, dnn.eq, dnn.minimum):
        with pytest.raises(
            dnn.DTypeError, match="b is 1.7, and the other operand is int8, which holds integers from -128"
        ):
            function(dnn.zeros(2, dtype="int8", device=device), 1.7)
    with pytest.raises(dnn.DTypeError, match="mul: b is an integer of 1329 bits"):
        dnn.mul(dnn.zeros(2, device=device), 10**400)


def test_integers_wrap_around_and_divide(device: str) -> None:
    for dtype in ("int8", "int32", "int64"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = dnn.asarray(np.array([low, high, 7, -7], dtype), device=device)
        one = dnn.asarray(np.array([-1, 1, 0, 3], dtype), device=device)
        assert dnn.add(x, one).to(device="cpu").numpy().tolist() == [high, low, 7, -4]
        assert dnn.neg(x).to(device="cpu").numpy().tolist() == [low, -high, -7, 7]
        assert dnn.abs(x).to(device="cpu").numpy().tolist() == [low, high, 7, 7]
        assert dnn.mod(x, one).to(device="cpu").numpy().tolist() == [0, 0, 0, 2]
        assert dnn.floor_div(x, one).to(device="cpu").numpy().tolist() == [low, high, 0, -3]
        assert dnn.pow(x, one).to(device="cpu").numpy().tolist() == [0, high, 1, -343 if dtype != "int8" else -87]
        assert dnn.pow(dnn.asarray(np.array([1, -1, -1, 0], dtype), device=device), -3).numpy().tolist() == [
            1,
            -1,
            -1,
            0,
        ]


def test_shifts_by_more_than_the_width(device: str) -> None:
    for dtype in ("int8", "int32", "int64"):
        x = dnn.asarray(np.array([5, -5, 5, -5], dtype), device=device)
        by = dnn.asarray(np.array([100, 100, -1, -1], dtype), device=device)
        assert dnn.left_shift(x, by).to(device="cpu").numpy().tolist() == [0, 0, 0, 0]
        assert dnn.right_shift(x, by).to(device="cpu").numpy().tolist() == [0, -1, 0, -1]


def test_floor_div_is_the_floor_of_the_exact_quotient(device: str) -> None:
    """In float32, 0.3 / 0.1 rounds to 3, but the quotient of the rounded operands is above or below."""
    for dtype in ("float32", "float64"):
        a, b = np.random.default_rng(0).integers(-1000, 1000, (2, 4000)).astype(dtype) / np.array(10, dtype)
        a, b = (
            np.append(a, [1, -1, 1, -1, 0.0]).astype(dtype),
            np.append(b, [np.inf, np.inf, -np.inf, 0, -3]).astype(dtype),
        )
        with np.errstate(all="ignore"):
            want = np.floor_divide(a, b)
        got = dnn.floor_div(dnn.asarray(a, device=device), dnn.asarray(b, device=device)).numpy()
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_any_byte_of_a_bool_is_true(device: str) -> None:
    x = dnn.asarray(np.array([0, 1, 2, 255], "uint8").view("bool"), device=device)
    np.testing.assert_array_equal(values_of(dnn.logical_not(x)), [1, 0, 0, 0])
    np.testing.assert_array_equal(values_of(dnn.eq(x, dnn.asarray(np.ones(4, "bool"), device=device))), [0, 1, 1, 1])


def test_in_place_and_at_any_address(device: str) -> None:
    values = np.linspace(-3, 3, 9001)
    whole = tensor(np.concatenate([[0], values]), "float32", device)
    x, y = tensor(values, "float32", device), whole.as_strided((9001,), (1,), 1)
    want = values_of(dnn.mul(x, x))
    np.testing.assert_array_equal(values_of(dnn.mul(x, y)), want)
    assert dnn.mul(x, y, out=y).data_ptr == y.data_ptr
    np.testing.assert_array_equal(values_of(y), want)


@pytest.mark.parametrize("op", ["exp", "neg"])
@pytest.mark.parametrize("n", [4099, 4096])
def test_elements_of_eight_bytes_in_place(op: str, n: int, device: str) -> None:
    """Each element is computed exactly once, also without vectors and at sizes where the chunk of a block is
    smallest."""
    whole = tensor(np.linspace(-1, 1, n + 1), "float64", device)
    x = whole.as_strided((n,), (1,), 1)
    want = values_of(dnn.pointwise(op, x.to(copy=True)))
    dnn.pointwise(op, x, out=x)
    np.testing.assert_array_equal(values_of(x), want)


def test_empty_and_layout(device: str) -> None:
    assert dnn.add(dnn.empty((4, 0, 3), device=device), 1).shape == (4, 0, 3)
    x = dnn.zeros((2, 3, 4, 5), layout="NHWC", device=device)
    assert dnn.add(dnn.zeros((3, 1, 1), device=device), x).layout == "NHWC"


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda x: dnn.pointwise("plus", x, x), dnn.ShapeError, "pointwise: op must be the name of a function of docs/ops/pointwise.md, such as add"),
        (lambda x: dnn.pointwise("add", x), dnn.ShapeError, "a and b must be given, and no more; got 1 operand"),
        (lambda x: dnn.add(x, x.reshape((6,))), dnn.ShapeError, "add: b [6] does not broadcast with [2, 3]"),
        (lambda x: dnn.add(x, x.to(dtype="float64")), dnn.DTypeError, "add: a is float32, b is float64; cast one"),
        (lambda x: dnn.exp(x.to(dtype="int32")), dnn.DTypeError, "exp: a is int32; supported are float32"),
        (lambda x: dnn.bitwise_and(x, x), dnn.DTypeError, "bitwise_and: a is float32; supported are int8, uint8, int32, int64 and bool"),
        (lambda x: dnn.add(x.to(dtype="bool"), x.to(dtype="bool")), dnn.DTypeError, "add: a is bool"),
        (lambda x: dnn.where(x, x, x), dnn.DTypeError, "where: a is float32; a is the condition and must be bool"),
        (lambda x: dnn.add(x, x, out=dnn.empty((3, 2), device=x.device)), dnn.ShapeError, "out must be [2, 3]; got [3, 2]"),
        (lambda x: dnn.add(x.as_strided((1, 3), (3, 1)), dnn.zeros((2, 3), device=x.device), out=x), dnn.ShapeError,
         "add: out shares memory with a, which is broadcast"),
    ],
)  # fmt: skip
def test_errors(call: object, kind: type[Exception], text: str, device: str) -> None:
    x = tensor(np.ones((2, 3)), "float32", device)
    with pytest.raises(kind) as caught:
        call(x)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), 1)
