# SPDX-License-Identifier: Apache-2.0
"""The build backend (PEP 517) that pyproject.toml names: scikit-build-core, with other editable installs.

`pip install -e .` writes the extension into pyminidnn/ and adds the checkout to sys.path by a .pth file, behind the
folders of PYTHONPATH. Both modes of scikit-build-core add an import hook instead, which hides a copy of the package in
PYTHONPATH; scripts/sanitize.sh and scripts/mutate.py test such copies. Its mode "inplace" also configures CMake in the
checkout itself.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from scikit_build_core.build import *  # noqa: F403 the other functions of a backend
from scikit_build_core.build import build_wheel


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Builds the extension into the checkout, which is the working directory. Writes a wheel that has only metadata and
    the .pth file, and returns its name."""
    with tempfile.TemporaryDirectory() as folder:
        name = build_wheel(folder, config_settings, metadata_directory)
        with (
            ZipFile(Path(folder) / name) as wheel,
            ZipFile(Path(wheel_directory) / name, "w", ZIP_DEFLATED) as editable,
        ):
            make_editable(wheel, editable, Path.cwd())
    return name


def make_editable(wheel: ZipFile, editable: ZipFile, checkout: Path) -> None:
    """Copies the extension of a wheel into a checkout, and the metadata of the wheel into an editable one."""
    contents = {"__editable__.pyminidnn.pth": os.fsencode(checkout) + b"\n"}
    for name in wheel.namelist():
        folder, _, file = name.partition("/")
        if folder.endswith(".dist-info") and file != "RECORD":
            contents[name] = wheel.read(name)
        elif folder == "pyminidnn" and file.startswith("_C.") and file != "_C.pyi":
            # A running process may have loaded the old file, so it is replaced and not overwritten.
            unfinished = checkout / "pyminidnn" / f".{file}.tmp"
            unfinished.write_bytes(wheel.read(name))
            unfinished.replace(checkout / "pyminidnn" / file)
    (record,) = (name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
    lines = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
        editable.writestr(name, content)
    editable.writestr(record, "".join(lines) + f"{record},,\n")
