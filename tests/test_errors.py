# SPDX-License-Identifier: Apache-2.0
"""The kinds of error. Each is raised before any work: inputs are unchanged, and the text names the call, what was found
and what would do."""

from __future__ import annotations

import itertools
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fuzz_calls import CALLABLES, PARAMETERS, Call, Mine, Raises, drawn_call, fault_of, mentions
from support import values_of

import pyminidnn as dnn
from pyminidnn import _C, errors

KINDS = {"ShapeError": ValueError, "DTypeError": TypeError, "NotSupported": NotImplementedError,
         "DeviceError": RuntimeError, "IndexingError": IndexError, "OutOfMemory": MemoryError}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    kind = getattr(dnn, name)
    assert issubclass(kind, KINDS[name]) and issubclass(kind, dnn.Error) and not issubclass(dnn.Error, KINDS[name])
    assert getattr(errors, name) is kind and f"{kind.__module__}.{kind.__qualname__}" == f"pyminidnn.{name}"
    # The error is pickled and unpickled, as when a worker process sends it.
    again = pickle.loads(pickle.dumps(kind("text")))
    assert type(again) is kind and again.args == ("text",)


def test_without_a_gpu_every_use_of_one_says_why() -> None:
    why = _C.why_no_cuda()
    if not why:
        pytest.skip("there is a GPU")
    t = dnn.zeros(3)
    for call in (
        lambda: dnn.Handle("cuda:0"),
        lambda: dnn.Handle("cuda"),
        lambda: dnn.empty(3, device="cuda:0"),
        lambda: dnn.zeros(3, device="cuda"),
        lambda: t.to(device="cuda"),
        lambda: t.cuda(),
        lambda: t.to(device="cuda:7", dtype="int8"),
        lambda: dnn.asarray([1.0], device="cuda:0"),
        lambda: dnn.from_dlpack(t, device="cuda:0"),
        lambda: dnn.memory_stats("cuda:0"),
        lambda: dnn.reset_peak_memory("cuda:0"),
        lambda: dnn.empty_cache("cuda:0"),
        lambda: dnn.synchronize("cuda:0"),
        lambda: dnn.tensor([1.0], device="cuda:0"),
        lambda: _C.device_info("cuda:0"),
    ):
        with pytest.raises(dnn.DeviceError) as caught:
            call()
        text = str(caught.value)
        assert re.fullmatch(r"\w+: device='cuda(:\d)?': ", text.removesuffix(why))
    assert dnn.engines("activation", "cuda")  # engines() lists CUDA engines even without a GPU


@pytest.mark.parametrize("index", [99, 2**31 - 1])
def test_a_missing_device(index: int) -> None:
    with pytest.raises(
        dnn.DeviceError, match=_C.why_no_cuda().replace("(", r"\(").replace(")", r"\)") or f"there is no cuda:{index}; "
    ):
        dnn.empty(3, device=f"cuda:{index}")


def test_not_supported_lists_every_engine_with_its_reason(device: str) -> None:
    x = dnn.zeros(3, device=device)
    engines = dnn.engines("activation", device)
    algo = f"{engines[0]}:tile=1"
    with pytest.raises(dnn.NotSupported) as caught:
        dnn.activation_forward(x, "relu", algo=algo)
    first, *lines = str(caught.value).splitlines()
    assert first == f"activation_forward: no engine can run activation forward f32 relu x=3 on {device}"
    assert lines[0].startswith(f"  {engines[0]}: config 'tile=1' is not supported for this problem; use '")
    assert lines[1:] == [f"  {e}: algo='{algo}' selects another engine" for e in engines[1:]]


# ---- errors for arguments of a wrong type or with a wrong value


class Useless:
    """Has none of the protocols."""


