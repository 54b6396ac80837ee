# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that runs the tests of a cudnn-frontend checkout with pyminidnn.cudnn_compat as cudnn.

run.py passes it to pytest. Nothing of the checkout is part of this repository.

A test counts as "not supported" if a cudnnGraphNotSupportedError was made while it ran, also if the test ignores it or
skips. Such a test fails.

With --compat-device cpu, torch's device "cuda" is the CPU: factory functions, .to() and .cuda() make CPU tensors, and
the functions of torch.cuda that the tests call have stand-ins.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter, defaultdict
from math import prod
from typing import Any

import pytest

import pyminidnn.cudnn_compat as cudnn

sys.modules["cudnn"] = cudnn

RESULTS: dict[str, Counter[str]] = defaultdict(Counter)
ERRORS: list[Exception] = []  # the cudnnGraphNotSupportedErrors of the current test
LEFT_OUT: Counter[str] = Counter()
PLANNED: Counter[str] = Counter()
BEGIN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tests of cudnn-frontend")
    group.addoption("--compat-device", choices=["cuda", "cpu"], default="cuda", help="where the tests run")
    group.addoption("--compat-sample", type=int, help="run at most so many cases of each file, drawn with a fixed seed")
    group.addoption("--compat-share", help="I/N: run every N-th case from number I, for N processes; I is 0 to N - 1")
    group.addoption("--compat-seconds", type=float, help="begin no case after this time; the table counts the rest")
    group.addoption("--compat-max-flops", type=float, help="leave out fuzzed cases with more operations")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    count_errors()
    if early_config.known_args_namespace.compat_device == "cpu":
        from on_cpu import put_torch_on_the_cpu

        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        put_torch_on_the_cpu()


def count_errors() -> None:
    """Notes each cudnnGraphNotSupportedError that is made."""

    def noted(self: Exception, *args: Any) -> None:
        ERRORS.append(self)

    cudnn.cudnnGraphNotSupportedError.__init__ = noted  # type: ignore[method-assign]


def flops(config: Any) -> float:
    """The operations of a fuzzed case."""
    if hasattr(config, "M"):
        return 2.0 * config.batch * config.M * config.N * config.K
    taps = prod(config.filter_spatial) * config.in_channels // config.groups
    return 2.0 * config.batch * config.out_channels * prod(config.output_spatial) * taps


@pytest.hookimpl(trylast=True)  # after -m has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    most, sample = config.getoption("--compat-max-flops"), config.getoption("--compat-sample")
    kept: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("config")  # type: ignore[attr-defined]
        if most and case is not None and flops(case) > most:
            LEFT_OUT[item.path.name] += 1
        else:
            kept[item.path.name].append(item)
    for name, of_file in kept.items():
        if sample and len(of_file) > sample:
            LEFT_OUT[name] += len(of_file) - sample
            kept[name] = random.Random(1).sample(of_file, sample)
    items[:] = [item for of_file in kept.values() for item in of_file]
    if config.getoption("--compat-share"):
        first, step = map(int, config.getoption("--compat-share").split("/"))
        items[:] = items[first::step]
    PLANNED.update(item.path.name for item in items)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if call.when == "setup" and not report.skipped:
        ERRORS.clear()
        if report.passed:
            return
    elif call.when == "teardown" and report.passed:
        seconds = item.config.getoption("--compat-seconds")
        if seconds and time.monotonic() - BEGIN > seconds:
            item.session.shouldstop = "out of time"  # type: ignore[assignment]
        return
    name = item.path.name
    if ERRORS and call.when == "call":
        report.longrepr = f"not supported: {ERRORS[-1]}"
        report.outcome = "failed"
        RESULTS[name]["not supported"] += 1
    elif report.skipped:
        RESULTS[name]["skipped itself"] += 1
    else:
        RESULTS[name]["right" if report.passed else "wrong"] += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("pyminidnn.cudnn_compat")
    columns = ("right", "wrong", "not supported", "skipped itself", "left out", "no time")
    rows = [("file", *columns)]
    names = list(dict.fromkeys([*RESULTS, *PLANNED, *LEFT_OUT]))
    for name in names:
        RESULTS[name]["no time"] = PLANNED[name] - RESULTS[name].total()
        RESULTS[name]["left out"] = LEFT_OUT[name]
        rows.append((name, *(str(RESULTS[name][c]) for c in columns)))
    rows.append(("all", *(str(sum(RESULTS[n][c] for n in names)) for c in columns)))
    for first, *rest in rows:
        terminalreporter.write_line(first.ljust(30) + "".join(cell.rjust(16) for cell in rest))
