# SPDX-License-Identifier: Apache-2.0
"""pyminidnn/_C.pyi is what pybind11-stubgen makes of the extension today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyminidnn as dnn

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "make_stubs.py"


def test_stub_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("pybind11_stubgen")
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True)
    kept = (Path(dnn.__file__).parent / "_C.pyi").read_text()
    assert (tmp_path / "_C.pyi").read_text() == kept, "run python scripts/make_stubs.py"