def call_that_works(name: str) -> Call:
    rng = random.Random(name)
    for _ in range(200):
        call = drawn_call(rng, name, nonsense=0)
        try:
            result = call.f(*call.on, *call.positional, **call.keywords)
        except (dnn.Error, TypeError, BufferError):
            continue
        made = result if isinstance(result, (list, tuple)) else [result]
        # Calls whose results have no elements are left out, because no engine is selected for them.
        if all(getattr(t, "size", 1) for t in made):
            return call
    raise AssertionError(f"{name}: no drawn call works")


@pytest.mark.parametrize(
    "name", [n for n in CALLABLES if PARAMETERS[n] and n not in ("explain", "find", "DeviceTensor.cuda")]
)
def test_errors_name_the_invalid_argument(name: str) -> None:
    call = call_that_works(name)
    given = dict(zip((p.name for p in call.parameters), call.positional, strict=False)) | call.keywords
    for p in PARAMETERS[name]:
        for wrong in (Useless(), "\ud800", "nonsense"):
            try:
                if p.kind is p.VAR_POSITIONAL:
                    call.f(*call.on, *call.positional, wrong)
                else:
                    with_wrong = given | {p.name: wrong}
                    only_positional = [with_wrong.pop(q.name) for q in call.parameters
                                       if q.kind in (q.POSITIONAL_ONLY, q.VAR_POSITIONAL) and q.name in with_wrong]  # fmt: skip
                    call.f(*call.on, *only_positional, **with_wrong)
            except (dnn.Error, BufferError) as error:
                names = [p.name, PARAMETERS[name][0].name] if p.kind is p.VAR_POSITIONAL else [p.name]
                assert fault_of(call, error) is None and mentions(str(error), names)
            else:
                raise AssertionError(f"{name} takes {p.name}={wrong!r}")


def text_of(call: Callable[[], object]) -> str:
    with pytest.raises(dnn.Error) as caught:
        call()
    return str(caught.value)


def test_errors_name_the_function_that_the_user_called() -> None:
    t, c8 = dnn.zeros((2, 3)), np.zeros(3, "c8")
    assert text_of(lambda: dnn.layer_norm_forward(t, axis="a")) == "layer_norm_forward: axis must be an int; got 'a'"
    assert text_of(lambda: dnn.layer_norm_backward(t, c8, None, t, t)).startswith(
        "layer_norm_backward: x must be an array or"
    )
    for f in (dnn.softmax, dnn.relu):
        assert text_of(lambda: f(np.zeros(3, int))).startswith(f"{f.__name__}: input is int64; supported are ")  # noqa: B023
    assert text_of(lambda: dnn.concat([t, c8])).startswith("concat: tensors must be an array or numbers of float32, ")
    assert text_of(lambda: dnn.add(t, dnn.zeros(2))) == "add: b [2] does not broadcast with [2, 3]"
    assert text_of(lambda: dnn.random_normal((2,), seed=1, dtype="f5")).startswith(
        "random_normal: dtype must be one of "
    )
    assert text_of(lambda: t.reshape("a")) == "reshape: shape must be an int or a sequence of ints; got 'a'"
    # explain() and find() call a function for the user, so the error text names that function. If a lambda is passed to
    # explain(), the error text names the function that the lambda calls.
    assert text_of(lambda: dnn.find(dnn.softmax_forward, t, axis=9)).startswith(
        "softmax_forward: axis must be from -2 to"
    )
    assert text_of(lambda: dnn.explain(lambda: dnn.add(t, None))).startswith("add: a and b must be given")
    assert text_of(lambda: dnn.find(5)).startswith("find: op must be a function such as")

    class Exporter:
        def __array__(self, **_: object) -> np.ndarray:
            return dnn.reduce(t, "sum", axis=7).numpy()

    assert text_of(lambda: dnn.add(t, Exporter())).startswith("reduce: axis must be from -2 to 1 for x [2, 3]; got 7")


