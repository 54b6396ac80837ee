# SPDX-License-Identifier: Apache-2.0
"""Writes _C.pyi from the installed extension into a folder: python scripts/make_stubs.py [pyminidnn]

tests/test_stubs.py fails if the file is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from pybind11_stubgen import main

from pyminidnn import _C, options

BUFFER = '    def {}:\n        """\n        {} the underlying memory of the object.\n        """\n'
CORRECTIONS = (
    # A handle may be None, but pybind11's signatures do not show that a shared pointer may be null.
    ("handle: Handle", "handle: Handle | None"),
    ("*args)", "*args: typing.Any)"),
    # The stub must be the same with all Python versions. Python 3.12 adds two methods of the buffer protocol, and
    # Python 3.13 has a type for capsules.
    (BUFFER.format("__buffer__(self, flags)", "Return a buffer object that exposes"), ""),
    (BUFFER.format("__release_buffer__(self, buffer)", "Release the buffer object that exposes"), ""),
    (" types.CapsuleType", " typing_extensions.CapsuleType"),
    ("import types\nimport typing\n", "import typing\nimport typing_extensions\n"),
    ("import typing\n", "import numpy\nimport typing\n"),
    (": SupportsIndex", ": typing.SupportsIndex"),
    ("__all__: list[str]", "from pyminidnn.dtypes import DType\n__all__: list[str]"),
    ("def dtype(self) -> typing.Any", "def dtype(self) -> DType"),
)
# Some special methods, and functions that pybind11 does not bind, have no types for arguments and results.
SLOTS = (
    (r"def (__(?:eq|ne)__)\(self, value\):", r"def \1(self, value: object) -> DeviceTensor: # type: ignore[override]"),
    (r"def (__bool__)\(self\):", r"def \1(self) -> bool:"),
    (r"def exchanged\(x, handle\)", "def exchanged(x: typing.Any, handle: Handle | None) -> DeviceTensor | None"),
    (
        r"def exchanged_operands\(arrays, out, handle\)",
        "def exchanged_operands(arrays: tuple[typing.Any, ...], out: typing.Any, handle: Handle | None) "
        "-> tuple[typing.Any, ...] | None",
    ),
    (r"def (__(?:int|index)__)\(self\):", r"def \1(self) -> int:"),
    (r"def (__hash__)\(self\):", r"def \1(self) -> int:"),
    (r"def (__float__)\(self\):", r"def \1(self) -> float:"),
    (r"def (__getitem__)\(self, key\):", r"def \1(self, key: typing.Any) -> DeviceTensor:"),
    (r"def (__setitem__)\(self, key, value\):", r"def \1(self, key: typing.Any, value: typing.Any) -> None:"),
    (r"    def __delitem__\(self, key\):\n +\"\"\"\n.*\n +\"\"\"\n", ""),
    (r"def (__\w+__)\(self\):", r"def \1(self) -> DeviceTensor:"),
    (r"def (__\w+__)\(self, value\):", r"def \1(self, value: typing.Any) -> DeviceTensor:"),
    (r"def (__r?pow__)\(self, value, mod ?= ?None\):", r"def \1(self, value: typing.Any) -> DeviceTensor:"),
)


# The signatures of pybind11 have the type str or object for the options of functions. These patterns replace it by the
# types of pyminidnn/options.py.
MODES = {"activation": "Activation", "conv": "ConvMode", "pad": "PadMode", "reduce": "ReduceMode",
         "pool": "PoolMode", "adaptive_pool": "PoolMode", "rnn": "RnnMode"}  # fmt: skip
OPTIONS = (
    *((rf"(def {family}(?:_\w+)?\(.*\bmode: )str\b", rf"\1{kind}") for family, kind in MODES.items()),
    (r"(?m)^(?!.*__array__)(.*\bdtype: )typing\.Any = None", r"\1DTypeLike | None = None"),
    (r"(def transform\(.*\bdtype: )typing\.Any", r"\1DTypeLike | None"),
    (r"(?m)^(?!.*__array__)(.*\bdtype: )typing\.Any", r"\1DTypeLike"),
    (r"\bindex_dtype: typing\.Any", "index_dtype: IndexDType"),
    (r"(def attention_\w+\(.*\blayout: )str\b", r"\1AttentionLayout"),
    (r"(def rnn_\w+\(.*\blayout: )str\b", r"\1RnnLayout"),
    (r"\balign: str\b", "align: AttentionAlign"),
    (r"\blayout: str\b", "layout: Layout"),
    (r"\bactivation: str\b", "activation: Activation"),
    (r"\breduction: str\b", "reduction: LossReduction"),
    (r"\bop: str\b", "op: Pointwise"),
    (r"\bmath: str\b", "math: Math"),
    (r"def layout\(self\) -> str", "def layout(self) -> LayoutName"),
    (r"def math\(self\) -> str", "def math(self) -> Math"),
    (r"def families\(\) -> list\[str\]", "def families() -> list[Family]"),
)


def _python_signature(function: Any, original: Any = inspect.getfullargspec) -> Any:
    """For pybind11_stubgen, functions of pybind11 have no signature but that of their docstring, which has types."""
    if type(getattr(function, "__self__", None)).__name__.startswith("pybind11_detail_function_record"):
        raise TypeError
    return original(function)


def make_stubs(folder: Path) -> None:
    # In error messages, these classes have the name of the public module. In the stub, they belong to pyminidnn._C.
    for kind in (_C.DeviceTensor, _C.Handle, _C.Error, *_C.Error.__subclasses__()):
        kind.__module__ = "pyminidnn._C"
        if "__signature__" in vars(kind):  # pyminidnn/errors.py sets it
            del kind.__signature__
    with tempfile.TemporaryDirectory() as made, mock.patch("inspect.getfullargspec", _python_signature):
        main(["pyminidnn._C", "--output-dir", made])
        text = (Path(made) / "pyminidnn" / "_C.pyi").read_text()
    for made_so, should_be in CORRECTIONS:
        text = text.replace(made_so, should_be)
    for pattern, should_be in (*SLOTS, *OPTIONS):
        text = re.sub(pattern, should_be, text)
    types = [name for name in vars(options) if name[0].isupper() and re.search(rf"[:>|\[] ?{name}\b", text)]
    text = text.replace("__all__:", f"from pyminidnn.options import {', '.join(sorted(types))}\n__all__:", 1)
    (folder / "_C.pyi").write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


if __name__ == "__main__":
    make_stubs(Path(sys.argv[1] if len(sys.argv) > 1 else "pyminidnn"))
