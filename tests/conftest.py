# SPDX-License-Identifier: Apache-2.0
"""The device fixture, and the skips of `gpu` and `torch` tests on machines without a GPU or torch, with their reason."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from importlib.util import find_spec

import pytest

# Tests neither read nor write the user's cache. Kernels and tuning files go to a temporary folder of this test run. If
# CI sets PYMINIDNN_CACHE_DIR, they go to the folder that this variable names.
os.environ.setdefault("PYMINIDNN_CACHE_DIR", tempfile.mkdtemp(prefix="pyminidnn-test-"))
# Oracles multiply small matrices. Several threads would make NumPy slower for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pyminidnn as dnn
from pyminidnn import _C

# A program that a shell starts in the background ignores Ctrl-C. signal.signal() restores Python's handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

# scripts/sanitize.sh sets PYMINIDNN_TEST_ALLOCATIONS to "exact". Then each allocation has exactly the requested size,
# and freed memory is not cached. So the sanitizer detects accesses beyond an allocation.
EXACT = os.environ.get("PYMINIDNN_TEST_ALLOCATIONS") == "exact"


def set_checks() -> None:
    """Sets the debug options of the library from the environment. test_isa.py makes chunks of work smaller this way."""
    _C.set_allocator_checks(exact=EXACT, poison=int(os.environ.get("PYMINIDNN_TEST_POISON", "-1")))
    _C.set_work_divisor(int(os.environ.get("PYMINIDNN_TEST_WORK_DIVISOR", "1")))


set_checks()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drawn problems (test_drawn.py)")
    group.addoption("--drawn-seconds", type=float, default=8, help="time for each family and seed; default: 8")
    group.addoption("--drawn-problems", type=int, help="instead of the time: how many of each family and seed")
    group.addoption("--drawn-seed", type=int, help="of the problems that are otherwise new in each run")


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The slow tests are distributed evenly over the list, because pytest-xdist gives each process consecutive tests.
    slow = [item for item in items if item.name.startswith("test_every_engine_in_every_setting[")]
    items[:] = [item for item in items if item not in slow]
    for i, item in enumerate(slow):
        items.insert(i * len(items) // len(slow), item)
    reasons = {
        "gpu": _C.why_no_cuda() or _C.why_no_nvrtc(),
        "torch": "" if find_spec("torch") else "torch is not installed; README, section Tests, says how",
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Excludes the objects made so far from garbage collection: traversing them takes 0.2 s, and tests call
    gc.collect() often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_handle_left() -> object:
    """A test that leaves a handle entered would change the results of all later tests."""
    yield
    assert dnn._C.entered_handle() is None
