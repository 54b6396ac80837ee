# SPDX-License-Identifier: Apache-2.0
"""Case lines: problems in the text form that the library itself prints, read from tests/cases/F.txt.

    softmax {forward,backward} {f32,bf16} x=4x1000 axis=1   # why this case is here

Braces expand as in a shell. The library prints each problem as the same line; test_every_engine.py checks that.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
from case_line import DTYPES as DTYPES
from case_line import Case as Case
from case_line import Operand as Operand
from case_line import parse as parse

from pyminidnn import _C

# The families of calls. The problems of the family `graph` are regions of several calls, which no case line describes:
# test_regions.py tests its engines.
FAMILIES = [family for family in dict.fromkeys(_C.families()) if family != "graph"]


def expand(line: str) -> list[str]:
    """ "a {b,c} d" -> ["a b d", "a c d"]"""
    parts = re.split(r"\{([^}]*)\}", line)
    choices = [p.split(",") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(c) for c in itertools.product(*choices)]


def load(family: str) -> list[Case]:
    cases = []
    for line in (Path(__file__).parent / "cases" / f"{family}.txt").read_text().splitlines():
        line = line.partition("#")[0].strip()
        cases += [parse(text) for text in expand(line)] if line else []
    return cases


def generator(case: Case) -> np.random.Generator:
    """Random numbers that are equal for a case in every run, and different between cases."""
    return np.random.default_rng(list(case.text.encode()))
