# SPDX-License-Identifier: Apache-2.0
"""Progress bars on stderr, by tqdm. There is none where stderr is no terminal, or where tqdm is not installed."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """A progress bar of `total` steps, in a `with` statement."""

    def __init__(self, total: int, unit: str, text: str = "", delay: float = 0) -> None:
        """`delay`: the bar appears after this number of seconds."""
        self._bar: Any = None
        if not (sys.stderr and sys.stderr.isatty()):
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self._bar = tqdm(total=total, unit=unit, desc=text or None, delay=delay, leave=False, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()

    def step(self, count: int = 1) -> None:
        """Advances the bar."""
        if self._bar is not None:
            self._bar.update(count)

    def print(self, line: str) -> None:
        """Prints a line to stdout, above the bar."""
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line)


class FindProgress:
    """A progress bar for each problem of find(). An object is called after each measurement."""

    def __init__(self) -> None:
        self._bar = Progress(0, "config")
        self._problem = ""

    def __call__(self, problem: str, done: int, total: int) -> None:
        """`done` of `total` configs of the problem are measured."""
        if problem != self._problem:
            self._bar.close()
            self._problem = problem
            self._bar = Progress(total, "config", problem, delay=0.5)
        self._bar.step()
        if done == total:
            self._bar.close()
            self._problem = ""

    def close(self) -> None:
        """Removes the bar, also after an error."""
        self._bar.close()
