# SPDX-License-Identifier: Apache-2.0
"""Runs array-api-tests, the test suite of the Python array API standard, on pyminidnn.array_api.

    python tests/array_api_suite.py CHECKOUT [options of pytest]

CHECKOUT is a clone of https://github.com/data-apis/array-api-tests at tag 2026.02.26 (commit 41379d15), with its
submodule array-api; PyPI does not have the suite. Install its requirements.txt. Since 2026-03-21 the suite fails at
import for a library without complex dtypes.

tests/array_api_exceptions.txt lists the tests that are skipped or must fail. The exit code is 1 if another test fails,
if a listed test passes, or if a line of the list matches no test.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

VERDICTS = ("fail", "rare", "skip")
EXCEPTIONS = Path(__file__).parent / "array_api_exceptions.txt"
ENVIRONMENT = {
    "ARRAY_API_TESTS_MODULE": "pyminidnn.array_api",
    "ARRAY_API_TESTS_VERSION": "2024.12",
    "ARRAY_API_TESTS_SKIP_DTYPES": "int16,uint16,uint32,uint64,complex64,complex128",
}
OPTIONS = ["--max-examples", "30", "--hypothesis-derandomize", "--disable-deadline", "-p", "no:cacheprovider",
           "-W", "ignore", "-q", "--tb=short"]  # fmt: skip


def exceptions() -> list[tuple[str, str, str]]:
    """What to do, the regular expression for names and the reason, for each line of the list."""
    lines = [line.strip() for line in EXCEPTIONS.read_text().splitlines()]
    found = [tuple(re.split(r"\s{2,}", line, maxsplit=2)) for line in lines if line and not line.startswith("#")]
    for line in found:
        if len(line) != 3 or line[0] not in VERDICTS:
            raise SystemExit(f"{EXCEPTIONS.name}: a line has one of {VERDICTS}, names and a reason; got {line}")
    return [(verdict, name, reason) for verdict, name, reason in found]


class Exceptions:
    """The plugin that marks the listed tests."""

    def __init__(self, complete: bool) -> None:
        self.complete = complete  # whether all tests run, so that a line without a test is a mistake

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for verdict, name, reason in exceptions():
            found = [item for item in items if re.search(name, item.nodeid)]
            if self.complete and not found:
                raise pytest.UsageError(f"{EXCEPTIONS.name}: no test matches {name}")
            for item in found:
                fails = pytest.mark.xfail(reason=reason, strict=verdict == "fail")
                item.add_marker(pytest.mark.skip(reason=reason) if verdict == "skip" else fails)


def main() -> int:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    checkout, *options = sys.argv[1:]
    os.environ.update(ENVIRONMENT)
    os.chdir(checkout)
    sys.path.insert(0, checkout)
    tests = [] if any("::" in o or o.endswith(".py") for o in options) else ["array_api_tests"]
    return pytest.main([*OPTIONS, *options, *tests], plugins=[Exceptions(complete=bool(tests) and "-k" not in options)])


if __name__ == "__main__":
    sys.exit(main())
