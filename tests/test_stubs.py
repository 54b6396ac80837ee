# SPDX-License-Identifier: Apache-2.0
"""Generated files are up to date: pyminidnn/_C.pyi, which is made from the extension, and wgmma.cuh, which has no
input."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import pyminidnn as dnn

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "make_stubs.py"


def test_stub_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("pybind11_stubgen")
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True)
    kept = (Path(dnn.__file__).parent / "_C.pyi").read_text()
    assert (tmp_path / "_C.pyi").read_text() == kept, "run python scripts/make_stubs.py"


def test_wgmma_is_up_to_date() -> None:
    make_wgmma = runpy.run_path(str(ROOT / "scripts" / "make_wgmma.py"))
    assert make_wgmma["TARGET"].read_text() == make_wgmma["text"](), "run python scripts/make_wgmma.py"
