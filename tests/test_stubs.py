# SPDX-License-Identifier: Apache-2.0
"""pyminidnn/_C.pyi is what pybind11-stubgen makes of the extension today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyminidnn as dnn


def test_stub_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("pybind11_stubgen")
    subprocess.run(
        [sys.executable, "-m", "pybind11_stubgen", "pyminidnn._C", "--output-dir", str(tmp_path)], check=True, cwd=tmp_path
    )
    made = (tmp_path / "pyminidnn" / "_C.pyi").read_text()
    kept = (Path(dnn.__file__).parent / "_C.pyi").read_text()
    assert made == kept, "run scripts/make_stubs.sh"
