# SPDX-License-Identifier: Apache-2.0
"""CPU engines with chunks of work so small that most case lines have several, uneven ones among them, for several
numbers of threads. With the usual sizes a case line of a few kilobytes is one chunk, and one thread computes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


# Divisors are no powers of two, so that chunks end in the middle of vectors and cache lines.
@pytest.mark.parametrize(("divisor", "threads"), [(7, 2), (61, 3), (61, 1), (1021, 7)])
def test_every_engine_with(divisor: int, threads: int) -> None:
    environment = os.environ | {"PYMINIDNN_TEST_WORK_DIVISOR": str(divisor), "OMP_NUM_THREADS": str(threads)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-k",
        "cpu",
        "test_every_engine.py",
    ]
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