def test_texts_stay_short_and_printable() -> None:
    t = dnn.zeros((2, 3))
    for call in (
        lambda: dnn.activation_forward(t, "m" * 10**6),
        lambda: dnn.softmax_forward(t, axis="m" * 10**6),
        lambda: dnn.softmax_forward(t, axis=10**6000),
        lambda: dnn.reduce(t, "sum", axis=[10**9] * 10**5),
        lambda: t.reshape([1] * 10**5),
        lambda: t.as_strided([1] * 10**5, [1] * 10**5),
        lambda: dnn.empty(3, dtype=[0] * 10**6),
        lambda: dnn.asarray(["m" * 10**6]),
    ):
        text = text_of(call)
        assert len(text) < 400 and text.isprintable()
    assert text_of(lambda: dnn.empty(3, dtype="f\0")).endswith(r"got 'f\x00'")
    assert text_of(lambda: dnn.activation_forward(t, "\ud800")).endswith(
        r"without NUL and lone surrogates; got '\ud800'"
    )


def test_infinite_sequences_are_refused() -> None:
    class Endless:
        def __len__(self) -> int:
            return 2**40

        def __getitem__(self, _: int) -> int:
            return 1

    t = dnn.zeros((1, 1, 3, 3))
    for endless in (Endless(), itertools.count(), itertools.repeat(1)):
        for call in (
            lambda: dnn.conv_backward_data(t, t, endless),  # noqa: B023
            lambda: dnn.conv_forward(t, t, stride=endless),  # noqa: B023
            lambda: dnn.pool_forward(t, 2, padding=endless),  # noqa: B023
            lambda: dnn.zeros(endless),  # noqa: B023
            lambda: dnn.split(t, endless),  # noqa: B023
            lambda: dnn.concat(endless),  # noqa: B023
        ):
            assert "got " in text_of(call)


def test_numpy_numbers_as_arguments() -> None:
    t = dnn.asarray(np.arange(6, dtype="float32").reshape(2, 3))
    for two in (2, np.int64(2), np.uint8(2), np.array(2)):
        assert t.reshape((two, 3)).shape == t.reshape(np.array([two, 3])).shape == (2, 3)
        assert dnn.pad(t, two).shape == (6, 7) and len(dnn.split(t, two)) == 2
        assert dnn.pool_forward(t.reshape((1, 2, 3)), two, stride=two).shape == (1, 2, 1)
        assert dnn.zeros(two).shape == (2,) and dnn.group_norm_forward(t.permute((1, 0)), two)[1].shape == (3, 2)
        assert dnn.full(1, two, dtype="int64").numpy() == 2
    assert dnn.full(1, np.int64(2**62 + 1), dtype="int64").numpy() == 2**62 + 1
    for half in (0.5, np.float64(0.5), np.float32(0.5), np.float16(0.5), np.array(0.5)):
        np.testing.assert_array_equal(dnn.dropout_forward(t, half, seed=1), dnn.dropout_forward(t, 0.5, seed=1))
        assert dnn.full(1, half).numpy() == 0.5 and dnn.transform(t, alpha=half).numpy()[0, 2] == 1
        if np.ndim(half) == 0 and not isinstance(half, np.ndarray):
            np.testing.assert_array_equal(dnn.mul(t, half), t.numpy() / 2)
    for not_an_int in (1.5, np.float32(1.5), np.array(1.5), "1"):
        assert "axis must be an int" in text_of(lambda: dnn.softmax_forward(t, axis=not_an_int))  # noqa: B023


def test_exceptions_of_the_callers_objects_propagate() -> None:
    for call in (lambda: dnn.asarray(Raises()), lambda: dnn.concat([Raises()]), lambda: dnn.from_dlpack(Raises())):
        with pytest.raises(Mine):
            call()


