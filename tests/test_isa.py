# SPDX-License-Identifier: Apache-2.0
"""Tests CPU engines on every instruction set of this machine; the other tests use the best one. Reference engines have
the same code for all, so test_every_engine.py leaves them out where the instruction set is not the best.

Also tests CPU engines with small chunks of work, for several numbers of threads. With the usual sizes, a case line of a
few kilobytes is one chunk, and one thread computes it. With the small sizes, most case lines have several chunks, some
of them uneven. Each further instruction set is combined with one of these sizes, so both are tested in one run.

The library reads the instruction set and the number of threads once in a process, and computing the expected results
takes longer than the engines. So a program (`python test_isa.py PART`) computes the expected results of some cases, and
then creates a process for each setting by fork(), which inherits them. The program itself calls no function that reads
a setting.
"""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from cases import Case
from support import Sample
from test_every_engine import CASES, CASES_TO_FIND, check_find, check_line, depends_on_isa, sample_of

import pyminidnn as dnn
from pyminidnn import _C

HERE = Path(__file__).parent


BEST, *OTHERS = _C.cpu_isas()
# Each pair has a number by which the chunk sizes are divided, and a number of threads. The divisors are not powers of
# two, so chunks end in the middle of vectors and of cache lines.
SIZES = [(7, 2), (61, 1), (61, 3), (1021, 7)]
SETTINGS = [(isa, *size) for isa, size in zip([*OTHERS, BEST, BEST, BEST], SIZES[::-1], strict=False)]
PARTS = 16
BLOCK_BYTES = 2**28  # of the values of cases that one process checks


def run(isa: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYMINIDNN_CPU_ISA": isa, "PYTHONPATH": str(HERE.parent / "benchmarks")} | environment
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=HERE, capture_output=True, text=True)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_engine_in_every_setting(part: int) -> None:
    done = run("", __file__, str(part))
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    assert done.stdout.split("\n")[-2] == f"{len(CASES[part::PARTS])} cases in {len(SETTINGS)} settings"


def blocks_of(cases: list[Case]) -> Iterator[list[tuple[Case, Sample]]]:
    block: list[tuple[Case, Sample]] = []
    size = 0
    for case in cases:
        block.append((case, sample := sample_of(case)))
        size += sum(v.nbytes for v in (*sample.inputs.values(), *(r.want for r in sample.results)))
        if size > BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def check_block(block: list[tuple[Case, Sample]], isa: str, divisor: int, threads: int, number: mmap.mmap) -> NoReturn:
    """Checks cases in a setting, and ends the process."""
    try:
        os.environ["PYMINIDNN_CPU_ISA"] = isa
        os.environ["PYMINIDNN_TEST_WORK_DIVISOR"] = str(divisor)
        os.environ["OMP_NUM_THREADS"] = str(threads)
        from conftest import set_checks

        set_checks()
        assert (_C.cpu_isa(), _C.device_info("cpu")["units"]) == (isa, threads), "the settings were read before"
        for i, (case, sample) in enumerate(block):
            number[:] = i.to_bytes(8, "little")
            check_line(case, "cpu", sample, in_settings=True)
            if case in CASES_TO_FIND:
                check_find(case, "cpu", sample)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def check_part(part: int) -> None:
    """Checks every PARTS-th case in every setting. Ends the program at the first failure."""
    cases = CASES[part::PARTS]
    number = mmap.mmap(-1, 8)  # of the case that the child process checks, for the report of a crash
    for block in blocks_of(cases):
        for isa, divisor, threads in SETTINGS:
            child = os.fork()
            if child == 0:
                check_block(block, isa, divisor, threads, number)
            if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                case, _ = block[int.from_bytes(number[:], "little")]
                sys.exit(f"{case} fails on {isa}, work divisor {divisor}, {threads} threads: exit status {status}")
    print(f"{len(cases)} cases in {len(SETTINGS)} settings")


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
        if not re.search(r"isa\.h|_kernels|MINIDNN_PER_ISA", text):
            found |= set(re.findall(r'"(cpu\.\w+\.\w+)"', text))
    assert found == left_out


if __name__ == "__main__":
    check_part(int(sys.argv[1]))
