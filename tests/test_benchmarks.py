# SPDX-License-Identifier: Apache-2.0
"""Benchmarks run, on a CPU with few samples, and leave a table and a picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "what, words, line",
    [
        ("conv", "one-channel", "| conv forward f32 x=1x1x1024x2048 w=1x1x3x3 pad=1 math=ieee |"),
        ("matmul", "matmul tf32 a=64x", "| matmul forward f32 a=64x512 b=512x512 |"),
    ],
)
def test_a_list(what: str, words: str, line: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    script = ROOT / "benchmarks" / f"bench_{what}.py"
    command = [sys.executable, str(script), "--device", "cpu", "--seconds", "0", "--out", str(tmp_path), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(target " in done.stdout and "1 rows in" in done.stdout
    (table,) = tmp_path.glob(f"{what}_*.md")
    (picture,) = tmp_path.glob(f"{what}_*.png")
    assert line in table.read_text() and picture.name in table.read_text()
