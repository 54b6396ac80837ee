# SPDX-License-Identifier: Apache-2.0
"""Each planted mistake of scripts/mutants.py applies to the sources. A change to an expression that one replaces also
updates its `old` there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "mutate.py"


def test_every_mutant_applies() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
