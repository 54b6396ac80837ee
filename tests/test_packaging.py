# SPDX-License-Identifier: Apache-2.0
"""Metadata, packages of compiled kernels, and how NVRTC is found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import needs_nvrtc

import pyminidnn as dnn
from pyminidnn import _C

ROOT = Path(__file__).resolve().parent.parent


def run(code: str, *folders: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the code in a process whose Python also searches these folders."""
    path = os.pathsep.join([*map(str, folders), *(p for p in sys.path if p)])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_versions_agree() -> None:
    assert re.search(rf"^version: {re.escape(dnn.__version__)}$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert f'\nversion = "{dnn.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_the_package_needs_numpy_alone() -> None:
    assert re.search(r'^dependencies = \["numpy[^"]*"\]$', (ROOT / "pyproject.toml").read_text(), re.M)
    hidden = {"tqdm", "matplotlib", "torch", "cuda", "cuda.pathfinder", "sklearn"}
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden})); import pyminidnn.cli, pyminidnn.bench, pyminidnn.selftest"
    assert run(code).returncode == 0


def test_setup_py_is_a_door_to_pip(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "setup.py", "build_ext"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "setup.py: use pip, or one of the commands install, develop, bdist_wheel\n"
    (tmp_path / "pip.py").write_text("import sys; print(sys.argv[1:])")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, ROOT / "setup.py", "develop", "--no-deps"]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert (done.returncode, done.stdout) == (0, "['install', '-e', '.', '--no-deps']\n")


PATHFINDER = """
class Library:
    abs_path = {path!r}
def load_nvidia_dynamic_lib(name):
    assert name == "nvrtc"
    {statement}
    return Library
"""


def pathfinder(folder: Path, path: str | None, statement: str = "") -> Path:
    """A folder with a package cuda.pathfinder that finds this path."""
    (folder / "cuda/pathfinder").mkdir(parents=True)
    (folder / "cuda/pathfinder/__init__.py").write_text(PATHFINDER.format(path=path, statement=statement))
    return folder


@needs_nvrtc
def test_nvrtc_is_the_one_that_pathfinder_finds(tmp_path: Path) -> None:
    """The copy is in no folder that the library searches by itself."""
    original = Path(_C.nvrtc_info()[0])
    (tmp_path / "elsewhere").mkdir()
    for file in original.parent.glob("libnvrtc*"):
        os.link(file, tmp_path / "elsewhere" / file.name) if os.stat(file).st_dev == os.stat(tmp_path).st_dev else (
            shutil.copy(file, tmp_path / "elsewhere")
        )
    copy = str(tmp_path / "elsewhere" / original.name)
    packages = pathfinder(tmp_path / "packages", copy)
    code = "from pyminidnn import _C; print(_C.nvrtc_info()[0])"
    assert run(code, packages).stdout == copy + "\n"
    assert run(code, packages, PYMINIDNN_NVRTC=str(original)).stdout == f"{original}\n"
    assert run(
        f"import sys; print([n for n in sys.modules if n.startswith('cuda.')]); {code}", packages
    ).stdout.startswith("[]")


@needs_nvrtc
@pytest.mark.parametrize("path, statement", [(None, ""), ("/nonexistent/libnvrtc.so.13", ""), ("", "raise RuntimeError('none')"),
                                             ("", "raise ImportError")])  # fmt: skip
def test_the_search_goes_on_where_pathfinder_finds_nothing(path: str | None, statement: str, tmp_path: Path) -> None:
    packages = pathfinder(tmp_path, path, statement)
    done = run("from pyminidnn import _C; print(_C.nvrtc_info()[0])", packages)
    assert "libnvrtc" in done.stdout and done.stderr == ""


@needs_nvrtc
def test_threads_that_ask_for_nvrtc_at_once(tmp_path: Path) -> None:
    """The first thread calls Python's code of pathfinder, which needs the GIL, while the others wait for the result."""
    packages = pathfinder(tmp_path, None, "import time; time.sleep(0.3)")
    code = """
import threading
from pyminidnn import _C
threads = [threading.Thread(target=f) for f in (_C.why_no_nvrtc, _C.nvrtc_info) * 4]
for t in threads: t.start()
for t in threads: t.join(20)
print([t.is_alive() for t in threads].count(True))
"""
    assert run(code, packages).stdout == "0\n"


@needs_nvrtc
@pytest.mark.parametrize("cuda", [12, 13])
def test_kernels_of_a_package_are_used(cuda: int, tmp_path: Path) -> None:
    spec = _C.manifest()[0]
    package = tmp_path / f"pyminidnn_cubins_cu{cuda}"
    package.mkdir()
    (package / "__init__.py").touch()
    _C.compile_kernel(spec, "sm_80", str(package))
    code = "from pyminidnn import _C; _C.compile_kernel(_C.manifest()[0], 'sm_80', None); print(_C.cache_stats())"
    without = {"PYMINIDNN_NVRTC": "none", "PYMINIDNN_CACHE_DIR": str(tmp_path / "cache")}
    assert "'packaged': 1" in run(code, tmp_path, **without).stdout
    assert "is in no cache and cannot be compiled" in run(code, **without).stderr
    (file,) = package.rglob("*.cubin")
    file.write_bytes(file.read_bytes()[:-1])
    assert "is in no cache and cannot be compiled" in run(code, tmp_path, **without).stderr


@needs_nvrtc
def test_script_of_packages(tmp_path: Path) -> None:
    """packages/cubins/build.py, up to pip, with two kernels."""
    (tmp_path / "checkout/packages/cubins").mkdir(parents=True)
    shutil.copy(ROOT / "packages/cubins/build.py", tmp_path / "checkout/packages/cubins")
    (tmp_path / "pip.py").write_text(
        "import pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[-1])\n"
        "(package,) = folder.glob('pyminidnn_cubins_cu*')\n"
        "assert (package / '__init__.py').exists() and 'version = \"VERSION\"' in (folder / 'pyproject.toml').read_text()\n"
        "(folder / 'x.whl').write_text(' '.join(sorted(str(p.parent.name) for p in package.rglob('*.cubin'))))\n".replace(
            "VERSION", dnn.__version__
        )
    )
    major = str(_C.nvrtc_info()[1])
    arguments = ["build.py", "--cuda", major, "--arch", "sm_80", "--arch", "sm_100", "--kernels", "2"]
    script = tmp_path / "checkout/packages/cubins/build.py"
    code = f"import runpy, sys; sys.argv = {arguments}; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 kernels, " in done.stdout
    assert (tmp_path / "checkout/dist/x.whl").read_text() == "sm_100 sm_100 sm_80 sm_80"
    other = {"12": "13", "13": "12"}[major]
    done = run(code.replace(f"'{major}'", f"'{other}'"), tmp_path)
    assert f"build.py: --cuda {other} needs NVRTC of that release" in done.stderr
