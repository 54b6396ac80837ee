# SPDX-License-Identifier: Apache-2.0
"""Runs tests/fuzz_calls.py for a minute, half of it with a new seed, and checks that it reports failures."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fuzz_calls
import pytest
from fuzz_calls import CALLABLES, PARAMETERS, Call, Fuzz, call_number, fault_of

import pyminidnn as dnn


@pytest.mark.parametrize("seed", [["--seed", "1"], []], ids=["fixed", "fresh"])
def test_half_a_minute_of_random_calls(seed: list[str]) -> None:
    command = [sys.executable, str(Path(__file__).parent / "fuzz_calls.py"), "--seconds", "30", "--workers", "2", *seed]
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout, run.stderr)  # pytest shows this output if the test fails
    assert run.returncode == 0, run.stdout + run.stderr


def test_all_public_callables_are_found() -> None:
    assert {"transform", "asarray", "memory_stats", "explain", "DeviceTensor", "Handle.close"} <= set(CALLABLES)
    assert {"DeviceTensor.to", "DeviceTensor.as_strided", "DeviceTensor.__dlpack__"} <= set(CALLABLES)
    names = {n: [p.name for p in PARAMETERS[n]] for n in PARAMETERS}
    assert names["memory_stats"] == ["device"] and names["add"] == ["a", "b", "algo", "out", "handle"]
    assert names["DeviceTensor"] == ["shape", "dtype", "layout", "device"]
    assert names["DeviceTensor.to"] == ["target", "device", "dtype", "layout", "copy"]


def test_calls_are_reproducible() -> None:
    assert [str(call_number(7, i)) for i in range(50)] == [str(call_number(7, i)) for i in range(50)]


def dies() -> None:
    # The crash is intended. A report by faulthandler would look like a failure of the test.
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs() -> None:
    time.sleep(60)


def raises() -> None:
    raise ValueError("no good")


@pytest.mark.parametrize(
    "f, outcome", [(dies, "the child ended with -11"), (hangs, "no answer in 1 s"), (raises, "ValueError")]
)
def test_a_failure_is_reported_and_the_run_continues(
    f: Callable[[], None], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_calls, "call_number", lambda seed, i: Call("f", f if i == 2 else dnn.engines, []))
    monkeypatch.setattr(fuzz_calls, "SECONDS_PER_CALL", 1)
    fuzz = Fuzz(seed=5, seconds=30, calls=6, workers=2)
    fuzz.run()
    assert fuzz.outcomes.total() == 6 and fuzz.outcomes[outcome] == 1
    ((text,),) = fuzz.faults.values()
    assert text.startswith("--seed 5 --only 2: f()")


@pytest.mark.parametrize(
    "error, fault",
    [
        (dnn.ShapeError("add: a must be 3"), None),
        (TypeError("add() missing 1 required positional argument: 'b'"), None),
        (TypeError("'int' object is not iterable"), "TypeError is none of the six kinds"),
        (dnn.Error("add: a must be 3"), "Error is none of the six kinds"),
        (dnn.ShapeError("pointwise: a must be 3"), "the text does not begin with add"),
        (dnn.ShapeError("add: there is a mistake"), "the text names no argument"),
        (dnn.ShapeError("add: a must be " + "3" * 1000), "the text is too long"),
    ],
)
def test_verdicts(error: Exception, fault: str | None) -> None:
    assert fault_of(Call("add", dnn.add, PARAMETERS["add"]), error) == fault
