# SPDX-License-Identifier: Apache-2.0
"""Random problems at the sizes of real nets (draw.py), on every engine that takes them, against the oracle; and the oracle
against torch, where torch is installed.

Each is a case line, which a failure prints: put into tests/cases it is an ordinary case. A family's problems come from
one seed that is always the same and from one that is new in each run. How many:

    pytest tests/test_drawn.py --drawn-seconds 60            # of each family and seed; default 10
    pytest tests/test_drawn.py --drawn-problems 1000 --drawn-seed 5

The number of threads and the sizes of chunks of work are drawn as well. The problem that is running is in a file, in case
the process ends.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from cases import parse
from conftest import EXACT, set_checks
from draw import FAMILIES, draw
from test_every_engine import check, sample_of
from torch_results import largest_difference

import pyminidnn as dnn
from pyminidnn import _C

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SLOWEST_US = 300_000.0  # engines that expect to take longer are for other problems
FIXED, FRESH = 20261123, random.SystemRandom().randrange(2**32)


@pytest.fixture(autouse=True)
def usual_settings() -> object:
    yield
    set_checks()


@pytest.mark.parametrize("seed", ["fixed", "fresh"])
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn(family: str, seed: str, device: str, request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    number = option("--drawn-seed") or FRESH if seed == "fresh" else FIXED
    rng = np.random.default_rng([number, *family.encode()])
    running = Path(tempfile.gettempdir()) / f"pyminidnn_drawn_{os.getpid()}.txt"
    end, done = time.monotonic() + option("--drawn-seconds"), 0
    while done < option("--drawn-problems") if option("--drawn-problems") else time.monotonic() < end:
        line = draw(family, rng)
        divisor, threads = int(rng.choice([1, 1, 1, 3, 61])), int(rng.choice([0, 0, 1, 2, 3, 7]))
        poison = int(rng.choice([-1, 0xFF, 0x3C]))  # of outputs and workspaces: none, NaN, ordinary numbers
        what = f"problem {done} of seed {number}, PYMINIDNN_TEST_WORK_DIVISOR={divisor}, PYMINIDNN_TEST_POISON={poison}, threads={threads or None}: {line}"
        running.write_text(what)
        _C.set_work_divisor(divisor)
        _C.set_allocator_checks(exact=EXACT, poison=poison)
        try:
            with dnn.Handle(device, threads=threads or None) if device == "cpu" else dnn.Handle(device):
                case = parse(line)
                sample = sample_of(case)
                check(case, device, sample, SLOWEST_US)
                if torch is not None:
                    assert largest_difference(case, sample) < 1, "torch and the oracle differ"
        except Exception as error:
            raise AssertionError(what) from error
        done += 1
    running.unlink(missing_ok=True)
    print(f"{done} problems of {family} from seed {number}")
