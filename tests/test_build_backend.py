# SPDX-License-Identifier: Apache-2.0
"""Editable installs: scripts/build_backend.py makes their wheel from an ordinary one."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

BACKEND = Path(__file__).resolve().parent.parent / "scripts" / "build_backend.py"
WHEEL = {
    "pyminidnn/__init__.py": b"of the wheel",
    "pyminidnn/_C.pyi": b"of the wheel",
    "pyminidnn/_C.cpython-311-x86_64-linux-gnu.so": b"the extension",
    "pyminidnn/sources/cuda/device/vec.cuh": b"of the wheel",
    "pyminidnn-0.1.0.dist-info/METADATA": b"Name: pyminidnn\n",
    "pyminidnn-0.1.0.dist-info/RECORD": b"...",
    "pyminidnn-0.1.0.dist-info/licenses/LICENSE": b"Apache",
}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The backend, with a substitute for scikit-build-core, which writes the wheel above."""

    def build_wheel(folder: str, config_settings: object, metadata_directory: str | None) -> str:
        assert config_settings == {"setting": "value"} and metadata_directory == "metadata"
        with ZipFile(Path(folder) / "a.whl", "w") as wheel:
            for name, content in WHEEL.items():
                wheel.writestr(name, content)
        return "a.whl"

    substitute = ModuleType("scikit_build_core.build")
    vars(substitute).update(
        build_wheel=build_wheel, build_sdist=lambda: "an sdist", __all__=["build_wheel", "build_sdist"]
    )
    monkeypatch.setitem(sys.modules, "scikit_build_core", ModuleType("scikit_build_core"))
    monkeypatch.setitem(sys.modules, "scikit_build_core.build", substitute)
    spec = importlib.util.spec_from_file_location("build_backend", BACKEND)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_editable_wheel_has_a_path_and_the_checkout_the_extension(
    backend: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    (checkout / "pyminidnn").mkdir(parents=True)
    out.mkdir()
    extension = checkout / "pyminidnn" / "_C.cpython-311-x86_64-linux-gnu.so"
    extension.write_bytes(b"an old extension")
    monkeypatch.chdir(checkout)
    with extension.open("rb") as loaded:
        assert backend.build_editable(str(out), {"setting": "value"}, "metadata") == "a.whl"
        assert loaded.read() == b"an old extension"  # the file that a process has loaded does not change
    assert extension.read_bytes() == b"the extension"
    assert os.listdir(checkout / "pyminidnn") == [extension.name]
    with ZipFile(out / "a.whl") as wheel:
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    record = contents.pop("pyminidnn-0.1.0.dist-info/RECORD").decode().splitlines()
    assert contents == {
        "__editable__.pyminidnn.pth": f"{checkout}\n".encode(),
        "pyminidnn-0.1.0.dist-info/METADATA": b"Name: pyminidnn\n",
        "pyminidnn-0.1.0.dist-info/licenses/LICENSE": b"Apache",
    }
    assert record.pop() == "pyminidnn-0.1.0.dist-info/RECORD,,"
    for line in record:
        name, digest, size = line.split(",")
        expected = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).decode().rstrip("=")
        assert digest == f"sha256={expected}" and int(size) == len(contents[name])
    assert len(record) == len(contents)


def test_wheels_and_sdists_are_those_of_scikit_build_core(backend: ModuleType) -> None:
    assert backend.build_wheel is sys.modules["scikit_build_core.build"].build_wheel
    assert backend.build_sdist() == "an sdist"
