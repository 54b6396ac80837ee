# SPDX-License-Identifier: Apache-2.0
"""Tests CPU engines on every instruction set of this machine; the other tests use the best one. Reference engines have
the same code for all, so test_every_engine.py leaves them out where the instruction set is not the best.

Also tests CPU engines with small chunks of work, for several numbers of threads. With the usual sizes, a case line of a
few kilobytes is one chunk, and one thread computes it. With the small sizes, most case lines have several chunks, some
of them uneven. Each further instruction set is combined with one of these sizes, so both are tested in one run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_every_engine import depends_on_isa

import pyminidnn as dnn
from pyminidnn import _C

HERE = Path(__file__).parent


BEST, *OTHERS = _C.cpu_isas()
# Each pair has a number by which the chunk sizes are divided, and a number of threads. The divisors are not powers of
# two, so chunks end in the middle of vectors and of cache lines.
SIZES = [(7, 2), (61, 1), (61, 3), (1021, 7)]


def run(isa: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYMINIDNN_CPU_ISA": isa} | environment
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=HERE, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("isa", "divisor", "threads"),
    [(isa, *size) for isa, size in zip([*OTHERS, BEST, BEST, BEST], SIZES[::-1], strict=False)],
)
def test_every_engine_on(isa: str, divisor: int, threads: int) -> None:
    sizes = {"PYMINIDNN_TEST_WORK_DIVISOR": str(divisor), "OMP_NUM_THREADS": str(threads)}
    done = run(isa, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "cpu", "test_every_engine.py", **sizes)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_the_best_instruction_set_is_chosen() -> None:
    assert run("", "-c", "from pyminidnn import _C; print(_C.cpu_isa())").stdout.strip() == _C.cpu_isas()[0]


def test_an_unknown_instruction_set_is_refused() -> None:
    done = run("sse17", "-c", "from pyminidnn import _C; _C.cpu_isa()")
    assert f"PYMINIDNN_CPU_ISA is 'sse17'; this machine supports {', '.join(_C.cpu_isas())}" in done.stderr


def test_only_reference_engines_are_left_out() -> None:
    left_out = {e for family in _C.families() for e in dnn.engines(family, "cpu") if not depends_on_isa(e)}
    found = set()
    for file in (f for name in ("reference", "direct") for f in (HERE.parent / "cpp").glob(f"*/cpu/{name}.cpp")):
        text = file.read_text()
        assert not re.search(r"isa\.h|_kernels|MINIDNN_PER_ISA", text), f"{file.name} has code for each instruction set"
        found |= set(re.findall(r'"(cpu\.\w+\.\w+)"', text))
    assert found == left_out