@pytest.mark.torch
@pytest.mark.parametrize(
    "attribute, advice",
    [("requires grad", ".detach()"), ("the negative bit set", ".resolve_neg()"), ("the conjugate bit set", ".resolve_conj()")],
)  # fmt: skip
def test_torch_tensors_that_are_more_than_their_memory(attribute: str, advice: str) -> None:
    import torch

    x = torch.tensor([1 + 2j]).conj()
    if "conjugate" not in attribute:
        x = x.imag if "negative" in attribute else torch.tensor([-2.0], requires_grad=True)
    text = f"is a torch tensor (that|with) {attribute}; pass {re.escape(advice)} of it"
    out = dnn.zeros(1)
    for call, names in (
        (lambda: dnn.asarray(x), "asarray: obj"),
        (lambda: dnn.from_dlpack(x), "from_dlpack: x"),
        (lambda: dnn.tensor(x), "tensor: data"),
        (lambda: dnn.add(x, 1.0), "add: a"),
        (lambda: dnn.add(1.0, x), "add: b"),
        (lambda: dnn.relu(x), "relu: input"),
        (lambda: dnn.concat([out, x]), "concat: tensors"),
        (lambda: dnn.transform(out, out=x), "transform: out"),
        (lambda: dnn.functional.linear(out, x), "linear: weight"),
        (lambda: out + x, "add: b"),
        (lambda: x * out, "mul: a"),
        (lambda: out @ x, "matmul: b"),
        (lambda: out.__setitem__(0, x), "assignment: value"),
    ):
        assert re.fullmatch(f"{names} {text}", text_of(call))
    if "conjugate" not in attribute:
        plain = x.detach().resolve_neg()
        assert dnn.asarray(plain).tolist() == [-2] and (dnn.ones(1) + plain).tolist() == [-1]


def test_masked_arrays() -> None:
    masked = np.ma.masked_array(np.ones(2, "f4"), [True, False])
    t = dnn.ones(2)
    for call, names in (
        (lambda: dnn.asarray(masked), "asarray: obj"),
        (lambda: dnn.add(masked, t), "add: a"),
        (lambda: dnn.mul(t, masked), "mul: b"),
        (lambda: dnn.transform(t, out=masked), "transform: out"),
        (lambda: dnn.save("a.npz", {"x": masked}), "save: tensors"),
        (lambda: t + masked, "add: b"),
        (lambda: masked + t, "add: a"),
    ):
        assert text_of(call) == f"{names} is a masked array, and tensors have no mask; pass .filled(value) of it"
    assert dnn.add(masked.filled(0), t).tolist() == [1, 2]


# ---- error texts of pybind11 do not reach the user


def public_callables() -> dict[str, Callable[..., object]]:
    """Functions, constructors, methods of objects and of classes, and getters of properties. Some exit or wait."""
    report = dnn.explain(dnn.relu, dnn.zeros(2))[0]
    found = {n: f for n, f in vars(dnn).items() if callable(f) and not n.startswith("_")}
    found |= {f"functional.{n}": f for n, f in vars(dnn.functional).items() if callable(f) and not n.startswith("_")}
    for value in (dnn.zeros((2, 3)), dnn.Handle(), report, report.engines[0], dnn.float32):
        kind = type(value)
        for n in dir(kind):
            member = getattr(kind, n)
            if n in ("__new__", "__class__", "__init_subclass__", "_pybind11_conduit_v1_"):
                continue
            if isinstance(member, property):
                found[f"{kind.__name__}.{n} getter"] = member.fget
                found[f"{kind.__name__}.{n} setter"] = lambda *a, n=n, value=value, **_: setattr(value, n, a[-1:])
            elif callable(member):
                found[f"{kind.__name__}.{n}"] = member
                found[f"a {kind.__name__}.{n}"] = getattr(value, n)
    return found


PUBLIC = public_callables()


