# SPDX-License-Identifier: Apache-2.0
"""What tools see of the package: type checkers, signatures, names of classes."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

import pyminidnn as dnn
from pyminidnn import _C, functional, options

ROOT = Path(__file__).resolve().parent.parent
CALLS = Path(__file__).parent / "typed_calls.py"
CHECKERS = {"mypy": bool(find_spec("mypy")), "pyright": bool(shutil.which("pyright"))}
CLASSES = (dnn.DeviceTensor, dnn.Handle, dnn.DType, _C.Report, _C.EngineReport)
FUNCTIONS = {n: getattr(dnn, n) for n in dnn.__all__ if callable(getattr(dnn, n))}
FUNCTIONS |= {f"functional.{n}": f for n, f in vars(functional).items() if inspect.isfunction(f) and n[0] != "_"}
METHODS = {f"{c.__name__}.{n}": m for c in CLASSES[:2] for n, m in inspect.getmembers(c)
           if callable(m) and (not n.startswith("_") or n in ("__init__", "__dlpack__", "__array__"))}  # fmt: skip


def wrong_lines(folder: Path, command: list[str]) -> set[int]:
    """The numbers of the lines that a type checker reports in typed_calls.py without its comments."""
    (folder / CALLS.name).write_text(re.sub(" # type: ignore.*", "", CALLS.read_text()))
    run = subprocess.run([*command, CALLS.name], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    found = re.findall(rf"{CALLS.name}:(\d+).* error: ", run.stdout)
    assert found, run.stdout + run.stderr
    return set(map(int, found))


@pytest.mark.parametrize(
    "checker", [pytest.param(c, marks=pytest.mark.skipif(not here, reason=f"no {c}")) for c, here in CHECKERS.items()]
)
def test_type_checkers_reject_wrong_calls_and_only_those(checker: str, tmp_path: Path) -> None:
    """Each wrong call has a comment, which mypy --strict needs, and which is removed here."""
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\n")
    settings = '{"extraPaths": ["%s"], "pythonVersion": "3.10", "reportUnusedExpression": "none"}'
    (tmp_path / "pyrightconfig.json").write_text(settings % ROOT)
    command = {
        "mypy": [sys.executable, "-m", "mypy", "--strict"],
        "pyright": ["pyright", "--pythonpath", sys.executable],
    }
    lines = CALLS.read_text().splitlines()
    want = {i for i, line in enumerate(lines, 1) if "# type: ignore" in line}
    assert wrong_lines(tmp_path, command[checker]) == want and len(want) > 30


X = dnn.ones(2, 2, 4, 4)
OPTIONS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "dtype": (options.DTypeName, lambda v: dnn.zeros(1, dtype=v)),
    "index_dtype": (options.IndexDType, lambda v: dnn.pool_forward_with_indices(X, 2, index_dtype=v)),
    "layout": (options.Layout, lambda v: dnn.empty((1,) * {"W": 3, "HW": 4, "DHW": 5}.get(v.strip("NC"), 2), layout=v)),
    "math": (options.Math, lambda v: dnn.Handle(math=v)),
    "family": (options.Family, lambda v: dnn.engines(v)),
    "activation": (options.Activation, lambda v: dnn.activation_forward(X, v)),
    "conv": (options.ConvMode, lambda v: dnn.conv_forward(X, X, mode=v)),
    "pool": (options.PoolMode, lambda v: dnn.pool_forward(X, 2, mode=v)),
    "pad": (options.PadMode, lambda v: dnn.pad(X, 1, mode=v)),
    "loss": (options.LossReduction, lambda v: dnn.cross_entropy_forward(X, dnn.zeros(2, 4, 4, dtype="int64"), reduction=v)),
    "reduce": (options.ReduceMode, lambda v: dnn.reduce(X, v)),
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_every_literal_is_accepted(option: str) -> None:
    literal, call = OPTIONS[option]
    for value in get_args(literal):
        call(value)
    with pytest.raises(dnn.Error):
        call("nonsense")


def test_literals_are_complete() -> None:
    assert sorted(get_args(options.Pointwise)) == sorted(_C.pointwise_names())
    assert sorted(get_args(options.Family)) == sorted(set(_C.families()))
    assert set(_C.dtypes) <= set(get_args(options.DTypeName))
    lists = {"activation": options.Activation, "pool": options.PoolMode, "reduce": options.ReduceMode}
    for name, literal in lists.items():
        with pytest.raises(dnn.ShapeError) as caught:
            OPTIONS[name][1]("nonsense")
        listed = str(caught.value).partition("must be one of ")[2].partition(";")[0]
        assert sorted(listed.split(", ")) == sorted(get_args(literal)), name


def test_codes_of_numpy_mean_what_they_mean_there() -> None:
    for code in ("f4", "f8", "f2", "i1", "u1", "i4", "i8", "b1", "?", "half", "single", "double", "float", "int"):
        assert dnn.zeros(1, dtype=code).dtype == dnn.zeros(1, dtype="float32").numpy().astype(code).dtype
    with pytest.raises(dnn.DTypeError, match="got 'u8'"):
        dnn.zeros(1, dtype="u8")


@pytest.mark.parametrize("name", FUNCTIONS | METHODS)
def test_signatures(name: str) -> None:
    signature = inspect.signature((FUNCTIONS | METHODS)[name])
    if name in METHODS:
        assert next(iter(signature.parameters)) == "self"


def test_signatures_of_the_extension_have_defaults() -> None:
    assert str(inspect.signature(dnn.Handle)) == (
        "(device='cpu', *, stream=None, max_workspace=None, deterministic=False, math='tf32', threads=None, max_plans=4096)"
    )
    assert (
        str(inspect.signature(dnn.zeros(1).to)) == "(target=None, *, device=None, dtype=None, layout=None, copy=False)"
    )
    assert str(inspect.signature(dnn.Handle.__exit__)) == "(self, *args)"
    assert (
        str(inspect.signature(dnn.memory_stats)) == "(device)" and str(inspect.signature(dnn.ShapeError)) == "(*args)"
    )
    assert dnn.DeviceTensor.nbytes.fget.__name__ == "nbytes" and dnn.Handle.closed.fget.__name__ == "closed"
    assert str(inspect.signature(_C.set_allocator_checks)) == "(*, exact=False, poison=-1)"


@pytest.mark.parametrize("kind", [dnn.DeviceTensor, dnn.Handle, dnn.ShapeError, dnn.Error])
def test_classes_have_their_public_name(kind: type) -> None:
    assert (kind.__module__, kind.__qualname__) == ("pyminidnn", kind.__name__)
    assert getattr(dnn, kind.__name__) is kind and repr(kind) == f"<class 'pyminidnn.{kind.__name__}'>"


def test_errors_of_python_show_the_public_name() -> None:
    t: Any = dnn.ones(2)
    for call in (
        lambda: t(),
        lambda: t + "a",
        lambda: dnn.DeviceTensor.__len__(3),
        lambda: t < {},
        lambda: sorted(t, 3),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert "_C" not in str(caught.value)
    with pytest.raises(TypeError, match=r"^'pyminidnn.DeviceTensor' object is not callable$"):
        t()
