# SPDX-License-Identifier: Apache-2.0
"""Random problems at the sizes of real networks (benchmarks/draw.py): every engine that takes them against the oracle,
and the oracle against torch, if torch is installed.

Each problem is a case line, which a failure prints: added to tests/cases, it is an ordinary case. The problems of a
family are drawn from a fixed seed and from a seed that is new in each run. Their number:

    pytest tests/test_drawn.py --drawn-seconds 60    # for each family and seed; default: 8. Torch: a third of that
    pytest tests/test_drawn.py --drawn-problems 1000 --drawn-seed 5

The number of threads and the sizes of chunks of work are drawn as well. If the process ends, a file holds the problem
that was running.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import parse
from conftest import EXACT, set_checks
from draw import FAMILIES, draw, rng_of
from test_every_engine import check, sample_of
from torch_results import FAMILIES as WITH_TORCH
from torch_results import largest_difference

import pyminidnn as dnn
from pyminidnn import _C

SLOWEST_US = 300_000.0  # engines whose estimated time is longer (in us) are not run
FIXED, FRESH = 20261123, random.SystemRandom().randrange(2**32)
RUNNING = Path(tempfile.gettempdir()) / f"pyminidnn_drawn_{os.getpid()}.txt"


@pytest.fixture(autouse=True)
def usual_settings() -> object:
    yield
    set_checks()


def for_problems(
    family: str,
    seed: str,
    request: pytest.FixtureRequest,
    share: float,
    test: Callable[[str, np.random.Generator], None],
) -> None:
    """Calls test(case line, random numbers) for problems of a family, as the options say, for `share` of the time."""
    option = request.config.getoption
    number = option("--drawn-seed") or FRESH if seed == "fresh" else FIXED
    rng = rng_of(family, number)
    most, end, done = option("--drawn-problems"), time.monotonic() + share * option("--drawn-seconds"), 0
    while done < most if most else time.monotonic() < end:
        line = draw(family, rng)
        try:
            test(line, rng)
        except Exception as error:
            raise AssertionError(f"problem {done} of seed {number}: {line}") from error
        done += 1
    RUNNING.unlink(missing_ok=True)
    print(f"{done} problems of {family} from seed {number}")


@pytest.mark.parametrize("seed", ["fixed", "fresh"])
@pytest.mark.parametrize("family", FAMILIES)
def test_engines(family: str, seed: str, device: str, request: pytest.FixtureRequest) -> None:
    def test(line: str, rng: np.random.Generator) -> None:
        divisor, threads = int(rng.choice([1, 1, 1, 3, 61])), int(rng.choice([0, 0, 1, 2, 3, 7]))
        # The byte that fills outputs and workspaces before a call. 0xFF makes NaNs, 0x3C makes ordinary numbers, and -1
        # means that they are not filled.
        poison = int(rng.choice([-1, 0xFF, 0x3C]))
        settings = f"PYMINIDNN_TEST_WORK_DIVISOR={divisor}, PYMINIDNN_TEST_POISON={poison}, threads={threads or None}"
        RUNNING.write_text(f"{settings}: {line}")
        _C.set_work_divisor(divisor)
        _C.set_allocator_checks(exact=EXACT, poison=poison)
        case = parse(line)
        try:
            with dnn.Handle(device, threads=threads or None) if device == "cpu" else dnn.Handle(device):
                check(case, device, sample_of(case), SLOWEST_US)
        except Exception as error:
            raise AssertionError(settings) from error

    for_problems(family, seed, request, 1, test)


@pytest.mark.torch
@pytest.mark.parametrize("seed", ["fixed", "fresh"])
@pytest.mark.parametrize("family", WITH_TORCH)
def test_oracle(family: str, seed: str, request: pytest.FixtureRequest) -> None:
    def test(line: str, rng: np.random.Generator) -> None:
        case = parse(line)
        assert largest_difference(case, sample_of(case)) < 1, "torch and the oracle differ"

    for_problems(family, seed, request, 1 / 3, test)