@pytest.mark.parametrize("name", PUBLIC)
def test_texts_of_pybind11_do_not_reach_the_user(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # save() is called with the relative path "x.npz"
    f, t = PUBLIC[name], dnn.zeros(2)
    wrong = (Useless(), None, "x", b"x", 3, 2.5, [1], {}, t, dnn.Handle(), object, 10**30, "x.npz")
    calls = [((), {}), ((), {"nonsense": 1}), ((Useless(),) * 30, {})]
    calls += [((v,) * n, {}) for v in wrong for n in range(1, 5)]
    calls += [(arguments, {}) for v in wrong for arguments in ((t, v), (v, t), (t, t, v))]
    for arguments, keywords in calls:
        try:
            f(*arguments, **keywords)
        except Exception as error:
            text = str(error)
            for words in ("incompatible function arguments", "argument types are supported", "Invoked with", "arg0"):
                assert words not in text
    dnn.set_log_level("off")
    # A call of Handle.__enter__ may have entered a handle, which is left here.
    while handle := _C.entered_handle():
        handle.__exit__()


def test_a_call_while_the_interpreter_ends() -> None:
    code = """
import builtins, numpy, pyminidnn as dnn
class Late:
    x, call, error = numpy.ones(2, "f4"), staticmethod(dnn.activation_forward), dnn.Error
    def __del__(self):
        print(self.call(self.x, "relu").shape)
        try:
            self.call(self.x, "no mode")
        except self.error as error:
            print(error)
builtins.late = Late()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.startswith("(2,)\nactivation_forward: mode must be one of ") and run.stderr == ""


# ---- the argument `out`


def row(n: int, **keywords: object) -> dnn.DeviceTensor:
    return dnn.asarray(np.arange(n, dtype="float32"), **keywords)


@pytest.mark.parametrize(
    "out, kind, text",
    [
        (lambda x: row(7, device=x.device), dnn.ShapeError, "activation_forward: out must be [6]; got [7]"),
        (lambda x: row(6, device=x.device).reshape((1, 6)), dnn.ShapeError, "activation_forward: out must be [6]; got [1, 6]"),
        (lambda x: row(6, device=x.device, dtype="float64"), dnn.DTypeError, "activation_forward: out must be float32; got float64"),
        (lambda x: row(6, device=x.device).as_strided((6,), (0,)), dnn.ShapeError,
         "activation_forward: out has strides [0], so two of its elements share memory; pass a tensor of distinct elements"),
        (lambda x: row(9, device=x.device).as_strided((6,), (0,), 3), dnn.ShapeError, "two of its elements share memory"),
        (lambda x: x.as_strided((6,), (-1,), 5), dnn.ShapeError,
         "activation_forward: out overlaps x without being the same elements; pass x itself or another tensor"),
    ],
)  # fmt: skip
def test_invalid_outputs(out: object, kind: type[Exception], text: str, device: str) -> None:
    x = row(6, device=device)
    wrong = out(x)
    before = values_of(wrong).copy()
    with pytest.raises(kind) as caught:
        dnn.activation_forward(x, "relu", out=wrong)
    assert text in str(caught.value)
    np.testing.assert_array_equal(values_of(x), np.arange(6))
    np.testing.assert_array_equal(values_of(wrong), before)


def test_out_that_partly_overlaps_its_input(device: str) -> None:
    whole = row(10, device=device)
    x = whole.as_strided((6,), (1,), 0)
    for shift in (1, 3):
        with pytest.raises(dnn.ShapeError, match="overlaps x"):
            dnn.activation_forward(x, "relu", out=whole.as_strided((6,), (1,), shift))
    np.testing.assert_array_equal(values_of(whole), np.arange(10))
    # Here x and `out` are next to each other in memory, so they do not overlap.
    dnn.activation_forward(x.as_strided((4,), (1,)), "identity", out=whole.as_strided((4,), (1,), 4))
    np.testing.assert_array_equal(values_of(whole), [0, 1, 2, 3, 0, 1, 2, 3, 8, 9])


def test_slices_that_interleave_do_not_overlap(device: str) -> None:
    """Copies channels 0-1 to channels 2-3 of one tensor, as a network without concatenations does."""
    whole = dnn.asarray(np.arange(2 * 4 * 3, dtype="float32").reshape(2, 4, 3), device=device)
    x, out = whole.as_strided((2, 2, 3), (12, 3, 1), 0), whole.as_strided((2, 2, 3), (12, 3, 1), 6)
    dnn.activation_forward(x, "identity", out=out)
    np.testing.assert_array_equal(values_of(out), values_of(x))
    np.testing.assert_array_equal(values_of(x)[1], np.arange(12, 18).reshape(2, 3))
    even, odd = whole.as_strided((12,), (2,), 0), whole.as_strided((12,), (2,), 1)
    dnn.activation_forward(even, "identity", out=odd)
    np.testing.assert_array_equal(values_of(odd), values_of(even))


def test_an_output_of_another_element_size_is_not_the_input_itself() -> None:
    """The first byte and the strides in elements are equal, yet each element of one overlaps two of the other."""
    buffer = np.arange(8, dtype="float64")
    with pytest.raises(dnn.ShapeError, match="out overlaps x without being the same elements"):
        dnn.transform(buffer, out=buffer.view("float32")[:8])
    np.testing.assert_array_equal(buffer, np.arange(8))
    same_size = buffer.view("int64")
    # A cast in place is right, because each element is read before it is overwritten.
    dnn.transform(buffer, out=same_size)
    np.testing.assert_array_equal(same_size, np.arange(8))


def test_read_only_arrays_are_refused_as_outputs() -> None:
    x = np.arange(6, dtype="float32")
    for out in (np.broadcast_to(x, (6,)), b"\0" * 24):
        out = np.frombuffer(out, "float32") if isinstance(out, bytes) else out
        with pytest.raises(dnn.ShapeError, match="activation_forward: out is read-only; pass a writable tensor"):
            dnn.activation_forward(x, "relu", out=out)
    for out, text in [([0.0] * 6, r"activation_forward: out must have memory that a tensor can share without a copy; got \[0.0, "),
                      (x.astype(">f4"), "out must have memory that a tensor can share .*; got array")]:  # fmt: skip
        with pytest.raises(dnn.DeviceError, match=text):
            dnn.activation_forward(x, "relu", out=out)


@pytest.mark.gpu
def test_devices_do_not_mix() -> None:
    x, y = dnn.zeros(3), dnn.zeros(3, device="cuda:0")
    with pytest.raises(dnn.DeviceError, match="activation_backward: dy is on cpu, x is on cuda:0; move one with"):
        dnn.activation_backward(x, y, y, "relu")
    with pytest.raises(dnn.DeviceError, match="activation_forward: the inputs are on cuda:0, out is on cpu"):
        dnn.activation_forward(y, "relu", out=x)


@pytest.mark.parametrize("kind", [dnn.DeviceTensor, dnn.Handle, _C.Report, _C.EngineReport, _C.KernelSpec])
def test_an_object_without_init(kind: type) -> None:
    """__new__ alone makes an object without a value. Reading one of its properties raises an error."""
    made = kind.__new__(kind)
    reads = [lambda name=n: getattr(made, name) for n, v in vars(kind).items() if isinstance(v, property)]
    assert reads
    if "__repr__" in vars(kind) or "__str__" in vars(kind):
        reads.append(lambda: str(made))
    for read in reads:
        with pytest.raises(dnn.DTypeError, match="whose __init__ was not called has no value"):
            read()
    x = dnn.zeros(2)
    uses = {
        dnn.DeviceTensor: [lambda: dnn.activation_forward(made, "relu"), lambda: dnn.add(x, made), lambda: np.asarray(made),
                           lambda: dnn.concat([x, made]), lambda: dnn.from_dlpack(made),
                           lambda: dnn.activation_forward(x, "relu", out=made)],
        dnn.Handle: [lambda: dnn.activation_forward(x, "relu", handle=made),
                     lambda: made.__enter__(), lambda: made.close()],
    }  # fmt: skip
    for use in uses.get(kind, []):
        with pytest.raises(dnn.DTypeError, match="whose __init__ was not called has no value"):
            use()
    if kind is dnn.DeviceTensor:
        with pytest.raises(BufferError):
            memoryview(made)
