# SPDX-License-Identifier: Apache-2.0
"""The selftest calls every public function, and detects wrong results of each."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pyminidnn as dnn
from pyminidnn import selftest


def public_functions() -> set[str]:
    return {n for n in dnn.__all__ if callable(getattr(dnn, n)) and not inspect.isclass(getattr(dnn, n))}


def test_every_public_function_has_a_check() -> None:
    assert {name.split()[0] for name, _, _ in selftest.checks("cpu")} == public_functions()


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_a_check_calls_the_function_of_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Called(Exception):
        pass

    def wrong(*_: object, **__: object) -> None:
        raise Called

    checks = {n: c for n, c, _ in selftest.checks("cpu") if n.split()[0] == name}
    monkeypatch.setattr(dnn, name, wrong)
    # The checks are made again, because some of them look up the function when they are made.
    again = {n: c for n, c, _ in selftest.checks("cpu") if n in checks}
    for call in again.values():
        with pytest.raises(Called):
            call(lambda array: array)


def test_all_checks_pass(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest.run(device) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all checks passed" and len(lines) > len(public_functions())


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = dnn.hypot
    monkeypatch.setattr(dnn, "hypot", lambda a, b: right(a, b) * 1.001)
    assert selftest.run("cpu") == 1
    out = capsys.readouterr().out
    assert out.count("WRONG") == 1 and out.endswith("1 checks failed\n")
    assert selftest._difference(np.ones(3), np.ones(4)) == np.inf and selftest._difference([np.nan], [0]) != 0
