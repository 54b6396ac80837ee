# SPDX-License-Identifier: Apache-2.0
"""Matrix products: samples for the case lines, broadcasting, c and out, properties, comparison with torch, errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reference
from cases import Case, generator
from support import Result, Sample, assert_close, out_for, outputs_by_threads, tensor, values_of

import pyminidnn as dnn

DTYPES = ["float32", "float64", "float16", "bfloat16"]
STEEPEST = 1.5  # the largest slope of all activations; hardswish has it at x = 3
TF32 = 2.0**-10  # relative error of a TF32 product: each of its two operands is rounded by at most 2^-11 of its value


def tolerance(
    dtype: str, a: np.ndarray, b: np.ndarray, rest: float | np.ndarray = 0.0, tf32: bool = False
) -> np.ndarray:
    """The tolerance of activation(a @ b + rest): `a` includes alpha, and `rest` is the absolute value of the addend. It
    covers a sum of K products, up to four further operations, and the activation, which passes the error on and adds a
    few ulp of its own, of at most 1 + |v|."""
    scale = np.abs(a) @ np.abs(b) + rest
    rounding = STEEPEST * TF32 * (scale - rest) if tf32 else 0
    return rounding + (
        reference.tolerance(dtype, a.shape[-1] + 4, STEEPEST * scale) + reference.tolerance(dtype, 16, 1 + scale)
    )


def sample(case: Case) -> Sample:
    rng = generator(case)

    def draw(name: str) -> np.ndarray:
        operand = case.operands[name]
        # Along a dimension with stride zero, all elements are the same element in memory. So one random value is drawn
        # for each element in memory.
        distinct = [1 if s == 0 else n for n, s in zip(operand.shape, operand.strides or operand.shape, strict=True)]
        return np.broadcast_to(reference.rounded(rng.normal(0, 1, distinct), case.dtype), operand.shape)

    inputs = {name: draw(name) for name in ("a", "b", "c") if name in case.operands}
    a, b, c, bias = inputs["a"], inputs["b"], inputs.get("c"), None
    alpha, beta = (1.0, 0.0) if c is None else (-0.5, 0.75)
    step = int(case.attributes.get("bias_stride", "1"))
    if "bias" in case.words:
        inputs["bias"] = reference.rounded(rng.normal(0, 1, b.shape[-1] * step), case.dtype)
        bias = inputs["bias"][::step]
    activation, ieee = case.attributes.get("activation"), case.attributes.get("math") == "ieee"
    tf32 = case.dtype == "float32" and not ieee

    def call(t: dict[str, dnn.DeviceTensor], algo: str, out: dnn.DeviceTensor | None = None) -> list[dnn.DeviceTensor]:
        given = t["bias"].as_strided((b.shape[-1],), (step,), 0) if "bias" in t else None
        handle = dnn.Handle(device=t["a"].device, math="ieee") if ieee else None
        out = out_for(case, out, want.shape, t["a"])
        return [dnn.matmul(t["a"], t["b"], alpha=alpha, beta=beta, c=t.get("c"), bias=given, activation=activation,
                           algo=algo, out=out, handle=handle)]  # fmt: skip

    want = reference.matmul(a, b, alpha=alpha, beta=beta, c=c, bias=bias, activation=activation)
    rest = 0 if c is None else np.abs(beta * c)
    rest = rest if bias is None else rest + np.abs(bias)
    return Sample(
        inputs, call, [Result(want, tolerance(case.out_dtype, alpha * a, b, rest, tf32))], {"c": case.out_dtype}
    )


def every_engine(test: Callable[..., None]) -> Callable[..., None]:
    """For properties that a case line cannot express. The test takes an engine and its device, and float32 is computed
    as float32. Engines that refuse the problem are skipped, with the sentence of why_not."""

    @functools.wraps(test)
    def run(*, engine: str, device: str, **others: Any) -> None:
        with dnn.Handle(device=device, math="ieee"):
            try:
                test(engine=engine, device=device, **others)
            except dnn.NotSupported as declined:
                pytest.skip(str(declined))

    engines = [(name, "cpu") for name in dnn.engines("matmul", "cpu")]
    on_gpu = [pytest.param(name, "cuda:0", marks=pytest.mark.gpu) for name in dnn.engines("matmul", "cuda")]
    return pytest.mark.parametrize("engine, device", engines + on_gpu)(run)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "a_shape, b_shape", [((200, 300), (300, 136)), ((3, 64, 4096), (4096, 72)), ((130, 33), (33, 64))]
)
def test_three_tf32_products_have_float32_accuracy(a_shape: Any, b_shape: Any) -> None:
    """A product loses at most 3 * 2^-22 of |a b|, and its sum has three times the terms."""
    rng = np.random.default_rng(5)
    a, b = (reference.rounded(rng.normal(size=s), "float32") for s in (a_shape, b_shape))
    ta, tb = (tensor(v, "float32", "cuda:0") for v in (a, b))
    scale = np.abs(a) @ np.abs(b)
    allowed = reference.tolerance("float32", 3 * a.shape[-1], scale) + 3 * 2.0**-22 * scale
    (report,) = dnn.explain(dnn.matmul, ta, tb)
    able = [e for e in report.engines if not e.why_not and e.name.endswith("3xtf32")]
    assert able
    for engine in able:
        assert "reduced precision" in engine.traits
        for algo in (engine.name, f"{engine.name}:{engine.configs[-1]}"):
            assert_close(dnn.matmul(ta, tb, algo=algo), Result(a @ b, allowed), algo)


@pytest.fixture(autouse=True)
def true_float32(request: pytest.FixtureRequest) -> Iterator[None]:
    """Applies to tests that take no engine, too."""
    if "engine" in request.fixturenames or "device" not in request.fixturenames:
        yield
        return
    with dnn.Handle(device=request.getfixturevalue("device"), math="ieee"):
        yield


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return reference.rounded(np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape), dtype)


@pytest.mark.parametrize(
    "a_shape, b_shape",
    [
        ((5, 6), (3, 6, 7)),
        ((4, 5, 6), (6, 7)),
        ((2, 1, 5, 6), (3, 6, 7)),
        ((1, 5, 6), (4, 6, 7)),
        ((2, 1, 2, 5, 6), (2, 3, 1, 6, 7)),
    ],
)
def test_batches_broadcast_as_in_numpy(a_shape: tuple[int, ...], b_shape: tuple[int, ...], device: str) -> None:
    a, b = normal(*a_shape), normal(*b_shape)
    y = dnn.matmul(tensor(a, "float32", device), tensor(b, "float32", device))
    assert_close(y, Result(a @ b, tolerance("float32", a, b)))


@every_engine
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_transposes(batch: tuple[int, ...], dtype: str, engine: str, device: str) -> None:
    a, b = normal(*batch, 17, 9, dtype=dtype), normal(*batch, 9, 13, dtype=dtype)
    given = [tensor(v, dtype, device) for v in (a, b, a.swapaxes(-1, -2), b.swapaxes(-1, -2))]
    want = Result(a @ b, tolerance(dtype, a, b))
    straight = dnn.matmul(given[0], given[1], algo=engine)
    assert_close(straight, want)
    for transpose_a, transpose_b in ((True, False), (False, True), (True, True)):
        y = dnn.matmul(given[2 * transpose_a], given[1 + 2 * transpose_b], transpose_a=transpose_a,
                       transpose_b=transpose_b, algo=engine)  # fmt: skip
        np.testing.assert_array_equal(values_of(y), values_of(straight))


@every_engine
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_product_has_the_same_bits(dtype: str, engine: str, device: str) -> None:
    """(a b)^T = b^T a^T. Each element is the sum over k in one order, wherever the element is in its tile."""
    a, b = tensor(normal(150, 400), dtype, device), tensor(normal(400, 70), dtype, device)
    y = dnn.matmul(a, b, algo=engine)
    again = dnn.matmul(b, a, transpose_a=True, transpose_b=True, algo=engine)
    np.testing.assert_array_equal(values_of(again), values_of(y).T)


@every_engine
def test_identity(engine: str, device: str) -> None:
    b = normal(131, 67)
    y = dnn.matmul(tensor(np.eye(131), "float32", device), tensor(b, "float32", device), algo=engine)
    np.testing.assert_array_equal(values_of(y), b)


@every_engine
@pytest.mark.parametrize("c_shape", [(), (1,), (7,), (5, 1), (5, 7), (3, 1, 7), (3, 5, 7)])
def test_c_broadcasts(c_shape: tuple[int, ...], engine: str, device: str) -> None:
    a, b, c = normal(3, 5, 6), normal(3, 6, 7), normal(*c_shape)
    y = dnn.matmul(*(tensor(v, "float32", device) for v in (a, b)), c=tensor(c, "float32", device), alpha=2, beta=-3,
                   algo=engine)  # fmt: skip
    want = Result(reference.matmul(a, b, alpha=2, beta=-3, c=c), tolerance("float32", 2 * a, b, np.abs(3 * c)))
    assert_close(y, want)


@every_engine
@pytest.mark.parametrize("dtype", DTYPES)
def test_beta_zero_reads_neither_c_nor_out(dtype: str, engine: str, device: str) -> None:
    a, b = normal(5, 6, dtype=dtype), normal(6, 7, dtype=dtype)
    nan = dnn.full((5, 7), float("nan"), dtype=dtype, device=device)
    out = dnn.full((5, 7), float("nan"), dtype=dtype, device=device)
    y = dnn.matmul(tensor(a, dtype, device), tensor(b, dtype, device), c=nan, beta=0.0, out=out, algo=engine)
    assert_close(y, Result(a @ b, tolerance(dtype, a, b)))


@every_engine
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("named", [False, True])
def test_accumulates_into_out(named: bool, dtype: str, engine: str, device: str) -> None:
    a, b, c = normal(65, 20, dtype=dtype), normal(20, 67, dtype=dtype), normal(65, 67, dtype=dtype)
    out = tensor(c.copy(), dtype, device)
    y = dnn.matmul(tensor(a, dtype, device), tensor(b, dtype, device), alpha=2, beta=0.5, c=out if named else None,
                   out=out, algo=engine)  # fmt: skip
    assert y.data_ptr == out.data_ptr
    want = reference.matmul(a, b, alpha=2, beta=0.5, c=c)
    assert_close(out, Result(want, tolerance(dtype, 2 * a, b, np.abs(0.5 * c))))


def test_no_rows_columns_or_batches(device: str) -> None:
    def shape_of(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return dnn.matmul(dnn.empty(a, device=device), dnn.empty(b, device=device)).shape

    assert shape_of((0, 4), (4, 5)) == (0, 5)
    assert shape_of((3, 4), (4, 0)) == (3, 0)
    assert shape_of((0, 3, 4), (1, 4, 5)) == (0, 3, 5)
    assert shape_of((0, 0), (0, 0)) == (0, 0)


@every_engine
def test_k_is_zero(engine: str, device: str) -> None:
    a, b = dnn.empty((2, 0), device=device), dnn.empty((0, 3), device=device)
    c, bias = tensor([[1, -8, 3], [-4, 5, 6]], "float32", device), tensor([1, 2, -20], "float32", device)
    np.testing.assert_array_equal(values_of(dnn.matmul(a, b, algo=engine)), np.zeros((2, 3)))
    y = dnn.matmul(a, b, beta=2, c=c, bias=bias, activation="relu", algo=engine)
    np.testing.assert_array_equal(values_of(y), [[3, 0, 0], [0, 12, 0]])


@every_engine
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_stay_in_their_rows_and_columns(dtype: str, engine: str, device: str) -> None:
    a, b = normal(67, 19, dtype=dtype), normal(19, 66, dtype=dtype)
    # Some NaNs and infinities are in the last row or column, where tiles are padded.
    a[66, 18], a[3, 0], b[0, 65] = np.nan, np.inf, -np.inf
    a[9], b[:, 7] = 0, np.inf
    with np.errstate(invalid="ignore"):
        want = a @ b
    scale = np.abs(np.where(np.isfinite(a), a, 0)) @ np.abs(np.where(np.isfinite(b), b, 0))
    y = dnn.matmul(tensor(a, dtype, device), tensor(b, dtype, device), algo=engine)
    assert_close(y, Result(want, reference.tolerance(dtype, 19, scale)))


@pytest.mark.gpu
@pytest.mark.parametrize("transpose_a, transpose_b", [(False, False), (True, False), (False, True), (True, True)])
def test_infinity_in_three_products(transpose_a: bool, transpose_b: bool) -> None:
    """The product of an infinity and the small part of the other number, which is 0 or of another sign, must not be
    added."""
    a, b = normal(68, 32, dtype="float32"), normal(32, 72, dtype="float32")
    a[3, 0], a[5, 31], a[9, 4], b[7, 7], b[8, 65] = np.inf, -np.inf, np.nan, np.inf, -np.inf
    # Some elements of a and b are exact in TF32, so their small part (the difference to TF32) is 0, and 0 times
    # infinity would be NaN.
    b[0, :8], a[40:44] = np.arange(8) - 4, 2.0
    with np.errstate(invalid="ignore"):
        want = a @ b
    scale = np.abs(np.where(np.isfinite(a), a, 0)) @ np.abs(np.where(np.isfinite(b), b, 0))
    ta = tensor(a.T if transpose_a else a, "float32", "cuda:0")
    tb = tensor(b.T if transpose_b else b, "float32", "cuda:0")
    try:
        y = dnn.matmul(ta, tb, transpose_a=transpose_a, transpose_b=transpose_b, algo="wgmma_3xtf32")
    except dnn.NotSupported as declined:
        pytest.skip(str(declined))
    assert_close(y, Result(want, reference.tolerance("float32", 32, scale) + 2.0**-20 * scale))


@every_engine
def test_long_sums_are_float32(engine: str, device: str) -> None:
    """Sums of 4096 ones: float16 sums would stop at 2048, bfloat16 sums at 256."""
    for dtype in ("float16", "bfloat16"):
        one = dnn.full((2, 4096), 1.0, dtype=dtype, device=device)
        np.testing.assert_array_equal(values_of(dnn.matmul(one, one, transpose_b=True, algo=engine)), 4096)


@every_engine
def test_windows_that_overlap(engine: str, device: str) -> None:
    """An input may have any strides. Here, rows of `a` overlap, and the product is a convolution."""
    x, w = normal(100), normal(5, 3)
    windows = tensor(x, "float32", device).as_strided((96, 5), (1, 1), 0)
    y = dnn.matmul(windows, tensor(w, "float32", device), algo=engine)
    rows = np.lib.stride_tricks.sliding_window_view(x, 5)
    assert_close(y, Result(rows @ w, tolerance("float32", rows, w)))


def test_result_is_row_major_on_host_arrays_too() -> None:
    a, b = normal(3, 4).astype("float32"), normal(4, 2).astype("float32")
    y = dnn.matmul(np.asfortranarray(a), b.T.copy().T)
    assert y.strides == (2, 1) and y.dtype == "float32"
    assert_close(y, Result(a.astype("float64") @ b, tolerance("float32", a, b)))


def test_results_do_not_depend_on_threads() -> None:
    """With one thread, with two, and with so many that tiles become smaller."""
    code = """if True:
        import hashlib, numpy as np, pyminidnn as dnn
        rng, digest = np.random.default_rng(0), hashlib.sha256()
        for m, n, k in ((150, 300, 700), (1, 2000, 50), (33, 17, 1000)):
            a, b = rng.standard_normal((3, m, k)), rng.standard_normal((k, n))
            for dtype in ("float32", "float64", "bfloat16"):
                ours = [dnn.asarray(v, dtype=dtype) for v in (a, b)]
                y = dnn.matmul(*ours, activation="gelu", algo="packed")
                digest.update(bytes(y.to(dtype="float64").numpy()))
        print(digest.hexdigest())"""
    assert len(outputs_by_threads(code)) == 1


def test_workspace_limit() -> None:
    a = dnn.full((64, 64), 1.0)
    (report,) = dnn.explain(dnn.matmul, a, a, handle=dnn.Handle(max_workspace=1000))
    reasons = {e.name: e.why_not for e in report.engines}
    assert "of workspace; Handle.max_workspace allows 1" in reasons["cpu.matmul.packed"]
    assert report.chosen == "cpu.matmul.reference"


def test_math_is_part_of_the_problem_in_float32_only() -> None:
    ieee = dnn.Handle(math="ieee")
    for dtype, suffix in (("float32", " math=ieee"), ("float64", ""), ("float16", "")):
        a = dnn.full((2, 2), 1.0, dtype=dtype)
        (report,) = dnn.explain(dnn.matmul, a, a, handle=ieee)
        assert report.problem.endswith("a=2x2 b=2x2" + suffix)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_agrees_with_torch(dtype: str, device: str) -> None:
    import torch

    a, b, c, bias = (normal(*s, dtype=dtype) for s in ((3, 33, 70), (3, 70, 65), (3, 33, 65), (65,)))
    ta, tb, tc, tbias = (torch.tensor(v, dtype=getattr(torch, dtype)).to(device) for v in (a, b, c, bias))

    def check(got: dnn.DeviceTensor, want: object, x: np.ndarray, y: np.ndarray, rest: float | np.ndarray = 0) -> None:
        # The tolerance is doubled, because torch's result has rounding errors, too.
        assert_close(got, Result(want.double().cpu().numpy(), 2 * tolerance(dtype, x, y, rest)))

    # torch's products on a GPU must be computed in full float32, which is torch's default.
    check(dnn.matmul(ta, tb), ta @ tb, a, b)
    check(dnn.matmul(ta, tb, alpha=2, beta=0.5, c=tc), torch.baddbmm(tc, ta, tb, beta=0.5, alpha=2), 2 * a, b, abs(c))
    linear = torch.relu(torch.addmm(tbias, ta[0], tb[0]))
    check(dnn.matmul(ta[0], tb[0], bias=tbias, activation="relu"), linear, a[0], b[0], abs(bias))
    check(dnn.matmul(ta, tc, transpose_a=True), ta.mT @ tc, a.swapaxes(1, 2), c)
    check(dnn.matmul(ta.mT, tc), ta.mT @ tc, a.swapaxes(1, 2), c)


Error = tuple[Callable[[dnn.DeviceTensor, dnn.DeviceTensor], object], type[Exception], str]


def overlapping(a: dnn.DeviceTensor, b: dnn.DeviceTensor) -> object:
    c = dnn.zeros((20,), device=a.device)
    return dnn.matmul(a, b, beta=1, c=c.as_strided((3, 5), (5, 1), 5), out=c.as_strided((3, 5), (5, 1), 0))


def bias_in_out(a: dnn.DeviceTensor, b: dnn.DeviceTensor) -> object:
    y = dnn.zeros((3, 5), device=a.device)
    return dnn.matmul(a, b, bias=y.as_strided((5,), (1,), 0), out=y)


# Each call gets the matrices a [3, 4] and b [4, 5].
ERRORS: list[Error] = [
    (lambda a, b: dnn.matmul(a, a), dnn.ShapeError,
     "matmul: a [3, 4] and b [3, 4]: the matrices of a have 4 columns, so those of b must have 4 rows; got 3"),
    (lambda a, b: dnn.matmul(a, b, transpose_a=True), dnn.ShapeError,
     "a [3, 4] transposed and b [4, 5]: the matrices of a have 3 columns, so those of b must have 3 rows; got 4"),
    (lambda a, b: dnn.matmul(a, b.reshape((20,))), dnn.ShapeError,
     "matmul: b must have 2 to 5 dimensions; got [20]"),
    (lambda a, b: dnn.matmul(a.reshape((1, 1, 1, 1, 3, 4)), b), dnn.ShapeError,
     "matmul: a must have 2 to 5 dimensions; got [1, 1, 1, 1, 3, 4]"),
    (lambda a, b: dnn.matmul(a.reshape((3, 2, 2)), b.reshape((2, 2, 5))), dnn.ShapeError,
     "a [3, 2, 2] and b [2, 2, 5]: the dimensions before the last two do not broadcast; each pair of sizes must be equal"),
    (lambda a, b: dnn.matmul(a, b, bias=a.reshape((12,))), dnn.ShapeError,
     "matmul: bias must be [5] for 5 columns; got [12]"),
    (lambda a, b: dnn.matmul(a, b, bias=b), dnn.ShapeError, "bias must be [5] for 5 columns; got [4, 5]"),
    (lambda a, b: dnn.matmul(a, b, c=a, beta=1), dnn.ShapeError,
     "matmul: c [3, 4] does not broadcast to the result [3, 5]"),
    (lambda a, b: dnn.matmul(a, b, c=a), dnn.ShapeError, "c [3, 4] does not broadcast to the result [3, 5]"),
    (lambda a, b: dnn.matmul(a, b, c=b.reshape((1, 4, 5)), beta=1), dnn.ShapeError,
     "c [1, 4, 5] does not broadcast to the result [3, 5]"),
    (lambda a, b: dnn.matmul(a, b, beta=1), dnn.ShapeError,
     "matmul: beta=1 needs c, or an out to add to; got neither"),
    (lambda a, b: dnn.matmul(a, b, activation="rely"), dnn.ShapeError,
     "matmul: activation must be one of identity"),
    (lambda a, b: dnn.matmul(a, b.to(dtype="float64")), dnn.DTypeError,
     "matmul: a is float32, b is float64; cast one"),
    (lambda a, b: dnn.matmul(a, b, c=b.to(dtype="float16")), dnn.DTypeError, "a is float32, c is float16; cast one"),
    (lambda a, b: dnn.matmul(a, b, bias=b.to(dtype="float16")), dnn.DTypeError, "a is float32, bias is float16"),
    (lambda a, b: dnn.matmul(a.to(dtype="int32"), b), dnn.DTypeError, "a is int32; supported are float32"),
    (lambda a, b: dnn.matmul(a, b, out=dnn.empty((5, 3), device=a.device)), dnn.ShapeError,
     "matmul: out must be [3, 5]; got [5, 3]"),
    (lambda a, b: dnn.matmul(a, b, out=dnn.empty((3, 5), dtype="float64", device=a.device)), dnn.DTypeError,
     "out must be float32; got float64"),
    (lambda a, b: dnn.matmul(a.to(dtype="float16"), b.to(dtype="float16"), c=dnn.zeros((5,), dtype="float16", device=a.device),
                             out=dnn.empty((3, 5), device=a.device)), dnn.DTypeError, "matmul: out is float32, c is float16"),
    (lambda a, b: dnn.matmul(a.to(dtype="float16"), b.to(dtype="float16"), out=dnn.empty((3, 5), dtype="bfloat16", device=a.device)),
     dnn.DTypeError, "out must be float16; got bfloat16"),
    (lambda a, b: dnn.matmul(a, b, out=b.as_strided((3, 5), (5, 1), 5)), dnn.ShapeError,
     "matmul: out shares memory with b; pass another tensor"),
    (lambda a, b: dnn.matmul(b, a, transpose_a=True, transpose_b=True, out=b.as_strided((5, 3), (3, 1), 0)),
     dnn.ShapeError, "matmul: out shares memory with a; pass another tensor"),
    (overlapping, dnn.ShapeError, "matmul: out overlaps c without being the same elements"),
    (bias_in_out, dnn.ShapeError, "matmul: out shares memory with bias"),
    (lambda a, b: dnn.matmul(a, b, algo="warp"), dnn.NotSupported, "algo='warp' names no engine for "),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, text", ERRORS)
def test_errors(call: Callable[..., object], kind: type[Exception], text: str, device: str) -> None:
    a, b = tensor(np.ones((3, 4)), "float32", device), tensor(np.ones((4, 5)), "float32", device)
    with pytest.raises(kind) as caught:
        call(a, b)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(a), 1)  # the failed call has not changed a and b
    np.testing.assert_array_equal(values_of(b), 1)


@pytest.mark.parametrize("mode", reference.activation.MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_activations_of_exact_sums(mode: str, dtype: str, device: str) -> None:
    """Products with the identity matrix have exact sums. They are all finite values of float16 or bfloat16."""
    bits = np.arange(2**16, dtype=np.uint16)
    x = bits.view(np.float16) if dtype == "float16" else (bits.astype(np.uint32) << 16).view(np.float32)
    x = np.where(np.isfinite(x), x, 1).astype(np.float64).reshape(-1, 64)
    # Sums of wgmma and of mma.sync may lose subnormal terms.
    x[np.abs(x) < 2.0**-100] = 0
    want = reference.activation_forward(x, mode)
    # The short formulas of activations have an error of 2^-15 + 2^-19 x^2.
    ulp = {"float32": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype] + 2.0**-15 + 2.0**-19 * x * x
    # Results below 2^-119 may become 0.
    smallest = {"float32": 2.0**-119, "float16": 2.0**-24, "bfloat16": 2.0**-119}[dtype]
    a, b = tensor(x, dtype, device), tensor(np.eye(64), dtype, device)
    (report,) = dnn.explain(dnn.matmul, a, b, activation=mode)
    for engine in report.engines:
        for config in [] if engine.why_not else engine.configs or [""]:
            y = dnn.matmul(a, b, algo=f"{engine.name}:{config}".rstrip(":"), activation=mode)
            assert_close(y, Result(want, ulp * np.abs(want) + smallest), f"{engine.name}:{config}")
