# SPDX-License-Identifier: Apache-2.0
"""What `import pyminidnn` loads, and what it does without the extension."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyminidnn as dnn

PACKAGE = Path(dnn.__file__).parent


def test_modules_that_take_milliseconds_are_loaded_when_they_are_needed() -> None:
    code = """
import sys, numpy
before = set(sys.modules)
import pyminidnn
print(*(m for m in sys.modules if m not in before and not m.startswith("pyminidnn")))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {
        "pathlib",
        "zipfile",
        "html",
        "difflib",
        "tempfile",
        "shutil",
        "torch",
        "ml_dtypes",
        "safetensors",
    }
    assert len(loaded) < 10, loaded


def test_a_source_folder_without_the_extension_says_so(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "sources")
    shutil.copytree(PACKAGE, tmp_path / "pyminidnn", ignore=ignored)
    command = [sys.executable, "-c", "import pyminidnn"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert f"pyminidnn in {tmp_path / 'pyminidnn'} has no compiled extension: this is its source folder" in run.stderr
    assert "pip install -e ." in run.stderr
    (tmp_path / "pyminidnn" / "_C.cpython-00.so").touch()  # an extension that this version of Python cannot load
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert "ImportError: cannot import name '_C'" in run.stderr and "compiled" not in run.stderr
